//! The whole of Berth on the machines of a lab: every part a process of its own, on a machine
//! of its own, asked through the command `berth` as a user would.
//!
//! ```text
//!   host-a, host-b     libvirtd, berth-compute-agent
//!   scheduler-1 to -3  berth-scheduler
//!   control            berth-conductor, and whoever types commands
//! ```
//!
//! What it is not: a judge of what the parts say. `verdict.rs` compares it with what runs.
//!
//! Invariant: a failing test prints what every process logged.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use berth_domain::claim::Claim;
use berth_domain::operation::Operation;
use berth_domain::vm::{self, Vm};
use berth_tests::lab::{Console, Images, Lab, Machine, Process, images};
use berth_tests::processes::{Answer, Terminal};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::PROGRAMS;

/// How long anything may take: a guest boots within 5 s on an idle machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Where the conductor runs and commands are typed.
const CONTROL: &str = "control";

/// Where the schedulers run.
const SCHEDULERS: [&str; 3] = ["scheduler-1", "scheduler-2", "scheduler-3"];

/// What the agents allow a transfer that leaves `host-b`: it lasts long enough for something to
/// happen meanwhile.
const MIB_PER_S_FROM_B: u64 = 10;

/// How many lines of each log a failing test prints.
const LINES_TOLD: usize = 60;

/// What `berth vm show` says.
#[derive(Debug, Deserialize)]
pub(crate) struct VmShown {
    /// The VM.
    pub(crate) vm: Vm,
    /// Its claims: one, or two while it moves.
    pub(crate) claims: Vec<Claim>,
}

/// The lab and the processes in it.
#[derive(Debug)]
pub(crate) struct System {
    // The processes end before their machines do.
    processes: BTreeMap<String, Process>,
    /// The machines.
    pub(crate) lab: Lab,
    programs: PathBuf,
    command_line: String,
    /// The name of each scheduler's data directory.
    data: &'static str,
    /// Whether each host keeps the disks of its guests to itself.
    apart: bool,
}

impl System {
    /// Starts everything, and waits until the conductor and both hosts have registered.
    pub(crate) fn start() -> Self {
        Self::start_with(false)
    }

    /// As [`Self::start`], but each host keeps the disks of its guests to itself.
    pub(crate) fn start_apart() -> Self {
        Self::start_with(true)
    }

    fn start_with(apart: bool) -> Self {
        let images = images().unwrap();
        let mut builder = Lab::builder().hypervisor("host-a").hypervisor("host-b");
        for name in SCHEDULERS.into_iter().chain([CONTROL]) {
            builder = builder.machine(name);
        }
        let lab = builder.start().unwrap();
        let programs = link_programs(&lab.directory().join("bin"));
        // Where hosts have no directories in common, one of them has the images, and the other fetches them.
        let directory = match apart {
            true => "images-host-a",
            false => "images",
        };
        copy_images(&images, &lab.directory().join(directory));
        let mut system = Self {
            processes: BTreeMap::new(),
            lab,
            programs,
            command_line: images.command_line,
            data: "data",
            apart,
        };
        system.start_scheduler(0, &["--bootstrap"]);
        for member in 1..SCHEDULERS.len() {
            system.start_scheduler(member, &["--join", "scheduler-1:7100"]);
        }
        for host in ["host-a", "host-b"] {
            system.start_agent(host, &[]);
        }
        system.start_conductor();
        system.await_all();
        system
    }

    /// Waits until all parts know each other.
    fn await_all(&self) {
        eventually("three voters, two hosts and a conductor", || {
            let status = self.ask(&["cluster", "status"])?;
            let voters = list(&status["members"])
                .iter()
                .filter(|member| member["role"] == "voter")
                .count();
            let hosts = list(&self.ask(&["host", "list"])?).len();
            let conductors = list(&status["conductors"]).len();
            let all = (voters, hosts, conductors) == (3, 2, 1);
            all.then_some(()).ok_or_else(|| format!("{status:#}"))
        });
    }

