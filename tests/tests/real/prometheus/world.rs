//! The cluster whose alerts fire: separate processes with certificates, and a Prometheus that scrapes them
//! with the shortened rules.
//!
//! What it is not: the cases ([`super::alerts`]).
//!
//! Invariant: the disk of the third scheduler is its own ([`Disk`]); all else is in one directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_tests::processes::{Cluster, Host, Part, Process, eventually};
use berth_tls::Role;
use serde_json::Value;
use tempfile::TempDir;

use super::disk::Disk;
use super::server::Prometheus;
use super::shortened;
use crate::PROGRAMS;

/// How long a host may be silent until it is down.
const LIVENESS_LIMIT_MS: u64 = 3_000;

/// The scheduler with a disk of its own.
pub(super) const ON_DISK: usize = 2;

/// Namespaces of persistent memory of each host.
const PMEM: [(&str, u64, u32); 1] = [("ns0", 1_024, 0)];

/// How long the certificate lasts that ends soon.
const THIRTEEN_DAYS: Duration = Duration::from_secs(13 * 24 * 60 * 60);

/// A cluster and its Prometheus.
pub(super) struct World {
    pub(super) prometheus: Prometheus,
    pub(super) disk: Disk,
    pub(super) cluster: Cluster,
    /// The directory of the directory of backups.
    backups: TempDir,
    /// A client that sends the same commands without end.
    client: Option<Process>,
}

impl World {
    /// Starts everything.
    pub(super) fn start(rules: &str) -> Self {
        let backups = tempfile::tempdir().expect("a directory");
        let directory = backups.path().join("made");
        let config = format!(
            "liveness_limit_ms = {LIVENESS_LIMIT_MS}\n[backup]\ndirectory = {directory:?}\ninterval_s = 1\n"
        );
        let host = |name| Host::new(name).with_pmem(&PMEM, "SMALL:ns0");
        let mut cluster = Cluster::builder(PROGRAMS)
            .schedulers(2)
            .scheduler_config(&config)
            .lease_ttl_ms(2_000)
            .host(host("h1"))
            .host(host("h2"))
            .certified()
            .watched()
            .start();
        let disk = Disk::mount(&cluster.folder().join("scheduler-3"));
        cluster.add_scheduler();
        let _ = cluster.csi_controller_with("");
        cluster.wait();
        let config = configuration(&cluster, rules);
        let folder = cluster.folder().join("prometheus");
        fs::create_dir(&folder).expect("a directory of our own");
        let prometheus = Prometheus::start(&folder, cluster.free_address(), &config);
        Self {
            prometheus,
            disk,
            cluster,
            backups,
            client: None,
        }
    }

    /// Returns the numbers of the members, in the order of the schedulers.
    pub(super) fn members(&self) -> Vec<u64> {
        let number = |part: &Part| {
            eventually("the number of a member", || {
                let status = self.cluster.ask(&["cluster", "status"])?;
                let members = status["members"].as_array().into_iter().flatten();
                let mut members = members.filter(|member| member["address"] == *part.address);
                let number = members.next().and_then(|member| member["id"].as_u64());
                number.ok_or_else(|| format!("{status:#}"))
            })
        };
        self.cluster.schedulers.iter().map(number).collect()
    }

