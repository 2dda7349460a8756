//! What tests ask of a cluster: by the real command, as its users do.

use berth_proto::client::SchedulerChannel;
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_proto::scheduler::v1::{CreateFlavorRequest, DeleteFlavorRequest};
use berth_proto::types::v1 as wire;
use serde_json::Value;
use uuid::Uuid;

use berth_tls::{Files, Role};

use super::{Answer, Cluster, certs, eventually};

impl Cluster {
    /// Lets something happen on a simulated host by itself: a line of its story file.
    ///
    /// # Panics
    ///
    /// When the file cannot be written.
    pub fn happens(&self, host: &str, line: &str) {
        use std::io::Write as _;
        let path = self.story_file(host);
        let mut options = std::fs::OpenOptions::new();
        let file = options.create(true).append(true).open(path);
        let written = file.and_then(|mut file| writeln!(file, "{line}"));
        written.expect("the story file can be written");
    }

    /// Runs `berth --output json` with these arguments, whatever comes of it.
    #[track_caller]
    #[must_use]
    pub fn berth(&self, arguments: &[&str]) -> Answer {
        self.berth_at(&self.addresses(), arguments)
    }

    /// As [`Self::berth`], asking these schedulers only.
    #[track_caller]
    #[must_use]
    pub fn berth_at(&self, schedulers: &str, arguments: &[&str]) -> Answer {
        let certs = self.certs.as_ref();
        let files = certs.map(|certs| certs.files(Role::Operator, "ann"));
        self.berth_with(files.as_ref(), schedulers, arguments)
    }

    /// As [`Self::berth`], with this certificate.
    #[track_caller]
    #[must_use]
    pub fn berth_as(&self, files: &Files, arguments: &[&str]) -> Answer {
        self.berth_with(Some(files), &self.addresses(), arguments)
    }

    #[track_caller]
    fn berth_with(&self, files: Option<&Files>, schedulers: &str, arguments: &[&str]) -> Answer {
        let mut command = self.programs.command("berth");
        command.args(["--output", "json", "--scheduler", schedulers]);
        for (flag, file) in files.iter().flat_map(|files| certs::flags(files)) {
            command.args([flag, &file]);
        }
        command.args(arguments);
        Answer::of(command)
    }

    /// Runs `berth` and returns its answer as JSON.
    ///
    /// # Errors
    ///
    /// The whole answer, when it is none.
    pub fn ask(&self, arguments: &[&str]) -> Result<Value, String> {
        self.berth(arguments).json()
    }

    /// As [`Self::ask`], where nothing may go wrong.
    ///
    /// # Panics
    ///
    /// When something does.
    #[track_caller]
    #[must_use]
    pub fn json(&self, arguments: &[&str]) -> Value {
        match self.ask(arguments) {
            Ok(value) => value,
            Err(seen) => panic!("{seen}"),
        }
    }

    /// Runs a command that only changes something.
    ///
    /// # Panics
    ///
    /// When it fails.
    #[track_caller]
    pub fn run(&self, arguments: &[&str]) {
        let _ = self.berth(arguments).with_status(0);
    }

    /// Runs a command that begins an operation without waiting for it, and returns its id.
    ///
    /// # Panics
    ///
    /// When it is refused.
    #[track_caller]
    #[must_use]
    pub fn begin(&self, arguments: &[&str]) -> String {
        let begun = self.json(&[arguments, &["--no-wait"]].concat());
        text(&begun["operation"])
    }

    /// Waits until an operation has logged this step with this mark.
    ///
    /// # Panics
    ///
    /// When it does not, or ends before.
    #[track_caller]
    pub fn reaches(&self, operation: &str, step: &str, mark: &str) {
        eventually(&format!("{mark} of {step}"), || {
            let shown = self.ask(&["operation", "show", operation])?;
            let reached = list(&shown["log"]).iter().any(|entry| {
                let named = entry["mark"] == mark || entry["mark"].get(mark).is_some();
                entry["step"] == step && named
            });
            reached.then_some(()).ok_or_else(|| format!("{shown:#}"))
        });
    }

    /// Waits for the end of an operation and returns it; its `outcome` says how it ended.
    ///
    /// # Panics
    ///
    /// When it does not end.
    #[track_caller]
    #[must_use]
    pub fn ends(&self, operation: &str) -> Value {
        eventually("the end of an operation", || {
            let shown = self.ask(&["operation", "show", operation])?;
            match shown["outcome"].is_null() {
                true => Err(format!("{shown:#}")),
                false => Ok(shown),
            }
        })
    }

    /// As [`Self::ends`], where it must have succeeded.
    ///
    /// # Panics
    ///
    /// When it failed.
    #[track_caller]
    pub fn succeeds(&self, operation: &str) {
        let ended = self.ends(operation);
        assert_eq!(ended["outcome"], "Succeeded", "{ended:#}");
    }

