//! What hosts may take and which shapes they may have.

mod support;

use std::collections::BTreeSet;

use berth_domain::host::{HostReport, Liveness};
use berth_domain::id::Incarnation;
use berth_domain::migration::Event;
use berth_domain::resource::Trait;
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

fn shape_refused(world: &World) -> String {
    world
        .view("h1")
        .host
        .shape_refused
        .clone()
        .unwrap_or_default()
}

#[test]
fn a_host_keeps_a_shape_that_its_guests_fit() {
    let mut world = World::with_hosts(1);
    for vm in ["a", "b"] {
        world.boot(vm, &pinned(3), "h1");
    }
    world.register("h1", report(topology(1, 3, 1))).unwrap();
    assert_eq!(
        shape_refused(&world),
        "vms b do not fit: the assignment of guest cell 0 is on cell 1, which the host does not have"
    );
    assert_eq!(world.view("h1").host.report.topology.cells().len(), 2);
    world.register("h1", report(topology(3, 3, 1))).unwrap();
    assert_eq!(shape_refused(&world), "");
    world.boot("c", &pinned(3), "h1");
    assert_eq!(world.used("h1", "PCPU"), 9);
    let mut small = report(topology(3, 3, 1));
    small.memory_reserved_mib = 3 * 4096 - 1000;
    world.register("h1", small).unwrap();
    assert!(
        shape_refused(&world).contains("MEMORY_MB"),
        "{}",
        shape_refused(&world)
    );
    assert_eq!(world.view("h1").host.report.memory_reserved_mib, 512);
    let host = host_name("h1");
    assert_eq!(
        reason(&world.run(Command::RemoveHost { host })),
        "HOST_IN_USE"
    );
}

/// An agent that came back with another shape was refused as a whole: its host kept the address
/// and the incarnation of before, so that its guests could be neither moved nor deleted.
#[test]
fn a_host_with_a_refused_shape_can_be_emptied_and_then_fits() {
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    world.boot("b", &pinned(3), "h1");
    let mut changed = report(topology(1, 3, 1));
    changed.agent_address = "http://10.0.0.9:7300".to_owned();
    changed.incarnation = Incarnation(uuid(9, 2));
    changed.migration_uri = "sim://other".to_owned();
    changed.disk_gib = 50;
    world.register("h1", changed.clone()).unwrap();
    let host = world.view("h1").host.clone();
    assert!(host.shape_refused.is_some());
    let recorded = HostReport {
        topology: report(topology(2, 3, 1)).topology,
        disk_gib: 100,
        ..changed.clone()
    };
    assert_eq!(host.report, recorded, "only the shape is of before");
    let refused = world.begin_boot("c", &pinned(1), "h1").unwrap_err();
    assert_eq!(refused.reason, "HOST_SHAPE_REFUSED");
    // Said again, it changes nothing.
    let before = world.state.hosts().clone();
    world.register("h1", changed.clone()).unwrap();
    assert!(world.state.hosts() == &before);

    let leaving = world.begin_migration("b", "h2").unwrap();
    world.transfer(leaving);
    world.settle(leaving, Event::Arrived).unwrap();
    assert!(shape_refused(&world).contains("vms b"), "until it reports");
    world.register("h1", changed.clone()).unwrap();
    let host = world.view("h1").host.clone();
    assert_eq!((&host.shape_refused, &host.report), (&None, &changed));
    assert_eq!(world.used("h1", "PCPU"), 1);
    world.boot("d", &pinned(1), "h1");
}

#[test]
fn a_host_that_gets_its_old_shape_back_is_open_again() {
    let mut world = World::with_hosts(1);
    world.boot("a", &pinned(3), "h1");
    world.register("h1", report(topology(1, 2, 1))).unwrap();
    assert_ne!(shape_refused(&world), "");
    world.register("h1", report(topology(2, 3, 1))).unwrap();
    assert_eq!(shape_refused(&world), "");
    world.boot("b", &pinned(1), "h1");
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

/// Goal: what a host says of itself is what its provider has; a custom trait that nobody has
/// created is created by the same command, and one that nobody can create is refused.
#[test]
fn traits_that_a_host_reports_are_those_of_its_provider() {
    let mut world = World::with_hosts(0);
    let named = |names: &[&str]| {
        let names = names.iter().map(|name| Trait::new(name).unwrap());
        names.collect::<BTreeSet<_>>()
    };
    let mut told = report(topology(1, 3, 1));
    told.traits = named(&["COMPUTE_NODE", "CUSTOM_RACK_7"]);
    world.register("h1", told.clone()).unwrap();
    let traits = |world: &World| {
        let provider = world.view("h1").host.provider;
        world.state.provider(provider).unwrap().traits.clone()
    };
    assert_eq!(traits(&world), told.traits);
    let rack = Trait::new("CUSTOM_RACK_7").unwrap();
    assert!(world.state.custom_trait(&rack).is_some());
    let name = rack.clone();
    let deleted = world.run(Command::DeleteTrait { name });
    assert_eq!(reason(&deleted), "TRAIT_IN_USE");

    told.traits = named(&["COMPUTE_NODE", "CUSTOM_RACK_8"]);
    world.register("h1", told.clone()).unwrap();
    assert_eq!(traits(&world), told.traits);
    // It stays for others, and may be deleted now.
    assert!(world.state.custom_trait(&rack).is_some());
    world.run(Command::DeleteTrait { name: rack }).unwrap();

    told.traits = named(&["HW_CPU_X86_AVX1024"]);
    let refused = world.register("h1", told).unwrap_err();
    assert_eq!(refused.reason, "INVALID_HOST_REPORT");
    assert_eq!(
        refused.message,
        "host h1 reports trait HW_CPU_X86_AVX1024, which is not a standard one"
    );
}

/// A guest without a topology was let loose over the CPUs that were shared when it began.
#[test]
fn cpus_over_which_guests_float_are_not_dedicated() {
    let mut world = World::with_hosts(0);
    world.register("h1", report(topology(1, 2, 2))).unwrap();
    world.boot("a", &floating(1), "h1");
    world.register("h1", report(topology(1, 3, 1))).unwrap();
    assert_eq!(
        shape_refused(&world),
        "it dedicates CPUs 2, over which vms a float"
    );
    // More shared CPUs harm nobody.
    world.register("h1", report(topology(1, 1, 3))).unwrap();
    assert_eq!(shape_refused(&world), "");
}
