//! Goal: a drain cordons nothing that is refused, moves every VM once whatever becomes of its conductors,
//! and gives back what it cordoned if it is cancelled.
//!
//! Method: commands one by one; and the conductor's part, [`Drainer`], played against the state, with a
//! conductor that dies before and after every effect. [`World`] checks all invariants after each
//! command.

use std::collections::BTreeSet;

use berth_domain::claim::Owner;
use berth_domain::hint::Hint;
use berth_domain::host::Liveness;
use berth_domain::id::{Epoch, MigrationId, OperationId, TimeMs};
use berth_domain::migration::Event;
use berth_domain::operation::drain::{ATTEMPTS_MAX, FAILED_ATTEMPTS_MAX, Progress};
use berth_domain::operation::{Drain, DrainSpec, Kind, Mark, Outcome, Step};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::ServiceVersion;
use berth_saga::{DrainEffect, Drainer};
use berth_state::Reply;
use berth_state::command::{Command, Effect, LeaseRequest, PlannedVm};
use berth_testkit::state::*;

use crate::{cold_moves, groups};

const SPEC: DrainSpec = DrainSpec {
    evacuate: false,
    cold: false,
    parallel: 2,
    by_policy: false,
};

fn begin(world: &mut World, host: &str, spec: DrainSpec) -> Result<OperationId, Refusal> {
    let operation = operation_id(world.fresh());
    // Not all of them, one that is not there, and not in the order of their names.
    let plan = ["b", "a", "nowhere"].map(|vm| PlannedVm {
        vm: vm_name(vm),
        place: None,
    });
    let command = Command::BeginDrain {
        operation,
        host: host_name(host),
        spec,
        by: "operator:me".to_owned(),
        plan: plan.to_vec(),
        lease: world.lease(),
    };
    world.run(command).map(|_| operation)
}

fn drain(world: &World, id: OperationId) -> Drain {
    world.operation(id).drain().expect("a drain").clone()
}

fn progress(world: &World, id: OperationId, vm: &str) -> Progress {
    let drain = drain(world, id);
    drain
        .vm(&vm_name(vm))
        .expect("it is listed")
        .progress
        .clone()
}

fn begin_move(world: &mut World, vm: &str, to: &str) -> Command {
    let migration = MigrationId(uuid(5, world.fresh()));
    let spec = world
        .state
        .vm(&vm_name(vm))
        .map_or(pinned(1), |vm| vm.spec.clone());
    let claim = world.claim(vm, &spec, to, Owner::Migration(migration));
    Command::BeginMigration {
        operation: operation_id(world.fresh()),
        migration,
        vm: vm_name(vm),
        requested_host: None,
        claim,
        lease: world.lease(),
        policy: berth_domain::policy::MigrationPolicy::default(),
    }
}

fn move_under(
    world: &mut World,
    id: OperationId,
    epoch: Epoch,
    vm: &str,
) -> Result<OperationId, Refusal> {
    let begin = Box::new(begin_move(world, vm, "h2"));
    let command = Command::MoveDrained {
        drain: id,
        epoch,
        begin,
    };
    let Reply::Operation(operation) = world.run(command)? else {
        panic!("no operation");
    };
    Ok(operation.id)
}

fn move_one(world: &mut World, id: OperationId, vm: &str) -> Result<OperationId, Refusal> {
    let epoch = world.epoch(id);
    move_under(world, id, epoch, vm)
}

fn record(
    world: &mut World,
    id: OperationId,
    vm: &str,
    why: Option<Refusal>,
) -> Result<(), Refusal> {
    let command = Command::RecordDrained {
        drain: id,
        epoch: world.epoch(id),
        vm: vm_name(vm),
        refusal: why,
    };
    world.run(command).map(drop)
}

/// Lets a move arrive.
fn arrive(world: &mut World, mover: OperationId) {
    world.transfer(mover);
    world.settle(mover, Event::Arrived).expect("it was sent");
}