    /// Returns which of the schedulers leads.
    ///
    /// # Panics
    ///
    /// When none does.
    #[track_caller]
    #[must_use]
    pub fn leader(&self) -> usize {
        eventually("a leader", || {
            let status = self.ask(&["cluster", "status"])?;
            let leads = list(&status["members"])
                .iter()
                .find(|m| m["leader"] == true);
            let address = leads.map(|m| text(&m["address"]));
            let at = |address: &String| self.schedulers.iter().position(|s| s.address == *address);
            address.as_ref().and_then(at).ok_or(format!("{status:#}"))
        })
    }

    /// Makes a flavor of vCPUs with a host CPU each.
    #[track_caller]
    pub fn pinned_flavor(&self, name: &str, vcpus: u32) {
        let vcpus = vcpus.to_string();
        let make = [
            "flavor",
            "create",
            name,
            "--vcpus",
            &vcpus,
            "--memory-mib",
            "64",
        ];
        self.run(&[&make[..], &["--spec", "hw:cpu_policy=dedicated"]].concat());
    }

    /// Has the schedulers carry out so many commands that change nothing in the end, as for a
    /// checkpoint.
    ///
    /// # Panics
    ///
    /// When one is refused.
    #[track_caller]
    pub fn keep_busy(&self, commands: u32) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let addresses = self
            .schedulers
            .iter()
            .map(|s| format!("http://{}", s.address));
        let scheduler = SchedulerChannel::new(addresses).expect("addresses");
        let work = async {
            for _ in 0..commands.div_ceil(2) {
                make_and_delete_a_flavor(&scheduler).await?;
            }
            Ok::<_, tonic::Status>(())
        };
        let done = runtime.expect("a runtime").block_on(work);
        done.expect("flavors are made and deleted");
    }

    /// Returns the arguments that boot a VM from a kernel.
    #[must_use]
    pub fn create<'a>(vm: &'a str, flavor: &'a str) -> Vec<&'a str> {
        let from = ["--kernel", "vmlinuz", "--initrd", "initrd.gz"];
        [&["vm", "create", vm, "--flavor", flavor][..], &from].concat()
    }

    /// Boots a VM on a host and returns the CPUs that it was given.
    ///
    /// # Panics
    ///
    /// When it does not boot.
    #[track_caller]
    #[must_use]
    pub fn boot(&self, vm: &str, flavor: &str, host: &str) -> Vec<u64> {
        self.run(&[&Self::create(vm, flavor)[..], &["--host", host]].concat());
        self.pins_on(vm, host)
    }

    /// Returns the CPUs of a VM, which must be ACTIVE on this host with one ACTIVE claim.
    ///
    /// # Panics
    ///
    /// When it is not.
    #[track_caller]
    #[must_use]
    pub fn pins_on(&self, vm: &str, host: &str) -> Vec<u64> {
        let shown = self.json(&["vm", "show", vm]);
        assert_eq!(shown["vm"]["state"], "Active", "{shown:#}");
        assert_eq!(shown["vm"]["host"], host, "{shown:#}");
        let claims = list(&shown["claims"]);
        assert_eq!(claims.len(), 1, "{shown:#}");
        assert_eq!(claims[0]["state"], "Active", "{shown:#}");
        pins(&claims[0])
    }
}

async fn make_and_delete_a_flavor(scheduler: &SchedulerChannel) -> Result<(), tonic::Status> {
    let name = "flavors/busy".to_owned();
    let make = CreateFlavorRequest {
        flavor: Some(wire::Flavor {
            name: name.clone(),
            vcpus: 1,
            memory_mib: 64,
            ..Default::default()
        }),
        request_id: Uuid::new_v4().to_string(),
    };
    let delete = DeleteFlavorRequest {
        name,
        request_id: Uuid::new_v4().to_string(),
    };
    let make = async |channel| {
        let mut client = SchedulerServiceClient::new(channel);
        client.create_flavor(make.clone()).await
    };
    scheduler.call(make).await?;
    let delete = async |channel| {
        let mut client = SchedulerServiceClient::new(channel);
        client.delete_flavor(delete.clone()).await
    };
    scheduler.call(delete).await?;
    Ok(())
}

/// Returns the host CPUs to which a claim pins vCPUs, by vCPU.
#[must_use]
pub(super) fn pins(claim: &Value) -> Vec<u64> {
    let cells = list(&claim["assignment"]["cells"]);
    let pins = cells.iter().filter_map(|cell| cell["pins"].as_object());
    pins.flat_map(|pins| pins.values().filter_map(Value::as_u64))
        .collect()
}

/// Returns the elements of a list; none if it is no list.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns a text; an empty one if it is none.
pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
