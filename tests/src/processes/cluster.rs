//! Schedulers, conductors and agents as processes, and the command that asks them.

use std::fs;
use std::path::{Path, PathBuf};

use berth_proto::client::SchedulerChannel;
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_proto::scheduler::v1::{CreateFlavorRequest, DeleteFlavorRequest};
use berth_proto::types::v1 as wire;
use serde_json::Value;
use uuid::Uuid;

use super::{Addresses, Answer, Part, Programs, eventually};

/// A simulated host: its shape and what its agent is started with.
#[derive(Clone, Debug)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// How many cells it has, each on a socket of its own.
    pub cells: u32,
    /// How many CPUs each cell has; the first of each is shared, the others are dedicated.
    pub cpus: u32,
    /// The service version that its agent behaves like; the newest if absent.
    pub service_version: Option<u32>,
}

impl Host {
    /// Returns a host of two cells of four CPUs.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            cells: 2,
            cpus: 4,
            service_version: None,
        }
    }

    /// Returns the same host with so many CPUs per cell.
    #[must_use]
    pub fn with_cpus(mut self, cpus: u32) -> Self {
        self.cpus = cpus;
        self
    }

    /// Returns the same host with an agent of this service version.
    #[must_use]
    pub fn at_version(mut self, version: u32) -> Self {
        self.service_version = Some(version);
        self
    }

    fn machine(&self) -> String {
        let cell = |id: u32| {
            let (first, last) = (id * self.cpus, (id + 1) * self.cpus - 1);
            format!(
                "[[cells]]\nid = {id}\nsocket = {id}\ncpus = \"{first}-{last}\"\n\
                 memory_mib = 65536\nhuge_pages = [{{ size_kib = 2048, total = 4096 }}]\n"
            )
        };
        (0..self.cells).map(cell).collect()
    }

    fn cpu_sets(&self) -> (String, String) {
        let shared = |id: u32| (id * self.cpus).to_string();
        let dedicated = |id: u32| format!("{}-{}", id * self.cpus + 1, (id + 1) * self.cpus - 1);
        let list = |of: &dyn Fn(u32) -> String| (0..self.cells).map(of).collect::<Vec<_>>();
        (list(&dedicated).join(","), list(&shared).join(","))
    }
}

/// What a cluster is to consist of.
#[derive(Debug)]
pub struct Builder {
    programs: Programs,
    schedulers: u32,
    conductors: u32,
    hosts: Vec<Host>,
    transfer_ms: u64,
    lease_ttl_ms: u64,
    checkpoint_entries: u64,
}

impl Builder {
    /// Changes how many schedulers there are.
    #[must_use]
    pub fn schedulers(mut self, count: u32) -> Self {
        self.schedulers = count;
        self
    }

    /// Changes how many conductors there are.
    #[must_use]
    pub fn conductors(mut self, count: u32) -> Self {
        self.conductors = count;
        self
    }

    /// Adds a host.
    #[must_use]
    pub fn host(mut self, host: Host) -> Self {
        self.hosts.push(host);
        self
    }

    /// Changes how long a guest takes to move.
    #[must_use]
    pub fn transfer_ms(mut self, ms: u64) -> Self {
        self.transfer_ms = ms;
        self
    }

    /// Changes for how long conductors hold an operation at a time.
    #[must_use]
    pub fn lease_ttl_ms(mut self, ms: u64) -> Self {
        self.lease_ttl_ms = ms;
        self
    }

    /// Changes after how many log entries a checkpoint is written.
    #[must_use]
    pub fn checkpoint_entries(mut self, entries: u64) -> Self {
        self.checkpoint_entries = entries;
        self
    }