fn cordon(world: &mut World, host: &str, cordoned: bool) -> Result<(), Refusal> {
    let host = host_name(host);
    world.run(Command::SetCordon { host, cordoned }).map(drop)
}

fn is_cordoned(world: &World, host: &str) -> bool {
    world.view(host).host.cordoned
}

fn failure(world: &World, id: OperationId) -> String {
    let Some(Outcome::Failed(refusal)) = &world.operation(id).outcome else {
        panic!("it did not fail");
    };
    refusal.reason.clone()
}

fn busy() -> Refusal {
    Refusal::new(Code::FailedPrecondition, "VM_BUSY", "at work")
}

fn stuck() -> Refusal {
    let host = "h1".parse().unwrap();
    Refusal::new(Code::ResourceExhausted, "NO_VALID_HOST", "no host fits").with_change(
        Hint::OpenHost {
            host,
            steps: Vec::new(),
        },
    )
}

#[test]
fn what_is_refused_cordons_nothing() {
    for version in ServiceVersion::FINALIZE_UPGRADE.0..ServiceVersion::DRAINS.0 {
        let mut world = World::at_version(ServiceVersion(version), 2);
        let refused = begin(&mut world, "h1", SPEC).unwrap_err();
        assert_eq!(refused.reason, "CLUSTER_VERSION_TOO_OLD");
        assert!(!is_cordoned(&world, "h1"));
    }
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    let evacuate = DrainSpec {
        evacuate: true,
        ..SPEC
    };
    let refused = begin(&mut world, "h1", evacuate).unwrap_err();
    assert_eq!(refused.reason, "HOST_IS_ALIVE");
    assert!(!is_cordoned(&world, "h1"));
    let refused = begin(&mut world, "h9", SPEC).unwrap_err();
    assert_eq!(refused.reason, "HOST_NOT_FOUND");
    begin(&mut world, "h1", SPEC).unwrap();
    let refused = begin(&mut world, "h1", SPEC).unwrap_err();
    assert_eq!(refused.reason, "HOST_IS_DRAINED");
}

#[test]
fn vms_are_moved_in_the_order_of_the_plan_and_the_last_record_ends_it() {
    let mut world = World::with_hosts(2);
    for vm in ["a", "b", "c"] {
        world.boot(vm, &pinned(1), "h1");
    }
    let id = begin(&mut world, "h1", SPEC).unwrap();
    assert!(is_cordoned(&world, "h1"));
    let listed: Vec<_> = drain(&world, id)
        .vms
        .iter()
        .map(|d| d.vm.to_string())
        .collect();
    assert_eq!(listed, ["b", "a", "c"]);

    let b = move_one(&mut world, id, "b").unwrap();
    assert_eq!(move_one(&mut world, id, "b").unwrap(), b, "repeated");
    let a = move_one(&mut world, id, "a").unwrap();
    let third = move_one(&mut world, id, "c").unwrap_err();
    assert_eq!(third.reason, "TOO_MANY_MOVES");
    let early = record(&mut world, id, "a", None).unwrap_err();
    assert_eq!(early.reason, "MOVE_RUNS");
    arrive(&mut world, a);
    record(&mut world, id, "a", None).unwrap();
    record(&mut world, id, "a", None).expect("repeated");
    let host = host_name("h2");
    assert_eq!(progress(&world, id, "a"), Progress::Moved { host });
    // What its word is against, is what the claims show.
    arrive(&mut world, b);
    record(&mut world, id, "b", Some(stuck())).unwrap();
    assert!(matches!(progress(&world, id, "b"), Progress::Moved { .. }));

    record(&mut world, id, "c", Some(stuck())).unwrap();
    assert_eq!(failure(&world, id), "VMS_STAY");
    assert!(is_cordoned(&world, "h1"));
    let late = record(&mut world, id, "c", None).unwrap_err();
    assert_eq!(late.reason, "OPERATION_DONE");
    let late = move_under(&mut world, id, Epoch(1), "c").unwrap_err();
    assert_eq!(late.reason, "OPERATION_DONE");
}

