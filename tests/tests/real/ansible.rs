//! The playbook of `deploy/ansible`, run by Ansible over SSH against machines that have booted systemd.
//!
//! Goal: what `docs/ansible.md` promises. Method: a machine with Ansible, and three with nothing but systemd, Python and
//! sshd, in namespaces; the example's own inventory, the packages of this test run, and the certificates that the
//! playbook makes.
//!
//! What it is not: a test of the packages (`packages`): here their programs are small ones that become ours. Nor of
//! installation from package sources, which takes a server of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use berth_tests::lab::{Booted, Lab, Machine, ansible_playbook};
use berth_tests::processes::{Answer, Programs, eventually};
use serde_json::{Value, json};

use crate::PROGRAMS;
use crate::dist::programs_of;
use crate::packages::{build, run, shown};

const PLAYBOOK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/ansible");

/// The machines of the example's inventory.
const NAMES: [&str; 3] = ["m1", "m2", "m3"];

/// What packages have as each of our programs: it becomes the one that is at [`REAL_PROGRAMS`].
const LAUNCHER: &str = env!("CARGO_BIN_EXE_berth-launcher");
const REAL_PROGRAMS: &str = "root/opt/berth-programs";

/// A host of VMs without a hypervisor.
const MACHINE: &str = "[[cells]]\nid = 0\nsocket = 0\ncpus = \"0-7\"\nmemory_mib = 8192\n";

/// How many tasks changed something, by machine.
type Changed = BTreeMap<String, u32>;

pub(crate) fn the_playbook_installs_a_cluster_and_changes_what_it_must() {
    let site = Site::boot();
    site.previews_without_changes();
    let first = site.play(&[]);
    assert!(NAMES.iter().all(|name| first[*name] > 5), "{first:?}");
    let cluster = site.serves();
    assert_eq!(site.play(&[]), nothing(), "the second time");
    site.changes_one_service_only();
    site.refuses_a_wrong_configuration();
    site.replaces_a_lost_member(&cluster);
}

fn nothing() -> Changed {
    let all = ["localhost"].iter().chain(&NAMES);
    all.map(|name| ((*name).to_owned(), 0)).collect()
}

/// The machines, and what Ansible is given.
struct Site {
    machines: Vec<Booted>,
    programs: Programs,
    /// Beside the variables: keys, certificates, and Ansible's own files.
    directory: PathBuf,
    lab: Lab,
}

impl Site {
    fn boot() -> Self {
        let names = ["control"].iter().chain(&NAMES);
        let lab = names.fold(Lab::builder(), |lab, name| lab.machine(name));
        let lab = lab.start().expect("machines");
        let directory = lab.get("control").expect("it").directory().join("home");
        fs::create_dir(&directory).expect("a directory");
        let programs = Programs::new(PROGRAMS);
        let packages = directory.join("packages");
        let empty = directory.join("empty");
        fs::create_dir(&empty).expect("a directory");
        let machines = thread::scope(|scope| {
            let launchers = programs_of(Path::new(LAUNCHER), &directory.join("programs"));
            let built = scope.spawn(move || build(&launchers, &packages, "deb"));
            let boot = |machine| Booted::boot(machine, &empty).expect("it boots");
            let machines = lab.machines()[1..].iter();
            let booting: Vec<_> = machines.map(|one| scope.spawn(move || boot(one))).collect();
            let _ = built.join().expect("packages");
            let booted = booting.into_iter();
            booted
                .map(|one| one.join().expect("a machine"))
                .collect::<Vec<_>>()
        });
        let site = Self {
            machines,
            programs,
            directory,
            lab,
        };
        site.prepare();
        site
    }

