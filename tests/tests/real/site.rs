//! Berth inside the machine with four nodes: two hosts, and one machine for all else.
//!
//! What it is not: a cluster of schedulers. One member is enough for what is shown here.
//!
//! Invariant: a failing test prints what every process logged.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use berth_domain::claim::{self, Claim};
use berth_domain::vm::{self, Vm};
use berth_tests::lab::{Console, Lab, Machine, Process};
use berth_tests::processes::Answer;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Where the machine has all programs of Berth in one.
pub(crate) const PROGRAMS: &str = "/lab/berth-programs";
/// Where the machine has the guest that counts.
pub(crate) const GUEST: &str = "/lab/counter";

/// How long anything may take: two emulators are between this and the processor.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

/// How often a condition is looked at.
const GLANCE: Duration = Duration::from_millis(50);

/// Where the scheduler and the conductor run, and commands are typed.
const CONTROL: &str = "control";

/// The agents' program.
const AGENT: &str = "berth-compute-agent";

/// How many lines of each log a failing test prints.
const LINES_TOLD: usize = 40;

/// What `berth vm show` says.
#[derive(Debug, Deserialize)]
struct VmShown {
    vm: Vm,
    claims: Vec<Claim>,
}

/// The lab and the processes in it.
#[derive(Debug)]
pub(crate) struct Site {
    // The processes end before their machines do.
    processes: BTreeMap<String, Process>,
    lab: Lab,
}

impl Site {
    /// Starts everything; `hosts` are the names of the hosts and what their agents are told.
    pub(crate) fn start(hosts: &[(&str, &str)]) -> Self {
        let mut builder = Lab::builder();
        for (name, _) in hosts {
            builder = builder.hypervisor(name);
        }
        let lab = builder.machine(CONTROL).start().unwrap();
        for name in ["berth", "berth-scheduler", "berth-conductor", AGENT] {
            std::os::unix::fs::symlink(PROGRAMS, lab.directory().join(name)).unwrap();
        }
        let images = lab.directory().join("images");
        fs::create_dir(&images).unwrap();
        fs::copy(GUEST, images.join("counter")).unwrap();
        // The loader wants something to load beside the kernel.
        fs::write(images.join("nothing"), "nothing").unwrap();
        let mut site = Self {
            processes: BTreeMap::new(),
            lab,
        };
        site.start_scheduler();
        for (host, told) in hosts {
            let config = site.agent_config(host, told);
            fs::write(site.machine(host).directory().join("agent.toml"), config).unwrap();
            site.start_agent(host, &[]);
        }
        site.start_conductor();
        for (host, _) in hosts {
            site.waits_for(host, "registered");
        }
        site.waits_for("conductor", "registered");
        site
    }

    fn start_scheduler(&mut self) {
        let machine = self.machine(CONTROL);
        let data = machine.directory().join("data");
        let listen = format!("{}:7100", machine.address());
        let advertise = format!("{CONTROL}:7100");
        let all = ["--data-dir", path(&data), "--listen", &listen];
        let more = [
            "--advertise",
            &advertise,
            "--insecure-listen",
            "--bootstrap",
        ];
        self.spawn(
            CONTROL,
            "scheduler",
            "berth-scheduler",
            &[all, more].concat(),
        );
    }

    fn start_conductor(&mut self) {
        let listen = format!("{}:7200", self.machine(CONTROL).address());
        let scheduler = format!("{CONTROL}:7100");
        let all = ["--listen", &listen, "--insecure-listen"];
        let more = ["--scheduler", &scheduler];
        self.spawn(
            CONTROL,
            "conductor",
            "berth-conductor",
            &[&all[..], &more].concat(),
        );
    }

    /// Ends the agent of a host with `SIGKILL`, if there is one, and takes away what it said.
    pub(crate) fn kill_agent(&mut self, host: &str) {
        if self.processes.remove(host).is_some() {
            let log = self.machine(host).directory().join(format!("{host}.log"));
            fs::remove_file(log).unwrap();
        }
    }

    /// Starts the agent of a host, in place of the one that ran there.
    pub(crate) fn start_agent(&mut self, host: &str, arguments: &[&str]) {
        let directory = self.machine(host).directory().to_owned();
        let config = directory.join("agent.toml");
        let all = [&["--config", path(&config)], arguments].concat();
        // The one that runs has to be gone before the next one listens, and what it said with it.
        self.kill_agent(host);
        self.spawn(host, host, AGENT, &all);
    }

