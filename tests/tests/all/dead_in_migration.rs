//! A live migration is under way when the host of one side dies: once it is proven dead the migration
//! ends, and the VM runs, or can be evacuated and runs, once.
//!
//! Method: real processes on loopback with simulated hypervisors, which die with their agents; asked by
//! the real command. A host that comes back still has the guests that it had, as if the fence had been
//! a lie: it has to take them away.

use berth_tests::processes::{Answer, Cluster, Host, eventually, verdict};
use serde_json::Value;

use crate::PROGRAMS;

/// Returns a cluster in which VM `a` is on its way from h1 to h2, and the operation.
fn migrating() -> (Cluster, String) {
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(1)
        .host(Host::new("h1"))
        .host(Host::new("h2"))
        .transfer_ms(600_000)
        .start();
    cluster.wait();
    cluster.pinned_flavor("pinned", 2);
    let _ = cluster.boot("a", "pinned", "h1");
    let moving = cluster.begin(&["vm", "migrate", "a", "--host", "h2"]);
    cluster.reaches(&moving, "LiveMigration", "Succeeded");
    std::fs::write(cluster.folder().join("fence.sh"), "echo off\n").unwrap();
    (cluster, moving)
}

fn shown(cluster: &Cluster) -> Value {
    cluster.json(&["vm", "show", "a"])["vm"].clone()
}

/// The host is back, and its fence is lifted.
#[track_caller]
fn comes_back(cluster: &mut Cluster, at: usize) {
    let programs = &cluster.programs;
    cluster.agents[at].start(programs);
    let name = cluster.agents[at].name.clone();
    eventually("the fence is lifted", || {
        let fenced = cluster.ask(&["host", "show", &name])?["host"]["fenced"].clone();
        fenced.is_null().then_some(()).ok_or(format!("{fenced}"))
    });
    verdict::holds(cluster);
    verdict::runs_what_is_claimed(cluster);
}

#[test]
fn a_vm_stays_when_its_destination_dies() {
    let (mut cluster, moving) = migrating();
    cluster.agents[1].kill();
    cluster.run(&["host", "fence", "h2"]);
    let ended = cluster.ends(&moving);
    assert_eq!(
        ended["outcome"]["Failed"]["reason"], "DESTINATION_DEAD",
        "{ended:#}"
    );
    let vm = shown(&cluster);
    assert_eq!(
        (&vm["state"], &vm["host"]),
        (&"Active".into(), &"h1".into())
    );
    let recorded = cluster.json(&["migration", "list", "--vm", "a"]);
    assert_eq!(recorded[0]["state"], "Failed", "{recorded:#}");
    comes_back(&mut cluster, 1);
    assert_eq!(shown(&cluster)["host"], "h1");
}

#[test]
fn a_vm_is_evacuated_when_its_source_dies() {
    let (mut cluster, moving) = migrating();
    cluster.agents[0].kill();
    cluster.run(&["host", "fence", "h1"]);
    let ended = cluster.ends(&moving);
    let failed = &ended["outcome"]["Failed"];
    assert_eq!(failed["reason"], "SOURCE_DEAD", "{ended:#}");
    assert_eq!(shown(&cluster)["host"], "h1");
    cluster.run(&["vm", "evacuate", "a"]);
    let vm = shown(&cluster);
    assert_eq!(
        (&vm["state"], &vm["host"]),
        (&"Active".into(), &"h2".into())
    );
    comes_back(&mut cluster, 0);
    assert_eq!(shown(&cluster)["host"], "h2");
}

/// Goal: of two dead hosts none is waited for, and of one that only does not answer, the other's death
/// says nothing.
#[test]
fn a_vm_is_evacuated_when_both_hosts_die() {
    let (mut cluster, moving) = migrating();
    cluster.agents[0].kill();
    cluster.agents[1].kill();
    cluster.run(&["host", "fence", "h2"]);
    eventually("it waits for h1", || {
        let shown = cluster.ask(&["migration", "list", "--vm", "a"])?;
        let migration = &shown[0];
        let waits = migration["error"]["metadata"]["waits_for"] == "h1";
        (waits && migration["state"] == "Unsettled")
            .then_some(())
            .ok_or(format!("{shown:#}"))
    });
    cluster.run(&["host", "fence", "h1"]);
    let ended = cluster.ends(&moving);
    let failed = &ended["outcome"]["Failed"];
    assert_eq!(failed["reason"], "SOURCE_DEAD", "{ended:#}");
    comes_back_empty(&mut cluster, 1);
    cluster.run(&["host", "evacuate", "h1"]);
    assert_eq!(shown(&cluster)["host"], "h2");
    comes_back(&mut cluster, 0);
    assert_eq!(shown(&cluster)["host"], "h2");
}

/// The host is back as after a power cut.
#[track_caller]
fn comes_back_empty(cluster: &mut Cluster, at: usize) {
    let _ = std::fs::remove_file(cluster.guests_file(&cluster.agents[at].name));
    let programs = &cluster.programs;
    cluster.agents[at].start(programs);
    let name = cluster.agents[at].name.clone();
    eventually("the fence is lifted", || {
        let fenced = cluster.ask(&["host", "show", &name])?["host"]["fenced"].clone();
        fenced.is_null().then_some(()).ok_or(format!("{fenced}"))
    });
}

/// Goal: a command that waits for an operation does not say that nothing was done when no scheduler answers any
/// more; its hint helps once one does.
#[test]
fn a_command_that_waits_says_that_the_operation_goes_on() {
    let (mut cluster, moving) = migrating();
    let mut command = cluster.programs.command("berth");
    command.args(["--output", "json", "--scheduler", &cluster.addresses()]);
    command.args(["operation", "wait", &moving]);
    let waiting = std::thread::spawn(move || Answer::of(command));
    cluster.schedulers[0].kill();
    let hint = format!("berth operation wait {moving}");
    let answer = waiting.join().expect("an answer");
    let _ = answer.refused(3).saying(&["OUTCOME_UNKNOWN", &hint]);
    let programs = &cluster.programs;
    cluster.schedulers[0].start(programs);
    cluster.run(&["operation", "cancel", &moving]);
    let waited = cluster.berth(&["operation", "wait", &moving]);
    let _ = waited.refused(1);
    verdict::holds(&cluster);
}
