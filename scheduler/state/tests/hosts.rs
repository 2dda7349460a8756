//! What hosts may take and which shapes they may have.

mod support;

use berth_domain::host::Liveness;
use berth_domain::version::ServiceVersion;
use berth_state::command::Command;
use support::*;

#[test]
fn hosts_that_are_down_or_cordoned_take_nothing_new() {
    let mut world = World::with_hosts(2);
    let host = host_name("h1");
    world
        .run(Command::SetCordon {
            host: host.clone(),
            cordoned: true,
        })
        .unwrap();
    assert_eq!(
        world.begin_boot("a", &pinned(1), "h1").unwrap_err().reason,
        "HOST_CORDONED"
    );
    world
        .run(Command::SetCordon {
            host: host.clone(),
            cordoned: false,
        })
        .unwrap();
    world
        .run(Command::SetLiveness {
            host,
            liveness: Liveness::Down,
        })
        .unwrap();
    assert_eq!(
        world.begin_boot("a", &pinned(1), "h1").unwrap_err().reason,
        "HOST_DOWN"
    );
    world.boot("a", &pinned(1), "h2");
    assert_eq!(
        world.begin_migration("a", "h1").unwrap_err().reason,
        "HOST_DOWN"
    );
}

#[test]
fn a_host_keeps_a_shape_that_its_guests_fit() {
    let mut world = World::with_hosts(1);
    for vm in ["a", "b"] {
        world.boot(vm, &pinned(3), "h1");
    }
    let refused = world.register("h1", report(topology(1, 3, 1))).unwrap_err();
    assert_eq!(refused.reason, "HOST_SHAPE_IN_USE");
    assert!(refused.message.contains(" b "), "{refused}");
    assert_eq!(world.view("h1").host.report.topology.cells().len(), 2);
    world.register("h1", report(topology(3, 3, 1))).unwrap();
    world.boot("c", &pinned(3), "h1");
    assert_eq!(world.used("h1", "PCPU"), 9);
    let mut small = report(topology(3, 3, 1));
    small.memory_reserved_mib = 3 * 4096 - 1000;
    assert_eq!(
        world.register("h1", small).unwrap_err().reason,
        "HOST_SHAPE_IN_USE"
    );
    let host = host_name("h1");
    assert_eq!(
        reason(&world.run(Command::RemoveHost { host })),
        "HOST_IN_USE"
    );
}

#[test]
fn old_agents_do_not_move_guests_with_a_topology() {
    for old in ["h1", "h2"] {
        let mut world = World::with_hosts(2);
        let mut report = report(topology(2, 3, 1));
        report.service_version = ServiceVersion(1);
        world.register(old, report).unwrap();
        world.boot("a", &pinned(1), "h1");
        world.boot("b", &floating(1), "h1");
        let refused = world.begin_migration("a", "h2").unwrap_err();
        assert_eq!(refused.reason, "SERVICE_VERSION_TOO_OLD");
        world.begin_migration("b", "h2").unwrap();
        assert_eq!(
            world.begin_migration("b", "h1").unwrap_err().reason,
            "VM_BUSY"
        );
    }
}

/// A guest without a topology was let loose over the CPUs that were shared when it began.
#[test]
fn cpus_over_which_guests_float_are_not_dedicated() {
    let mut world = World::with_hosts(0);
    world.register("h1", report(topology(1, 2, 2))).unwrap();
    world.boot("a", &floating(1), "h1");
    let refused = world.register("h1", report(topology(1, 3, 1))).unwrap_err();
    assert_eq!(refused.reason, "HOST_SHAPE_IN_USE");
    assert!(refused.message.contains("CPUs 2"), "{refused}");
    // More shared CPUs harm nobody.
    world.register("h1", report(topology(1, 1, 3))).unwrap();
}
