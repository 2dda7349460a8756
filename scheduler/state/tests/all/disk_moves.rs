//! Goal: the disks of a VM that is off travel in their order and no other: nothing is started before they
//! are there, nothing is given up once those on the source may be gone, and nothing is forgotten before
//! they are. Method: moves between two hosts with storages of their own, played by hand; [`World`](berth_testkit::state::World) checks
//! every invariant after each command.

use berth_domain::claim::Owner;
use berth_domain::id::{MigrationId, OperationId};
use berth_domain::migration;
use berth_domain::operation::{Kind, Mark, Step};
use berth_domain::vm::{Disk, DiskFormat, State as VmState};
use berth_state::Reply;
use berth_state::command::{Command, Effect};
use berth_testkit::state::*;

/// Two hosts, of which each has a storage of its own or both the same, and a VM with a disk on the first.
fn world(storage: [&str; 2]) -> World {
    let mut world = World::with_hosts(0);
    for (host, storage) in ["h1", "h2"].into_iter().zip(storage) {
        let mut report = report(topology(1, 4, 1));
        report.storage_id = storage.to_owned();
        world.register(host, report).unwrap();
    }
    let mut spec = pinned(1);
    spec.flavor.disk_gib = 1;
    spec.disks.push(Disk {
        image: None,
        format: DiskFormat::Qcow2,
        size_gib: 1,
        seed: false,
    });
    world.boot("a", &spec, "h1");
    world
}

fn begin(world: &mut World, verify: bool) -> (OperationId, MigrationId) {
    let known = world.state.vm(&vm_name("a")).unwrap().clone();
    let migration = MigrationId(uuid(5, world.fresh()));
    let claim = world.claim("a", &known.spec, "h2", Owner::Migration(migration));
    let operation = operation_id(world.fresh());
    let lease = world.lease();
    let begun = world.run(Command::BeginMove {
        operation,
        migration,
        vm: vm_name("a"),
        spec: None,
        requested_host: None,
        verify,
        evacuate: false,
        claim,
        lease,
    });
    begun.unwrap();
    (operation, migration)
}

/// Logs a step as done; the last with what it comes to.
fn done(world: &mut World, operation: OperationId, step: Step, effect: Effect) {
    world.log(operation, step, Mark::Started).unwrap();
    world
        .advance(operation, step, Mark::Succeeded, effect)
        .unwrap();
}

#[track_caller]
fn refused(world: &mut World, operation: OperationId, step: Step, mark: Mark, effect: Effect) {
    let refused = world.advance(operation, step, mark, effect).unwrap_err();
    let reasons = ["STEP_OUT_OF_ORDER", "EFFECT_NOT_ALLOWED"];
    assert!(reasons.contains(&&*refused.reason), "{refused}");
}

fn record(world: &World, migration: MigrationId) -> migration::Migration {
    (**world.state.migration(migration).unwrap()).clone()
}

#[test]
fn disks_are_fetched_before_the_start_and_dropped_before_the_end() {
    let mut world = world(["one", "two"]);
    let (operation, migration) = begin(&mut world, false);
    assert!(record(&world, migration).fetches_disks);
    let (start, none) = (Mark::Started, || Effect::None);
    refused(
        &mut world,
        operation,
        Step::FetchDisks,
        start.clone(),
        none(),
    );
    done(&mut world, operation, Step::StopSource, none());
    refused(
        &mut world,
        operation,
        Step::StartDestination,
        start.clone(),
        none(),
    );
    refused(
        &mut world,
        operation,
        Step::DropSource,
        start.clone(),
        none(),
    );
    done(&mut world, operation, Step::FetchDisks, none());
    refused(
        &mut world,
        operation,
        Step::DropSource,
        start.clone(),
        none(),
    );
    world.log(operation, Step::StartDestination, start).unwrap();
    let complete = || Effect::CompleteMove;
    let done_with = Mark::Succeeded;
    refused(
        &mut world,
        operation,
        Step::StartDestination,
        done_with.clone(),
        complete(),
    );
    world
        .log(operation, Step::StartDestination, Mark::Succeeded)
        .unwrap();
    world
        .log(operation, Step::DropSource, Mark::Started)
        .unwrap();
    // From here on nothing goes back.
    let why = refusal("DRAWN");
    let gave_up = || Effect::RefuseMigration(refusal("DRAWN"));
    refused(&mut world, operation, Step::Claim, Mark::Undone, gave_up());
    refused(
        &mut world,
        operation,
        Step::DropSource,
        Mark::Failed(why),
        gave_up(),
    );
    refused(
        &mut world,
        operation,
        Step::DropSource,
        Mark::UndoStarted,
        none(),
    );
    assert_eq!((world.used("h1", "PCPU"), world.used("h2", "PCPU")), (1, 1));
    refused(
        &mut world,
        operation,
        Step::DropSource,
        done_with.clone(),
        none(),
    );
    let ended = world.advance(operation, Step::DropSource, done_with, complete());
    ended.unwrap();
    let vm = world.state.vm(&vm_name("a")).unwrap();
    assert_eq!(vm.host, Some(host_name("h2")));
    assert_eq!((world.used("h1", "PCPU"), world.used("h2", "PCPU")), (0, 1));
}

