//! Many moves at once: a drain with its limit while others boot, and groups that would rather be
//! together, or apart.

use std::collections::BTreeSet;

use berth_domain::migration::{Migration, State};
use berth_tests::processes::{Cluster, Host, eventually};
use serde_json::Value;

use super::stage::{History, Stage, parse};

const DRAIN: [&str; 5] = ["host", "drain", "h1", "--parallel", "2"];

fn stage(hosts: &[&str]) -> Stage {
    let stage = Stage::with(hosts.iter().map(|name| Host::new(name)).collect());
    stage.cluster.pinned_flavor("one", 1);
    stage
}

/// Goal: a drain never has more moves under way than it was allowed, others boot meanwhile, and in
/// the end its host is empty, and nothing is used twice.
#[test]
fn a_drain_keeps_its_limit_while_others_boot() {
    let stage = stage(&["h1", "h2", "h3"]);
    let history = History::of(&stage.cluster);
    for number in 0..5 {
        let _ = stage.cluster.boot(&format!("v{number}"), "one", "h1");
    }
    stage.cluster.happens("h1", "hold transfer");
    std::thread::scope(|scope| {
        let drain = scope.spawn(|| stage.cluster.berth(&DRAIN));
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            eventually("two moves", || {
                let sending = sending(&stage);
                (sending == 2).then_some(()).ok_or(sending)
            });
            // As many as fit: eleven of twelve CPUs but those that the moves hold.
            for number in 0..4 {
                stage
                    .cluster
                    .run(&Cluster::create(&format!("n{number}"), "one"));
                let host = stage.cluster.json(&["vm", "show", &format!("n{number}")]);
                assert_ne!(host["vm"]["host"], "h1", "{host:#}");
            }
            assert_eq!(sending(&stage), 2);
        }));
        stage.cluster.happens("h1", "let transfer");
        let answer = drain.join().expect("an answer");
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let drained = answer.with_status(0).json().unwrap();
        assert_eq!(
            drained["moved"].as_array().map(Vec::len),
            Some(5),
            "{drained:#}"
        );
    });
    assert!(stage.claims("h1").is_empty() && stage.guests("h1").is_empty());
    stage.holds();
    stage.cluster.run(&["vm", "delete", "n0"]);
    let gone = |line: &Value| {
        line["kind"] == "vm"
            && line["record"]["name"] == "n0"
            && line["record"]["state"] == "Deleting"
    };
    let moments = history.until("migration", gone);
    let at_once = moments.iter().map(|records| {
        let all = records.values().map(parse::<Migration>);
        all.filter(|m| matches!(m.state, State::Preparing | State::Running))
            .count()
    });
    assert_eq!(at_once.max(), Some(2), "moves at the same time");
}

fn sending(stage: &Stage) -> usize {
    let guests = stage.guests("h1");
    guests
        .values()
        .filter(|guest| guest.phase == "Sending")
        .count()
}

/// Moves all of these at the same moment, and waits for all of them.
#[track_caller]
fn move_all(stage: &Stage, vms: &[String]) {
    std::thread::scope(|scope| {
        let moves = vms
            .iter()
            .map(|vm| scope.spawn(|| stage.cluster.berth(&["vm", "migrate", vm])));
        for moved in moves.collect::<Vec<_>>() {
            let _ = moved.join().expect("an answer").with_status(0);
        }
    });
    stage.holds();
}

#[track_caller]
fn hosts(stage: &Stage, vms: &[String]) -> BTreeSet<String> {
    let host = |vm: &String| {
        let shown = stage.cluster.json(&["vm", "show", vm]);
        shown["vm"]["host"].as_str().expect("a host").to_owned()
    };
    vms.iter().map(host).collect()
}

fn members(stage: &Stage, policy: &str, host: impl Fn(usize) -> &'static str) -> Vec<String> {
    stage
        .cluster
        .run(&["server-group", "create", policy, "--policy", policy]);
    let boot = |number: usize| {
        let vm = format!("{policy}-{number}");
        let more = ["--server-group", policy, "--host", host(number)];
        stage
            .cluster
            .run(&[&Cluster::create(&vm, "one")[..], &more].concat());
        vm
    };
    (0..3).map(boot).collect()
}

/// Goal: members that would rather be together all go to one host when they are moved at the same
/// moment, and those that would rather be apart go to hosts of their own; where that cannot be, they
/// go all the same.
#[test]
fn soft_groups_hold_while_their_members_move_at_once() {
    let stage = stage(&["h1", "h2", "h3", "h4"]);
    let together = members(&stage, "soft-affinity", |_| "h1");
    stage.cluster.run(&["host", "cordon", "h1"]);
    move_all(&stage, &together);
    let now = hosts(&stage, &together);
    assert_eq!(now.len(), 1, "{now:?}");
    assert!(!now.contains("h1"));
    for vm in &together {
        stage.cluster.run(&["vm", "delete", vm]);
    }
    stage.cluster.run(&["host", "uncordon", "h1"]);

    let apart = members(&stage, "soft-anti-affinity", |_| "h1");
    move_all(&stage, &apart);
    assert_eq!(hosts(&stage, &apart).len(), 3, "each on a host of its own");
    // Two hosts for three: they go where there is room, and no host gets all of them.
    for host in ["h3", "h4"] {
        stage.cluster.run(&["host", "cordon", host]);
    }
    let elsewhere = apart.iter().filter(|vm| {
        let shown = stage.cluster.json(&["vm", "show", vm]);
        ["h3", "h4"].map(Value::from).contains(&shown["vm"]["host"])
    });
    let elsewhere: Vec<String> = elsewhere.cloned().collect();
    move_all(&stage, &elsewhere);
    assert_eq!(hosts(&stage, &apart).len(), 2);
}
