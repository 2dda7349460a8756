//! `berth` without a quorum: where the VMs are is shown by any scheduler that is left, which states what
//! its answer is worth.
//!
//! Goal: in the hour in which two of three schedulers are lost an operator sees VMs and hosts, knows that
//! it may be behind, and changes nothing. Method: whole processes; schedulers are killed, or stopped by a
//! signal, so that the last one is cut off; what commands print is read as a program reads it.

use std::time::{Duration, Instant};

use berth_tests::processes::{Answer, Cluster, Host, PATIENCE, eventually};
use rustix::process::Signal;
use serde_json::Value;

use crate::PROGRAMS;

/// Commands that read one scheduler by themselves; each takes seconds. Which others do is in the command's own
/// tests, and that each of them is answered so in `SHOWN`.
const FALL_BACK: [&[&str]; 8] = [
    &["vm", "list"],
    &["vm", "show", "a"],
    &["host", "list"],
    &["host", "show", "h1"],
    &["cluster", "status"],
    &["cluster", "recovery", "status"],
    &["policy", "show"],
    &["flavor", "list"],
];

/// Further commands that show what is recorded.
const SHOWN: [&[&str]; 19] = [
    &["flavor", "show", "one"],
    &["cpu", "models"],
    &["pci-alias", "list"],
    &["migration", "list"],
    &["aggregate", "list"],
    &["availability-zone", "list"],
    &["server-group", "list"],
    &["policy", "show", "--host", "h1"],
    &["operation", "list"],
    &["provider", "list"],
    &["provider", "show", "h1"],
    &["class", "list"],
    &["trait", "list"],
    &["volume", "list"],
    &["volume", "capacity"],
    &["cluster", "services"],
    &["cluster", "memory"],
    &["cluster", "upgrade", "status"],
    &["cluster", "revoked-certificates"],
];

fn start() -> Cluster {
    let host = Host::new("h1");
    let cluster = Cluster::builder(PROGRAMS).schedulers(3).host(host).start();
    cluster.pinned_flavor("one", 1);
    let _ = cluster.boot("a", "one", "h1");
    cluster
}

fn create_flavor(name: &str) -> [&str; 7] {
    [
        "flavor",
        "create",
        name,
        "--vcpus",
        "1",
        "--memory-mib",
        "64",
    ]
}

/// Returns what a command states about its answer on standard error, where programs read it; nothing if
/// its answer is not stale.
#[track_caller]
fn staleness(answer: &Answer) -> Option<Value> {
    let mut lines = answer.stderr.lines();
    let line: Value = serde_json::from_str(lines.next()?).unwrap_or_default();
    assert!(line["stale"].is_object(), "{answer:#?}");
    assert_eq!(lines.next(), None, "one line: {answer:#?}");
    Some(line["stale"].clone())
}

/// Runs a command until it is answered without a leader, and returns its output and what that is worth.
#[track_caller]
fn without_leader(cluster: &Cluster, arguments: &[&str]) -> (Value, Value) {
    eventually(&format!("{arguments:?} without a leader"), || {
        let answer = cluster.berth(arguments);
        let output = answer.json_with(status_without_leader(arguments))?;
        let known = staleness(&answer).ok_or_else(|| format!("{answer:#?}"))?;
        let is_known = known["leader_id"].is_null() && known["supported"] == true;
        is_known
            .then_some((output, known))
            .ok_or_else(|| format!("{answer:#?}"))
    })
}

/// Returns the exit status of a command that reads where there is no leader: one is about the leader.
fn status_without_leader(arguments: &[&str]) -> i32 {
    match arguments.starts_with(&["cluster", "status"]) {
        true => 4,
        false => 0,
    }
}

/// Runs `berth` as people do.
fn table(cluster: &Cluster, arguments: &[&str]) -> Answer {
    let mut command = cluster.programs.command("berth");
    command.args(["--scheduler", &cluster.addresses()]);
    command.args(arguments);
    Answer::of(command)
}