    /// Has a client send these commands one after the other, without end.
    pub(super) fn repeat(&mut self, commands: &[&[&str]]) {
        let files = self.cluster.certificates().files(Role::Operator, "ann");
        let quoted = |text: &str| format!("'{text}'");
        let berth = [
            self.cluster.programs.path("berth").display().to_string(),
            "--scheduler".to_owned(),
            self.cluster.addresses(),
            "--tls-ca".to_owned(),
            files.ca.display().to_string(),
            "--tls-cert".to_owned(),
            files.cert.display().to_string(),
            "--tls-key".to_owned(),
            files.key.display().to_string(),
        ];
        let berth: Vec<String> = berth.iter().map(|word| quoted(word)).collect();
        let berth = berth.join(" ");
        let lines = commands.iter().map(|words| {
            let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
            format!("{berth} {} >/dev/null 2>&1; ", words.join(" "))
        });
        let script = format!("while :; do {} done", lines.collect::<String>());
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &script]);
        let log = self.cluster.folder().join("client.log");
        self.client = Some(Process::start(command, &log));
    }

    /// Ends that client.
    pub(super) fn end_client(&mut self) {
        self.client = None;
    }

    /// Takes the directory of backups away: a file is in its place.
    pub(super) fn take_backups_away(&self) {
        let directory = self.backups.path().join("made");
        fs::rename(&directory, self.backups.path().join("aside")).expect("there are backups");
        fs::write(&directory, "").expect("a file in a directory of our own");
    }

    /// Brings the directory of backups back.
    pub(super) fn bring_backups_back(&self) {
        let directory = self.backups.path().join("made");
        fs::remove_file(&directory).expect("it was put there");
        fs::rename(self.backups.path().join("aside"), &directory).expect("it was put aside");
    }

    /// Gives the controller of volumes a certificate that ends soon, in the same files.
    pub(super) fn shorten_certificate(&self) {
        let certificates = self.cluster.certificates();
        let role = Role::CsiController;
        let files = certificates.files(role, CONTROLLER);
        for file in [&files.cert, &files.key] {
            fs::remove_file(file).expect("it has one");
        }
        let _ = certificates.files_for(role, CONTROLLER, THIRTEEN_DAYS);
    }

    /// Renews the certificate of the controller of volumes.
    pub(super) fn renew_certificate(&self) {
        let certificates = self.cluster.certificates();
        let files = certificates.files(Role::CsiController, CONTROLLER);
        let directory = shown(certificates.directory());
        self.cluster.run(&[
            "certs",
            "renew",
            &directory,
            &shown(&files.cert),
            "--days",
            "30",
        ]);
    }

    /// Replaces what happens to a simulated hypervisor.
    pub(super) fn rewrite_story(&self, host: &str, story: &str) {
        fs::write(self.cluster.story_file(host), story).expect("a file in a directory of our own");
    }

    /// Waits until the newest migration is in this state.
    #[track_caller]
    pub(super) fn await_migration(&self, state: &str) {
        eventually(&format!("a migration that is {state}"), || {
            let list = self.cluster.ask(&["migration", "list"])?;
            let last = list.as_array().and_then(|all| all.last());
            let is = last.is_some_and(|migration| migration["state"] == state);
            is.then_some(()).ok_or_else(|| format!("{list:#}"))
        });
    }

    /// Makes a new group of the first scheduler, the others being lost, as `restore.md` says. Its address
    /// is one that the hosts are configured with.
    pub(super) fn recover(&mut self) {
        for scheduler in &mut self.cluster.schedulers {
            scheduler.kill();
        }
        let into = shown(&self.cluster.folder().join("recovered"));
        let recover = ["recover", "--force-new-group", "--into", &into];
        let part = &self.cluster.schedulers[0];
        let answer = part.answer(&self.cluster.programs, &recover);
        let _ = answer.with_status(0);
        self.cluster.schedulers.truncate(1);
        let part = &mut self.cluster.schedulers[0];
        part.set("--data-dir", &into);
        part.start(&self.cluster.programs);
    }

    /// Returns what the recovery waits for.
    pub(super) fn recovery(&self) -> Result<Value, String> {
        self.cluster.ask(&["cluster", "recovery", "status"])
    }

    /// Starts the agent of a host again.
    pub(super) fn start_agent(&mut self, host: &str) {
        let programs = self.cluster.programs.clone();
        self.cluster.agent(host).start(&programs);
    }
}

/// The name of the controller of volumes.
const CONTROLLER: &str = "csi-controller-1";

/// Returns the configuration of a Prometheus that scrapes all programs as a reader.
fn configuration(cluster: &Cluster, rules: &str) -> String {
    let shortened = shortened::shorten(rules).unwrap_or_else(|why| panic!("{why}"));
    let file: PathBuf = cluster.folder().join("berth.rules.yml");
    fs::write(&file, shortened).expect("a file in a directory of our own");
    let files = cluster.certificates().files(Role::Reader, "prometheus");
    let mut text = format!(
        "global: {{scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 250ms}}\n\
         rule_files: [{file:?}]\nscrape_configs:\n"
    );
    for (job, parts) in [
        ("berth-scheduler", &cluster.schedulers),
        ("berth-conductor", &cluster.conductors),
        ("berth-agent", &cluster.agents),
        ("berth-csi", &cluster.csi_controllers),
    ] {
        let targets = parts.iter().map(|part| format!("{:?}", part.watch()));
        let targets: Vec<String> = targets.collect();
        text.push_str(&format!(
            "- job_name: {job}\n  scheme: https\n  tls_config: {{ca_file: {:?}, cert_file: {:?}, \
             key_file: {:?}}}\n  static_configs: [{{targets: [{}]}}]\n",
            files.ca,
            files.cert,
            files.key,
            targets.join(", ")
        ));
    }
    text
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