    /// Starts everything, and waits until all of it has found each other.
    ///
    /// # Panics
    ///
    /// When it does not; the logs are shown.
    #[track_caller]
    #[must_use]
    pub fn start(self) -> Cluster {
        let folder = tempfile::Builder::new()
            .prefix("berth-processes-")
            .tempdir()
            .expect("a directory for a cluster");
        let mut cluster = Cluster {
            programs: self.programs,
            schedulers: Vec::new(),
            conductors: Vec::new(),
            agents: Vec::new(),
            addresses: Addresses::new(),
            checkpoint_entries: self.checkpoint_entries,
            schedulers_made: 0,
            folder,
        };
        for _ in 0..self.schedulers {
            cluster.add_scheduler();
        }
        for number in 0..self.conductors {
            cluster.add_conductor(number, self.lease_ttl_ms);
        }
        for host in &self.hosts {
            cluster.add_agent(host, self.transfer_ms);
        }
        cluster.wait();
        cluster
    }
}

/// A cluster of processes.
#[derive(Debug)]
pub struct Cluster {
    /// The programs.
    pub programs: Programs,
    /// The members, in the order in which they were started.
    pub schedulers: Vec<Part>,
    /// The conductors, `conductor-1` and so on.
    pub conductors: Vec<Part>,
    /// The agents, named like their hosts.
    pub agents: Vec<Part>,
    addresses: Addresses,
    checkpoint_entries: u64,
    /// How many schedulers there have ever been: a removed one's directory is of no use.
    schedulers_made: u32,
    /// Last, so that it is removed after the processes have ended.
    folder: tempfile::TempDir,
}

impl Cluster {
    /// Begins the description of a cluster with three schedulers and a conductor, of which all
    /// programs are in `binary` (`env!("CARGO_BIN_EXE_berth-programs")`).
    #[must_use]
    pub fn builder(binary: &str) -> Builder {
        Builder {
            programs: Programs::new(binary),
            schedulers: 3,
            conductors: 1,
            hosts: Vec::new(),
            transfer_ms: 300,
            lease_ttl_ms: 10_000,
            checkpoint_entries: 200_000,
        }
    }

    /// Returns the directory with all data and logs.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the directory of a scheduler.
    #[must_use]
    pub fn data_dir(&self, scheduler: usize) -> PathBuf {
        self.folder().join(&self.schedulers[scheduler].name)
    }

    /// Returns the file in which the simulated hypervisor of a host keeps its guests.
    #[must_use]
    pub fn guests_file(&self, host: &str) -> PathBuf {
        self.folder().join(format!("{host}-guests.json"))
    }

    /// Starts one more scheduler: the first makes the cluster, the others join it.
    #[track_caller]
    pub fn add_scheduler(&mut self) {
        self.schedulers_made += 1;
        let name = format!("scheduler-{}", self.schedulers_made);
        let address = self.addresses.free();
        let config = self.folder().join(format!("{name}.toml"));
        let entries = self.checkpoint_entries;
        write(&config, &format!("checkpoint_entries = {entries}\n"));
        let data_dir = self.folder().join(&name);
        let arguments = [
            ("--config", shown(&config)),
            ("--data-dir", shown(&data_dir)),
            ("--listen", address.clone()),
        ];
        let others = self.schedulers.iter_mut();
        let others: Vec<String> = others
            .filter_map(|other| other.is_running().then(|| other.address.clone()))
            .collect();
        let begin: Vec<&str> = match others.is_empty() {
            true => vec!["--bootstrap"],
            false => others.iter().flat_map(|o| ["--join", o]).collect(),
        };
        let mut part = self.part("berth-scheduler", name, address, &arguments);
        part.start_with(&self.programs, &begin);
        self.schedulers.push(part);
    }

    #[track_caller]
    fn add_conductor(&mut self, number: u32, lease_ttl_ms: u64) {
        let name = format!("conductor-{}", number + 1);
        let address = self.addresses.free();
        let config = self.folder().join(format!("{name}.toml"));
        write(&config, "takeover_interval_ms = 200\n");
        let arguments = [
            ("--config", shown(&config)),
            ("--name", name.clone()),
            ("--listen", address.clone()),
            ("--scheduler", self.addresses()),
            ("--lease-ttl-ms", lease_ttl_ms.to_string()),
        ];
        let mut part = self.part("berth-conductor", name, address, &arguments);
        part.start(&self.programs);
        self.conductors.push(part);
    }

