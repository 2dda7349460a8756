//! The gate: a guest with a NUMA topology moves only between agents that are new enough to carry
//! and fit it.
//!
//! Method: agents started at service version 1, which really lack the feature: they drop the
//! fields and refuse the call. Without the gate the guest would arrive with its old CPUs, which
//! another guest has.

use berth_tests::processes::{Cluster, Host, eventually, verdict};
use serde_json::Value;

use crate::PROGRAMS;

/// Which agents are old.
struct Case {
    source_is_old: bool,
    destination_is_old: bool,
    /// Words that the refusal says of whom to upgrade.
    told: &'static str,
}

const CASES: [Case; 3] = [
    Case {
        source_is_old: true,
        destination_is_old: false,
        told: "the agent of source h1 is at service version 1,",
    },
    Case {
        source_is_old: false,
        destination_is_old: true,
        told: "h2: its agent is at service version 1,",
    },
    Case {
        source_is_old: true,
        destination_is_old: true,
        told: "h2: its agent is at service version 1 and the agent of source h1 is at service \
               version 1,",
    },
];

/// Goal: with an old source, an old destination, and both, the NUMA guest is refused with nothing
/// changed, and a guest without topology moves; once the agents are upgraded the NUMA guest moves.
#[test]
fn numa_guests_move_between_new_agents_only() {
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .host(Host::new("h1"))
        .host(Host::new("h2"))
        .start();
    cluster.pinned_flavor("pinned", 2);
    cluster.run(&[
        "flavor",
        "create",
        "plain",
        "--vcpus",
        "1",
        "--memory-mib",
        "64",
    ]);
    let pins = cluster.boot("numa", "pinned", "h1");
    let other = cluster.boot("other", "pinned", "h2");
    assert_eq!(
        pins, other,
        "a move with the old CPUs would put two guests on one CPU"
    );
    for (number, case) in CASES.iter().enumerate() {
        restart(&mut cluster, 0, case.source_is_old);
        restart(&mut cluster, 1, case.destination_is_old);
        let before = cluster.json(&["vm", "show", "numa"]);

        let refused = cluster.berth(&["vm", "migrate", "numa", "--host", "h2"]);
        let words = ["SERVICE_VERSION_TOO_OLD", case.told, "\"hint\":\"upgrade"];
        let _ = refused.refused(1).saying(&words);
        assert_eq!(
            cluster.json(&["vm", "show", "numa"]),
            before,
            "nothing changed"
        );
        assert_eq!(cluster.pins_on("numa", "h1"), pins);
        let recorded = cluster.json(&["migration", "list", "--vm", "numa"]);
        assert_eq!(recorded, Value::Array(Vec::new()), "no migration was begun");

        let plain = format!("plain-{number}");
        let _ = cluster.boot(&plain, "plain", "h1");
        cluster.run(&["vm", "migrate", &plain, "--host", "h2"]);
        let _ = cluster.pins_on(&plain, "h2");
        verdict::holds(&cluster);
        verdict::runs_what_is_claimed(&cluster);
    }

    restart(&mut cluster, 0, false);
    restart(&mut cluster, 1, false);
    cluster.run(&["vm", "migrate", "numa", "--host", "h2"]);
    let moved = cluster.pins_on("numa", "h2");
    assert!(
        moved.iter().all(|cpu| !other.contains(cpu)),
        "{moved:?} and {other:?}"
    );
    verdict::holds(&cluster);
    verdict::runs_what_is_claimed(&cluster);
}

/// Restarts an agent at the old or the new service version, and waits until the cluster knows.
fn restart(cluster: &mut Cluster, agent: usize, old: bool) {
    let version = if old { "1" } else { "2" };
    let name = cluster.agents[agent].name.clone();
    let before = cluster.json(&["host", "show", &name])["host"]["report"].clone();
    cluster.agents[agent].kill();
    let more = ["--service-version", version];
    cluster.agents[agent].start_with(&cluster.programs, &more);
    eventually("the new life of an agent", || {
        let shown = cluster.ask(&["host", "show", &name])?;
        let report = &shown["host"]["report"];
        let known = report["incarnation"] != before["incarnation"];
        known.then_some(()).ok_or_else(|| format!("{report:#}"))
    });
    let report = &cluster.json(&["host", "show", &name])["host"]["report"];
    assert_eq!(report["service_version"].to_string(), version);
}

/// Goal: where the scheduler chooses, it passes over hosts whose agent is too old, and says so
/// when no other is left.
#[test]
fn the_scheduler_passes_over_old_hosts() {
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .host(Host::new("h1"))
        // Larger and empty: it would be chosen if its agent were not old.
        .host(Host::new("h2").with_cpus(8).at_version(1))
        .host(Host::new("h3"))
        .start();
    cluster.pinned_flavor("pinned", 2);
    let _ = cluster.boot("a", "pinned", "h1");
    cluster.run(&["vm", "migrate", "a"]);
    let _ = cluster.pins_on("a", "h3");

    cluster.run(&["host", "cordon", "h1"]);
    let refused = cluster.berth(&["vm", "migrate", "a"]).with_status(1);
    let _ = refused.saying(&["SERVICE_VERSION_TOO_OLD"]);
    let _ = cluster.pins_on("a", "h3");
    // A guest without topology may go there.
    cluster.run(&[
        "flavor",
        "create",
        "plain",
        "--vcpus",
        "1",
        "--memory-mib",
        "64",
    ]);
    let _ = cluster.boot("b", "plain", "h3");
    cluster.run(&["vm", "migrate", "b"]);
    let _ = cluster.pins_on("b", "h2");
    verdict::holds(&cluster);
    verdict::runs_what_is_claimed(&cluster);
}