#[test]
fn a_host_without_vms_is_drained_at_once() {
    let mut world = World::with_hosts(1);
    let id = begin(&mut world, "h1", SPEC).unwrap();
    assert_eq!(world.operation(id).outcome, Some(Outcome::Succeeded));
    assert!(is_cordoned(&world, "h1"));
}

#[test]
fn only_the_holder_of_the_lease_moves_and_records() {
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    let id = begin(&mut world, "h1", SPEC).unwrap();
    let earlier = world.epoch(id);
    let lease = LeaseRequest {
        conductor: world.lease().conductor,
        ttl_ms: 1_000,
    };
    let take = Command::TakeLease {
        operation: id,
        lease,
    };
    world.run(take).unwrap();
    let refused = move_under(&mut world, id, earlier, "a").unwrap_err();
    assert_eq!(refused.reason, "STALE_EPOCH");
    let command = Command::RecordDrained {
        drain: id,
        epoch: earlier,
        vm: vm_name("a"),
        refusal: None,
    };
    assert_eq!(reason(&world.run(command)), "STALE_EPOCH");
    let other = world.begin_migration("a", "h2").unwrap();
    let refused = record(&mut world, other, "a", None).unwrap_err();
    assert_eq!(refused.reason, "NOT_A_DRAIN");
    let log = world.log(id, Step::Claim, Mark::Started).unwrap_err();
    assert_eq!(log.reason, "STEP_NOT_ALLOWED");
}

/// Goal: a cancelled drain leaves the host as it was before, unless it was cordoned otherwise too.
#[test]
fn a_cancelled_drain_gives_back_what_it_cordoned() {
    for (before, meanwhile) in [(false, false), (true, false), (false, true)] {
        let mut world = World::with_hosts(2);
        for vm in ["a", "b"] {
            world.boot(vm, &pinned(1), "h1");
        }
        if before {
            cordon(&mut world, "h1", true).unwrap();
        }
        let id = begin(&mut world, "h1", SPEC).unwrap();
        let a = move_one(&mut world, id, "a").unwrap();
        let refused = cordon(&mut world, "h1", false).unwrap_err();
        assert_eq!(refused.reason, "HOST_IS_DRAINED");
        if meanwhile {
            cordon(&mut world, "h1", true).unwrap();
        }
        world
            .run(Command::CancelOperation { operation: id })
            .unwrap();
        assert!(!world.operation(id).is_done(), "a move is in progress");
        let refused = move_one(&mut world, id, "b").unwrap_err();
        assert_eq!(refused.reason, "DRAIN_CANCELLED");
        arrive(&mut world, a);
        record(&mut world, id, "a", None).unwrap();
        assert_eq!(failure(&world, id), "OPERATION_CANCELLED");
        assert_eq!(is_cordoned(&world, "h1"), before || meanwhile);
        assert!(matches!(progress(&world, id, "b"), Progress::Stays { .. }));
    }
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    let id = begin(&mut world, "h1", SPEC).unwrap();
    world
        .run(Command::CancelOperation { operation: id })
        .unwrap();
    assert_eq!(failure(&world, id), "OPERATION_CANCELLED");
    assert!(!is_cordoned(&world, "h1"));
}

#[test]
fn a_host_is_not_removed_while_it_is_drained() {
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    let id = begin(&mut world, "h1", SPEC).unwrap();
    let a = move_one(&mut world, id, "a").unwrap();
    arrive(&mut world, a);
    let remove = Command::RemoveHost {
        host: host_name("h1"),
    };
    assert_eq!(reason(&world.run(remove.clone())), "HOST_IS_DRAINED");
    record(&mut world, id, "a", None).unwrap();
    world.run(remove).unwrap();
}

