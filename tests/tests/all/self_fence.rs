//! The policy `host.self_fence_ms`: an agent that is cut off from the schedulers stops its guests by
//! itself, and is proven dead by that; an agent that did not promise it is not.
//!
//! Method: real processes on loopback with simulated hypervisors. An agent reaches the scheduler through
//! a gate of the test, which is shut.

use berth_tests::processes::{Cluster, Gate, Host, eventually, verdict};
use serde_json::Value;

use crate::PROGRAMS;

/// Returns a cluster in which VM `a` runs on h1, whose agent goes through the gate, and `b` on h3, whose
/// agent is too old to promise anything.
fn cluster() -> (Cluster, Gate) {
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .gated()
        .conductors(1)
        .host(Host::new("h1"))
        .host(Host::new("h2"))
        .host(Host::new("h3").at_version(2))
        .start();
    let gate = cluster.take_gate();
    let agent = &mut cluster.agents[0];
    agent.kill();
    let at = agent.arguments.iter().position(|a| a == "--scheduler");
    agent.arguments[at.unwrap() + 1] = gate.address().to_string();
    agent.start(&cluster.programs);
    cluster.wait();
    cluster.pinned_flavor("pinned", 2);
    cluster.run(&["policy", "set", "host.self_fence_ms=10000"]);
    for name in ["h1", "h2"] {
        eventually("the promise", || {
            let promised = host(&cluster, name)?["report"]["self_fence_ms"].clone();
            (promised == 15_000)
                .then_some(())
                .ok_or(format!("{promised}"))
        });
    }
    let _ = cluster.boot("a", "pinned", "h1");
    let _ = cluster.boot("b", "pinned", "h3");
    (cluster, gate)
}

fn host(cluster: &Cluster, name: &str) -> Result<Value, String> {
    Ok(cluster.ask(&["host", "show", name])?["host"].clone())
}

/// Returns whether the hypervisor of h1, which writes down what it has, runs `a`.
fn runs_on_h1(cluster: &Cluster) -> bool {
    let file = std::fs::read_to_string(cluster.guests_file("h1")).unwrap_or_default();
    let guests: Value = serde_json::from_str(&file).unwrap_or_default();
    let guests = guests.as_array().cloned().unwrap_or_default();
    guests.iter().any(|guest| guest["phase"] == "Running")
}

#[track_caller]
fn stops_by_itself(cluster: &Cluster) {
    eventually("the guest is stopped", || match runs_on_h1(cluster) {
        true => Err("it runs".to_owned()),
        false => Ok(()),
    });
}

#[track_caller]
fn is_proven_dead(cluster: &Cluster) {
    eventually("h1 is proven dead", || {
        let fenced = host(cluster, "h1")?["fenced"].clone();
        (fenced["how"] == "SelfFenced")
            .then_some(())
            .ok_or(format!("{fenced}"))
    });
}

#[track_caller]
fn evacuates(cluster: &Cluster) {
    cluster.run(&["vm", "evacuate", "a"]);
    let told = cluster.json(&["vm", "show", "a"]);
    assert_eq!(told["vm"]["host"], "h2", "{told:#}");
}

#[track_caller]
fn comes_back(cluster: &Cluster) {
    eventually("the fence is lifted", || {
        let fenced = host(cluster, "h1")?["fenced"].clone();
        fenced.is_null().then_some(()).ok_or(format!("{fenced}"))
    });
    verdict::holds(cluster);
    verdict::runs_what_is_claimed(cluster);
}

/// Goal: the guest is stopped before anybody may start it elsewhere. A host whose agent promised nothing
/// is not proven dead in the same time.
#[test]
fn an_agent_that_is_cut_off_stops_its_guests_and_they_run_elsewhere() {
    let (mut cluster, gate) = cluster();
    gate.shut();
    cluster.agents[2].kill();
    is_proven_dead(&cluster);
    assert!(!runs_on_h1(&cluster), "it was stopped before");
    eventually("h3 is not heard of", || {
        let told = host(&cluster, "h3")?["liveness"].clone();
        (told == "Down").then_some(()).ok_or(format!("{told}"))
    });
    let refused = cluster.berth(&["vm", "evacuate", "b"]).refused(1);
    let _ = refused.saying(&["HOST_NOT_FENCED", "has not promised"]);
    evacuates(&cluster);
    gate.open();
    comes_back(&cluster);
}

/// Goal: an agent that comes back too late, and still hears of nobody, stops what it finds.
#[test]
fn an_agent_that_comes_back_too_late_stops_what_it_finds() {
    let (mut cluster, gate) = cluster();
    cluster.agents[0].kill();
    gate.shut();
    assert!(runs_on_h1(&cluster), "it is there when the agent is back");
    is_proven_dead(&cluster);
    evacuates(&cluster);
    cluster.agents[0].start(&cluster.programs);
    stops_by_itself(&cluster);
    gate.open();
    comes_back(&cluster);
}

/// Goal: a policy that is taken back is not kept any longer.
#[test]
fn a_policy_that_is_off_stops_nothing() {
    let (cluster, _gate) = cluster();
    cluster.run(&["policy", "set", "host.self_fence_ms=none"]);
    for name in ["h1", "h2"] {
        eventually("the promise is taken back", || {
            let promised = host(&cluster, name)?["report"]["self_fence_ms"].clone();
            (promised == 0).then_some(()).ok_or(format!("{promised}"))
        });
    }
    let lease = cluster.guests_file("h1").with_extension("lease");
    eventually("it is not written down any more", || match lease.exists() {
        true => Err("it is there".to_owned()),
        false => Ok(()),
    });
    verdict::runs_what_is_claimed(&cluster);
}
