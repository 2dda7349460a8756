//! Goal: guests are started again by their policies: once, where they may be, and no more often than
//! permitted; and nothing is started that shut itself down or may still run.
//!
//! Method: real processes on loopback with simulated hypervisors, to which a file states what happens by
//! itself; two conductors, so that each restart could be begun twice.

use berth_tests::processes::{Cluster, Host, eventually, verdict};
use serde_json::Value;

use crate::PROGRAMS;

fn cluster() -> Cluster {
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(2)
        .host(Host::new("h1"))
        .host(Host::new("h2"))
        .start();
    cluster.wait();
    cluster.pinned_flavor("pinned", 1);
    cluster
}

fn vm(cluster: &Cluster, name: &str) -> Result<Value, String> {
    Ok(cluster.ask(&["vm", "show", name])?["vm"].clone())
}

fn restarts(vm: &Value) -> usize {
    vm["restarts"]["begun_at"].as_array().map_or(0, Vec::len)
}

/// Waits until a VM runs after so many restarts by its policy.
#[track_caller]
fn is_restarted(cluster: &Cluster, name: &str, count: usize) -> Value {
    eventually(&format!("{name} is restarted {count} times"), || {
        let vm = vm(cluster, name)?;
        let runs = vm["state"] == "Active" && vm["trouble"].is_null() && vm["operation"].is_null();
        (runs && restarts(&vm) == count)
            .then_some(vm.clone())
            .ok_or(format!("{vm}"))
    })
}

/// Has another VM crash on a host, and waits until it is restarted: what was due before it has been looked
/// at.
#[track_caller]
fn others_are_restarted(cluster: &Cluster, host: &str) {
    let _ = cluster.boot("other", "pinned", host);
    cluster.run(&["vm", "set-restart", "other", "--on-crash", "restart"]);
    for count in 1..=2 {
        cluster.happens(host, "crash other");
        let _ = is_restarted(cluster, "other", count);
    }
}

/// Waits until a VM is marked.
#[track_caller]
fn is_marked(cluster: &Cluster, name: &str, absence: &str) {
    eventually(&format!("{name} is marked {absence}"), || {
        let found = vm(cluster, name)?["trouble"]["absence"].clone();
        (found == absence).then_some(()).ok_or(format!("{found}"))
    });
}

#[test]
fn a_guest_that_crashed_is_started_and_one_that_shut_down_is_not() {
    let cluster = cluster();
    let policy = ["--host", "h1", "--on-crash", "restart"];
    cluster.run(&[&Cluster::create("a", "pinned")[..], &policy].concat());
    for name in ["b", "c", "d"] {
        let _ = cluster.boot(name, "pinned", "h1");
    }
    for name in ["b", "c"] {
        cluster.run(&["vm", "set-restart", name, "--on-crash", "restart"]);
    }
    for line in ["crash a", "lose b", "shutdown c", "crash d"] {
        cluster.happens("h1", line);
    }
    let _ = is_restarted(&cluster, "a", 1);
    let _ = is_restarted(&cluster, "b", 1);
    is_marked(&cluster, "c", "ShutDown");
    is_marked(&cluster, "d", "Stopped");
    others_are_restarted(&cluster, "h1");
    for (name, count) in [("a", 1), ("b", 1), ("c", 0), ("d", 0)] {
        assert_eq!(restarts(&vm(&cluster, name).unwrap()), count, "{name}");
    }
    cluster.run(&["vm", "start", "c"]);
    cluster.run(&["vm", "start", "d"]);
    verdict::holds(&cluster);
    verdict::runs_what_is_claimed(&cluster);
}

#[test]
fn a_guest_whose_restarts_are_used_up_stays_off_until_it_is_started() {
    let cluster = cluster();
    let _ = cluster.boot("a", "pinned", "h1");
    let set = ["vm", "set-restart", "a", "--on-crash", "restart"];
    cluster.run(&[&set[..], &["--restarts-per-hour", "1"]].concat());
    cluster.happens("h1", "crash a");
    let _ = is_restarted(&cluster, "a", 1);
    cluster.happens("h1", "crash a");
    eventually("it is left stopped", || {
        let vm = vm(&cluster, "a")?;
        let is_left = vm["state"] == "Stopped" && !vm["restarts"]["gave_up_at"].is_null();
        is_left.then_some(()).ok_or(format!("{vm}"))
    });
    cluster.run(&["vm", "start", "a"]);
    let vm = vm(&cluster, "a").unwrap();
    assert_eq!(vm["state"], "Active");
    assert_eq!(restarts(&vm), 0);
    verdict::holds(&cluster);
    verdict::runs_what_is_claimed(&cluster);
}

/// Goal: once a host is proven dead, exactly the VMs run elsewhere whose policy says so; nothing runs
/// twice when it is back, and it takes guests again.
#[test]
fn the_vms_of_a_dead_host_are_started_elsewhere_by_their_policy() {
    let mut cluster = cluster();
    for name in ["a", "b", "c"] {
        let _ = cluster.boot(name, "pinned", "h1");
    }
    for name in ["a", "b"] {
        cluster.run(&["vm", "set-restart", name, "--on-host-failure", "restart"]);
    }
    cluster.agents[0].kill();
    eventually("h1 is DOWN", || {
        let host = cluster.ask(&["host", "show", "h1"])?;
        (host["host"]["liveness"] == "Down")
            .then_some(())
            .ok_or(format!("{host}"))
    });
    others_are_restarted(&cluster, "h2");
    for name in ["a", "b", "c"] {
        let vm = vm(&cluster, name).unwrap();
        assert_eq!(
            (&vm["host"], restarts(&vm)),
            (&"h1".into(), 0),
            "no proof yet"
        );
    }
    let script = cluster.folder().join("fence.sh");
    std::fs::write(&script, "echo \"$1 is off\"\n").unwrap();
    cluster.run(&["host", "fence", "h1"]);
    for name in ["a", "b"] {
        assert_eq!(is_restarted(&cluster, name, 1)["host"], "h2", "{name}");
    }
    assert_eq!(vm(&cluster, "c").unwrap()["host"], "h1");
    let programs = &cluster.programs;
    cluster.agents[0].start(programs);
    eventually("the fence is lifted", || {
        let host = cluster.ask(&["host", "show", "h1"])?["host"].clone();
        let is_open = host["fenced"].is_null() && host["cordoned"] == false;
        is_open.then_some(()).ok_or(format!("{host}"))
    });
    // As if its machine had restarted.
    cluster.happens("h1", "lose c");
    is_marked(&cluster, "c", "Missing");
    let set = ["vm", "set-restart", "c", "--on-host-failure", "restart"];
    cluster.run(&set);
    assert_eq!(is_restarted(&cluster, "c", 1)["host"], "h1");
    verdict::holds(&cluster);
    verdict::runs_what_is_claimed(&cluster);
}