#[test]
fn a_vm_that_is_busy_is_tried_so_many_times() {
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    let id = begin(&mut world, "h1", SPEC).unwrap();
    for _ in 1..ATTEMPTS_MAX {
        record(&mut world, id, "a", Some(busy())).unwrap();
        assert_eq!(progress(&world, id, "a"), Progress::Waiting);
    }
    record(&mut world, id, "a", Some(busy())).unwrap();
    assert!(matches!(progress(&world, id, "a"), Progress::Stays { .. }));
    assert_eq!(failure(&world, id), "VMS_STAY");
}

/// Returns how often a drain tries a VM whose move fails each time.
fn tries(refusal: &Refusal, has_begun: bool) -> u32 {
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    let id = begin(&mut world, "h1", SPEC).unwrap();
    let mut tries = 0;
    while progress(&world, id, "a") == Progress::Waiting {
        tries += 1;
        if !has_begun {
            record(&mut world, id, "a", Some(refusal.clone())).unwrap();
            continue;
        }
        let mover = move_one(&mut world, id, "a").unwrap();
        let failed = Mark::Failed(refusal.clone());
        let effect = Effect::RefuseMigration(refusal.clone());
        world.advance(mover, Step::Claim, failed, effect).unwrap();
        record(&mut world, id, "a", None).unwrap();
    }
    let Progress::Stays { refusal: kept } = progress(&world, id, "a") else {
        panic!("it is where it was");
    };
    assert_eq!(kept.reason, refusal.reason);
    assert_eq!(failure(&world, id), "VMS_STAY");
    tries
}

/// Goal: a VM is not given up because its conductor or its destination died under its first move, or its
/// transfer broke; and not tried again where that was refused, or a user ended the move.
#[test]
fn a_move_that_failed_on_its_way_is_tried_again() {
    for (code, reason, begun, refused) in [
        (
            Code::Unavailable,
            "HOST_UNREACHABLE",
            ATTEMPTS_MAX,
            ATTEMPTS_MAX,
        ),
        (Code::Aborted, "VM_BUSY", ATTEMPTS_MAX, ATTEMPTS_MAX),
        (Code::Aborted, "DESTINATION_DEAD", FAILED_ATTEMPTS_MAX, 1),
        (Code::Aborted, "SOURCE_DEAD", FAILED_ATTEMPTS_MAX, 1),
        (Code::Aborted, "MIGRATION_FAILED", FAILED_ATTEMPTS_MAX, 1),
        (Code::Internal, "HYPERVISOR_FAILED", FAILED_ATTEMPTS_MAX, 1),
        (
            Code::FailedPrecondition,
            "CLAIM_NO_LONGER_FITS",
            FAILED_ATTEMPTS_MAX,
            1,
        ),
        (Code::Internal, "GUEST_LOST", 1, 1),
        (Code::Internal, "GUEST_ENDED", 1, 1),
        (Code::Cancelled, "OPERATION_CANCELLED", 1, 1),
    ] {
        let refusal = Refusal::new(code, reason, "as it is");
        assert_eq!(tries(&refusal, true), begun, "{reason}, begun");
        assert_eq!(tries(&refusal, false), refused, "{reason}, refused");
    }
}

/// Goal: a move that has begun and failed for now is not tried again at once.
#[test]
fn a_vm_rests_after_a_failed_move() {
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    let id = begin(&mut world, "h1", SPEC).unwrap();
    let mut drainer = Drainer::new(world.operation(id));
    let mover = move_one(&mut world, id, "a").unwrap();
    let unreachable = Refusal::new(Code::Unavailable, "HOST_UNREACHABLE", "no answer");
    let failed = Mark::Failed(unreachable.clone());
    let effect = Effect::RefuseMigration(unreachable);
    world.advance(mover, Step::Claim, failed, effect).unwrap();
    let ended = BTreeSet::from([mover]);
    let record_it = drainer.next(world.operation(id), &ended, TimeMs(world.now));
    let (vm, refusal) = (vm_name("a"), None);
    assert_eq!(record_it, DrainEffect::Record { vm, refusal });
    record(&mut world, id, "a", None).unwrap();
    drainer.recorded(Ok(()));
    assert_eq!(progress(&world, id, "a"), Progress::Waiting);
    let next = drainer.next(world.operation(id), &ended, TimeMs(world.now));
    assert!(matches!(next, DrainEffect::Await { .. }), "{next:?}");
    let later = TimeMs(world.now + 5_000);
    let next = drainer.next(world.operation(id), &ended, later);
    assert_eq!(next, DrainEffect::Move(vm_name("a")));
}

