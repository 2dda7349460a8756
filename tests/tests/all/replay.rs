//! `berth replay`, as an operator types it.
//!
//! Goal: what three schedulers decided, with another leader on the way, is decided again by the command
//! from their backups; files that do not verify and changes that cannot be are refused; a history that
//! was altered is not called the same. Method: whole processes with simulated hosts.
//!
//! Not here: every kind of decision, and what-ifs that are compared with schedulers that really have the
//! change. These are in `scheduler/replay/tests`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::thread;

use berth_tests::processes::{Answer, Cluster, Host};
use serde_json::Value;

use crate::PROGRAMS;
use crate::backup::back_up;

fn start() -> Cluster {
    let mut builder = Cluster::builder(PROGRAMS)
        .schedulers(3)
        .transfer_ms(10)
        .checkpoint_entries(100_000);
    for host in ["h1", "h2", "h3"] {
        builder = builder.host(Host::new(host).with_cpus(7));
    }
    let cluster = builder.start();
    cluster.pinned_flavor("one", 1);
    cluster.pinned_flavor("two", 2);
    cluster.pinned_flavor("large", 64);
    cluster
}

fn create(cluster: &Cluster, vm: &str, flavor: &str) {
    cluster.run(&Cluster::create(vm, flavor));
}

fn replay(cluster: &Cluster, files: &[&Path], changes: &[&str]) -> Answer {
    let files = files.iter().map(|file| file.to_str().expect("a path"));
    let words: Vec<&str> = ["replay"].into_iter().chain(files).collect();
    cluster.berth(&[&words[..], changes].concat())
}

/// Records creations, a refusal, policies, moves, a drain, deletions and the loss of a leader.
fn record(cluster: &mut Cluster) {
    for vm in ["a", "b", "c", "d"] {
        create(cluster, vm, "two");
    }
    let refused = cluster.berth(&Cluster::create("x", "large")).refused(1);
    let _ = refused.saying(&["NO_VALID_HOST"]);
    cluster.run(&["policy", "set", "scheduling.hosts=pack"]);
    for vm in ["e", "f", "g"] {
        create(cluster, vm, "one");
    }
    // Decided while others are on their way into the log.
    let clients = &*cluster;
    thread::scope(|scope| {
        for vm in ["k", "l", "m", "n"] {
            scope.spawn(move || create(clients, vm, "one"));
        }
    });
    cluster.run(&["vm", "migrate", "a"]);
    let _ = cluster.boot("named", "one", "h3");
    cluster.run(&["vm", "delete", "b"]);
    let leader = cluster.leader();
    cluster.schedulers[leader].kill();
    cluster.run(&["policy", "set", "scheduling.cells=pack"]);
    cluster.run(&["host", "drain", "h1"]);
    cluster.run(&["host", "uncordon", "h1"]);
    for vm in ["h", "i"] {
        create(cluster, vm, "two");
    }
    cluster.run(&["vm", "migrate", "c"]);
}

/// Goal: no recorded decision differs, also across leaders; another policy has other results; what the
/// command is given by mistake is refused with what to do.
#[test]
fn recorded_decisions_are_replayed() {
    let mut cluster = start();
    let folder = cluster.folder().join("backups");
    fs::create_dir(&folder).expect("a folder");
    let [full, increment] = ["full", "increment"].map(|name| folder.join(name));
    let _ = back_up(&cluster, 0, &full, &[]);
    record(&mut cluster);
    let leader = cluster.leader();
    let since = ["--since", full.to_str().expect("a path")];
    let _ = back_up(&cluster, leader, &increment, &since);

    let answer = replay(&cluster, &[&full, &increment], &[]);
    let report = answer.json().unwrap_or_else(|seen| panic!("{seen}"));
    let check = &report["check"];
    assert_eq!(check["differences"], 0, "{report:#}");
    assert_eq!(check["by_kind"]["boot"], 13, "{report:#}");
    assert!(
        check["by_kind"]["live-migration"].as_u64() >= Some(2),
        "{report:#}"
    );
    assert_eq!(check["named_hosts"], 1, "{report:#}");
    assert_eq!(report["what_if"], Value::Null);
    assert_eq!(report["recorded_refusals"], Value::Null);

    with_changes(&cluster, &full, &increment);
    refuses_mistakes(&cluster, &full, &increment);
}

