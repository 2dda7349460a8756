//! Goal: a fence command runs once for a request: neither a repetition nor a request that is refused
//! resets a host that is back, or another host.
//!
//! Method: real processes on loopback with simulated hypervisors, two conductors, and a fence command that
//! writes down for which host it runs. The real command asks, with the request id of before.

use berth_tests::processes::{Cluster, Host, eventually, verdict};
use serde_json::Value;

use crate::PROGRAMS;

const REQUEST: [&str; 2] = ["--request-id", "5f3a1c86-0b0e-4c5e-9d0f-2a6f4f1c7b11"];

/// Starts a cluster of two hosts.
fn cluster(conductors: u32) -> Cluster {
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(conductors)
        .host(Host::new("h1"))
        .host(Host::new("h2"))
        .start();
    cluster.wait();
    cluster
}

/// Fences a host with the one request id; returns the reason of a refusal.
fn fence(cluster: &Cluster, host: &str) -> Option<String> {
    let answer = cluster.berth(&[&["host", "fence", host][..], &REQUEST].concat());
    if answer.status == Some(0) {
        return None;
    }
    let last = answer.stderr.lines().last().unwrap_or_default();
    let refusal: Value = serde_json::from_str(last).expect("JSON");
    Some(
        refusal["error"]["reason"]
            .as_str()
            .expect("a reason")
            .to_owned(),
    )
}

/// The hosts for which the command ran, one after another.
fn commands(cluster: &Cluster) -> Vec<String> {
    let log = std::fs::read_to_string(cluster.folder().join("fenced"));
    log.unwrap_or_default().lines().map(str::to_owned).collect()
}

#[test]
fn a_fence_command_runs_once_for_a_request() {
    let mut cluster = cluster(2);
    let log = cluster.folder().join("fenced");
    let script = format!("echo \"$1\" >> {log:?}\necho \"off $(date +%N)\"\n");
    std::fs::write(cluster.folder().join("fence.sh"), script).unwrap();
    cluster.agents[0].kill();

    assert_eq!(fence(&cluster, "h1"), None);
    assert_eq!(commands(&cluster), ["h1"]);
    for conductor in [1, 0] {
        assert_eq!(fence(&cluster, "h1"), None);
        assert_eq!(fence(&cluster, "h2").as_deref(), Some("REQUEST_ID_REUSED"));
        if conductor == 1 {
            cluster.conductors[conductor].kill();
        }
    }
    assert_eq!(commands(&cluster), ["h1"]);

    let programs = &cluster.programs;
    cluster.agents[0].start(programs);
    eventually("the fence is lifted", || {
        let fenced = cluster.ask(&["host", "show", "h1"])?["host"]["fenced"].clone();
        fenced.is_null().then_some(()).ok_or(format!("{fenced}"))
    });
    // The host is back with another run of its agent: an old proof is not repeated.
    assert_eq!(fence(&cluster, "h1").as_deref(), Some("REQUEST_ID_REUSED"));
    assert_eq!(commands(&cluster), ["h1"]);
    verdict::holds(&cluster);
}

/// Goal: a fence command that succeeded without effect is no proof: nothing is started elsewhere.
#[test]
fn a_fence_command_without_effect_proves_nothing() {
    let cluster = cluster(1);
    cluster.pinned_flavor("one", 1);
    let _ = cluster.boot("a", "one", "h1");
    std::fs::write(cluster.folder().join("fence.sh"), "echo off\n").unwrap();
    let refused = cluster.berth(&["host", "fence", "h1"]).refused(1);
    let _ = refused.saying(&["HOST_IS_ALIVE", "look at what the fence command does"]);
    let host = cluster.json(&["host", "show", "h1"])["host"].clone();
    assert_eq!(
        (&host["liveness"], &host["fenced"]),
        (&"Up".into(), &Value::Null)
    );
    let refused = cluster.berth(&["host", "evacuate", "h1"]).refused(1);
    let _ = refused.saying(&["HOST_IS_ALIVE"]);
    verdict::runs_what_is_claimed(&cluster);
    verdict::holds(&cluster);
}

/// Goal: a resize is not reverted onto a host that starts no guest: the VM would be stopped for nothing.
/// The hint helps, before and after the host is proven dead.
#[test]
fn a_resize_is_not_reverted_to_a_dead_host() {
    for is_fenced in [false, true] {
        let mut cluster = cluster(1);
        cluster.pinned_flavor("one", 1);
        cluster.pinned_flavor("two", 2);
        let _ = cluster.boot("a", "one", "h1");
        cluster.run(&["vm", "resize", "a", "--flavor", "two", "--host", "h2"]);
        cluster.agents[0].kill();
        eventually("h1 is DOWN", || {
            let host = cluster.ask(&["host", "show", "h1"])?["host"].clone();
            let is_down = host["liveness"] == "Down";
            is_down.then_some(()).ok_or(format!("{host:#}"))
        });
        if is_fenced {
            cluster.run(&["host", "fence", "h1", "--confirm-off"]);
        }
        let refused = cluster.berth(&["vm", "revert-resize", "a"]).refused(1);
        let _ = refused.saying(&["HOST_DOWN", "berth vm confirm-resize a"]);
        let vm = cluster.json(&["vm", "show", "a"])["vm"].clone();
        assert_eq!(vm["state"], "Resized", "{vm:#}");
        if is_fenced {
            cluster.run(&["vm", "confirm-resize", "a"]);
            let vm = cluster.json(&["vm", "show", "a"])["vm"].clone();
            assert_eq!(
                (&vm["state"], &vm["host"]),
                (&"Active".into(), &"h2".into())
            );
        }
    }
}

/// Goal: a guest that was started elsewhere does not go on where it was, also if the host was removed while
/// it was fenced and registers as a new one. Method: the fence was a lie; the guests are there again with
/// the agent. The host's own hints lead there.
#[test]
fn a_host_that_was_removed_while_fenced_keeps_no_guest_that_left() {
    let mut cluster = cluster(1);
    cluster.pinned_flavor("one", 1);
    let _ = cluster.boot("a", "one", "h1");
    cluster.agents[0].kill();
    std::fs::write(cluster.folder().join("fence.sh"), "echo off\n").unwrap();
    cluster.run(&["host", "fence", "h1"]);
    cluster.run(&["host", "evacuate", "h1"]);
    cluster.run(&["host", "remove", "h1"]);
    let runs = |cluster: &Cluster| {
        let guests = std::fs::read(cluster.guests_file("h1")).unwrap();
        let guests: Value = serde_json::from_slice(&guests).unwrap();
        let guests = guests.as_array().expect("a list").clone();
        guests.iter().any(|guest| guest["phase"] == "Running")
    };
    assert!(runs(&cluster), "it is there as before");
    let programs = &cluster.programs;
    cluster.agents[0].start(programs);
    eventually("the guest ends on h1", || {
        let host = cluster.ask(&["host", "show", "h1"])?["host"].clone();
        let is_up = host["liveness"] == "Up";
        (is_up && !runs(&cluster))
            .then_some(())
            .ok_or(format!("{host:#}"))
    });
    verdict::runs_what_is_claimed(&cluster);
    verdict::holds(&cluster);
}