/// Goal: what becomes of a VM by other hands is seen.
#[test]
fn a_vm_that_is_deleted_or_moved_meanwhile_is_no_failure() {
    let mut world = World::with_hosts(2);
    for vm in ["a", "b"] {
        world.boot(vm, &pinned(1), "h1");
    }
    let id = begin(&mut world, "h1", SPEC).unwrap();
    let other = world.begin_migration("a", "h2").unwrap();
    arrive(&mut world, other);
    let refused = move_one(&mut world, id, "a").unwrap_err();
    assert_eq!(refused.reason, "VM_NOT_ON_HOST");
    record(&mut world, id, "a", Some(refused)).unwrap();
    world.delete("b");
    let not_found = Refusal::not_found("vm", vm_name("b"));
    record(&mut world, id, "b", Some(not_found)).unwrap();
    assert_eq!(progress(&world, id, "b"), Progress::Gone);
    assert_eq!(world.operation(id).outcome, Some(Outcome::Succeeded));
}

/// When the resize of a VM that left the host is decided.
const WHEN: [&str; 3] = ["before", "while", "after"];

/// Goal: a drain never says that a host is empty to which a revert may bring a VM back.
/// Method: a VM that is RESIZED elsewhere is confirmed or reverted before the drain, while it waits in
/// it, or not before it has ended; at the end the host holds no claim where the drain succeeded.
#[test]
fn a_vm_that_may_return_is_not_forgotten() {
    for when in WHEN {
        for is_reverted in [false, true] {
            let mut world = World::with_hosts(2);
            world.boot("a", &pinned(1), "h1");
            resize(&mut world, "a", "h2");
            let decide = |world: &mut World| match is_reverted {
                true => drop(cold_moves::revert(world, "a")),
                false => {
                    let (vm, deleter) = (vm_name("a"), None);
                    let confirmed = world.run(Command::ConfirmResize { vm, deleter });
                    confirmed.unwrap();
                }
            };
            if when == "before" {
                decide(&mut world);
            }
            let id = begin(&mut world, "h1", SPEC).unwrap();
            if when == "while" {
                decide(&mut world);
            }
            while !world.operation(id).is_done() {
                match move_one(&mut world, id, "a") {
                    Ok(mover) => {
                        arrive(&mut world, mover);
                        record(&mut world, id, "a", None).unwrap();
                    }
                    Err(refusal) => record(&mut world, id, "a", Some(refusal)).unwrap(),
                }
            }
            let is_empty = world.state.claims_of_host(&host_name("h1")).count() == 0;
            let succeeded = world.operation(id).outcome == Some(Outcome::Succeeded);
            assert_eq!(succeeded, is_empty, "{when}, reverted: {is_reverted}");
            assert_eq!(succeeded, when != "after");
            if when == "after" {
                assert_eq!(failure(&world, id), "VMS_STAY");
                decide(&mut world);
                let again = begin(&mut world, "h1", SPEC).unwrap();
                assert_eq!(world.operation(again).is_done(), !is_reverted);
            }
        }
    }
}

/// Goal: another VM that got the name of a deleted one was not moved.
#[test]
fn a_vm_that_was_created_again_was_not_moved() {
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    let id = begin(&mut world, "h1", SPEC).unwrap();
    world.delete("a");
    world.boot("a", &pinned(1), "h2");
    let refused = move_one(&mut world, id, "a").unwrap_err();
    assert_eq!(refused.reason, "VM_NOT_ON_HOST");
    record(&mut world, id, "a", Some(refused)).unwrap();
    assert_eq!(progress(&world, id, "a"), Progress::Gone);
}

