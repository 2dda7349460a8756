//! Resource providers, inventories and allocations: the rules of OpenStack Placement, and that a
//! host's own are out of a client's reach.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::allocation::Resources;
use berth_domain::id::{ConsumerId, Generation, ProviderId};
use berth_domain::inventory::Inventory;
use berth_domain::resource::{ResourceClass, Trait};
use berth_state::Reply;
use berth_state::command::{Command, ConsumerUpdate};
use support::*;

fn provider(number: u64) -> ProviderId {
    ProviderId(uuid(20, number))
}

fn consumer(number: u64) -> ConsumerId {
    ConsumerId(uuid(21, number))
}

fn class(text: &str) -> ResourceClass {
    ResourceClass::new(text).unwrap()
}

fn create(number: u64, parent: Option<u64>) -> Command {
    Command::CreateProvider {
        id: provider(number),
        name: format!("p{number}"),
        parent: parent.map(provider),
    }
}

fn inventories(number: u64, generation: u64, totals: &[(&str, u64)]) -> Command {
    Command::SetInventories {
        provider: provider(number),
        generation: Generation(generation),
        inventories: totals
            .iter()
            .map(|(name, total)| (class(name), Inventory::exact(*total)))
            .collect(),
    }
}

fn update(
    number: u64,
    generation: Option<u64>,
    allocations: &[(u64, &str, u64)],
) -> ConsumerUpdate {
    let mut by_provider: BTreeMap<ProviderId, Resources> = BTreeMap::new();
    for (from, name, amount) in allocations {
        let resources = by_provider.entry(provider(*from)).or_default();
        resources.insert(class(name), *amount);
    }
    ConsumerUpdate {
        consumer: consumer(number),
        generation: generation.map(Generation),
        project: "project".to_owned(),
        user: "user".to_owned(),
        allocations: by_provider,
    }
}

fn set(world: &mut World, updates: &[ConsumerUpdate]) -> String {
    let outcome = world.run(Command::SetAllocations {
        consumers: updates.to_vec(),
    });
    reason(&outcome).to_owned()
}

fn generation(world: &World, number: u64) -> u64 {
    world.state.provider(provider(number)).unwrap().generation.0
}

#[test]
fn trees_are_built_from_the_root_and_taken_down_from_the_leaves() {
    let mut world = World::default();
    assert_eq!(reason(&world.run(create(2, Some(1)))), "PROVIDER_NOT_FOUND");
    world.run(create(1, None)).unwrap();
    world.run(create(2, Some(1))).unwrap();
    world.run(create(3, Some(2))).unwrap();
    assert_eq!(world.state.provider(provider(3)).unwrap().root, provider(1));
    assert_eq!(reason(&world.run(create(3, None))), "PROVIDER_EXISTS");
    let same_name = Command::CreateProvider {
        id: provider(9),
        name: "p1".to_owned(),
        parent: None,
    };
    assert_eq!(reason(&world.run(same_name)), "PROVIDER_EXISTS");
    let delete = |number| Command::DeleteProvider {
        id: provider(number),
    };
    assert_eq!(reason(&world.run(delete(2))), "PROVIDER_IN_USE");
    for number in [3, 2, 1] {
        world.run(delete(number)).unwrap();
    }
    assert_eq!(reason(&world.run(delete(1))), "PROVIDER_NOT_FOUND");
    assert!(world.state.provider_named("p1").is_none());
}

#[test]
fn a_stale_generation_is_told_and_changes_nothing() {
    let mut world = World::default();
    world.run(create(1, None)).unwrap();
    world.run(inventories(1, 0, &[("VCPU", 8)])).unwrap();
    assert_eq!(
        reason(&world.run(inventories(1, 0, &[("VCPU", 9)]))),
        "CONCURRENT_UPDATE"
    );
    assert_eq!(generation(&world, 1), 1);
    let traits = |generation, names: &[&str]| Command::SetTraits {
        provider: provider(1),
        generation: Generation(generation),
        traits: names
            .iter()
            .map(|n| Trait::new(n).unwrap())
            .collect::<BTreeSet<_>>(),
    };
    world.run(traits(1, &["CUSTOM_FAST"])).unwrap();
    assert_eq!(generation(&world, 1), 2);
    world.run(traits(2, &["CUSTOM_FAST"])).unwrap();
    assert_eq!(generation(&world, 1), 2, "the same traits are no change");
}

#[test]
fn allocations_are_all_or_none() {
    let mut world = World::default();
    for number in [1, 2] {
        world.run(create(number, None)).unwrap();
        world
            .run(inventories(number, 0, &[("VCPU", 8), ("DISK_GB", 100)]))
            .unwrap();
    }
    let both = [
        update(1, None, &[(1, "VCPU", 4), (2, "DISK_GB", 50)]),
        update(2, None, &[(1, "VCPU", 5)]),
    ];
    assert_eq!(set(&mut world, &both), "CAPACITY_EXCEEDED");
    assert_eq!(world.state.consumers().len(), 0);
    let both = [both[0].clone(), update(2, None, &[(1, "VCPU", 4)])];
    assert_eq!(set(&mut world, &both), "ok");
    assert_eq!((generation(&world, 1), generation(&world, 2)), (2, 2));
    assert_eq!(
        world.state.used_of(provider(1)).get(&class("VCPU")),
        Some(&8)
    );
    assert_eq!(world.state.consumers_of(provider(1)).count(), 2);
    assert_eq!(
        set(&mut world, &both),
        "CONCURRENT_UPDATE",
        "they are not new"
    );
    let moved = [
        update(1, Some(1), &[(2, "VCPU", 8)]),
        update(2, Some(1), &[(1, "VCPU", 8)]),
    ];
    assert_eq!(
        set(&mut world, &moved),
        "ok",
        "what one gives back the other may take"
    );
    assert_eq!(set(&mut world, &[update(1, Some(2), &[])]), "ok");
    assert!(world.state.consumer(consumer(1)).is_none());
    assert_eq!(
        set(&mut world, &[update(1, Some(3), &[])]),
        "CONCURRENT_UPDATE"
    );
}

