//! Resource providers, inventories and allocations: the rules of OpenStack Placement, and that a
//! host's own are out of a client's reach.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::allocation::ConsumerGeneration;
use berth_domain::id::{ConsumerId, Generation};
use berth_domain::inventory::Inventory;
use berth_domain::resource::ConsumerType;
use berth_state::Reply;
use berth_state::command::Command;
use berth_state::placement::{ConsumerTypes, Usage};
use berth_testkit::state::placement::*;
use berth_testkit::state::*;

#[test]
fn trees_are_built_from_the_root_and_taken_down_from_the_leaves() {
    let mut world = World::default();
    assert_eq!(reason(&world.run(create(2, Some(1)))), "PARENT_NOT_FOUND");
    assert_eq!(reason(&world.run(create(2, Some(2)))), "PARENT_SELF");
    world.run(create(1, None)).unwrap();
    world.run(create(2, Some(1))).unwrap();
    world.run(create(3, Some(2))).unwrap();
    assert_eq!(world.state.provider(provider(3)).unwrap().root, provider(1));
    assert_eq!(reason(&world.run(create(3, None))), "DUPLICATE_ID");
    assert_eq!(reason(&world.run(create(3, Some(3)))), "PARENT_SELF");
    assert_eq!(reason(&world.run(create(3, Some(8)))), "PARENT_NOT_FOUND");
    let same_name = Command::CreateProvider {
        id: provider(9),
        name: "p1".to_owned(),
        parent: None,
    };
    assert_eq!(reason(&world.run(same_name)), "DUPLICATE_NAME");
    assert_eq!(reason(&world.run(delete(2))), "PROVIDER_HAS_CHILDREN");
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
        "PROVIDER_GENERATION"
    );
    assert_eq!(generation(&world, 1), 1);
    world.run(new_trait("CUSTOM_FAST")).unwrap();
    world.run(traits(1, 1, &["CUSTOM_FAST"])).unwrap();
    assert_eq!(generation(&world, 1), 2);
    world.run(traits(1, 2, &["CUSTOM_FAST"])).unwrap();
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
    assert_eq!(used(&world, 1, "VCPU"), 8);
    assert_eq!(world.state.consumers_of(provider(1)).count(), 2);
    assert_eq!(
        set(&mut world, &both),
        "CONSUMER_GENERATION",
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
        "CONSUMER_GENERATION"
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
    assert_eq!(reason(&world.run(delete(1))), "PROVIDER_HAS_ALLOCATIONS");
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

/// The same over-committed provider: what takes no more than before is let through.
#[test]
fn an_over_committed_provider_lets_consumers_shrink_and_swap() {
    let mut world = World::default();
    world.run(create(1, None)).unwrap();
    world.run(inventories(1, 0, &[("VCPU", 8)])).unwrap();
    let both = [
        update(1, None, &[(1, "VCPU", 4)]),
        update(2, None, &[(1, "VCPU", 4)]),
    ];
    assert_eq!(set(&mut world, &both), "ok");
    let mut smaller = Inventory::exact(2);
    smaller.max_unit = 8;
    world
        .run(Command::PutInventory {
            provider: provider(1),
            generation: Some(Generation(2)),
            class: class("VCPU"),
            inventory: smaller,
            create: false,
        })
        .unwrap();
    for (updates, expected) in [
        (
            vec![update(1, Some(1), &[(1, "VCPU", 5)])],
            "CAPACITY_EXCEEDED",
        ),
        (vec![update(1, Some(1), &[(1, "VCPU", 3)])], "ok"),
        (
            vec![
                update(1, Some(2), &[(1, "VCPU", 1)]),
                update(2, Some(1), &[(1, "VCPU", 6)]),
            ],
            "ok",
        ),
        (vec![update(1, Some(3), &[(1, "VCPU", 1)])], "ok"),
    ] {
        assert_eq!(set(&mut world, &updates), expected);
    }
    assert_eq!(used(&world, 1, "VCPU"), 7);
}

#[test]
fn a_subtree_moves_with_its_top_and_gets_the_new_root() {
    let mut world = World::default();
    for (number, parent) in [
        (1, None),
        (2, Some(1)),
        (3, Some(2)),
        (4, Some(3)),
        (9, None),
    ] {
        world.run(create(number, parent)).unwrap();
    }
    let root = |world: &World, number| world.state.provider(provider(number)).unwrap().root;
    for (command, expected) in [
        (place(2, Some(9), false), "REPARENTING"),
        (place(2, None, false), "UNPARENTING"),
        (place(2, Some(7), true), "PARENT_NOT_FOUND"),
        (place(2, Some(2), true), "PARENT_LOOP"),
        (place(2, Some(4), true), "PARENT_LOOP"),
        (place(7, Some(1), true), "PROVIDER_NOT_FOUND"),
        (place(2, Some(1), false), "ok"),
        (place(9, Some(4), false), "ok"),
        (place(1, Some(9), true), "PARENT_LOOP"),
        (place(9, None, true), "ok"),
        (place(2, Some(9), true), "ok"),
    ] {
        assert_eq!(reason(&world.run(command.clone())), expected, "{command:?}");
    }
    for number in [2, 3, 4] {
        assert_eq!(root(&world, number), provider(9), "{number}");
    }
    assert_eq!(world.state.tree_of(provider(9)).count(), 4);
    assert_eq!(world.state.tree_of(provider(1)).count(), 1);
    world.run(place(3, None, true)).unwrap();
    assert_eq!(
        (root(&world, 3), root(&world, 4)),
        (provider(3), provider(3))
    );
    assert_eq!(
        generation(&world, 4),
        0,
        "a move is no change of generation"
    );
}

#[test]
fn a_provider_is_renamed_to_a_free_name() {
    let mut world = World::default();
    world.run(create(1, None)).unwrap();
    world.run(create(2, None)).unwrap();
    let rename = |name: &str| Command::UpdateProvider {
        id: provider(1),
        name: Some(name.to_owned()),
        parent: None,
        reparent: false,
    };
    let long = "ß".repeat(200);
    for (name, expected) in [
        ("p2", "DUPLICATE_NAME"),
        ("", "INVALID_PROVIDER_NAME"),
        (&format!("{long}x"), "INVALID_PROVIDER_NAME"),
        ("p1", "ok"),
        (&long, "ok"),
    ] {
        assert_eq!(reason(&world.run(rename(name))), expected, "{name}");
    }
    assert!(world.state.provider_named("p1").is_none());
    assert_eq!(world.state.provider_named(&long).unwrap().id, provider(1));
    world.run(create(3, None)).unwrap();
}

#[test]
fn single_inventories_are_added_changed_and_taken_away() {
    let mut world = World::default();
    world.run(create(1, None)).unwrap();
    let put = |name: &str, generation: Option<u64>, create| Command::PutInventory {
        provider: provider(1),
        generation: generation.map(Generation),
        class: class(name),
        inventory: Inventory::exact(4),
        create,
    };
    let take = |name: &str| Command::DeleteInventory {
        provider: provider(1),
        class: class(name),
    };
    for (command, expected) in [
        (put("VCPU", None, false), "INVENTORY_NOT_FOUND"),
        (put("CUSTOM_X", None, true), "UNKNOWN_RESOURCE_CLASS"),
        (put("VCPU", Some(7), true), "PROVIDER_GENERATION"),
        (put("VCPU", None, true), "ok"),
        (put("VCPU", None, true), "INVENTORY_EXISTS"),
        (put("VCPU", Some(1), false), "ok"),
        (put("DISK_GB", Some(2), true), "ok"),
        (take("PCPU"), "INVENTORY_NOT_FOUND"),
        (take("DISK_GB"), "ok"),
    ] {
        assert_eq!(reason(&world.run(command.clone())), expected, "{command:?}");
    }
    assert_eq!(generation(&world, 1), 4);
    assert_eq!(set(&mut world, &[update(1, None, &[(1, "VCPU", 1)])]), "ok");
    let all = Command::DeleteInventories {
        provider: provider(1),
    };
    for command in [take("VCPU"), all.clone()] {
        let refused = world.run(command).unwrap_err();
        assert_eq!(refused.reason, "INVENTORY_IN_USE");
        assert_eq!(refused.metadata["classes"], "VCPU");
    }
    assert_eq!(set(&mut world, &[update(1, Some(1), &[])]), "ok");
    world.run(all).unwrap();
    assert_eq!(generation(&world, 1), 7);
}

#[test]
fn aggregates_count_in_the_generation_where_it_is_given() {
    let mut world = World::default();
    world.run(create(1, None)).unwrap();
    let join = |generation: Option<u64>, numbers: &[u64]| Command::SetAggregates {
        provider: provider(1),
        generation: generation.map(Generation),
        aggregates: numbers.iter().copied().map(aggregate).collect(),
    };
    world.run(join(None, &[1, 2])).unwrap();
    assert_eq!(generation(&world, 1), 0);
    let stale = world.run(join(Some(4), &[])).unwrap_err();
    assert_eq!(stale.reason, "PROVIDER_GENERATION");
    assert_eq!(
        (&*stale.metadata["actual"], &*stale.metadata["given"]),
        ("0", "4")
    );
    world.run(join(Some(0), &[2, 3])).unwrap();
    assert_eq!(generation(&world, 1), 1);
    let members = |world: &World, number| world.state.members_of(aggregate(number)).count();
    let counts = [1, 2, 3].map(|number| members(&world, number));
    assert_eq!(counts, [0, 1, 1]);
    world.run(delete(1)).unwrap();
    assert_eq!(members(&world, 2), 0);
}

/// Goal: generations grow exactly as OpenStack Placement's do, which clients can see. Method: each
/// kind of write, with two providers whose generations are looked at.
#[test]
fn writes_of_allocations_are_counted_by_the_providers_that_they_name() {
    let mut world = World::default();
    for number in [1, 2] {
        world.run(create(number, None)).unwrap();
        world.run(inventories(number, 0, &[("VCPU", 8)])).unwrap();
    }
    let mut step = |update, expected: (u64, u64), why: &str| {
        assert_eq!(set(&mut world, &[update]), "ok");
        assert_eq!(
            (generation(&world, 1), generation(&world, 2)),
            expected,
            "{why}"
        );
    };
    step(
        update(1, None, &[(1, "VCPU", 1)]),
        (2, 1),
        "taken from the first",
    );
    step(
        update(1, Some(1), &[(2, "VCPU", 1)]),
        (2, 2),
        "the first is left for the second",
    );
    step(update(1, Some(2), &[]), (2, 3), "nothing is taken any more");
    step(
        update(1, None, &[(1, "VCPU", 1), (2, "VCPU", 1)]),
        (3, 4),
        "both",
    );
    let delete = Command::DeleteAllocations {
        consumer: consumer(1),
    };
    world.run(delete.clone()).unwrap();
    assert_eq!((generation(&world, 1), generation(&world, 2)), (3, 4));
    assert_eq!(reason(&world.run(delete)), "ALLOCATIONS_NOT_FOUND");
}

#[test]
fn consumers_are_expected_as_new_at_a_generation_or_anyhow() {
    let mut world = World::default();
    world.run(create(1, None)).unwrap();
    world.run(inventories(1, 0, &[("VCPU", 8)])).unwrap();
    let any = |amount| {
        let mut any = update(1, None, &[(1, "VCPU", amount)]);
        any.generation = ConsumerGeneration::Any;
        any
    };
    assert_eq!(set(&mut world, &[any(1)]), "ok");
    assert_eq!(set(&mut world, &[any(2)]), "ok");
    let refused = |world: &mut World, update| {
        let refused = world.run(Command::SetAllocations {
            consumers: vec![update],
        });
        let refused = refused.unwrap_err();
        assert_eq!(refused.reason, "CONSUMER_GENERATION");
        (
            refused.metadata["expected"].clone(),
            refused.metadata["got"].clone(),
        )
    };
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(refused(&mut world, update(1, None, &[])), pair("2", "null"));
    assert_eq!(refused(&mut world, update(1, Some(1), &[])), pair("2", "1"));
    assert_eq!(
        refused(&mut world, update(2, Some(5), &[])),
        pair("null", "5")
    );
    world.now += 5_000;
    let mut typed = update(1, Some(2), &[(1, "VCPU", 1)]);
    typed.consumer_type = Some(ConsumerType::new("INSTANCE").unwrap());
    typed.project = "other".to_owned();
    assert_eq!(set(&mut world, &[typed.clone()]), "ok");
    typed.consumer_type = None;
    typed.generation = ConsumerGeneration::Any;
    assert_eq!(set(&mut world, &[typed]), "ok");
    let row = world.state.consumer(consumer(1)).unwrap();
    assert_eq!(
        row.consumer_type.as_ref().unwrap().as_str(),
        "INSTANCE",
        "it is kept"
    );
    assert_eq!(row.updated_at.0 - row.created_at.0, 5_000);
}

/// What the codec would refuse to read back must not get into the state.
#[test]
fn owners_with_names_too_long_to_be_read_back_are_refused() {
    let mut world = World::default();
    world.run(create(1, None)).unwrap();
    world.run(inventories(1, 0, &[("VCPU", 8)])).unwrap();
    for (project, user, expected) in [
        ("ß".repeat(256), String::new(), "INVALID_OWNER"),
        (String::new(), "ß".repeat(256), "INVALID_OWNER"),
        ("ß".repeat(255), "ß".repeat(255), "ok"),
    ] {
        let mut update = update(1, None, &[(1, "VCPU", 1)]);
        (update.project, update.user) = (project, user);
        assert_eq!(set(&mut world, &[update]), expected);
    }
}

#[test]
fn usages_are_summed_by_project_user_and_type() {
    let mut world = World::default();
    world.run(create(1, None)).unwrap();
    world
        .run(inventories(1, 0, &[("VCPU", 90), ("DISK_GB", 90)]))
        .unwrap();
    let instance = ConsumerType::new("INSTANCE").unwrap();
    for (number, project, user, typed) in [
        (1, "p", "u", true),
        (2, "p", "u", false),
        (3, "p", "v", true),
        (4, "q", "u", true),
    ] {
        let mut update = update(number, None, &[(1, "VCPU", number), (1, "DISK_GB", 10)]);
        (update.project, update.user) = (project.to_owned(), user.to_owned());
        update.consumer_type = typed.then(|| instance.clone());
        assert_eq!(set(&mut world, &[update]), "ok");
    }
    let usage = |consumers, vcpu, disk| Usage {
        consumers,
        resources: [(class("VCPU"), vcpu), (class("DISK_GB"), disk)].into(),
    };
    let every = ConsumerTypes::Every;
    let (typed, untyped) = (Some(instance.clone()), None);
    assert_eq!(
        world.state.usages("p", None, &every),
        [
            (typed.clone(), usage(2, 4, 20)),
            (untyped.clone(), usage(1, 2, 10))
        ]
        .into()
    );
    let only = ConsumerTypes::Only(instance);
    assert_eq!(
        world.state.usages("p", Some("u"), &only),
        [(typed, usage(1, 1, 10))].into()
    );
    assert_eq!(
        world.state.usages("p", None, &ConsumerTypes::Unknown),
        [(untyped, usage(1, 2, 10))].into()
    );
    assert!(world.state.usages("nobody", None, &every).is_empty());
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
    read_only(world.run(Command::UpdateProvider {
        id: root,
        name: Some("mine".to_owned()),
        parent: None,
        reparent: true,
    }));
    read_only(world.run(Command::DeleteInventories { provider: root }));
    read_only(world.run(Command::SetAggregates {
        provider: root,
        generation: None,
        aggregates: BTreeSet::new(),
    }));
    read_only(world.run(Command::Reshape {
        inventories: [(root, after(1, 1, &[]).1)].into(),
        consumers: Vec::new(),
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
    let consumer = ConsumerId(claim.0);
    let outcome = world.run(Command::DeleteAllocations { consumer });
    assert_eq!(reason(&outcome), "CONSUMER_READ_ONLY");
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