/// Goal: a drain by a silent agent is refused with the way out, and cordons nothing; an empty host needs
/// no agent.
#[test]
fn a_host_that_is_down_is_not_drained_by_its_agent() {
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    for host in ["h1", "h2"] {
        let (host, liveness) = (host_name(host), Liveness::Down);
        world.run(Command::SetLiveness { host, liveness }).unwrap();
    }
    let refused = begin(&mut world, "h1", SPEC).unwrap_err();
    assert_eq!(refused.reason, "HOST_DOWN");
    let hint = refused.hint.unwrap();
    assert!(hint.contains("berth host fence h1"), "{hint}");
    assert!(!is_cordoned(&world, "h1"));
    let id = begin(&mut world, "h2", SPEC).unwrap();
    assert_eq!(world.operation(id).outcome, Some(Outcome::Succeeded));
    // What does not run there needs no agent to stay away.
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    resize(&mut world, "a", "h2");
    let (host, liveness) = (host_name("h1"), Liveness::Down);
    world.run(Command::SetLiveness { host, liveness }).unwrap();
    begin(&mut world, "h1", SPEC).unwrap();
}

fn resize(world: &mut World, vm: &str, to: &str) {
    let resize = cold_moves::begin(world, vm, to, cold_moves::RESIZE).unwrap();
    cold_moves::carry_out(world, resize);
}

/// Moves all VMs of a drain to h2; those that cannot be moved stay.
fn drain_to_h2(world: &mut World, spec: DrainSpec) {
    let id = begin(world, "h1", spec).unwrap();
    while let Some(vm) = drain(world, id).waiting().next().map(|d| d.vm.to_string()) {
        let mut command = begin_move(world, &vm, "h2");
        if let (
            true,
            Command::BeginMigration {
                operation,
                migration,
                vm,
                claim,
                lease,
                ..
            },
        ) = (spec.evacuate, command.clone())
        {
            command = Command::BeginMove {
                operation,
                migration,
                vm,
                spec: None,
                requested_host: None,
                verify: false,
                evacuate: true,
                claim,
                lease,
            };
        }
        let epoch = world.epoch(id);
        let begin = Box::new(command);
        let moved = world.run(Command::MoveDrained {
            drain: id,
            epoch,
            begin,
        });
        let refusal = match moved {
            Ok(Reply::Operation(mover)) if spec.evacuate => {
                groups::end(world, mover.id, true);
                None
            }
            Ok(Reply::Operation(mover)) => {
                arrive(world, mover.id);
                None
            }
            Ok(other) => panic!("{other:?}"),
            Err(refusal) => Some(refusal),
        };
        record(world, id, &vm, refusal).unwrap();
    }
}

/// Does what a hint says with a command.
fn follow(world: &mut World, command: &str) {
    match command.split(' ').collect::<Vec<_>>()[..] {
        ["berth", "host", "drain", "h1"] => drain_to_h2(world, SPEC),
        ["berth", "host", "fence", "h1"] => groups::fence(world, "h1"),
        ["berth", "host", "evacuate", "h1"] => {
            let evacuate = DrainSpec {
                evacuate: true,
                ..SPEC
            };
            drain_to_h2(world, evacuate);
        }
        ["berth", "vm", "confirm-resize", vm] => {
            let (vm, deleter) = (vm_name(vm), None);
            world.run(Command::ConfirmResize { vm, deleter }).unwrap();
        }
        _ => panic!("{command}"),
    }
}