    /// Starts a member; with no arguments one that has been a member before.
    pub(crate) fn start_scheduler(&mut self, member: usize, arguments: &[&str]) {
        let name = SCHEDULERS[member];
        let machine = self.machine(name);
        let data = machine.directory().join(self.data);
        let listen = format!("{}:7100", machine.address());
        let advertise = format!("{name}:7100");
        let mut all = vec!["--data-dir", path(&data), "--listen", &listen];
        all.extend(["--advertise", &advertise, "--insecure-listen"]);
        let page = self.page(member).to_string();
        all.extend(["--page-listen", &page]);
        all.extend(arguments);
        self.spawn(name, name, "berth-scheduler", &all);
    }

    /// Returns where a member serves its page.
    pub(crate) fn page(&self, member: usize) -> SocketAddr {
        (self.machine(SCHEDULERS[member]).address(), 7190).into()
    }

    /// Loses all schedulers with their data, and starts the first one on a backup. Returns the answer of
    /// the command that restores it.
    pub(crate) fn restore(&mut self, backup: &str) -> Answer {
        for name in SCHEDULERS {
            self.process(name).kill().unwrap();
            fs::remove_dir_all(self.machine(name).directory().join(self.data)).unwrap();
        }
        self.data = "restored";
        let machine = self.machine(SCHEDULERS[0]);
        let mut command = machine.command(self.programs.join("berth-scheduler"));
        let data = machine.directory().join(self.data);
        let listen = format!("{}:7100", machine.address());
        command.args(["--data-dir", path(&data), "--listen", &listen]);
        command.args(["--advertise", "scheduler-1:7100", "--insecure-listen"]);
        command.args(["restore", backup]);
        let answer = Answer::of(command);
        self.start_scheduler(0, &[]);
        answer
    }

    /// Starts the other schedulers of a restored group.
    pub(crate) fn add_schedulers(&mut self) {
        for member in 1..SCHEDULERS.len() {
            self.start_scheduler(member, &["--join", "scheduler-1:7100"]);
        }
        self.await_all();
    }

    /// Starts the agent of a host, in place of the one that ran there.
    pub(crate) fn start_agent(&mut self, host: &str, arguments: &[&str]) {
        let config = self.machine(host).directory().join("agent.toml");
        fs::write(&config, self.agent_config(host)).unwrap();
        let mut all = vec!["--config", path(&config)];
        all.extend(arguments);
        self.spawn(host, &agent(host), "berth-compute-agent", &all);
    }

    /// Kills the agent of a host; the guests run on.
    pub(crate) fn kill_agent(&mut self, host: &str) {
        self.process(&agent(host)).kill().unwrap();
    }

    fn agent_config(&self, host: &str) -> String {
        let images = self.images(host);
        fs::create_dir_all(&images).unwrap();
        let instances = self.instances(host);
        let storage = if self.apart { host } else { "shared" };
        let limit = match host {
            "host-b" => format!("bandwidth_mib_per_s_max = {MIB_PER_S_FROM_B}"),
            _ => String::new(),
        };
        let schedulers = schedulers();
        let volumes = self.volume_dir(host);
        let socket = volumes.join("csi.sock");
        let socket = socket.display();
        format!(
            r#"name = "{host}"
listen = "{address}:7300"
advertise = "{host}:7300"
insecure_listen = true
schedulers = {schedulers:?}
driver = "libvirt"
cpu_dedicated_set = "0-1"
storage_id = "{storage}"
[libvirt]
image_dir = {images:?}
instance_dir = {instances:?}
disk_cache = "writeback"
{limit}
[volumes]
manager = "sim"
state_dir = {volumes:?}
sim_regions = ["region0:1024"]
csi_endpoint = "unix://{socket}"
"#,
            address = self.machine(host).address(),
        )
    }

    /// Returns where the agent of a host keeps its volumes.
    pub(crate) fn volume_dir(&self, host: &str) -> PathBuf {
        self.machine(host).directory().join("volumes")
    }