    /// Makes what an operator has before: a login on each machine, and the variables.
    fn prepare(&self) {
        let key = self.directory.join("key");
        let mut keygen = Command::new("ssh-keygen");
        let keygen = keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]);
        let _ = run(keygen.arg(&key));
        let public = fs::read_to_string(key.with_extension("pub")).expect("a key");
        let mut known = String::new();
        for machine in &self.machines {
            let programs = machine.directory().join(REAL_PROGRAMS);
            if fs::hard_link(PROGRAMS, &programs).is_err() {
                let _ = fs::copy(PROGRAMS, &programs).expect("a copy");
            }
            let mut shell = machine.command("sh");
            let login = format!(
                "mkdir -m 700 -p /root/.ssh; echo '{}' >/root/.ssh/authorized_keys; \
                 printf '%s' '{MACHINE}' >/etc/machine.toml; cat /etc/ssh/ssh_host_ed25519_key.pub",
                public.trim(),
            );
            let host_key = run(shell.args(["-ec", &login]));
            known += &format!("{} {host_key}", machine.name());
        }
        fs::write(self.directory.join("known"), known).expect("a file");
        let variables = json!({
            "berth_packages_directory": self.directory.join("packages"),
            "berth_certs_directory": self.certificates(),
            "berth_command": self.programs.path("berth"),
            "berth_compute_agent_config": {
                "cpu_dedicated_set": "2-7",
                "cpu_shared_set": "0-1",
                "driver": "sim",
                "machine_file": "/etc/machine.toml",
                "sim": {
                    "listen": "{{ berth_address }}:7400",
                    "state_file": "/var/lib/berth/compute-agent/guests.json",
                },
            },
        });
        fs::write(self.variables(), variables.to_string()).expect("a file");
    }

    fn variables(&self) -> PathBuf {
        self.directory.join("variables.json")
    }

    fn certificates(&self) -> PathBuf {
        self.directory.join("certs")
    }

    fn control(&self) -> &Machine {
        self.lab.get("control").expect("it")
    }

    /// Returns a command on the machine with Ansible, in the directory of the playbook.
    fn at_control(&self, program: &Path) -> Command {
        let mut command = self.control().command("env");
        command.arg(format!("--chdir={PLAYBOOK}")).arg(program);
        command
    }

    /// Runs the playbook, with these arguments and the example's inventory.
    fn run_playbook(&self, arguments: &[&str]) -> Answer {
        let mut play = self.at_control(&ansible_playbook());
        let file = |name: &str| shown(&self.directory.join(name));
        let ssh = format!(
            "-o ControlMaster=auto -o ControlPersist=60s -o UserKnownHostsFile={} -o IdentityFile={}",
            file("known"),
            file("key"),
        );
        play.args(["site.yml", "--extra-vars"])
            .arg(format!("@{}", shown(&self.variables())))
            .args(arguments)
            .env("ANSIBLE_SSH_ARGS", ssh)
            .env("ANSIBLE_NOCOLOR", "1")
            .env("HOME", &self.directory)
            .env("LC_ALL", "C.UTF-8");
        Answer::of(play)
    }

    /// Runs it to its good end.
    fn play(&self, arguments: &[&str]) -> Changed {
        let played = self.run_playbook(arguments).with_status(0);
        changed(&played.stdout)
    }

    /// Goal: `--check` says what would be done on new machines, and does none of it.
    fn previews_without_changes(&self) {
        let previewed = self.play(&["--check", "--diff", "--limit", "localhost,m1"]);
        assert!(
            previewed["localhost"] > 0 && previewed["m1"] > 0,
            "{previewed:?}"
        );
        assert!(!self.certificates().exists());
        for machine in &self.machines {
            let mut test = machine.command("test");
            let is_there = test.args(["-e", "/var/cache/berth"]).status();
            assert!(!is_there.expect("it runs").success(), "{}", machine.name());
        }
    }

    /// Returns what `berth` prints as JSON, with an operator's certificate.
    fn berth(&self, arguments: &[&str]) -> Value {
        let mut berth = self.at_control(&self.programs.path("berth"));
        berth
            .args(arguments)
            .args(["--output", "json", "--scheduler", "m1,m2,m3"]);
        for (option, file) in [
            ("--tls-ca", "ca.pem"),
            ("--tls-cert", "operator-admin.pem"),
            ("--tls-key", "operator-admin-key.pem"),
        ] {
            berth.arg(option).arg(self.certificates().join(file));
        }
        let answer = Answer::of(berth).with_status(0);
        serde_json::from_str(&answer.stdout).expect("JSON")
    }

    /// Goal: there is one cluster of all machines, over TLS, that boots and migrates VMs, and services are enabled.
    /// Returns its id.
    fn serves(&self) -> String {
        let status = self.berth(&["cluster", "status"]);
        let members = status["members"].as_array().expect("members");
        assert_eq!(members.len(), 3, "{status}");
        assert_eq!(status["conductors"].as_array().map(Vec::len), Some(1));
        eventually("both hosts", || {
            let hosts = self.berth(&["host", "list"]);
            let listed = hosts.as_array().into_iter().flatten();
            let up = listed.filter(|listed| listed["host"]["liveness"] == "Up");
            (up.count() == 2).then_some(()).ok_or(hosts)
        });
        for machine in &self.machines {
            for service in services(machine.name()) {
                let mut systemctl = machine.command("systemctl");
                let _ = run(systemctl.args(["is-enabled", service]));
            }
        }
        status["cluster_id"].as_str().expect("an id").to_owned()
    }

    /// Goal: a variable of schedulers changes their configuration and restarts them, and nothing else.
    fn changes_one_service_only(&self) {
        let change = r#"{"berth_scheduler_config": {"liveness_limit_ms": 20000}}"#;
        let change = ["--tags", "configuration", "--diff", "-e", change];
        let before = self.processes();
        let preview = self.play(&[&["--check", "--limit", "m1"], &change[..]].concat());
        assert_eq!(preview["m1"], 2, "the file and the restart: {preview:?}");
        assert_eq!(self.processes(), before);
        let played = self.run_playbook(&change).with_status(0);
        let lines: Vec<&str> = played
            .stdout
            .lines()
            .filter(|line| is_difference(line))
            .collect();
        assert_eq!(
            lines, ["+liveness_limit_ms = 20000"; 3],
            "{}",
            played.stdout
        );
        let after = self.processes();
        for (service, process) in &before {
            let is_restarted = after[service] != *process;
            assert_eq!(is_restarted, service.ends_with("scheduler"), "{service}");
        }
    }

    /// Returns the processes of all services.
    fn processes(&self) -> BTreeMap<String, String> {
        let machines = self.machines.iter();
        let services = machines.flat_map(|machine| {
            let services = services(machine.name()).iter();
            services.map(move |service| {
                let mut systemctl = machine.command("systemctl");
                let pid = run(systemctl.args(["show", "--value", "--property=MainPID", service]));
                (format!("{} {service}", machine.name()), pid)
            })
        });
        services.collect()
    }

    /// Goal: what a program would not start with is not written.
    fn refuses_a_wrong_configuration(&self) {
        let wrong = r#"{"berth_conductor_config": {"lisen": "m1:7200"}}"#;
        let before = self.processes();
        let played = self.run_playbook(&["--limit", "m1", "--tags", "configuration", "-e", wrong]);
        assert_eq!(played.status, Some(2), "{played:#?}");
        assert!(played.stdout.contains("unknown key lisen"), "{played:#?}");
        assert_eq!(self.processes(), before);
        let mut grep = self.machines[0].command("grep");
        let is_written = grep
            .args(["-q", "lisen", "/etc/berth/conductor.toml"])
            .status();
        assert!(!is_written.expect("it runs").success());
    }

    /// Goal: a cluster is created once. Method: the machine that created it loses its disk, and is played again.
    fn replaces_a_lost_member(&self, cluster: &str) {
        let status = self.berth(&["cluster", "status"]);
        let members = status["members"].as_array().expect("members");
        let lost = members.iter().find(|member| member["address"] == "m1:7100");
        let lost = lost.expect("the first")["id"].to_string();
        let mut shell = self.machines[0].command("sh");
        let lose = "systemctl stop berth-scheduler; rm -r /var/lib/berth/scheduler/*";
        let _ = run(shell.args(["-ec", lose]));
        let _ = self.berth(&["cluster", "remove-member", &lost]);
        let played = self.play(&["--tags", "services"]);
        assert_eq!(
            played["m1"], 2,
            "the file that begins, and the service: {played:?}"
        );
        let status = self.berth(&["cluster", "status"]);
        assert_eq!(status["cluster_id"], cluster);
        assert_eq!(
            status["members"].as_array().map(Vec::len),
            Some(3),
            "{status}"
        );
    }
}

/// Returns the services of a machine of the example's inventory.
fn services(machine: &str) -> &'static [&'static str] {
    match machine {
        "m1" => &["berth-scheduler", "berth-conductor"],
        _ => &["berth-scheduler", "berth-compute-agent"],
    }
}

/// Returns whether a line of what `--diff` prints is a line of a file that differs.
fn is_difference(line: &str) -> bool {
    let is_file = line.starts_with("+++") || line.starts_with("---");
    !is_file && (line.starts_with('+') || line.starts_with('-'))
}

/// Returns how many tasks changed something, as the recap has it.
fn changed(printed: &str) -> Changed {
    let (_, recap) = printed.split_once("PLAY RECAP").expect("a recap");
    let lines = recap.lines().filter_map(|line| {
        let (name, counts) = line.split_once(" : ")?;
        let count = counts.split_whitespace();
        let mut count = count.filter_map(|count| count.strip_prefix("changed="));
        let count = count.next()?.parse().expect("a number");
        Some((name.trim().to_owned(), count))
    });
    lines.collect()
}