/// Goal: what the refused removal of a host hints at empties it, whatever holds it.
/// Method: a host that is up, silent or fenced, with a VM that is there or was resized from there, to
/// there or on it; the commands of each hint are carried out until the host can be removed.
#[test]
fn the_hints_of_a_refused_removal_empty_the_host() {
    for host_is in ["up", "down", "fenced"] {
        for vm_is in ["there", "resized away", "resized to it", "resized on it"] {
            let mut world = World::with_hosts(3);
            match vm_is {
                "there" => world.boot("a", &pinned(1), "h1"),
                "resized away" => {
                    world.boot("a", &pinned(1), "h1");
                    resize(&mut world, "a", "h3");
                }
                "resized to it" => {
                    world.boot("a", &pinned(1), "h3");
                    resize(&mut world, "a", "h1");
                }
                _ => {
                    world.boot("a", &pinned(1), "h1");
                    resize(&mut world, "a", "h1");
                }
            }
            if host_is != "up" {
                let (host, liveness) = (host_name("h1"), Liveness::Down);
                world.run(Command::SetLiveness { host, liveness }).unwrap();
            }
            if host_is == "fenced" {
                groups::fence(&mut world, "h1");
            }
            let mut hints = Vec::new();
            loop {
                let host = host_name("h1");
                let Err(refusal) = world.run(Command::RemoveHost { host }) else {
                    break;
                };
                assert_eq!(refusal.reason, "HOST_IN_USE");
                hints.push(refusal.hint.expect("a hint"));
                assert!(hints.len() < 3, "{host_is}, {vm_is}: {hints:#?}");
                let hint = hints[hints.len() - 1].clone();
                for command in hint.split('`').skip(1).step_by(2) {
                    follow(&mut world, command);
                }
            }
            assert!(!hints.is_empty(), "{host_is}, {vm_is}");
        }
    }
}

/// Goal: the host names the drain that cordoned it, for as long as it is that drain's cordon.
#[test]
fn a_cordon_names_the_drain_that_set_it() {
    let by = |world: &World| world.view("h1").host.cordoned_by;
    for was_cordoned in [false, true] {
        for again in [None, Some(false), Some(true)] {
            let mut world = World::with_hosts(2);
            cordon(&mut world, "h1", was_cordoned).unwrap();
            assert_eq!(by(&world), None);
            let id = begin(&mut world, "h1", SPEC).unwrap();
            assert_eq!(by(&world), (!was_cordoned).then_some(id));
            if let Some(cordoned) = again {
                cordon(&mut world, "h1", cordoned).unwrap();
                assert_eq!(by(&world), None);
                cordon(&mut world, "h1", true).unwrap();
                assert_eq!(by(&world), None);
            }
        }
    }
}

/// Goal: a VM that was on its way to the host when the drain began is moved too.
#[test]
fn a_vm_that_arrives_is_moved_too() {
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    world.boot("c", &pinned(1), "h2");
    let arriving = world.begin_migration("c", "h1").unwrap();
    let id = begin(&mut world, "h1", SPEC).unwrap();
    let a = move_one(&mut world, id, "a").unwrap();
    let refused = move_one(&mut world, id, "c").unwrap_err();
    assert_eq!(refused.reason, "VM_BUSY");
    record(&mut world, id, "c", Some(refused)).unwrap();
    arrive(&mut world, a);
    record(&mut world, id, "a", None).unwrap();
    arrive(&mut world, arriving);
    let c = move_one(&mut world, id, "c").unwrap();
    arrive(&mut world, c);
    record(&mut world, id, "c", None).unwrap();
    assert_eq!(world.operation(id).outcome, Some(Outcome::Succeeded));
}

/// When a conductor dies: at which effect, and whether that was done.
type Death = (usize, bool);

/// A drain of three VMs, of which one is busy at first, played to its end.
struct Play {
    world: World,
    id: OperationId,
    busy: Option<OperationId>,
    drainer: Drainer,
    effects: usize,
    /// What was begun for each of its moves.
    begun: BTreeSet<OperationId>,
}

impl Play {
    fn new() -> Self {
        let mut world = World::with_hosts(2);
        for vm in ["a", "b"] {
            world.boot(vm, &pinned(1), "h1");
        }
        let busy = Some(world.begin_boot("c", &pinned(1), "h1").unwrap());
        let id = begin(&mut world, "h1", SPEC).unwrap();
        let drainer = Drainer::new(world.operation(id));
        Self {
            world,
            id,
            busy,
            drainer,
            effects: 0,
            begun: BTreeSet::new(),
        }
    }