    #[track_caller]
    fn add_agent(&mut self, host: &Host, transfer_ms: u64) {
        let name = host.name.clone();
        let address = self.addresses.free();
        let machine = self.folder().join(format!("{name}-machine.toml"));
        write(&machine, &host.machine());
        let config = self.folder().join(format!("{name}.toml"));
        let guests = self.guests_file(&name);
        // A fixed address: a guest that was on its way when the process ended is asked for there.
        let sim = self.addresses.free();
        write(
            &config,
            &format!(
                "driver = \"sim\"\nmemory_reserved_mib = 0\nstorage_id = \"shared\"\n\
                 [sim]\nlisten = {sim:?}\ntransfer_ms = {transfer_ms}\nstate_file = {guests:?}\n"
            ),
        );
        let (dedicated, shared) = host.cpu_sets();
        let mut arguments = vec![
            ("--config", shown(&config)),
            ("--name", name.clone()),
            ("--listen", address.clone()),
            ("--scheduler", self.addresses()),
            ("--machine-file", shown(&machine)),
            ("--cpu-dedicated-set", dedicated),
            ("--cpu-shared-set", shared),
        ];
        if let Some(version) = host.service_version {
            arguments.push(("--service-version", version.to_string()));
        }
        let mut part = self.part("berth-compute-agent", name, address, &arguments);
        part.start(&self.programs);
        self.agents.push(part);
    }

    fn part(
        &self,
        program: &'static str,
        name: String,
        address: String,
        arguments: &[(&str, String)],
    ) -> Part {
        let log = self.folder().join(format!("{name}.log"));
        let words = arguments.iter();
        let words = words.flat_map(|(flag, value)| [(*flag).to_owned(), value.clone()]);
        Part::new(program, name, address, words.collect(), log)
    }

    /// Returns the schedulers' addresses as `--scheduler` takes them.
    #[must_use]
    pub fn addresses(&self) -> String {
        let addresses: Vec<&str> = self.schedulers.iter().map(|s| s.address.as_str()).collect();
        addresses.join(",")
    }

    /// Waits until all schedulers vote, and all conductors and hosts that run are registered.
    ///
    /// # Panics
    ///
    /// When they do not.
    #[track_caller]
    pub fn wait(&mut self) {
        let voters = self
            .schedulers
            .iter_mut()
            .filter_map(|s| s.is_running().then_some(()));
        let voters = voters.count();
        let hosts = self
            .agents
            .iter_mut()
            .filter_map(|a| a.is_running().then_some(()));
        let hosts = hosts.count();
        eventually("a cluster that is complete", || {
            let status = self.ask(&["cluster", "status"])?;
            let members = list(&status["members"]);
            let voting = members.iter().filter(|m| m["role"] == "voter").count();
            let conductors = list(&status["conductors"]).len();
            let up = self.ask(&["host", "list"])?;
            let up = list(&up)
                .iter()
                .filter(|h| h["host"]["liveness"] == "Up")
                .count();
            let complete = voting == voters && conductors >= self.conductors.len() && up >= hosts;
            complete.then_some(()).ok_or_else(|| {
                format!("{voting} of {voters} vote, {conductors} conductors, {up} of {hosts} hosts")
            })
        });
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
        let mut command = self.programs.command("berth");
        command.args(["--output", "json", "--scheduler", schedulers]);
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

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let parts = self.schedulers.iter().chain(&self.conductors);
            for part in parts.chain(&self.agents) {
                eprintln!("{}", part.shown());
            }
        }
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

fn write(file: &Path, text: &str) {
    fs::write(file, text).expect("a file in a directory of our own");
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
