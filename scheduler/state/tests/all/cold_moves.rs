//! Goal: a VM that is moved while it does not run has, at every moment, what it needs to go on
//! where it is, and nobody else gets any of it. Method: moves are played by hand, and the state is
//! looked at between the steps; [`World`](berth_testkit::state::World) checks every invariant after each.

use berth_domain::claim::{Owner, State as ClaimState};
use berth_domain::id::{MigrationId, OperationId};
use berth_domain::migration;
use berth_domain::name::HostName;
use berth_domain::operation::{Mark, Step};
use berth_domain::refusal::Refusal;
use berth_domain::vm::State as VmState;
use berth_state::command::{Command, Effect};
use berth_testkit::state::*;

/// What is begun.
#[derive(Clone, Copy)]
pub(crate) struct Move {
    /// How many CPUs the VM is to have from now on.
    cpus: Option<u32>,
    verify: bool,
}

pub(crate) const AS_IT_IS: Move = Move {
    cpus: None,
    verify: false,
};
pub(crate) const RESIZE: Move = Move {
    cpus: Some(2),
    verify: true,
};

pub(crate) fn begin(
    world: &mut World,
    vm: &str,
    host: &str,
    how: Move,
) -> Result<OperationId, Refusal> {
    let known = world.state.vm(&vm_name(vm)).unwrap().clone();
    let migration = MigrationId(uuid(5, world.fresh()));
    let spec = how.cpus.map(pinned).map(Box::new);
    let wanted = spec.as_deref().unwrap_or(&known.spec).clone();
    let claim = world.claim(vm, &wanted, host, Owner::Migration(migration));
    let operation = operation_id(world.fresh());
    let lease = world.lease();
    world.run(Command::BeginMove {
        operation,
        migration,
        vm: vm_name(vm),
        spec,
        requested_host: None,
        verify: how.verify,
        evacuate: false,
        claim,
        lease,
    })?;
    Ok(operation)
}

pub(crate) fn carry_out(world: &mut World, operation: OperationId) {
    for step in [Step::StopSource, Step::StartDestination] {
        world.log(operation, step, Mark::Started).unwrap();
        if step == Step::StopSource {
            world.log(operation, step, Mark::Succeeded).unwrap();
        }
    }
    let (step, effect) = (Step::StartDestination, Effect::CompleteMove);
    world
        .advance(operation, step, Mark::Succeeded, effect)
        .unwrap();
}

pub(crate) fn revert(world: &mut World, vm: &str) -> OperationId {
    let operation = operation_id(world.fresh());
    let lease = world.lease();
    world
        .run(Command::BeginRevertResize {
            operation,
            vm: vm_name(vm),
            lease,
        })
        .unwrap();
    for step in [Step::StopDestination, Step::StartSource] {
        world.log(operation, step, Mark::Started).unwrap();
        if step == Step::StopDestination {
            world.log(operation, step, Mark::Succeeded).unwrap();
        }
    }
    let effect = Effect::CompleteRevert;
    world
        .advance(operation, Step::StartSource, Mark::Succeeded, effect)
        .unwrap();
    operation
}

fn vm<'w>(world: &'w World, name: &str) -> &'w berth_domain::vm::Vm {
    world.state.vm(&vm_name(name)).unwrap()
}

#[test]
fn a_cold_migration_takes_the_destination_first_and_gives_the_source_back_last() {
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    let operation = begin(&mut world, "a", "h2", AS_IT_IS).unwrap();
    assert_eq!((world.used("h1", "PCPU"), world.used("h2", "PCPU")), (1, 1));
    assert_eq!(vm(&world, "a").state, VmState::Active);
    let busy = begin(&mut world, "a", "h2", AS_IT_IS).unwrap_err();
    assert_eq!(busy.reason, "VM_BUSY");
    carry_out(&mut world, operation);
    assert_eq!((world.used("h1", "PCPU"), world.used("h2", "PCPU")), (0, 1));
    let moved = vm(&world, "a");
    assert_eq!(moved.host, Some(host_name("h2")));
    assert_eq!((moved.state, moved.operation), (VmState::Active, None));
}