/// Goal: two of three schedulers are killed; each of the commands falls back by itself within seconds and
/// says so, others do with `--stale`, and nothing is changed; after the recovery no answer is stale.
#[test]
fn the_last_scheduler_shows_where_vms_are() {
    let mut cluster = start();
    let leader = cluster.leader();
    let last = (leader + 1) % 3;
    for lost in (0..3).filter(|number| *number != last) {
        cluster.schedulers[lost].kill();
    }
    let address = format!("http://{}", cluster.schedulers[last].address);
    for command in FALL_BACK {
        let begun = Instant::now();
        let (_, known) = without_leader(&cluster, command);
        println!(
            "{command:?}: {:.1} s, {known}",
            begun.elapsed().as_secs_f64()
        );
        assert_eq!(known["address"], *address, "{command:?}");
        assert!(known["age_ms"].as_u64() > Some(0), "{known}");
        assert!(known["revision"].as_u64() > Some(0), "{known}");
    }
    // A first attempt at a leader may still be computed when the second one comes.
    for _ in 0..3 {
        let _ = without_leader(&cluster, &["vm", "history", "a"]);
    }
    let (vms, _) = without_leader(&cluster, &["vm", "list"]);
    assert_eq!(vms[0]["name"], "a", "{vms:#}");
    assert_eq!(vms[0]["host"], "h1", "{vms:#}");
    let (hosts, _) = without_leader(&cluster, &["host", "list"]);
    assert_eq!(hosts[0]["host"]["liveness"], "Unknown", "{hosts:#}");
    let (host, _) = without_leader(&cluster, &["host", "show", "h1"]);
    assert_eq!(host["host"]["liveness"], "Unknown", "{host:#}");
    assert!(host["memory_signals"].is_null(), "{host:#}");
    let (status, _) = without_leader(&cluster, &["cluster", "status"]);
    assert_eq!(status["leader_id"], 0, "{status:#}");
    assert_eq!(
        status["members"].as_array().map(Vec::len),
        Some(3),
        "{status:#}"
    );
    assert!(status["failures_tolerated"].is_null(), "{status:#}");
    let shown = table(&cluster, &["cluster", "status"]).with_status(4);
    for part in [
        "none is known in term",
        "not known: no leader answers",
        "CONDUCTOR",
    ] {
        assert!(shown.stdout.contains(part), "{part}: {shown:#?}");
    }
    let _ = table(&cluster, &["cluster", "status", "--stale"]).with_status(4);

    let shown = table(&cluster, &["host", "list"]).with_status(0);
    assert!(shown.stdout.contains("UNKNOWN"), "{shown:#?}");
    let _ = shown.saying(&[
        "no leader: member",
        &address,
        "later changes may be missing",
    ]);

    let (flavors, _) = without_leader(&cluster, &["flavor", "list"]);
    assert_eq!(flavors[0]["name"], "one", "{flavors:#}");
    for command in SHOWN {
        let _ = without_leader(&cluster, &[command, &["--stale"]].concat());
    }
    // What is computed is acted upon.
    let _ = cluster.berth(&["verify"]).refused(3);
    changes_nothing(&cluster);

    for lost in (0..3).filter(|number| *number != last) {
        cluster.schedulers[lost].start(&cluster.programs);
    }
    cluster.wait();
    for command in FALL_BACK {
        let answer = cluster.berth(command).with_status(0);
        assert_eq!(answer.stderr, "", "{answer:#?}");
    }
    let hosts = cluster.json(&["host", "list"]);
    assert_eq!(hosts[0]["host"]["liveness"], "Up", "{hosts:#}");
}

/// What would change something is refused at once, by the command itself.
fn changes_nothing(cluster: &Cluster) {
    let flavor = create_flavor("two");
    let changes: [&[&str]; 4] = [
        &flavor,
        &["vm", "delete", "a"],
        &["host", "cordon", "h1"],
        &["cluster", "remove-member", "1"],
    ];
    for change in changes {
        let begun = Instant::now();
        let answer = cluster.berth(&[change, &["--stale"]].concat()).refused(1);
        let answer = answer.saying(&["STALE_NOT_A_READ"]);
        assert!(begun.elapsed() < PATIENCE, "{answer:#?}");
    }
}

