//! Goal: a drain is an operation: it goes on without the command and the conductor that began it, is
//! listed, waited for and cancelled, and what it leaves cordoned is stated. Method: programs on
//! loopback; the hypervisor of the drained host holds transfers, so that the drain is interrupted in
//! its middle.

use std::process::Command;

use berth_tests::processes::{Cluster, Host, Process, eventually, verdict};
use serde_json::Value;

use crate::PROGRAMS;

const VMS: [&str; 5] = ["v0", "v1", "v2", "v3", "v4"];

/// Three hosts, of which the first has five guests and holds what it sends.
fn cluster(conductors: u32) -> Cluster {
    let begun = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(conductors)
        .transfer_ms(50)
        .lease_ttl_ms(2_000);
    let hosts = ["h1", "h2", "h3"];
    let cluster = hosts.iter().fold(begun, |c, name| c.host(Host::new(name)));
    let cluster = cluster.start();
    cluster.pinned_flavor("one", 1);
    for vm in VMS {
        let _ = cluster.boot(vm, "one", "h1");
    }
    cluster.happens("h1", "hold transfer");
    cluster
}

fn host_of(cluster: &Cluster, vm: &str) -> Value {
    cluster.json(&["vm", "show", vm])["vm"]["host"].clone()
}

fn is_cordoned(cluster: &Cluster) -> Value {
    cluster.json(&["host", "show", "h1"])["host"]["cordoned"].clone()
}

/// Waits until two moves of a drain are in progress, and returns it.
#[track_caller]
fn two_moves(cluster: &Cluster, drain: &str) -> Value {
    eventually("two moves", || {
        let shown = cluster.ask(&["operation", "show", drain])?;
        let vms = shown["drain"]["vms"].as_array().cloned();
        let moving = vms
            .iter()
            .flatten()
            .filter(|vm| vm["progress"].get("Moving").is_some());
        (moving.count() == 2)
            .then_some(shown.clone())
            .ok_or(format!("{shown:#}"))
    })
}

#[track_caller]
fn is_empty(cluster: &Cluster) {
    for vm in VMS {
        assert_ne!(host_of(cluster, vm), "h1", "{vm}");
    }
    verdict::holds(cluster);
    verdict::runs_what_is_claimed(cluster);
}

#[test]
fn another_conductor_finishes_a_drain() {
    let mut cluster = cluster(2);
    let drain = cluster.begin(&["host", "drain", "h1", "--parallel", "2"]);
    let shown = two_moves(&cluster, &drain);
    let listed = cluster.json(&["operation", "list", "--running"]);
    let drains = listed.as_array().expect("a list").iter();
    let mut drains = drains.filter(|operation| operation["drain"]["host"] == "h1");
    assert!(
        drains.any(|operation| operation["id"] == drain.as_str()),
        "{listed:#}"
    );
    let again = cluster.berth(&["host", "drain", "h1"]).refused(1);
    let _ = again.saying(&["HOST_IS_DRAINED", &drain]);
    let lifted = cluster.berth(&["host", "uncordon", "h1"]).refused(1);
    let _ = lifted.saying(&[
        "HOST_IS_DRAINED",
        &format!("berth operation cancel {drain}"),
    ]);

    let holder = shown["lease"]["conductor"].as_str().expect("a holder");
    let number = cluster.conductors.iter().position(|c| c.name == holder);
    let number = number.expect("one of both");
    cluster.conductors[number].kill();
    cluster.happens("h1", "let transfer");
    cluster.succeeds(&drain);
    let log = cluster.conductors[1 - number].log();
    assert!(log.contains(&drain), "the other conductor took it over");
    is_empty(&cluster);
    assert_eq!(is_cordoned(&cluster), true);
    // Each guest was moved once; a move whose conductor died before it called the source has failed.
    let all = cluster.json(&["operation", "list"]);
    let moves = all.as_array().expect("a list").iter();
    let moves = moves.filter(|operation| operation["kind"].get("LiveMigrate").is_some());
    let moves = moves.filter(|operation| operation["outcome"] == "Succeeded");
    assert_eq!(moves.count(), VMS.len(), "{all:#}");
    removed_once_its_agent_is_stopped(&mut cluster);
}