#[test]
fn a_resize_keeps_what_was_until_it_is_confirmed() {
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    let before = vm(&world, "a").claim.unwrap();
    let operation = begin(&mut world, "a", "h2", RESIZE).unwrap();
    carry_out(&mut world, operation);
    assert_eq!(vm(&world, "a").state, VmState::Resized);
    assert_eq!(vm(&world, "a").spec.flavor.vcpus, 2);
    assert_eq!((world.used("h1", "PCPU"), world.used("h2", "PCPU")), (1, 2));
    assert_eq!(world.state.claim(before).unwrap().state, ClaimState::Held);
    // It cannot be moved on, neither running nor not, before that is decided.
    assert_eq!(
        world.begin_migration("a", "h1").unwrap_err().reason,
        "VM_STATE"
    );
    assert_eq!(
        begin(&mut world, "a", "h1", RESIZE).unwrap_err().reason,
        "VM_STATE"
    );

    world
        .run(Command::ConfirmResize {
            vm: vm_name("a"),
            deleter: None,
        })
        .unwrap();
    assert_eq!(vm(&world, "a").state, VmState::Active);
    assert_eq!((world.used("h1", "PCPU"), world.used("h2", "PCPU")), (0, 2));
    let twice = world.run(Command::ConfirmResize {
        vm: vm_name("a"),
        deleter: None,
    });
    assert_eq!(reason(&twice), "VM_STATE");
}

#[test]
fn a_revert_comes_back_to_the_very_cpus() {
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    let (before, pins) = (vm(&world, "a").claim, world.pins("a"));
    let operation = begin(&mut world, "a", "h2", RESIZE).unwrap();
    carry_out(&mut world, operation);
    // Whoever comes meanwhile gets other CPUs.
    world.boot("b", &pinned(1), "h1");
    revert(&mut world, "a");
    let back = vm(&world, "a");
    assert_eq!(
        (back.host.clone(), back.claim),
        (Some(host_name("h1")), before)
    );
    assert_eq!((back.state, back.spec.flavor.vcpus), (VmState::Active, 1));
    assert_eq!(world.pins("a"), pins);
    assert_eq!(world.used("h2", "PCPU"), 0);
    let migration = world.state.migrations().values().next().unwrap();
    assert_eq!(migration.state, migration::State::Reverted);
}

#[test]
fn a_resize_on_the_same_host_holds_both_until_it_is_decided() {
    let mut world = World::with_hosts(1);
    world.boot("a", &pinned(1), "h1");
    let here = begin(&mut world, "a", "h1", AS_IT_IS).unwrap_err();
    assert_eq!(here.reason, "SAME_HOST");
    let operation = begin(&mut world, "a", "h1", RESIZE).unwrap();
    assert_eq!(world.used("h1", "PCPU"), 3);
    carry_out(&mut world, operation);
    assert_eq!(world.used("h1", "PCPU"), 3);
    revert(&mut world, "a");
    assert_eq!(world.used("h1", "PCPU"), 1);
    assert_eq!(vm(&world, "a").spec.flavor.vcpus, 1);
}

#[test]
fn a_move_that_is_given_up_leaves_the_vm_as_it_was() {
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    let before = vm(&world, "a").clone();
    let operation = begin(&mut world, "a", "h2", RESIZE).unwrap();
    world
        .log(operation, Step::StopSource, Mark::Started)
        .unwrap();
    let why = refusal("NO");
    let give_up = Effect::RefuseMigration(why.clone());
    // Not before the guest runs again where it was.
    let dirty = world.advance(operation, Step::Claim, Mark::Undone, give_up.clone());
    assert_eq!(reason(&dirty), "STEP_OUT_OF_ORDER");
    let failed = Mark::Failed(why);
    world.log(operation, Step::StopSource, failed).unwrap();
    world
        .log(operation, Step::StopSource, Mark::UndoStarted)
        .unwrap();
    world
        .log(operation, Step::StopSource, Mark::Undone)
        .unwrap();
    world
        .advance(operation, Step::Claim, Mark::Undone, give_up)
        .unwrap();
    let after = vm(&world, "a");
    assert_eq!(
        (after.state, after.claim, &after.spec),
        (before.state, before.claim, &before.spec)
    );
    assert_eq!(world.used("h2", "PCPU"), 0);
}

#[test]
fn the_destination_does_not_start_before_the_source_has_stopped() {
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    let operation = begin(&mut world, "a", "h2", AS_IT_IS).unwrap();
    let early = world.log(operation, Step::StartDestination, Mark::Started);
    assert_eq!(reason(&early), "STEP_OUT_OF_ORDER");
    world
        .log(operation, Step::StopSource, Mark::Started)
        .unwrap();
    let early = world.log(operation, Step::StartDestination, Mark::Started);
    assert_eq!(reason(&early), "STEP_OUT_OF_ORDER");
}

