//! Goal: refusals whose hints were wrong have right ones. Method: one small cluster each, and the
//! hint executed where there is one.

use berth_decide::Action;
use berth_domain::hint::{Hint, RequestChange};
use berth_domain::name::{HostName, ServerGroupName, VmName};
use berth_domain::pci::{PciDevice, PciId, PciKind};
use berth_domain::pmem::{Label, PmemNamespace};
use berth_domain::refusal::Refusal;
use berth_domain::topology::{CellId, HostTopology, PagePool};
use berth_domain::vm::SchedulingHints;
use berth_testkit::state::{report, topology};

use super::cluster::World;
use super::report::INCARNATION;

/// Returns hosts `h1`, `h2`, … of these topologies.
fn world(hosts: Vec<HostTopology>) -> World {
    let mut world = World::empty();
    for (number, topology) in (1..).zip(hosts) {
        let mut report = report(topology);
        report.incarnation = INCARNATION;
        world.register(&host(number), report);
    }
    world
}

fn host(number: u32) -> HostName {
    HostName::new(&format!("h{number}")).unwrap()
}

/// Returns a request for a VM of this name and flavor.
fn boot(world: &mut World, name: &str, flavor: &str) -> Action {
    world.new_vm(
        VmName::new(name).unwrap(),
        flavor,
        SchedulingHints::default(),
        None,
    )
}

fn place(world: &mut World, name: &str, flavor: &str) {
    let request = boot(world, name, flavor);
    world.submit(request);
}

/// Returns the refusal of a request whose hint, executed, has it succeed.
fn refused(world: &World, request: &Action) -> Refusal {
    let refusal = world.decide(request).unwrap_err();
    if let Some(change) = &refusal.change {
        let mut after = world.clone();
        let request = after.execute(change, request, "");
        let again = after.decide(&request);
        assert!(again.is_ok(), "{change:?}: {:?}", again.err());
    }
    refusal
}

#[test]
fn every_numa_node_that_is_short_is_vacated() {
    let mut world = world(vec![topology(2, 3, 1)]);
    place(&mut world, "a", "p1");
    place(&mut world, "b", "p1");
    let request = boot(&mut world, "c", "p6n2");
    let refusal = refused(&world, &request);
    assert_eq!(
        refusal.hint.as_deref(),
        Some(
            "make room on NUMA nodes 0 and 1 of host h1: `berth vm shelve a`, `berth vm shelve b`; \
             the guest fits there then"
        )
    );
}

#[test]
fn a_vm_that_fits_elsewhere_is_moved_there() {
    let mut world = world(vec![topology(2, 3, 1), topology(1, 1, 1)]);
    let request = world.new_vm(
        VmName::new("a").unwrap(),
        "p1",
        SchedulingHints::default(),
        Some(host(1)),
    );
    world.submit(request);
    let request = boot(&mut world, "c", "p6n2");
    let refusal = refused(&world, &request);
    assert_eq!(
        refusal.hint.as_deref(),
        Some(
            "make room on NUMA node 0 of host h1: `berth vm migrate a --host h2`; the guest fits \
             there then"
        )
    );
}

/// Pages that are taken are nearer than pages that were never there, and are counted as pages.
#[test]
fn taken_pages_are_distinguished_from_absent_ones() {
    let shape = topology(2, 3, 1);
    let mut cells = shape.cells().to_vec();
    cells[0].pages = vec![PagePool {
        size_kib: 4,
        total: 4096 * 256,
        reserved: 0,
    }];
    let distances = shape.distances().to_vec();
    let mut world = world(vec![
        HostTopology::new(cells.clone(), distances.clone()).unwrap(),
    ]);
    place(&mut world, "a", "h1g");
    let request = boot(&mut world, "b", "h1g");
    let refusal = refused(&world, &request);
    let nearest = &refusal.hosts[0];
    assert_eq!(
        (&*nearest.cause, nearest.host_cell),
        ("PAGES", Some(CellId(1)))
    );
    assert_eq!(
        nearest.message,
        "NUMA node 1: 0 free 2 MiB pages, guest NUMA node 0 needs 512"
    );
    // Where no NUMA node has such pages, it is pages that are counted, too.
    cells[1].pages = cells[0].pages.clone();
    let mut world = self::world(vec![HostTopology::new(cells, distances).unwrap()]);
    let request = boot(&mut world, "b", "h1g");
    let refusal = refused(&world, &request);
    let missing = refusal.hosts[0].missing.as_ref().unwrap();
    assert_eq!(
        (&*missing.resource, missing.requested, missing.available),
        ("2 MiB pages", 512, 0)
    );
}

#[test]
fn where_a_server_group_alone_forbids_it_that_is_the_hint() {
    let mut world = world(vec![topology(2, 3, 1)]);
    let far = SchedulingHints {
        server_group: Some(ServerGroupName::new("far").unwrap()),
        availability_zone: None,
    };
    let vm = |name| VmName::new(name).unwrap();
    let request = world.new_vm(vm("a"), "p1", far.clone(), None);
    world.submit(request);
    let request = world.new_vm(vm("b"), "p1", far.clone(), None);
    let refusal = refused(&world, &request);
    let group = far.server_group.unwrap();
    assert_eq!(
        refusal.change.as_deref(),
        Some(&Hint::ChangeRequest(RequestChange::LeaveGroup(group)))
    );
}

#[test]
fn namespaces_that_are_being_erased_are_waited_for() {
    let namespace = PmemNamespace {
        name: berth_domain::name::PmemName::new("p0").unwrap(),
        class: Label::parse("small").unwrap().class(),
        size_bytes: 1 << 30,
        align_bytes: 2 << 20,
        path: "/dev/dax0.0".to_owned(),
        cell: Some(CellId(0)),
        region: "region0".to_owned(),
        trouble: String::new(),
    };
    let shape = topology(2, 3, 1).with_pmem(vec![namespace]).unwrap();
    let mut world = world(vec![shape]);
    place(&mut world, "a", "pmem");
    world.delete(&VmName::new("a").unwrap());
    let request = boot(&mut world, "b", "pmem");
    let refusal = refused(&world, &request);
    assert_eq!(
        refusal.hint.as_deref(),
        Some("wait for the erasure of pmem namespace p0 of host h1: the guest fits there then")
    );
}

/// A device that another guest has is taken, not absent; and a host that has one is nearer than a
/// host that never had.
#[test]
fn taken_devices_are_distinguished_from_absent_ones() {
    let card = PciDevice {
        address: "0000:01:00.0".parse().unwrap(),
        vendor: PciId(0x8086),
        product: PciId(0x1572),
        cell: Some(CellId(0)),
        kind: PciKind::Pci,
        parent: None,
        tags: Default::default(),
    };
    let with = topology(2, 3, 1).with_pci(vec![card]).unwrap();
    let mut world = world(vec![topology(2, 3, 1), with]);
    place(&mut world, "a", "leg");
    let request = boot(&mut world, "b", "leg");
    let refusal = refused(&world, &request);
    let nearest = &refusal.hosts[0];
    assert_eq!(nearest.host, host(2));
    assert_eq!(
        nearest.message,
        "no free device 8086:* on the host, one is taken"
    );
    assert_eq!(refusal.hosts[1].message, "no device 8086:* on the host");
}