/// Goal: a scheduler that was down while the others went on shows what it knew, and that it has not heard
/// from a leader since.
#[test]
fn a_scheduler_that_was_away_is_behind() {
    let mut cluster = start();
    let away = (cluster.leader() + 1) % 3;
    cluster.schedulers[away].kill();
    cluster.run(&create_flavor("late"));
    for lost in (0..3).filter(|number| *number != away) {
        cluster.schedulers[lost].kill();
    }
    cluster.schedulers[away].start(&cluster.programs);
    let (flavors, known) = without_leader(&cluster, &["flavor", "list", "--stale"]);
    let names: Vec<&Value> = flavors.as_array().expect("a list").iter().collect();
    let names: Vec<&Value> = names.into_iter().map(|flavor| &flavor["name"]).collect();
    assert_eq!(names, ["one"], "it cannot know of the late one");
    assert!(known["age_ms"].is_null(), "{known}");
    let shown = table(&cluster, &["vm", "list"]).with_status(0);
    let _ = shown.saying(&["which no leader has confirmed since it started"]);
}

/// Goal: a scheduler that was stopped while the others committed does not look young when it goes on, though
/// messages of the leader were waiting for it.
#[test]
fn a_scheduler_that_was_stopped_counts_that_time() {
    let mut cluster = start();
    let stopped = (cluster.leader() + 1) % 3;
    cluster.schedulers[stopped].signal(Signal::STOP);
    let since = Instant::now();
    cluster.run(&create_flavor("late"));
    // The leader's messages arrive at its socket meanwhile.
    std::thread::sleep(Duration::from_secs(3));
    for lost in (0..3).filter(|number| *number != stopped) {
        cluster.schedulers[lost].kill();
    }
    let address = cluster.schedulers[stopped].address.clone();
    let away = since.elapsed();
    cluster.schedulers[stopped].signal(Signal::CONT);
    let known = eventually("an answer without a leader", || {
        let answer = cluster.berth_at(&address, &["flavor", "list", "--stale"]);
        let known = staleness(&answer).ok_or("it has a leader")?;
        let is_alone = known["leader_id"].is_null();
        is_alone.then(|| known.clone()).ok_or(known.to_string())
    });
    let age = Duration::from_millis(known["age_ms"].as_u64().expect("it was confirmed"));
    assert!(age >= away, "{known} after {away:?}");
}

/// Goal: a follower that is cut off states its age, which grows; once the others go on, it is read
/// through the leader again.
#[test]
fn a_follower_that_is_cut_off_states_its_age() {
    let mut cluster = start();
    let leader = cluster.leader();
    let alone = (leader + 1) % 3;
    let others = (0..3).filter(|number| *number != alone);
    let others: Vec<usize> = others.collect();
    for other in &others {
        cluster.schedulers[*other].signal(Signal::STOP);
    }
    let stopped = Instant::now();
    let address = cluster.schedulers[alone].address.clone();
    let age = |cluster: &Cluster| {
        eventually("an answer without a leader", || {
            let answer = cluster.berth_at(&address, &["vm", "list"]);
            let vms = answer.json()?;
            assert_eq!(vms[0]["name"], "a", "{vms:#}");
            let known = staleness(&answer).ok_or("it has a leader")?;
            let age = known["age_ms"]
                .as_u64()
                .filter(|_| known["leader_id"].is_null());
            age.map(Duration::from_millis)
                .ok_or_else(|| known.to_string())
        })
    };
    let begun = Instant::now();
    let first = age(&cluster);
    let second = age(&cluster);
    assert!(
        first > Duration::ZERO && second > first,
        "{first:?} {second:?}"
    );
    assert!(second <= stopped.elapsed() + PATIENCE, "{second:?}");
    let apart = second - first;
    assert!(
        apart <= begun.elapsed(),
        "both count from one message: {first:?} {second:?}"
    );
    for other in &others {
        cluster.schedulers[*other].signal(Signal::CONT);
    }
    eventually("an answer through the leader", || {
        let answer = cluster.berth_at(&address, &["vm", "list"]);
        let _ = answer.json()?;
        let is_led = answer.stderr.is_empty();
        is_led.then_some(()).ok_or_else(|| format!("{answer:#?}"))
    });
}
