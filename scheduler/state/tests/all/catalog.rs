//! Custom resource classes and traits: who does not exist cannot be had, and who is had stays.

use berth_state::command::Command;
use berth_state::{Recall, Reply, State};
use berth_testkit::state::placement::*;
use berth_testkit::state::*;

fn existed(world: &mut World, command: Command) -> bool {
    let reply = world.run(command).unwrap();
    let (Reply::Class { existed, .. } | Reply::Trait { existed, .. }) = reply else {
        panic!("{reply:?}");
    };
    existed
}

#[test]
fn what_nobody_created_cannot_be_had() {
    let mut world = World::default();
    world.run(create(1, None)).unwrap();
    let gold = inventories(1, 0, &[("CUSTOM_GOLD", 4)]);
    let refused = world.run(gold.clone()).unwrap_err();
    assert_eq!(refused.reason, "UNKNOWN_RESOURCE_CLASS");
    assert_eq!(refused.metadata["class"], "CUSTOM_GOLD");
    let taken = [update(1, None, &[(1, "CUSTOM_GOLD", 1)])];
    assert_eq!(set(&mut world, &taken), "UNKNOWN_RESOURCE_CLASS");
    let names = ["CUSTOM_A", "HW_NUMA_ROOT", "NO_SUCH"];
    let refused = world.run(traits(1, 0, &names)).unwrap_err();
    assert_eq!(refused.reason, "UNKNOWN_TRAIT");
    assert_eq!(refused.metadata["traits"], "CUSTOM_A, NO_SUCH");
    assert!(!existed(&mut world, new_class("CUSTOM_GOLD")));
    assert!(existed(&mut world, new_class("CUSTOM_GOLD")));
    assert!(!existed(&mut world, new_trait("CUSTOM_A")));
    assert!(existed(&mut world, new_trait("CUSTOM_A")));
    world.run(gold).unwrap();
    world.run(traits(1, 1, &names[..2])).unwrap();
    assert_eq!(set(&mut world, &taken), "ok");
}

#[test]
fn standard_names_are_neither_made_nor_changed() {
    let mut world = World::default();
    let rename = |from, to| Command::RenameClass {
        from: class(from),
        to: class(to),
    };
    let remove_class = |name| Command::DeleteClass { class: class(name) };
    let remove_trait = |name| Command::DeleteTrait {
        name: quality(name),
    };
    world.run(new_class("CUSTOM_GOLD")).unwrap();
    world.run(new_class("CUSTOM_IRON")).unwrap();
    for (command, expected) in [
        (new_class("VCPU"), "STANDARD_CLASS"),
        (new_class("GOLD"), "NOT_CUSTOM"),
        (remove_class("VCPU"), "STANDARD_CLASS"),
        (remove_class("CUSTOM_LEAD"), "CLASS_NOT_FOUND"),
        (rename("VCPU", "CUSTOM_CPU"), "STANDARD_CLASS"),
        (rename("CUSTOM_GOLD", "VCPU"), "STANDARD_CLASS"),
        (rename("CUSTOM_LEAD", "CUSTOM_TIN"), "CLASS_NOT_FOUND"),
        (rename("CUSTOM_GOLD", "CUSTOM_IRON"), "CLASS_EXISTS"),
        (rename("CUSTOM_GOLD", "CUSTOM_GOLD"), "ok"),
        (new_trait("HW_NUMA_ROOT"), "STANDARD_TRAIT"),
        (new_trait("FAST"), "NOT_CUSTOM"),
        (remove_trait("HW_NUMA_ROOT"), "STANDARD_TRAIT"),
        (remove_trait("CUSTOM_FAST"), "TRAIT_NOT_FOUND"),
    ] {
        assert_eq!(reason(&world.run(command.clone())), expected, "{command:?}");
    }
}

#[test]
fn what_is_had_stays() {
    let mut world = World::default();
    world.run(create(1, None)).unwrap();
    world.run(new_class("CUSTOM_GOLD")).unwrap();
    world.run(new_trait("CUSTOM_FAST")).unwrap();
    world.run(inventories(1, 0, &[("CUSTOM_GOLD", 4)])).unwrap();
    world.run(traits(1, 1, &["CUSTOM_FAST"])).unwrap();
    let gold = Command::DeleteClass {
        class: class("CUSTOM_GOLD"),
    };
    let fast = Command::DeleteTrait {
        name: quality("CUSTOM_FAST"),
    };
    assert_eq!(reason(&world.run(gold.clone())), "CLASS_IN_USE");
    assert_eq!(reason(&world.run(fast.clone())), "TRAIT_IN_USE");
    assert_eq!(
        world.state.providers_with(&quality("CUSTOM_FAST")).count(),
        1
    );
    let provider = provider(1);
    world.run(Command::DeleteTraits { provider }).unwrap();
    world.run(Command::DeleteInventories { provider }).unwrap();
    world.run(gold).unwrap();
    world.run(fast).unwrap();
    assert!(world.state.classes().is_empty() && world.state.custom_traits().is_empty());
}

#[test]
fn a_renamed_class_is_renamed_wherever_it_is_counted() {
    let mut world = World::default();
    world.run(new_class("CUSTOM_GOLD")).unwrap();
    for number in [1, 2] {
        world.run(create(number, None)).unwrap();
        let totals = [("CUSTOM_GOLD", 4), ("VCPU", 4)];
        world.run(inventories(number, 0, &totals)).unwrap();
    }
    let updates = [
        update(1, None, &[(1, "CUSTOM_GOLD", 2), (2, "CUSTOM_GOLD", 1)]),
        update(2, None, &[(2, "CUSTOM_GOLD", 1), (1, "VCPU", 1)]),
    ];
    assert_eq!(set(&mut world, &updates), "ok");
    world
        .run(Command::RenameClass {
            from: class("CUSTOM_GOLD"),
            to: class("CUSTOM_AURUM"),
        })
        .unwrap();
    let counts = [1, 2].map(|number| used(&world, number, "CUSTOM_AURUM"));
    assert_eq!(counts, [2, 2]);
    assert_eq!(used(&world, 1, "CUSTOM_GOLD"), 0);
    assert_eq!(generation(&world, 1), 2, "no generation changes");
    assert!(!world.state.knows_class(&class("CUSTOM_GOLD")));
}

#[test]
fn a_repeated_creation_gets_its_first_answer() {
    let mut world = World::default();
    for (number, command) in [(1, new_class("CUSTOM_GOLD")), (2, new_trait("CUSTOM_FAST"))] {
        let request = request(number, 7);
        let first = world.run_as(Some(request.clone()), command).unwrap();
        let rebuilt = State::from_rows(world.state.rows()).unwrap();
        let recalled = rebuilt.recall("unverified:test", &request);
        assert_eq!(recalled, Recall::Answered(Ok(first)));
    }
}