#[test]
fn a_vm_that_waits_to_be_verified_is_deleted_whole() {
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    let operation = begin(&mut world, "a", "h2", RESIZE).unwrap();
    carry_out(&mut world, operation);
    let operation = operation_id(world.fresh());
    let lease = world.lease();
    let name = vm_name("a");
    world
        .run(Command::BeginDelete {
            operation,
            vm: name.clone(),
            lease,
        })
        .unwrap();
    assert_eq!(world.used("h1", "PCPU"), 0);
    world.log(operation, Step::Destroy, Mark::Started).unwrap();
    let done = Effect::CompleteDelete;
    world
        .advance(operation, Step::Destroy, Mark::Succeeded, done)
        .unwrap();
    assert!(world.state.claims().is_empty());
    assert!(world.state.vm(&name).is_none());
}

#[test]
fn a_resize_changes_the_size_and_nothing_else() {
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    let mut spec = pinned(2);
    spec.nics = vec![berth_domain::vm::Nic {
        network: None,
        bridge: "br0".to_owned(),
        mac: "52:54:00:00:00:01".to_owned(),
    }];
    let migration = MigrationId(uuid(5, world.fresh()));
    let claim = world.claim("a", &spec, "h2", Owner::Migration(migration));
    let operation = operation_id(world.fresh());
    let lease = world.lease();
    let refused = world.run(Command::BeginMove {
        operation,
        migration,
        vm: vm_name("a"),
        spec: Some(Box::new(spec)),
        requested_host: None,
        verify: true,
        evacuate: false,
        claim,
        lease,
    });
    assert_eq!(reason(&refused), "NOT_A_RESIZE");
}

/// Returns where the disks are of the VM that the operation is to start.
fn disks_of_next(world: &World, operation: OperationId) -> HostName {
    let operation = world.state.operation(operation).unwrap();
    let vm = world.state.vm(operation.vm().unwrap()).unwrap();
    let demand = world.state.next_cold_demand(operation, vm).unwrap();
    demand.leaving.unwrap().host
}

#[test]
fn a_shelved_vm_holds_no_host_and_finds_one_again() {
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    let operation = operation_id(world.fresh());
    let lease = world.lease();
    let name = vm_name("a");
    world
        .run(Command::BeginShelve {
            operation,
            vm: name.clone(),
            lease: lease.clone(),
        })
        .unwrap();
    world
        .log(operation, Step::StopSource, Mark::Started)
        .unwrap();
    let without_meaning = world.log(operation, Step::StopSource, Mark::Succeeded);
    assert_eq!(reason(&without_meaning), "EFFECT_NOT_ALLOWED");
    let done = Effect::CompleteShelve;
    world
        .advance(operation, Step::StopSource, Mark::Succeeded, done)
        .unwrap();
    assert_eq!(world.used("h1", "PCPU"), 0);
    assert_eq!(vm(&world, "a").remains_on, Some(host_name("h1")));

    for attempt in 0..2 {
        let claim = world.claim("a", &pinned(1), "h2", Owner::Vm);
        let operation = operation_id(world.fresh());
        world
            .run(Command::BeginUnshelve {
                operation,
                vm: name.clone(),
                requested_host: None,
                claim,
                lease: lease.clone(),
            })
            .unwrap();
        assert_eq!(world.used("h2", "PCPU"), 1);
        assert_eq!(disks_of_next(&world, operation), host_name("h1"));
        if attempt == 0 {
            let give_up = Effect::FailUnshelve(refusal("NO"));
            world
                .advance(operation, Step::Claim, Mark::Undone, give_up)
                .unwrap();
            assert_eq!(vm(&world, "a").state, VmState::Shelved);
            assert_eq!(world.used("h2", "PCPU"), 0);
            continue;
        }
        world
            .log(operation, Step::StartDestination, Mark::Started)
            .unwrap();
        let done = Effect::CompleteUnshelve;
        world
            .advance(operation, Step::StartDestination, Mark::Succeeded, done)
            .unwrap();
    }
    let back = vm(&world, "a");
    assert_eq!(
        (back.state, back.host.clone()),
        (VmState::Active, Some(host_name("h2")))
    );
    assert_eq!(back.remains_on, None);
}