    /// Another conductor takes over, which knows nothing but what is recorded.
    fn take_over(&mut self) {
        self.world.now += 100_000;
        let lease = LeaseRequest {
            conductor: conductor("c2"),
            ttl_ms: 10_000,
        };
        let operation = self.id;
        let taken = self.world.run(Command::TakeLease { operation, lease });
        // It may be done already.
        if taken.is_ok() {
            self.drainer = Drainer::new(self.world.operation(self.id));
        }
    }

    fn next(&mut self) -> DrainEffect {
        let moving: Vec<_> = drain(&self.world, self.id)
            .moving()
            .map(|(_, id)| id)
            .collect();
        let is_done = |id: &OperationId| self.world.operation(*id).is_done();
        let ended = moving.into_iter().filter(is_done).collect();
        let operation = self.world.operation(self.id).clone();
        self.drainer
            .next(&operation, &ended, TimeMs(self.world.now))
    }

    /// Carries an effect out; its answer is heard or not.
    fn perform(&mut self, effect: DrainEffect, is_heard: bool) {
        match effect {
            DrainEffect::Move(vm) => match move_one(&mut self.world, self.id, vm.as_str()) {
                Ok(begun) => drop(self.begun.insert(begun)),
                Err(refusal) if is_heard => {
                    self.drainer.refused(vm, refusal, TimeMs(self.world.now));
                }
                Err(_) => {}
            },
            DrainEffect::Record { vm, refusal } => {
                let recorded = record(&mut self.world, self.id, vm.as_str(), refusal);
                if is_heard {
                    self.drainer.recorded(recorded.as_ref().copied());
                }
            }
            DrainEffect::Await { moves, ms } => match (moves.first(), self.busy.take()) {
                (Some(mover), busy) => {
                    self.busy = busy;
                    arrive(&mut self.world, *mover);
                }
                (None, Some(boot)) => {
                    self.world.log(boot, Step::Spawn, Mark::Started).unwrap();
                    let (mark, done) = (Mark::Succeeded, Effect::CompleteBoot);
                    self.world.advance(boot, Step::Spawn, mark, done).unwrap();
                    self.world.now += ms;
                }
                (None, None) => self.world.now += ms,
            },
            DrainEffect::Done(_) => {}
        }
    }

    /// Plays to the end; returns how many effects there were.
    fn play(mut self, death: Option<Death>) -> usize {
        for _ in 0..200 {
            let effect = self.next();
            if matches!(effect, DrainEffect::Done(_)) {
                self.check(death);
                return self.effects;
            }
            let dies = death.filter(|(at, _)| *at == self.effects);
            self.effects += 1;
            match dies {
                None => self.perform(effect, true),
                Some((_, false)) => self.take_over(),
                Some((_, true)) => {
                    self.perform(effect, false);
                    self.take_over();
                }
            }
        }
        panic!("no end with {death:?}: {:#?}", drain(&self.world, self.id));
    }

    fn check(&self, death: Option<Death>) {
        let operation = self.world.operation(self.id);
        assert_eq!(operation.outcome, Some(Outcome::Succeeded), "{death:?}");
        for vm in ["a", "b", "c"] {
            let host = self.world.state.vm(&vm_name(vm)).unwrap().host.clone();
            assert_eq!(host, Some(host_name("h2")), "{vm} {death:?}");
        }
        // Each was moved once, by whichever conductor.
        let operations = self.world.state.operations().values();
        let moves = operations.filter(|o| matches!(o.kind, Kind::LiveMigrate { .. }));
        assert_eq!((moves.count(), self.begun.len()), (3, 3), "{death:?}");
    }
}

#[test]
fn a_drain_ends_the_same_whenever_its_conductor_dies() {
    let effects = Play::new().play(None);
    assert!(effects > 10, "{effects}");
    for at in 0..effects {
        for is_done in [false, true] {
            Play::new().play(Some((at, is_done)));
        }
    }
    println!("{} deaths", effects * 2);
}