/// An agent that runs would register its host again, without the cordon; the hint helps.
fn removed_once_its_agent_is_stopped(cluster: &mut Cluster) {
    let alive = cluster.berth(&["host", "remove", "h1"]).refused(1);
    let _ = alive.saying(&["HOST_IS_ALIVE", "stop its agent", "DOWN"]);
    assert_eq!(is_cordoned(cluster), true);
    cluster.agents[0].kill();
    eventually("h1 is DOWN", || {
        let host = cluster.ask(&["host", "show", "h1"])?["host"].clone();
        let is_down = host["liveness"] == "Down";
        is_down.then_some(()).ok_or(format!("{host:#}"))
    });
    cluster.run(&["host", "remove", "h1"]);
    let gone = cluster.berth(&["host", "show", "h1"]).refused(1);
    let _ = gone.saying(&["HOST_NOT_FOUND"]);
}

#[test]
fn an_interrupted_command_leaves_its_drain_and_says_how_to_go_on() {
    let cluster = cluster(1);
    let mut command = cluster.programs.command("berth");
    command.args(["--output", "json", "--scheduler", &cluster.addresses()]);
    command.args(["host", "drain", "h1", "--parallel", "2"]);
    let mut process = Process::start(command, &cluster.folder().join("drain.log"));
    let drain = eventually("a drain", || {
        let listed = cluster.ask(&["operation", "list", "--running"])?;
        let mut listed = listed.as_array().cloned().unwrap_or_default().into_iter();
        let drain = listed.find(|operation| operation["drain"]["host"] == "h1");
        drain.ok_or("none".to_owned())
    });
    let drain = drain["id"].as_str().expect("an id").to_owned();
    let _ = two_moves(&cluster, &drain);
    let pid = process.pid().to_string();
    let sent = Command::new("kill").args(["-INT", &pid]).status();
    assert!(sent.expect("kill runs").success());
    assert_eq!(process.wait(), 1);
    let said = process.log();
    for words in ["INTERRUPTED", "operation wait", "operation cancel", &drain] {
        assert!(said.contains(words), "{words}: {said}");
    }
    cluster.happens("h1", "let transfer");
    cluster.run(&["operation", "wait", &drain]);
    is_empty(&cluster);
}

#[test]
fn a_cancelled_drain_uncordons_and_lets_its_moves_end() {
    let cluster = cluster(1);
    let drain = cluster.begin(&["host", "drain", "h1", "--parallel", "2"]);
    let _ = two_moves(&cluster, &drain);
    cluster.run(&["operation", "cancel", &drain]);
    assert_eq!(is_cordoned(&cluster), true, "moves are in progress");
    cluster.happens("h1", "let transfer");
    let ended = cluster.ends(&drain);
    assert_eq!(
        ended["outcome"]["Failed"]["reason"], "OPERATION_CANCELLED",
        "{ended:#}"
    );
    assert_eq!(is_cordoned(&cluster), false);
    let stay = VMS.iter().filter(|vm| host_of(&cluster, vm) == "h1");
    assert_eq!(stay.count(), VMS.len() - 2);
    // A host that was cordoned before stays so.
    cluster.run(&["host", "cordon", "h1"]);
    cluster.happens("h1", "hold transfer");
    let drain = cluster.begin(&["host", "drain", "h1", "--parallel", "2"]);
    let _ = two_moves(&cluster, &drain);
    cluster.run(&["operation", "cancel", &drain]);
    cluster.happens("h1", "let transfer");
    let _ = cluster.ends(&drain);
    assert_eq!(is_cordoned(&cluster), true);
    verdict::holds(&cluster);
}

/// Below cluster version 4 a drain lasts as long as the command that requested it.
#[test]
fn before_drains_are_operations_they_are_waited_for() {
    let begun = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .at_version(3)
        .transfer_ms(50);
    let cluster = begun.host(Host::new("h1")).host(Host::new("h2")).start();
    cluster.pinned_flavor("one", 1);
    let _ = cluster.boot("a", "one", "h1");
    let refused = cluster
        .berth(&["host", "drain", "h1", "--no-wait"])
        .refused(1);
    let _ = refused.saying(&["CLUSTER_VERSION_TOO_OLD", "berth cluster upgrade finalize"]);
    assert_eq!(is_cordoned(&cluster), false);
    let drained = cluster.json(&["host", "drain", "h1"]);
    assert_eq!(drained["operation"], Value::Null, "{drained:#}");
    assert_eq!(drained["moved"][0]["vm"], "a", "{drained:#}");
    assert_eq!(is_cordoned(&cluster), true);
}