#[test]
fn inventory_rules_are_those_of_placement() {
    let mut world = World::default();
    world.run(create(1, None)).unwrap();
    let mut inventory = Inventory::exact(20);
    (inventory.min_unit, inventory.max_unit, inventory.step_size) = (2, 8, 2);
    inventory.reserved = 4;
    let set_inventory = |generation, inventory| Command::SetInventories {
        provider: provider(1),
        generation: Generation(generation),
        inventories: BTreeMap::from([(class("VCPU"), inventory)]),
    };
    world.run(set_inventory(0, inventory)).unwrap();
    for (amount, expected) in [
        (1, "INVENTORY_CONSTRAINTS"),
        (3, "INVENTORY_CONSTRAINTS"),
        (10, "INVENTORY_CONSTRAINTS"),
        (8, "ok"),
    ] {
        let updates = [update(1, None, &[(1, "VCPU", amount)])];
        assert_eq!(set(&mut world, &updates), expected, "{amount}");
    }
    assert_eq!(
        set(&mut world, &[update(2, None, &[(1, "PCPU", 1)])]),
        "NO_INVENTORY"
    );
    assert_eq!(
        set(&mut world, &[update(2, None, &[(7, "VCPU", 2)])]),
        "PROVIDER_NOT_FOUND"
    );
    let twice = [update(2, None, &[]), update(2, None, &[])];
    assert_eq!(set(&mut world, &twice), "CONSUMER_TWICE");
    let outcome = world.run(inventories(1, 2, &[("PCPU", 4)]));
    assert_eq!(reason(&outcome), "INVENTORY_IN_USE");
    let mut wrong = inventory;
    wrong.step_size = 0;
    assert_eq!(
        reason(&world.run(set_inventory(2, wrong))),
        "INVALID_INVENTORY"
    );
    let delete = Command::DeleteProvider { id: provider(1) };
    assert_eq!(reason(&world.run(delete)), "PROVIDER_IN_USE");
}

/// Placement accepts an inventory below what is taken, and lets consumers only shrink then.
#[test]
fn an_over_committed_provider_can_be_left_but_not_entered() {
    let mut world = World::default();
    world.run(create(1, None)).unwrap();
    world.run(inventories(1, 0, &[("VCPU", 8)])).unwrap();
    assert_eq!(set(&mut world, &[update(1, None, &[(1, "VCPU", 8)])]), "ok");
    world.run(inventories(1, 2, &[("VCPU", 4)])).unwrap();
    assert_eq!(
        set(&mut world, &[update(2, None, &[(1, "VCPU", 1)])]),
        "CAPACITY_EXCEEDED"
    );
}

#[test]
fn what_a_host_reports_is_read_only() {
    let mut world = World::with_hosts(1);
    world.boot("a", &pinned(1), "h1");
    let root = world.view("h1").host.provider;
    let generation = world.state.provider(root).unwrap().generation;
    assert_eq!(generation, Generation(1), "the claim counted");
    let read_only = |outcome: Result<Reply, _>| assert_eq!(reason(&outcome), "PROVIDER_READ_ONLY");
    read_only(world.run(Command::DeleteProvider { id: root }));
    read_only(world.run(Command::SetInventories {
        provider: root,
        generation,
        inventories: BTreeMap::new(),
    }));
    read_only(world.run(Command::SetTraits {
        provider: root,
        generation,
        traits: BTreeSet::new(),
    }));
    let mut from_host = update(1, None, &[]);
    from_host
        .allocations
        .insert(root, [(class("VCPU"), 1)].into());
    read_only(world.run(Command::SetAllocations {
        consumers: vec![from_host],
    }));
    let claim = world.state.vm(&vm_name("a")).unwrap().claim.unwrap();
    let mut steal = update(1, Some(1), &[]);
    steal.consumer = ConsumerId(claim.0);
    assert_eq!(set(&mut world, &[steal]), "CONSUMER_READ_ONLY");
    world
        .run(Command::CreateProvider {
            id: provider(5),
            name: "below".to_owned(),
            parent: Some(root),
        })
        .unwrap();
    let taken = Command::CreateProvider {
        id: provider(6),
        name: "h2".to_owned(),
        parent: None,
    };
    world.run(taken).unwrap();
    let refused = world.register("h2", report(topology(1, 1, 1))).unwrap_err();
    assert_eq!(refused.reason, "PROVIDER_EXISTS");
}

#[test]
fn flavors_are_made_once_and_hosts_go_when_nothing_is_on_them() {
    let mut world = World::with_hosts(1);
    let small = flavor("small", 1, 64, &[]);
    let name = small.name.clone();
    world.run(Command::CreateFlavor(small.clone())).unwrap();
    assert_eq!(
        reason(&world.run(Command::CreateFlavor(small))),
        "FLAVOR_EXISTS"
    );
    world
        .run(Command::DeleteFlavor {
            flavor: name.clone(),
        })
        .unwrap();
    assert_eq!(
        reason(&world.run(Command::DeleteFlavor { flavor: name })),
        "FLAVOR_NOT_FOUND"
    );
    let host = host_name("h1");
    world
        .run(Command::RemoveHost { host: host.clone() })
        .unwrap();
    assert_eq!(
        reason(&world.run(Command::RemoveHost { host })),
        "HOST_NOT_FOUND"
    );
    assert_eq!(world.state.providers().len(), 0);
    world.register("h1", report(topology(1, 1, 1))).unwrap();
}
