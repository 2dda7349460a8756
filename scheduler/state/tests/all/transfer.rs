//! Goal: what is wished of a transfer is kept with the operation until it is done; and a migration
//! keeps which hosts were tried, and why each was not taken.

use berth_domain::claim::Owner;
use berth_domain::id::{MigrationId, OperationId};
use berth_domain::migration::{Event, Migration};
use berth_domain::operation::{Mark, Step};
use berth_domain::transfer::{TransferPolicy, Tried};
use berth_state::command::{Command, Effect};
use berth_testkit::state::*;

fn record(world: &World, operation: OperationId) -> Migration {
    let id: MigrationId = world.operation(operation).kind.migration().unwrap();
    (**world.state.migration(id).unwrap()).clone()
}

#[test]
fn a_wish_is_kept_until_the_end_and_may_come_again() {
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    let operation = world.begin_migration("a", "h2").unwrap();
    let force = Command::ForceComplete { operation };
    world.run(force.clone()).unwrap();
    assert!(world.operation(operation).force_complete);
    world.transfer(operation);
    // Past the point of no return too.
    world.run(force.clone()).unwrap();
    world.run(Command::CancelOperation { operation }).unwrap();
    assert!(world.operation(operation).cancelled);
    world.settle(operation, Event::Arrived).unwrap();
    let done = world.operation(operation).clone();
    world.run(force).unwrap();
    world.run(Command::CancelOperation { operation }).unwrap();
    assert_eq!(*world.operation(operation), done, "too late to change it");
}

#[test]
fn only_a_migration_has_a_transfer() {
    let mut world = World::with_hosts(1);
    let operation = world.begin_boot("a", &pinned(1), "h1").unwrap();
    let refused = world.run(Command::ForceComplete { operation });
    assert_eq!(reason(&refused), "NOT_A_MIGRATION");
    let operation = operation_id(999);
    let refused = world.run(Command::ForceComplete { operation });
    assert_eq!(reason(&refused), "OPERATION_NOT_FOUND");
}

#[test]
fn hosts_that_refuse_are_kept_with_their_refusals() {
    let mut world = World::with_hosts(4);
    world.boot("a", &pinned(1), "h1");
    let operation = world.begin_migration("a", "h2").unwrap();
    assert_eq!(
        record(&world, operation).transfer,
        TransferPolicy::default()
    );
    assert_eq!(record(&world, operation).hosts_tried_max, 3);
    let mut expected = Vec::new();
    for (host, next) in [("h2", Some("h3")), ("h3", Some("h4")), ("h4", None)] {
        let why = refusal(&format!("NOT_{host}"));
        world
            .log(operation, Step::CheckDestination, Mark::Failed(why.clone()))
            .unwrap();
        expected.push(Tried {
            host: host_name(host),
            refusal: why.clone(),
        });
        let Some(next) = next else {
            let effect = Effect::RefuseMigration(why);
            world
                .advance(operation, Step::Claim, Mark::Undone, effect)
                .unwrap();
            break;
        };
        let held = world.operation(operation).claim.unwrap();
        let effect = Effect::ReleaseClaim {
            claim: held,
            exclude: true,
        };
        world
            .advance(operation, Step::Claim, Mark::Undone, effect)
            .unwrap();
        let owner = Owner::Migration(record(&world, operation).id);
        let claim = world.claim("a", &pinned(1), next, owner);
        let effect = Effect::HoldClaim(claim);
        world
            .advance(operation, Step::Claim, Mark::Succeeded, effect)
            .unwrap();
        assert_eq!(record(&world, operation).tried, expected);
    }
    assert_eq!(record(&world, operation).tried, expected);
}

/// Goal: no row holds refusals while older members may have to read it.
#[test]
fn refusals_are_kept_from_the_version_on_that_reads_them() {
    let mut world = World::before_upgrades(2);
    world.boot("a", &pinned(1), "h1");
    let operation = world.begin_migration("a", "h2").unwrap();
    let why = refusal("NOT_h2");
    world
        .log(operation, Step::CheckDestination, Mark::Failed(why.clone()))
        .unwrap();
    let effect = Effect::RefuseMigration(why);
    world
        .advance(operation, Step::Claim, Mark::Undone, effect)
        .unwrap();
    assert_eq!(record(&world, operation).tried, []);
}

/// Goal: a refusal of the source, or a user's word, is not held against the destination.
#[test]
fn what_is_not_the_hosts_fault_is_not_its_refusal() {
    for cancelled in [false, true] {
        let mut world = World::with_hosts(2);
        world.boot("a", &pinned(1), "h1");
        let operation = world.begin_migration("a", "h2").unwrap();
        let (step, why) = if cancelled {
            world.run(Command::CancelOperation { operation }).unwrap();
            (Step::CheckDestination, refusal("CANCELLED"))
        } else {
            let step = Step::CheckDestination;
            world.log(operation, step, Mark::Succeeded).unwrap();
            (Step::CheckSource, refusal("GUEST_NOT_RUNNING"))
        };
        world
            .log(operation, step, Mark::Failed(why.clone()))
            .unwrap();
        let effect = Effect::RefuseMigration(why);
        world
            .advance(operation, Step::Claim, Mark::Undone, effect)
            .unwrap();
        assert_eq!(record(&world, operation).tried, []);
    }
}
