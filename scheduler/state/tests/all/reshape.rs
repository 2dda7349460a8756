//! The reshaper: inventories and allocations are replaced together, all or none.

use berth_state::command::{Command, ConsumerUpdate, ProviderInventories};
use berth_testkit::state::placement::*;
use berth_testkit::state::*;

use berth_domain::id::ProviderId;

fn reshape<const N: usize>(
    inventories: [(ProviderId, ProviderInventories); N],
    consumers: &[ConsumerUpdate],
) -> Command {
    Command::Reshape {
        inventories: inventories.into(),
        consumers: consumers.to_vec(),
    }
}

/// A root with a GPU that a consumer holds, and a child that is to have it.
fn flat() -> World {
    let mut world = World::default();
    world.run(create(1, None)).unwrap();
    world.run(create(2, Some(1))).unwrap();
    world
        .run(inventories(1, 0, &[("VCPU", 8), ("VGPU", 4)]))
        .unwrap();
    let taken = update(1, None, &[(1, "VCPU", 2), (1, "VGPU", 4)]);
    assert_eq!(set(&mut world, &[taken]), "ok");
    world
}

#[test]
fn what_is_taken_moves_together_with_the_inventory() {
    let mut world = flat();
    let moved = update(1, Some(1), &[(1, "VCPU", 2), (2, "VGPU", 4)]);
    let root = after(1, 2, &[("VCPU", 8)]);
    let child = after(2, 0, &[("VGPU", 4)]);
    world.run(reshape([root, child], &[moved])).unwrap();
    assert_eq!((used(&world, 1, "VGPU"), used(&world, 2, "VGPU")), (0, 4));
    assert_eq!(used(&world, 1, "VCPU"), 2);
    // The interim inventories, the allocations and the final inventories count once each.
    assert_eq!((generation(&world, 1), generation(&world, 2)), (5, 3));
    assert_eq!(world.state.consumer(consumer(1)).unwrap().generation.0, 2);
}

#[test]
fn an_empty_inventory_is_no_interim_one() {
    let mut world = flat();
    let moved = update(1, Some(1), &[(2, "VCPU", 2)]);
    let child = after(2, 0, &[("VCPU", 4)]);
    world
        .run(reshape([after(1, 2, &[]), child], &[moved]))
        .unwrap();
    assert_eq!((generation(&world, 1), generation(&world, 2)), (3, 3));
    assert!(
        world
            .state
            .provider(provider(1))
            .unwrap()
            .inventories
            .is_empty()
    );
}

#[test]
fn allocations_of_providers_without_new_inventories_count_once() {
    let mut world = flat();
    world.run(create(3, None)).unwrap();
    world.run(inventories(3, 0, &[("DISK_GB", 10)])).unwrap();
    let more = update(2, None, &[(3, "DISK_GB", 5)]);
    world
        .run(reshape([after(2, 0, &[("VGPU", 1)])], &[more]))
        .unwrap();
    assert_eq!((generation(&world, 3), generation(&world, 2)), (2, 2));
}

/// Goal: each refusal leaves everything as it was, which [`World::run`] sees to. Method: a table.
#[test]
fn a_reshape_is_refused_as_a_whole() {
    let mut world = flat();
    let moved = |amount| update(1, Some(1), &[(1, "VCPU", 2), (2, "VGPU", amount)]);
    let root = || after(1, 2, &[("VCPU", 8)]);
    let child = |total| after(2, 0, &[("VGPU", total)]);
    for (command, expected) in [
        (
            reshape([after(1, 1, &[]), child(4)], &[moved(4)]),
            "PROVIDER_GENERATION",
        ),
        (reshape([after(7, 0, &[])], &[]), "PROVIDER_NOT_FOUND"),
        (reshape([root(), child(4)], &[]), "INVENTORY_IN_USE"),
        (
            reshape([after(1, 2, &[]), child(4)], &[moved(4)]),
            "INVENTORY_IN_USE",
        ),
        (
            reshape([root(), child(3)], &[moved(4)]),
            "INVENTORY_CONSTRAINTS",
        ),
        (reshape([root()], &[moved(4)]), "NO_INVENTORY"),
        (
            reshape([root(), child(4)], &[update(1, None, &[])]),
            "CONSUMER_GENERATION",
        ),
        (
            reshape([after(2, 0, &[("CUSTOM_X", 1)])], &[]),
            "UNKNOWN_RESOURCE_CLASS",
        ),
        (
            reshape([root(), child(4)], &[update(1, Some(1), &[(7, "VGPU", 4)])]),
            "PROVIDER_NOT_FOUND",
        ),
    ] {
        assert_eq!(reason(&world.run(command.clone())), expected, "{command:?}");
    }
    let two = [moved(4), update(2, None, &[(2, "VGPU", 1)])];
    let outcome = world.run(reshape([root(), child(4)], &two));
    assert_eq!(reason(&outcome), "CAPACITY_EXCEEDED");
}