#[test]
fn hosts_that_share_them_know_none_of_these_steps() {
    let mut world = world(["one", "one"]);
    let (operation, migration) = begin(&mut world, false);
    assert!(!record(&world, migration).fetches_disks);
    done(&mut world, operation, Step::StopSource, Effect::None);
    for step in [Step::FetchDisks, Step::DropSource, Step::DropDestination] {
        refused(&mut world, operation, step, Mark::Started, Effect::None);
    }
    done(
        &mut world,
        operation,
        Step::StartDestination,
        Effect::CompleteMove,
    );
}

/// Returns a VM that is on both hosts, to be verified.
fn verifying() -> (World, MigrationId) {
    let mut world = world(["one", "two"]);
    let (operation, migration) = begin(&mut world, true);
    done(&mut world, operation, Step::StopSource, Effect::None);
    done(&mut world, operation, Step::FetchDisks, Effect::None);
    done(
        &mut world,
        operation,
        Step::StartDestination,
        Effect::CompleteMove,
    );
    assert_eq!(
        world.state.vm(&vm_name("a")).unwrap().state,
        VmState::Resized
    );
    (world, migration)
}

fn confirm(world: &mut World) -> OperationId {
    let confirm = |deleter| Command::ConfirmResize {
        vm: vm_name("a"),
        deleter,
    };
    let nobody = world.run(confirm(None));
    assert_eq!(reason(&nobody), "CONDUCTOR_NEEDED");
    let id = operation_id(world.fresh());
    let lease = world.lease();
    let begun = world.run(confirm(Some((id, lease)))).unwrap();
    assert!(matches!(begun, Reply::Operation(_)), "{begun:?}");
    id
}

#[test]
fn a_confirmation_deletes_the_sources_disks_and_then_gives_its_room_back() {
    let (mut world, migration) = verifying();
    let operation = confirm(&mut world);
    let kind = world.operation(operation).kind.clone();
    assert_eq!(kind, Kind::ConfirmResize { migration });
    assert_eq!((world.used("h1", "PCPU"), world.used("h2", "PCPU")), (1, 1));
    let host = world.operation(operation).log.clone();
    assert!(host.is_empty());
    done(
        &mut world,
        operation,
        Step::DropSource,
        Effect::CompleteConfirm,
    );
    let log = &world.operation(operation).log;
    assert!(log.iter().all(|entry| entry.host == Some(host_name("h1"))));
    assert_eq!((world.used("h1", "PCPU"), world.used("h2", "PCPU")), (0, 1));
    assert_eq!(
        world.state.vm(&vm_name("a")).unwrap().state,
        VmState::Active
    );
    assert_eq!(record(&world, migration).state, migration::State::Completed);
}

#[test]
fn a_revert_deletes_the_copies_and_then_gives_their_room_back() {
    let (mut world, migration) = verifying();
    let operation = operation_id(world.fresh());
    let lease = world.lease();
    let begun = world.run(Command::BeginRevertResize {
        operation,
        vm: vm_name("a"),
        lease,
    });
    begun.unwrap();
    done(&mut world, operation, Step::StopDestination, Effect::None);
    let early = Effect::CompleteRevert;
    world
        .log(operation, Step::StartSource, Mark::Started)
        .unwrap();
    refused(
        &mut world,
        operation,
        Step::StartSource,
        Mark::Succeeded,
        early,
    );
    world
        .log(operation, Step::StartSource, Mark::Succeeded)
        .unwrap();
    assert_eq!((world.used("h1", "PCPU"), world.used("h2", "PCPU")), (1, 1));
    done(
        &mut world,
        operation,
        Step::DropDestination,
        Effect::CompleteRevert,
    );
    assert_eq!((world.used("h1", "PCPU"), world.used("h2", "PCPU")), (1, 0));
    assert_eq!(record(&world, migration).state, migration::State::Reverted);
}

#[test]
fn a_deletion_asks_both_hosts_before_anything_is_forgotten() {
    let (mut world, migration) = verifying();
    let operation = operation_id(world.fresh());
    let lease = world.lease();
    let begun = world.run(Command::BeginDelete {
        operation,
        vm: vm_name("a"),
        lease,
    });
    begun.unwrap();
    refused(
        &mut world,
        operation,
        Step::Destroy,
        Mark::Started,
        Effect::None,
    );
    done(&mut world, operation, Step::DropSource, Effect::None);
    assert_eq!((world.used("h1", "PCPU"), world.used("h2", "PCPU")), (1, 1));
    done(&mut world, operation, Step::Destroy, Effect::CompleteDelete);
    assert_eq!((world.used("h1", "PCPU"), world.used("h2", "PCPU")), (0, 0));
    assert!(world.state.vm(&vm_name("a")).is_none());
    assert_eq!(record(&world, migration).state, migration::State::Completed);
}
