//! `berth vm history` and `berth host history`: from the log of a scheduler, and from its backups.
//!
//! Goal: both show the same, with the hosts that were next best and the exact CPUs; what was done while
//! another scheduler led is in it. Method: whole processes, of which the leader is killed on the way.

use std::thread;

use berth_tests::processes::{Answer, Cluster, Host, eventually};
use serde_json::Value;

use crate::PROGRAMS;
use crate::backup::{Load, Stop, back_up, urls};
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
    earlier(&cluster, made["revision"].as_u64().expect("a revision"));
}

/// Goal: a scheduler shows the state of an earlier revision, states which, and changes nothing of it.
fn earlier(cluster: &Cluster, revision: u64) {
    let at = revision.to_string();
    let read = |line: &[&str]| {
        let answer = cluster
            .berth(&[&["--at", &at], line].concat())
            .with_status(0);
        let stated: Value = serde_json::from_str(answer.stderr.trim()).unwrap_or_default();
        assert_eq!(stated["stale"]["revision"], revision, "{answer:#?}");
        answer.json().unwrap_or_else(|seen| panic!("{seen}"))
    };
    let then = read(&["vm", "show", "a"]);
    assert_eq!(then["vm"]["host"], "h1", "{then:#}");
    assert_eq!(cluster.json(&["vm", "show", "a"])["vm"]["host"], "h2");
    let hosts = read(&["host", "list"]);
    assert_eq!(hosts[0]["host"]["cordoned"], false, "{hosts:#}");
    for (line, reason) in [
        (&["vm", "delete", "a"][..], "REVISION_NOT_A_READ"),
        (&["watch"], "REVISION_NOT_A_READ"),
        (&["vm", "history", "a"], "REVISION_NOT_A_READ"),
        (&["vm", "list", "--stale"], "OPTIONS_CONTRADICT"),
    ] {
        let answer = cluster
            .berth(&[&["--at", &at], line].concat())
            .with_status(1);
        assert!(answer.stderr.contains(reason), "{answer:#?}");
    }
    let far = cluster
        .berth(&["--at", "99999999", "vm", "list"])
        .with_status(1);
    assert!(far.stderr.contains("REVISION_NOT_REACHED"), "{far:#?}");
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

/// Goal: a member gives the state of its earliest checkpoint and of each later revision, and refuses each
/// earlier one, with the first that it has. Method: flavors are created until checkpoints were replaced.
#[test]
fn revisions_are_kept_from_the_earliest_checkpoint_on() {
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .host(Host::new("h1"))
        .checkpoint_entries(100)
        .start();
    let load = Load::default();
    let addresses = urls(&cluster);
    thread::scope(|scope| {
        let _stop = Stop(&load);
        scope.spawn(|| load.run(addresses));
        eventually("a load", || {
            (load.acknowledged() > 400).then_some(()).ok_or("none")
        });
    });
    let at = |revision: u64| cluster.berth(&["--at", &revision.to_string(), "flavor", "list"]);
    let first_kept = || -> u64 {
        let refused = at(1).refused(1).saying(&["REVISION_NOT_KEPT"]);
        let message: Value = serde_json::from_str(&refused.stderr).expect("JSON");
        let message = message["error"]["message"].as_str().unwrap_or_default();
        let first = message
            .rsplit(' ')
            .next()
            .and_then(|word| word.parse().ok());
        first.unwrap_or_else(|| panic!("{message}"))
    };
    // The last checkpoint may still be written.
    let mut before = 0;
    let first: u64 = eventually("checkpoints to rest", || {
        let first = first_kept();
        let rests = std::mem::replace(&mut before, first) == first;
        rests.then_some(first).ok_or(first.to_string())
    });
    assert!(first > 100, "{first}");
    let below = at(first - 1).refused(1).saying(&["REVISION_NOT_KEPT"]);
    assert!(
        below.stderr.contains(&format!("index {first}")),
        "{below:#?}"
    );
    let flavors = [first, first + 1].map(|revision| {
        let answer = at(revision).with_status(0);
        let stated: Value = serde_json::from_str(answer.stderr.trim()).unwrap_or_default();
        assert_eq!(stated["stale"]["revision"], revision, "{answer:#?}");
        let listed = answer.json().unwrap_or_else(|seen| panic!("{seen}"));
        listed.as_array().map_or(0, Vec::len)
    });
    // Another command may come between two flavors.
    assert!((0..=1).contains(&(flavors[1] - flavors[0])), "{flavors:?}");
    assert!(flavors[0] > 50, "{flavors:?}");
}
