//! What hosts may take and which shapes they may have.

use std::collections::BTreeSet;

use berth_domain::constraint::shape;
use berth_domain::cpu_set::CpuSet;
use berth_domain::host::{HostReport, Liveness};
use berth_domain::id::Incarnation;
use berth_domain::migration::Event;
use berth_domain::resource::Trait;
use berth_domain::topology::HostTopology;
use berth_domain::version::ServiceVersion;
use berth_state::command::Command;
use berth_testkit::state::*;

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

fn hit(world: &World) -> Vec<String> {
    let host = &world.view("h1").host;
    let claims = world.state.claims_of_host(&host.name);
    let hit = claims.filter(|claim| host.hit.contains(&claim.id));
    hit.map(|claim| claim.vm.to_string()).collect()
}

/// Returns the topology without these CPUs, as if they were offline.
fn without(topology: &HostTopology, cpus: &str) -> HostTopology {
    let gone: CpuSet = cpus.parse().unwrap();
    let cells = topology.cells().iter().cloned().map(|mut cell| {
        cell.dedicated = cell.dedicated.difference(&gone);
        cell.shared = cell.shared.difference(&gone);
        cell.cores = (cell.cores.iter())
            .map(|core| core.difference(&gone))
            .filter(|core| !core.is_empty())
            .collect();
        cell
    });
    let cells: Vec<_> = cells.collect();
    let distances = vec![vec![10; cells.len()]; cells.len()];
    HostTopology::new(cells, distances).unwrap()
}

/// Goal: a host that came back smaller is taken as it is: who is hit is marked and keeps what it
/// has, nothing is given of what is lost, and all is well when it is back.
#[test]
fn a_host_that_lost_cpus_gives_nothing_of_them() {
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(2), "h1");
    world.boot("b", &pinned(2), "h1");
    let lost = world.state.vm(&vm_name("a")).unwrap().claim.unwrap();
    let taken = world.state.claim(lost).unwrap().assignment.taken();
    let whole = topology(2, 3, 1);
    let cpu = taken.iter().next().unwrap().to_string();
    world.register("h1", report(without(&whole, &cpu))).unwrap();
    assert_eq!(
        (shape_refused(&world), hit(&world)),
        (String::new(), vec!["a".to_owned()])
    );
    assert_eq!(
        shape::describe_missing(
            &world.view("h1").host.report.topology,
            &world.state.claim(lost).unwrap().assignment
        ),
        format!("CPUs {cpu} are offline")
    );
    assert_eq!(world.used("h1", "PCPU"), 4);
    // One CPU is left of each cell, and the counted total is one less.
    let refused = world.begin_boot("c", &pinned(2), "h1").unwrap_err();
    assert_eq!(refused.reason, "NO_VALID_HOST");
    world.boot("c", &pinned(1), "h1");
    let refused = world.begin_boot("d", &pinned(1), "h1").unwrap_err();
    assert_eq!(refused.reason, "NO_VALID_HOST", "five of five are taken");

    world.register("h1", report(whole)).unwrap();
    assert_eq!(hit(&world), Vec::<String>::new());
    world.boot("d", &pinned(1), "h1");
}

/// Goal: as long as no row may say who is hit, a host with guests keeps its shape and takes nothing
/// new, and says why; once the version is raised, its next report is taken.
#[test]
fn before_the_upgrade_is_finalized_a_host_keeps_its_shape() {
    let mut world = World::before_upgrades(1);
    world.boot("a", &pinned(3), "h1");
    world.boot("b", &pinned(3), "h1");
    world.register("h1", report(topology(1, 3, 1))).unwrap();
    let why = shape_refused(&world);
    assert!(why.contains("no room for vms b"), "{why}");
    assert_eq!(hit(&world), Vec::<String>::new());
    assert_eq!(
        world.view("h1").host.report.topology,
        topology(2, 3, 1).into()
    );
    let refused = world.begin_boot("c", &pinned(1), "h1").unwrap_err();
    assert_eq!(refused.reason, "HOST_SHAPE_REFUSED");

    let raise = Command::FinalizeUpgrade {
        version: ServiceVersion::SMALLER_HOSTS,
        gone: BTreeSet::new(),
    };
    world.run(raise).unwrap();
    world.register("h1", report(topology(1, 3, 1))).unwrap();
    assert_eq!(
        (shape_refused(&world), hit(&world)),
        (String::new(), vec!["b".to_owned()])
    );
}

