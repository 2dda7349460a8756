//! The packages of `deploy/packages`: made of the programs, installed, upgraded and purged by what
//! `docs/packages.md` says, on machines with systemd.
//!
//! Method: three Debian machines in namespaces boot their own systemd; the document's commands are typed there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use berth_tests::lab::{Booted, Lab};
use berth_tests::processes::{Programs, eventually};

use crate::PROGRAMS;
use crate::dist;
use crate::three_machines::{Shell, blocks};

const TOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/packages.md");

/// The greatest exposure that `systemd-analyze security` may find, in tenths; the agent runs as root.
const EXPOSURE: [(&str, u32); 4] = [
    ("berth-scheduler", 20),
    ("berth-conductor", 20),
    ("berth-csi-controller", 20),
    ("berth-compute-agent", 90),
];

pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {printed}{error}");
    printed
}

/// Makes what is released of the programs in a directory, in these formats, and returns its files.
pub(crate) fn build(programs: &Path, out: &Path, formats: &str) -> Vec<PathBuf> {
    let made = run(Command::new(format!("{TOP}/deploy/packages/build"))
        .arg("--programs")
        .arg(programs)
        .arg("--out")
        .arg(out)
        .args(["--formats", formats, "--compression", "none"])
        .env("BERTH_PROGRAMS", PROGRAMS));
    made.lines().map(PathBuf::from).collect()
}

/// Returns the packages among files by their names.
fn packages(made: &[PathBuf]) -> BTreeMap<String, PathBuf> {
    let made = made.iter().cloned();
    let packages = made.filter(|path| path.extension().is_some_and(|e| e == "deb"));
    let named = packages.map(|path| {
        let name = run(Command::new("dpkg-deb").args(["--field", &shown(&path), "Package"]));
        (name.trim().to_owned(), path)
    });
    named.collect()
}

pub(crate) fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn units() -> BTreeMap<String, String> {
    let folder = format!("{TOP}/deploy/packages/systemd");
    let files = fs::read_dir(folder).expect("the units");
    let units = files.map(|file| {
        let path = file.expect("a file").path();
        let name = path
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        (name, shown(&path))
    });
    units.collect()
}

/// Goal: a service reaches what it needs, and nothing else. Method: systemd's own measure, of every unit.
pub(crate) fn every_service_is_confined() {
    let units = units();
    let named: BTreeSet<&str> = units.keys().map(String::as_str).collect();
    assert_eq!(named, EXPOSURE.map(|(name, _)| name).into());
    for (name, most) in EXPOSURE {
        let mut analyze = Command::new("systemd-analyze");
        let analyze = analyze.args(["security", "--offline=yes", "--no-pager"]);
        let _ = run(analyze.arg(format!("--threshold={most}")).arg(&units[name]));
    }
}

/// Goal: who types the document gets a cluster that boots and migrates, and what it says of upgrades and purging.
pub(crate) fn three_machines_are_installed_upgraded_and_purged() {
    let lab = Lab::builder().machine("m1").machine("m2").machine("m3");
    let lab = lab.start().expect("three machines");
    let folder = lab.directory().join("packages");
    let made = build(Programs::new(PROGRAMS).directory(), &folder, "deb,oci");
    let packages = packages(&made);
    let names: Vec<&String> = packages.keys().collect();
    assert_eq!(
        names,
        [
            "berth",
            "berth-compute-agent",
            "berth-conductor",
            "berth-csi",
            "berth-scheduler"
        ]
    );
    let machines = lab.machines().iter();
    let machines: Vec<Booted> = machines
        .map(|machine| Booted::boot(machine, &folder).expect("it boots"))
        .collect();
    let shells = machines.iter().map(|machine| {
        let shell = Shell::run(machine.name(), machine.directory(), machine.command("bash"));
        (machine.name(), shell)
    });
    let mut shells: BTreeMap<&str, Shell> = shells.collect();
    let document = fs::read_to_string(DOCUMENT).expect("the document");
    for block in blocks(&document) {
        let shell = shells.get_mut(block.machine.as_str());
        let shell = shell.expect("one of the three");
        if block.commands.contains("--reinstall") {
            confined(&machines[0]);
        }
        shell.type_block(&block);
        if block.commands.contains("vm migrate") {
            runs_on(shell, "a", "m3");
        }
    }
    runs_on(shells.get_mut("m1").expect("it"), "a", "m3");
    purged(&machines[2]);
    drop(machines);
    // Here, since what is made of the programs themselves is large.
    let unpacked = tempfile::tempdir().expect("a folder");
    dist::runs_as_an_image(&made, unpacked.path());
}

fn runs_on(shell: &mut Shell, vm: &str, host: &str) {
    eventually("the VM", || {
        let (good, printed) = shell.command(&format!("berth vm show {vm} -o json"));
        let shown: serde_json::Value = serde_json::from_str(&printed).unwrap_or_default();
        let is_there = good && shown["vm"]["host"] == host && shown["vm"]["state"] == "Active";
        is_there.then_some(()).ok_or(printed)
    });
}

/// Goal: units are as they are written once systemd runs them. Method: their processes are looked at.
fn confined(machine: &Booted) {
    for (service, user) in [
        ("berth-scheduler", "berth-scheduler"),
        ("berth-conductor", "berth-conductor"),
    ] {
        let mut systemctl = machine.command("systemctl");
        let pid = run(systemctl.args(["show", "--value", "--property=MainPID", service]));
        let status = run(machine
            .command("cat")
            .arg(format!("/proc/{}/status", pid.trim())));
        let value = |key: &str| {
            let line = status.lines().find(|line| line.starts_with(key));
            line.and_then(|line| line.split_whitespace().nth(1))
                .unwrap_or_default()
                .to_owned()
        };
        let id = run(machine.command("id").args(["--user", user]));
        assert_eq!(value("Uid:"), id.trim(), "{service}: {status}");
        assert_eq!(value("CapBnd:"), "0000000000000000", "{service}: {status}");
        assert_eq!(value("NoNewPrivs:"), "1", "{service}: {status}");
        assert_eq!(value("Seccomp:"), "2", "{service}: {status}");
        let started = Path::new("/run").join(format!("{service}.start"));
        let is_left = machine.command("test").arg("-e").arg(started).status();
        assert!(
            !is_left.expect("it runs").success(),
            "{service} would begin again"
        );
    }
}

/// Goal: a purged package leaves no service and no configuration, and the others of the machine as they are.
fn purged(machine: &Booted) {
    let exists = |path: &str| {
        let test = machine.command("test").args(["-e", path]).status();
        test.expect("it runs").success()
    };
    for gone in [
        "/etc/berth/scheduler.toml",
        "/usr/bin/berth-scheduler",
        "/usr/lib/systemd/system/berth-scheduler.service",
        "/var/lib/berth/scheduler",
    ] {
        assert!(!exists(gone), "{gone}");
    }
    for kept in ["/etc/berth/compute-agent.toml", "/usr/bin/berth"] {
        assert!(exists(kept), "{kept}");
    }
    let mut systemctl = machine.command("systemctl");
    let state = systemctl
        .args(["is-active", "berth-compute-agent"])
        .output();
    let state = state.expect("it runs").stdout;
    assert_eq!(String::from_utf8_lossy(&state).trim(), "active");
}
