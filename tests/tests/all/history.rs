//! `berth vm history` and `berth host history`: from the log of a scheduler, and from its backups.
//!
//! Goal: both show the same, with the hosts that were next best and the exact CPUs; what was done while
//! another scheduler led is in it. Method: whole processes, of which the leader is killed on the way.

use berth_tests::processes::{Answer, Cluster, Host};
use serde_json::Value;

use crate::PROGRAMS;
use crate::backup::back_up;
use crate::offline::read;

fn commands(history: &Value) -> Vec<&str> {
    let entries = history["entries"].as_array().expect("entries");
    let commands = entries.iter().filter_map(|entry| entry["command"].as_str());
    commands.collect()
}

#[test]
fn a_history_is_the_same_from_the_log_and_from_backups() {
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(3)
        .host(Host::new("h1"))
        .host(Host::new("h2"))
        .start();
    cluster.pinned_flavor("one", 1);
    let folder = tempfile::tempdir().expect("a folder");
    let (full, later) = (folder.path().join("full"), folder.path().join("later"));
    let _ = cluster.boot("a", "one", "h1");
    let leader = cluster.leader();
    let other = (leader + 1) % 3;
    let made = back_up(&cluster, other, &full, &[]);
    cluster.schedulers[leader].kill();
    let _ = cluster.json(&["vm", "migrate", "a", "--host", "h2"]);
    let _ = cluster.json(&["host", "cordon", "h1"]);
    let since = full.to_str().expect("a path");
    let _ = back_up(&cluster, other, &later, &["--since", since]);

    let after = made["revision"].to_string();
    for line in [
        ["vm", "history", "a"],
        ["host", "history", "h1"],
        ["host", "history", "h2"],
    ] {
        let whole = cluster.json(&line);
        assert!(
            commands(&whole).contains(&"BeginBoot") || line[2] == "h2",
            "{whole:#}"
        );
        let [noun, verb, name] = line;
        let line = [noun, verb, name, "--after", &after];
        let live = cluster.json(&line);
        let (filed, stated) = read(&cluster, &[&full, &later], &line);
        assert_eq!(filed["entries"], live["entries"], "{line:?}");
        assert_eq!(filed["first_revision"], made["revision"]);
        assert_eq!(filed["revision"], stated["revision"]);
        assert!(commands(&live).contains(&"BeginMigration"), "{live:#}");
    }
    as_text(&cluster);
}

/// Goal: people see the hosts, the exact CPUs and the steps.
fn as_text(cluster: &Cluster) {
    let mut command = cluster.programs.command("berth");
    command.args(["--scheduler", &cluster.addresses(), "vm", "history", "a"]);
    let shown = Answer::of(command).with_status(0);
    for expected in [
        "  request    ScheduleVm vm=a ",
        "  chosen     h1, which the request named",
        "  claim      a on h1: new, HELD",
        "guest node 0 on NUMA node 0: CPUs ",
        "  operation  live migration: pre live migration done on h2",
        "  migration  a from h1 to h2: RUNNING -> COMPLETED",
        "  vm         MIGRATING on h1 -> ACTIVE on h2",
    ] {
        assert!(
            shown.stdout.contains(expected),
            "{expected} is not in\n{}",
            shown.stdout
        );
    }
}