/// Goal: who is hit can be moved away, and what is left is given to others then.
#[test]
fn who_is_hit_can_leave() {
    let mut world = World::with_hosts(2);
    for vm in ["a", "b"] {
        world.boot(vm, &pinned(3), "h1");
    }
    world.register("h1", report(topology(1, 3, 1))).unwrap();
    assert_eq!(hit(&world), ["b"], "its cell is gone");
    assert_eq!(world.view("h1").host.report.topology.cells().len(), 1);
    let host = host_name("h1");
    assert_eq!(
        reason(&world.run(Command::RemoveHost { host })),
        "HOST_IN_USE"
    );
    let leaving = world.begin_migration("b", "h2").unwrap();
    world.transfer(leaving);
    world.settle(leaving, Event::Arrived).unwrap();
    assert_eq!(hit(&world), Vec::<String>::new());
    let refused = world.begin_boot("c", &pinned(1), "h1").unwrap_err();
    assert_eq!(refused.reason, "NO_VALID_HOST");
    world.delete("a");
    world.boot("c", &pinned(3), "h1");
}

/// Goal: with less memory the latest claims are hit, and as others leave there is room for them.
#[test]
fn there_is_room_again_when_others_leave() {
    let mut world = World::with_hosts(1);
    world.boot("a", &pinned(3), "h1");
    world.boot("b", &pinned(3), "h1");
    let mut small = report(topology(2, 3, 1));
    small.memory_reserved_mib = 2 * 4096 - 600;
    world.register("h1", small.clone()).unwrap();
    assert_eq!(hit(&world).len(), 1);
    assert_eq!(
        world.view("h1").host.report,
        small,
        "the whole report is taken over"
    );
    let stays = hit(&world);
    let leaves = if stays[0] == "a" { "b" } else { "a" };
    world.delete(leaves);
    assert_eq!(hit(&world), Vec::<String>::new());
}

/// An agent that came back with another shape was refused as a whole: its host kept the address
/// and the incarnation of before, so that its guests could be neither moved nor deleted.
#[test]
fn a_host_with_a_refused_shape_can_be_emptied_and_then_fits() {
    let mut world = World::with_hosts(2);
    world.boot("a", &floating(1), "h1");
    // CPU 3 was shared.
    let mut changed = report(topology(1, 4, 1));
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

    let leaving = world.begin_migration("a", "h2").unwrap();
    world.transfer(leaving);
    world.settle(leaving, Event::Arrived).unwrap();
    assert!(shape_refused(&world).contains("vms a"), "until it reports");
    world.register("h1", changed.clone()).unwrap();
    let host = world.view("h1").host.clone();
    assert_eq!((&host.shape_refused, &host.report), (&None, &changed));
    world.boot("d", &pinned(1), "h1");
}

/// Goal: CPUs that a guest has for itself are never those of all.
#[test]
fn cpus_that_guests_have_are_not_shared_out() {
    let mut world = World::with_hosts(0);
    world.register("h1", report(topology(1, 3, 1))).unwrap();
    world.boot("a", &pinned(3), "h1");
    world.register("h1", report(topology(1, 2, 2))).unwrap();
    assert_eq!(
        shape_refused(&world),
        "vms a have CPUs 2 to themselves, which the host has in another cell or for everybody now"
    );
    assert_eq!(hit(&world), Vec::<String>::new());
}

#[test]
fn a_host_that_gets_its_old_shape_back_is_open_again() {
    let mut world = World::with_hosts(1);
    world.boot("a", &pinned(3), "h1");
    world.register("h1", report(topology(1, 2, 2))).unwrap();
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
    // Only the host's reports brought it, so it goes with them.
    assert!(world.state.custom_trait(&rack).is_none());

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