    /// Waits until a process has said so. Commands that look again and again would keep it from
    /// getting there: to start one takes as long as much else.
    #[track_caller]
    pub(crate) fn waits_for(&mut self, label: &str, words: &str) {
        let process = self.processes.get_mut(label);
        let process = process.unwrap_or_else(|| panic!("there is no process {label}"));
        process.wait_for_log(words, PATIENCE).unwrap();
    }

    fn agent_config(&self, host: &str, told: &str) -> String {
        let shared = self.lab.directory();
        let (images, instances) = (shared.join("images"), shared.join("instances"));
        let address = self.machine(host).address();
        format!(
            r#"name = "{host}"
listen = "{address}:7300"
advertise = "{host}:7300"
insecure_listen = true
schedulers = ["{CONTROL}:7100"]
driver = "libvirt"
storage_id = "shared"
memory_reserved_mib = 64
{told}
[libvirt]
image_dir = {images:?}
instance_dir = {instances:?}
"#
        )
    }

    fn spawn(&mut self, machine: &str, label: &str, program: &str, arguments: &[&str]) {
        let program = self.lab.directory().join(program);
        let command = [&[path(&program)], arguments].concat();
        let process = self.machine(machine).spawn(label, &command).unwrap();
        self.processes.insert(label.to_owned(), process);
    }

    /// Returns a machine of the lab.
    pub(crate) fn machine(&self, name: &str) -> &Machine {
        self.lab.get(name).unwrap()
    }

    /// Runs a command where commands are typed.
    pub(crate) fn berth(&self, arguments: &[&str]) -> Answer {
        let program = self.lab.directory().join("berth");
        let mut command = self.machine(CONTROL).command(program);
        command.args(arguments);
        let scheduler = format!("{CONTROL}:7100");
        command.env("BERTH_SCHEDULER", scheduler);
        Answer::of(command)
    }

    /// Returns what a command says to programs, or how it failed.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Result<Value, String> {
        self.berth(&[arguments, &["--output", "json"]].concat())
            .json()
    }

    /// Returns what a command that must succeed says to programs.
    #[track_caller]
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        self.ask(arguments)
            .unwrap_or_else(|fault| panic!("{fault}"))
    }

    /// Makes a flavor whose CPUs are dedicated.
    pub(crate) fn flavor(&self, name: &str, vcpus: &str, mib: &str, specs: &[&str]) {
        let mut all = vec!["flavor", "create", name, "--vcpus", vcpus];
        all.extend(["--memory-mib", mib, "--spec", "hw:cpu_policy=dedicated"]);
        for spec in specs {
            all.extend(["--spec", spec]);
        }
        self.json(&all);
    }

    /// Returns the command that makes a VM on a host.
    pub(crate) fn create<'a>(vm: &'a str, flavor: &'a str, host: &'a str) -> Vec<&'a str> {
        let head = ["vm", "create", vm, "--flavor", flavor, "--host", host];
        let boot = ["--kernel", "counter", "--initrd", "nothing"];
        [&head[..], &boot].concat()
    }

    /// Checks that a VM is ACTIVE on a host. Returns its only claim, and its console as the file
    /// that it is logged to.
    #[track_caller]
    pub(crate) fn is_active(&self, vm: &str, host: &str) -> (Claim, Console) {
        let shown: VmShown = parse(self.json(&["vm", "show", vm]));
        assert_eq!(shown.vm.state, vm::State::Active, "{shown:?}");
        let [claim] = &shown.claims[..] else {
            panic!("not one claim: {shown:?}");
        };
        assert_eq!(claim.state, claim::State::Active, "{shown:?}");
        assert_eq!(claim.host.as_str(), host, "{shown:?}");
        let uid = shown.vm.uid.to_string();
        let instance = self.lab.directory().join("instances").join(uid);
        (claim.clone(), Console::new(instance.join("console.log")))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for (label, process) in &self.processes {
            eprintln!("--- {label}\n{}", tail(&process.log()));
        }
        for machine in self.lab.machines() {
            if machine.is_hypervisor() {
                let (name, log) = (machine.name(), machine.libvirtd_log());
                eprintln!("--- libvirtd of {name}\n{}", tail(&log));
            }
        }
    }
}

/// Looks until there is an answer; fails with what was seen last.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match look() {
            Ok(answer) => return answer,
            Err(seen) if Instant::now() > deadline => panic!("waited for {what}: {seen}"),
            // A look that never pauses would take a processor from what it waits for.
            Err(_) => std::thread::sleep(GLANCE),
        }
    }
}

/// Returns the elements of a list.
pub(crate) fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

#[track_caller]
fn parse<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value:#}"))
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES_TOLD)..].join("\n")
}