    fn start_conductor(&mut self) {
        let listen = format!("{}:7200", self.machine(CONTROL).address());
        let schedulers = schedulers().join(",");
        let arguments = ["--listen", &listen, "--insecure-listen"];
        let all = [&arguments[..], &["--scheduler", &schedulers]].concat();
        self.spawn(CONTROL, "conductor", "berth-conductor", &all);
    }

    fn spawn(&mut self, machine: &str, label: &str, program: &str, arguments: &[&str]) {
        let program = self.programs.join(program);
        let command = [&[path(&program)], arguments].concat();
        let process = self.machine(machine).spawn(label, &command).unwrap();
        self.processes.insert(label.to_owned(), process);
    }

    fn process(&mut self, label: &str) -> &mut Process {
        let process = self.processes.get_mut(label);
        process.unwrap_or_else(|| panic!("there is no process {label}"))
    }

    /// Prints what the conductor says of where the time of each migration went. For people: nothing
    /// is asserted of it.
    pub(crate) fn print_phases(&self) {
        let said = self.processes["conductor"].log();
        for line in said.lines().filter(|line| line.contains("settle_us")) {
            println!("{line}");
        }
    }

    /// Kills the scheduler that leads with `SIGKILL`, and returns which one it was.
    pub(crate) fn kill_leader(&mut self) -> usize {
        let status = self.json(&["cluster", "status"]);
        let members = list(&status["members"]);
        let leader = members.iter().find(|member| member["leader"] == true);
        let leader = leader.unwrap_or_else(|| panic!("nobody leads: {status:#}"));
        let address = leader["address"].as_str().expect("an address");
        let is_leader = |name: &&str| address.starts_with(&format!("{name}:"));
        let member = SCHEDULERS.iter().position(is_leader).expect("one of ours");
        self.process(SCHEDULERS[member]).kill().unwrap();
        member
    }

    /// Returns a machine of the lab.
    pub(crate) fn machine(&self, name: &str) -> &Machine {
        self.lab.get(name).unwrap()
    }

    pub(crate) fn machine_mut(&mut self, name: &str) -> &mut Machine {
        self.lab.get_mut(name).unwrap()
    }

    /// Runs a command where commands are typed.
    pub(crate) fn berth(&self, arguments: &[&str]) -> Answer {
        let mut command = self.machine(CONTROL).command(self.programs.join("berth"));
        command.args(arguments);
        let schedulers = schedulers().join(",");
        command.env("BERTH_SCHEDULER", schedulers);
        Answer::of(command)
    }

    /// Runs a command on a terminal where commands are typed.
    #[track_caller]
    pub(crate) fn terminal(&self, arguments: &str) -> Terminal {
        let berth = self.programs.join("berth");
        let mut script = self.machine(CONTROL).command("script");
        script.env("BERTH_SCHEDULER", schedulers().join(","));
        Terminal::open(script, &format!("{} {arguments}", berth.display()))
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

    /// Returns a VM with its claims.
    #[track_caller]
    pub(crate) fn vm(&self, vm: &str) -> VmShown {
        parse(self.json(&["vm", "show", vm]))
    }

    /// Returns the claims on a host.
    #[track_caller]
    pub(crate) fn claims(&self, host: &str) -> Vec<Claim> {
        parse(self.json(&["host", "show", host])["claims"].clone())
    }

    /// Waits until all schedulers have come to the same index, and checks that they have the
    /// same state there.
    #[track_caller]
    pub(crate) fn schedulers_agree(&self) {
        let states = eventually("members at the same index", || {
            let mut states = BTreeSet::new();
            let mut indexes = BTreeSet::new();
            for address in schedulers() {
                let status = self.ask(&["cluster", "status", "--scheduler", &address])?;
                indexes.insert(status["applied_index"].as_u64());
                states.insert(status["state_hash"].to_string());
            }
            // Hosts report now and then: another look may be needed.
            (indexes.len() == 1)
                .then_some(states)
                .ok_or_else(|| format!("{indexes:?}"))
        });
        assert_eq!(states.len(), 1, "states differ at the same index");
    }

    /// Returns an operation.
    #[track_caller]
    pub(crate) fn operation(&self, id: &str) -> Operation {
        parse(self.json(&["operation", "show", id]))
    }

    /// Boots a VM from the kernel, on a host, and waits until it counts.
    #[track_caller]
    pub(crate) fn boot(&self, vm: &str, host: &str) {
        self.boot_with(vm, &["--host", host]);
    }

    /// As [`Self::boot`], with these further words.
    #[track_caller]
    pub(crate) fn boot_with(&self, vm: &str, more: &[&str]) {
        self.json(&[&self.create(vm)[..], more].concat());
        assert_eq!(self.vm(vm).vm.state, vm::State::Active);
        self.console(vm).wait_for_count_above(2, PATIENCE).unwrap();
    }

    /// Returns the words that make a VM which boots from the kernel.
    pub(crate) fn create<'a>(&'a self, vm: &'a str) -> [&'a str; 11] {
        [
            "vm",
            "create",
            vm,
            "--flavor",
            "pinned",
            "--kernel",
            "kernel",
            "--initrd",
            "initrd",
            "--cmdline",
            &self.command_line,
        ]
    }

