//! PCI functions of claims: given once, given back, and moved only where that is possible.
//!
//! The world checks the whole state after each command.

use std::collections::BTreeSet;
use std::sync::Arc;

use berth_domain::image::ImageProperties;
use berth_domain::migration::Event;
use berth_domain::pci::{LIVE_MIGRATABLE, PciAddress, PciAliases, PciDevice, PciId, PciKind};
use berth_domain::resource::Trait;
use berth_domain::topology::CellId;
use berth_domain::vm::VmSpec;
use berth_state::{Row, State};
use berth_testkit::state::*;

const ADDRESSES: [&str; 2] = ["0000:81:00.0", "0000:81:00.1"];

/// Returns two hosts with two functions each.
fn world(live_migratable: bool) -> World {
    let mut world = World::default();
    let tag = (LIVE_MIGRATABLE.to_owned(), "yes".to_owned());
    let device = |address: &&str| PciDevice {
        address: address.parse().unwrap(),
        vendor: PciId(0x8086),
        product: PciId(0x154c),
        cell: Some(CellId(0)),
        kind: PciKind::Virtual,
        parent: None,
        tags: live_migratable.then(|| tag.clone()).into_iter().collect(),
    };
    for host in ["h1", "h2"] {
        let devices = ADDRESSES.iter().map(device).collect();
        let mut report = report(topology(2, 3, 1).with_pci(devices).unwrap());
        report.traits.insert(Trait::socket_pci_numa_affinity());
        world.register(host, report).unwrap();
    }
    world
}

/// Returns a guest with one function and one dedicated CPU.
fn guest(live_migratable: bool) -> VmSpec {
    guest_of(live_migratable, "dedicated")
}

fn guest_of(live_migratable: bool, cpu_policy: &str) -> VmSpec {
    let mut alias = pci_alias("nic");
    if live_migratable {
        let tags = &mut alias.any_of[0].tags;
        tags.insert(LIVE_MIGRATABLE.to_owned(), "yes".to_owned());
    }
    let aliases = PciAliases::from([(alias.name.clone(), alias)]);
    let extra = [
        ("hw:cpu_policy", cpu_policy),
        ("pci_passthrough:alias", "nic:1"),
    ];
    let mut guest = spec(flavor("with-nic", 1, 256, &extra[..1]));
    guest.flavor = flavor("with-nic", 1, 256, &extra);
    let requirements = guest
        .flavor
        .requirements(&ImageProperties::default(), &aliases);
    let requirements = requirements.unwrap();
    (guest.pci, guest.topology) = (requirements.pci, requirements.topology);
    guest.pci_aliases = aliases;
    guest
}

fn functions(world: &World, vm: &str) -> Vec<BTreeSet<PciAddress>> {
    let claim = world.state.vm(&vm_name(vm)).unwrap().claim.unwrap();
    world.state.claim(claim).unwrap().assignment.pci.clone()
}

fn one(address: &str) -> Vec<BTreeSet<PciAddress>> {
    vec![[address.parse().unwrap()].into()]
}

/// Goal: two functions serve two guests; the third is refused, though whoever chose meant to give
/// it one that is taken; and what is given back is given again.
#[test]
fn a_function_is_given_once() {
    let mut world = world(false);
    world.boot("a", &guest(false), "h1");
    world.boot("b", &guest(false), "h1");
    assert_eq!(functions(&world, "a"), one(ADDRESSES[0]));
    assert_eq!(functions(&world, "b"), one(ADDRESSES[1]));
    let floating = guest_of(false, "shared");
    let refused = world.begin_boot("c", &floating, "h1").unwrap_err();
    assert_eq!(refused.reason, "NO_VALID_HOST");
    assert!(refused.message.contains(ADDRESSES[0]), "{refused}");
    assert_eq!(world.view("h1").usage.pci.len(), 2);
}

/// Goal: an agent that does not know the policy of a guest's alias never gets it.
#[test]
fn policy_socket_requires_its_trait() {
    let mut world = world(false);
    let mut old = world.view("h1").host.report.clone();
    old.traits.clear();
    world.register("old", old).unwrap();
    let refused = world.begin_boot("a", &guest(false), "old").unwrap_err();
    assert_eq!(refused.reason, "TRAIT_MISSING", "{refused}");
    let name = "COMPUTE_SOCKET_PCI_NUMA_AFFINITY";
    assert!(refused.message.contains(name), "{refused}");
}

/// Goal: a state in which two guests have one function is found out.
#[test]
fn a_function_with_two_guests_is_found_out() {
    let mut world = world(false);
    world.boot("a", &guest(false), "h1");
    world.boot("b", &guest(false), "h1");
    assert_eq!(world.state.check(), Ok(()));
    let mut rows: Vec<Row> = world.state.rows().collect();
    for row in &mut rows {
        if let Row::Claim(claim) = row {
            Arc::make_mut(claim).assignment.pci = one(ADDRESSES[0]);
        }
    }
    let broken = State::from_rows(rows).unwrap();
    let found = broken.check().unwrap_err().to_string();
    assert!(found.contains("claims_fit_together"), "{found}");
    assert!(found.contains(ADDRESSES[0]), "{found}");
}

/// Goal: a guest whose function cannot move is refused before anything is claimed; one whose can
/// holds a function on both sides until it is settled, and then one.
#[test]
fn functions_move_where_both_sides_say_so() {
    let mut world = world(false);
    world.boot("a", &guest(false), "h1");
    let before = world.state.clone();
    let refused = world.begin_migration("a", "h2").unwrap_err();
    assert_eq!(refused.reason, "PCI_NOT_LIVE_MIGRATABLE");
    assert!(before.claims() == world.state.claims());
    assert_eq!(world.state.migrations().len(), 0);

    let mut world = self::world(true);
    world.boot("a", &guest(true), "h1");
    world.boot("b", &guest(true), "h2");
    let operation = world.begin_migration("a", "h2").unwrap();
    assert_eq!(world.view("h1").usage.pci.len(), 1);
    assert_eq!(world.view("h2").usage.pci.len(), 2);
    assert_eq!(world.state.claims_of_vm(&vm_name("a")).count(), 2);
    world.transfer(operation);
    world.settle(operation, Event::Arrived).unwrap();
    assert_eq!(functions(&world, "a"), one(ADDRESSES[1]));
    assert_eq!(world.view("h1").usage.pci.len(), 0);
}