fn with_changes(cluster: &Cluster, full: &Path, increment: &Path) {
    let spread = ["scheduling.hosts=spread", "scheduling.cells=spread"];
    let spread = spread.iter().flat_map(|setting| ["--policy", setting]);
    let spread: Vec<&str> = spread.collect();
    let answer = replay(cluster, &[full, increment], &spread);
    let report = answer.json().unwrap_or_else(|seen| panic!("{seen}"));
    let what_if = &report["what_if"];
    assert!(what_if["other_host"].as_u64() > Some(0), "{report:#}");
    assert_eq!(what_if["vms"], what_if["vms_recorded"], "{report:#}");

    let fewer = ["--without", "h2", "--without", "h3"];
    let answer = replay(cluster, &[full, increment], &fewer);
    let report = answer.json().unwrap_or_else(|seen| panic!("{seen}"));
    let refused = &report["what_if"]["refused"]["NO_VALID_HOST"];
    assert!(refused["count"].as_u64() > Some(0), "{report:#}");
    let first = &refused["examples"][0];
    assert_eq!(first["hosts"][0]["host"], "h1", "{report:#}");
    assert_eq!(report["what_if"]["usage"]["hosts"], 1, "{report:#}");

    // For people, the same in tables.
    let mut command = cluster.programs.command("berth");
    command.arg("replay").args([full, increment]).args(fewer);
    let shown = Answer::of(command).with_status(0);
    for words in [
        "decisions checked",
        "differences",
        "with changes",
        "refused now, NO_VALID_HOST",
        "stranded dedicated CPUs",
    ] {
        assert!(shown.stdout.contains(words), "{words}: {}", shown.stdout);
    }
    assert!(shown.stderr.contains("are not in backups"), "{shown:#?}");
}

fn refuses_mistakes(cluster: &Cluster, full: &Path, increment: &Path) {
    let refused = |files: &[&Path], changes: &[&str], words: &[&str]| {
        let _ = replay(cluster, files, changes).refused(1).saying(words);
    };
    refused(&[increment], &[], &["BACKUP_WITHOUT_FULL"]);
    refused(&[full, full], &[], &["BACKUP_SECOND_FULL"]);
    refused(&[full, increment, increment], &[], &["BACKUP_OVERLAP"]);
    let policy = ["--policy", "scheduling.host=pack"];
    let known = ["INVALID_POLICY", "known keys are", "scheduling.weight.pci"];
    refused(&[full], &policy, &known);
    let twice = ["--policy", "cpu.ratio=1.0", "--policy", "cpu.ratio=2.0"];
    refused(&[full], &twice, &["INVALID_POLICY", "twice"]);
    refused(&[full], &["--without", "h9"], &["HOST_NOT_FOUND", "h9"]);
    refused(&[full], &["--add-like", "h9=1"], &["HOST_NOT_FOUND", "h9"]);
    let flavor = ["--flavor", "nothing:vcpus=1"];
    refused(&[full], &flavor, &["FLAVOR_NOT_FOUND", "nothing"]);
    let flavor = ["--flavor", "one:vcpus=0"];
    refused(&[full], &flavor, &["INVALID_FLAVOR", "vcpus"]);

    let sound = fs::read(increment).expect("a file");
    let damaged = increment.with_extension("damaged");
    let half = sound[..sound.len() / 2].to_vec();
    let mut flipped = sound.clone();
    flipped[sound.len() / 2] ^= 0x10;
    let foreign = b"no backup at all".to_vec();
    for (bytes, reason) in [
        (half, "BACKUP_CUT_SHORT"),
        (flipped, "BACKUP_DAMAGED"),
        (foreign, "NOT_A_BACKUP"),
    ] {
        fs::write(&damaged, bytes).expect("a file");
        fs::set_permissions(&damaged, fs::Permissions::from_mode(0o600)).expect("its owner's");
        refused(&[full, &damaged], &[], &[reason]);
    }
}