    /// Returns where the disks and consoles of a host's guests are.
    fn instances(&self, host: &str) -> PathBuf {
        let name = match self.apart {
            true => format!("instances-{host}"),
            false => "instances".to_owned(),
        };
        self.lab.directory().join(name)
    }

    /// Returns where the images of a host are.
    pub(crate) fn images(&self, host: &str) -> PathBuf {
        let name = match self.apart {
            true => format!("images-{host}"),
            false => "images".to_owned(),
        };
        self.lab.directory().join(name)
    }

    /// Returns the directory of a VM on a host.
    pub(crate) fn directory(&self, vm: &str, host: &str) -> PathBuf {
        self.instances(host).join(self.vm(vm).vm.uid.to_string())
    }

    /// Returns the console of a VM, as the file that it is logged to where it is.
    pub(crate) fn console(&self, vm: &str) -> Console {
        let shown = self.vm(vm).vm;
        let host = shown.host.as_ref().map_or("", |host| host.as_str());
        let instance = self.instances(host).join(shown.uid.to_string());
        Console::new(instance.join("console.log"))
    }

    /// Asks a guest a question on its console's socket, on the host that it must be on.
    #[track_caller]
    pub(crate) fn ask_guest(&self, vm: &str, host: &str, question: &str) -> String {
        let uid = self.vm(vm).vm.uid;
        let socket = format!("/run/berth/{uid}.console");
        let socket = self.machine(host).outside(socket);
        self.console(vm).ask(&socket, question, PATIENCE).unwrap()
    }
}

impl Drop for System {
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
            // What is looked at takes a process to run: there is no need to pause as well.
            Err(_) => {}
        }
    }
}

/// Returns the elements of a list.
pub(crate) fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

/// Reads what a command said.
#[track_caller]
pub(crate) fn parse<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value:#}"))
}

fn schedulers() -> Vec<String> {
    SCHEDULERS.map(|name| format!("{name}:7100")).to_vec()
}

fn agent(host: &str) -> String {
    format!("agent-{host}")
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES_TOLD)..].join("\n")
}

fn link_programs(directory: &Path) -> PathBuf {
    fs::create_dir_all(directory).unwrap();
    for name in [
        "berth",
        "berth-scheduler",
        "berth-conductor",
        "berth-compute-agent",
    ] {
        std::os::unix::fs::symlink(PROGRAMS, directory.join(name)).unwrap();
    }
    directory.to_owned()
}

fn copy_images(images: &Images, directory: &Path) {
    fs::create_dir_all(directory).unwrap();
    fs::copy(&images.kernel, directory.join("kernel")).unwrap();
    fs::copy(&images.initrd, directory.join("initrd")).unwrap();
    images.copy_disk(&directory.join("disk.qcow2")).unwrap();
}
