//! Boots, migrations and deletions, command by command: what each leads to, and what is refused.

use std::sync::Arc;

use berth_domain::claim::{Owner, State as ClaimState};
use berth_domain::constraint::PreparedDemand;
use berth_domain::cpu_set::CpuId;
use berth_domain::id::{Epoch, MigrationId, OperationId};
use berth_domain::migration::{Event, State as MigrationState};
use berth_domain::numa::Strategy;
use berth_domain::operation::{Mark, Outcome, Step};
use berth_domain::vm::{Disk, Nic, State as VmState};
use berth_state::command::{Command, Effect};
use berth_testkit::state::*;

fn migration_of(world: &World, operation: OperationId) -> MigrationId {
    let kind = &world.operation(operation).kind;
    kind.migration().expect("a migration")
}

fn release(world: &World, operation: OperationId, exclude: bool) -> Effect {
    let claim = world.operation(operation).claim.unwrap();
    Effect::ReleaseClaim { claim, exclude }
}

#[test]
fn a_boot_claims_first_and_is_active_at_the_end() {
    let mut world = World::with_hosts(2);
    let operation = world.begin_boot("a", &wide(), "h1").unwrap();
    let vm = world.state.vm(&vm_name("a")).unwrap();
    assert_eq!(
        (vm.state, vm.host.as_ref()),
        (VmState::Building, Some(&host_name("h1")))
    );
    assert_eq!(world.used("h1", "PCPU"), 3, "two vCPUs and the emulator");
    assert_eq!(world.epoch(operation), Epoch(1));
    world.log(operation, Step::Spawn, Mark::Started).unwrap();
    world
        .advance(
            operation,
            Step::Spawn,
            Mark::Succeeded,
            Effect::CompleteBoot,
        )
        .unwrap();
    let vm = world.state.vm(&vm_name("a")).unwrap();
    assert_eq!((vm.state, vm.operation), (VmState::Active, None));
    let claim = world.state.claim(vm.claim.unwrap()).unwrap();
    assert_eq!(claim.state, ClaimState::Active);
    assert_eq!(world.operation(operation).outcome, Some(Outcome::Succeeded));
    assert_eq!(world.state.running_operations().count(), 0);
}

#[test]
fn what_does_not_fit_is_not_begun() {
    let mut world = World::with_hosts(1);
    for vm in ["a", "b"] {
        world.boot(vm, &pinned(3), "h1");
    }
    let refused = world.begin_boot("c", &pinned(1), "h1").unwrap_err();
    assert_eq!(refused.reason, "NO_VALID_HOST");
    assert!(world.state.vm(&vm_name("c")).is_none());
    assert_eq!(
        world.begin_boot("a", &pinned(1), "h1").unwrap_err().reason,
        "VM_EXISTS"
    );
}

#[test]
fn a_claim_that_is_wrong_in_itself_is_refused() {
    let mut world = World::with_hosts(2);
    let good = world.claim("a", &pinned(1), "h1", Owner::Vm);
    let mut begin = |change: &dyn Fn(&mut berth_domain::claim::Claim)| {
        let mut claim = good.clone();
        change(&mut claim);
        let operation = operation_id(world.fresh());
        let lease = world.lease();
        let outcome = world.run(Command::BeginBoot {
            operation,
            vm: vm_name("a"),
            uid: berth_domain::id::VmUid(uuid(4, 1)),
            spec: Box::new(pinned(1)),
            requested_host: Some(host_name("h1")),
            claim,
            lease,
            project: None,
            restart: Default::default(),
            first_boot: None,
            metadata: Default::default(),
        });
        reason(&outcome).to_owned()
    };
    assert_eq!(begin(&|c| c.state = ClaimState::Active), "CLAIM_MISMATCH");
    assert_eq!(begin(&|c| c.vm = vm_name("b")), "CLAIM_MISMATCH");
    assert_eq!(begin(&|c| c.host = host_name("h2")), "CLAIM_MISMATCH");
    assert_eq!(begin(&|c| c.assignment = nowhere()), "NO_VALID_HOST");
    assert_eq!(begin(&|c| c.resources.clear()), "CLAIM_MISCOUNTED");
    assert_eq!(begin(&|_| ()), "ok");
}

#[test]
fn a_host_that_refuses_is_excluded_and_the_next_is_claimed() {
    let mut world = World::with_hosts(3);
    let operation = world.begin_boot("a", &pinned(1), "h1").unwrap();
    world.log(operation, Step::Spawn, Mark::Started).unwrap();
    let why = refusal("AGENT_REFUSED");
    world
        .log(operation, Step::Spawn, Mark::Failed(why.clone()))
        .unwrap();
    let early = world.advance(
        operation,
        Step::Claim,
        Mark::Undone,
        release(&world, operation, true),
    );
    assert_eq!(
        reason(&early),
        "STEP_OUT_OF_ORDER",
        "the guest may still be there"
    );
    world
        .log(operation, Step::Spawn, Mark::UndoStarted)
        .unwrap();
    world.log(operation, Step::Spawn, Mark::Undone).unwrap();
    let effect = release(&world, operation, true);
    world
        .advance(operation, Step::Claim, Mark::Undone, effect.clone())
        .unwrap();
    let length = world.operation(operation).log.len();
    world
        .advance(operation, Step::Claim, Mark::Undone, effect)
        .unwrap();
    assert_eq!(
        world.operation(operation).log.len(),
        length,
        "a retry is not logged"
    );
    assert_eq!(world.used("h1", "PCPU"), 0);
    let again = world.claim("a", &pinned(1), "h1", Owner::Vm);
    let again = world.advance(
        operation,
        Step::Claim,
        Mark::Succeeded,
        Effect::HoldClaim(again),
    );
    assert_eq!(reason(&again), "HOST_EXCLUDED");
    let next = world.claim("a", &pinned(1), "h2", Owner::Vm);
    let hold = Effect::HoldClaim(next);
    world
        .advance(operation, Step::Claim, Mark::Succeeded, hold.clone())
        .unwrap();
    world
        .advance(operation, Step::Claim, Mark::Succeeded, hold)
        .unwrap();
    assert_eq!(world.used("h2", "PCPU"), 1);
    let fail = Effect::FailBoot(why.clone());
    world
        .advance(operation, Step::Claim, Mark::Undone, fail)
        .unwrap();
    let vm = world.state.vm(&vm_name("a")).unwrap();
    assert_eq!(
        (vm.state, vm.error.as_ref(), vm.claim),
        (VmState::Error, Some(&why), None)
    );
    assert_eq!(world.state.claims().len(), 0);
}

#[test]
fn a_boot_given_up_before_anything_began_needs_no_undo() {
    let mut world = World::with_hosts(1);
    let operation = world.begin_boot("a", &pinned(1), "h1").unwrap();
    world.run(Command::CancelOperation { operation }).unwrap();
    let why = refusal("CANCELLED");
    world
        .log(operation, Step::Spawn, Mark::Failed(why.clone()))
        .unwrap();
    world
        .advance(operation, Step::Claim, Mark::Undone, Effect::FailBoot(why))
        .unwrap();
    assert_eq!(world.state.claims().len(), 0);
}

#[test]
fn a_migration_claims_the_destination_and_arrives_there() {
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    world.boot("b", &pinned(1), "h2");
    assert_eq!(world.pins("a"), world.pins("b"));
    let operation = world.begin_migration("a", "h2").unwrap();
    let migration = migration_of(&world, operation);
    assert_eq!(world.used("h2", "PCPU"), 2);
    assert_eq!(
        world.begin_migration("a", "h2").unwrap_err().reason,
        "VM_BUSY"
    );
    world.transfer(operation);
    world
        .log(operation, Step::LiveMigration, Mark::Succeeded)
        .unwrap();
    world.settle(operation, Event::Arrived).unwrap();
    let vm = world.state.vm(&vm_name("a")).unwrap();
    assert_eq!(
        (vm.state, vm.host.as_ref()),
        (VmState::Active, Some(&host_name("h2")))
    );
    assert_ne!(world.pins("a"), world.pins("b"));
    assert_eq!((world.used("h1", "PCPU"), world.used("h2", "PCPU")), (0, 2));
    let migration = world.state.migration(migration).unwrap();
    assert_eq!(migration.state, MigrationState::Completed);
    let length = world.operation(operation).log.len();
    world.settle(operation, Event::Arrived).unwrap();
    assert_eq!(
        world.operation(operation).log.len(),
        length,
        "a retry is answered"
    );
    assert_eq!(
        reason(&world.log(operation, Step::Settle, Mark::Started)),
        "OPERATION_DONE"
    );
}

#[test]
fn a_migration_that_does_not_arrive_leaves_the_vm_where_it_was() {
    for (event, vm_state, used) in [
        (Event::Stayed, VmState::Active, (1, 0)),
        (Event::Lost, VmState::Error, (0, 0)),
    ] {
        let mut world = World::with_hosts(2);
        world.boot("a", &pinned(1), "h1");
        let operation = world.begin_migration("a", "h2").unwrap();
        world.transfer(operation);
        let why = refusal("UNREACHABLE");
        let unknown = Effect::Settle {
            event: Event::Unknown,
            refusal: Some(why.clone()),
        };
        let failed = Mark::Failed(why);
        world
            .advance(operation, Step::Settle, failed.clone(), unknown.clone())
            .unwrap();
        let length = world.operation(operation).log.len();
        world
            .advance(operation, Step::Settle, failed, unknown)
            .unwrap();
        assert_eq!(world.operation(operation).log.len(), length);
        assert_eq!((world.used("h1", "PCPU"), world.used("h2", "PCPU")), (1, 1));
        world.settle(operation, event).unwrap();
        assert_eq!(world.state.vm(&vm_name("a")).unwrap().state, vm_state);
        assert_eq!((world.used("h1", "PCPU"), world.used("h2", "PCPU")), used);
    }
}

#[test]
fn the_order_of_a_migration_is_kept() {
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    let operation = world.begin_migration("a", "h2").unwrap();
    let claim = world.operation(operation).claim.unwrap();
    let transfer = |world: &mut World| {
        let effect = Effect::BeginTransfer;
        let outcome = world.advance(operation, Step::LiveMigration, Mark::Started, effect);
        reason(&outcome).to_owned()
    };
    assert_eq!(transfer(&mut world), "STEP_OUT_OF_ORDER");
    let early = world.log(operation, Step::CheckSource, Mark::Succeeded);
    assert_eq!(reason(&early), "STEP_OUT_OF_ORDER");
    let early = world.log(operation, Step::PreLiveMigration, Mark::Started);
    assert_eq!(reason(&early), "STEP_OUT_OF_ORDER");
    assert_eq!(
        reason(&world.settle(operation, Event::Arrived)),
        "STEP_OUT_OF_ORDER"
    );
    let foreign = world.log(operation, Step::Spawn, Mark::Started);
    assert_eq!(reason(&foreign), "STEP_OUT_OF_ORDER");
    let wrong = world.advance(
        operation,
        Step::CheckSource,
        Mark::Succeeded,
        Effect::CompleteBoot,
    );
    assert_eq!(reason(&wrong), "EFFECT_NOT_ALLOWED");
    world.prepare(operation);
    let swap = Effect::SwapClaim {
        claim,
        assignment: nowhere(),
    };
    let late = world.advance(operation, Step::FitDestination, Mark::Succeeded, swap);
    assert_eq!(
        reason(&late),
        "STEP_OUT_OF_ORDER",
        "the destination is prepared"
    );
    let give_up = Effect::RefuseMigration(refusal("ANY"));
    let dirty = world.advance(operation, Step::Claim, Mark::Undone, give_up.clone());
    assert_eq!(reason(&dirty), "STEP_OUT_OF_ORDER");
    assert_eq!(transfer(&mut world), "ok");
    assert_eq!(transfer(&mut world), "ok", "a retry");
    let late = world.advance(operation, Step::Claim, Mark::Undone, give_up);
    assert_eq!(
        reason(&late),
        "STEP_OUT_OF_ORDER",
        "past the point of no return"
    );
    let undo = world.log(operation, Step::PreLiveMigration, Mark::Undone);
    assert_eq!(reason(&undo), "STEP_OUT_OF_ORDER");
}

#[test]
fn a_cancelled_migration_does_not_pass_the_point_of_no_return() {
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    let operation = world.begin_migration("a", "h2").unwrap();
    world.prepare(operation);
    world.run(Command::CancelOperation { operation }).unwrap();
    let effect = Effect::BeginTransfer;
    let late = world.advance(operation, Step::LiveMigration, Mark::Started, effect);
    assert_eq!(reason(&late), "OPERATION_CANCELLED");
    let why = refusal("CANCELLED");
    world
        .log(operation, Step::LiveMigration, Mark::Failed(why.clone()))
        .unwrap();
    world
        .log(operation, Step::PreLiveMigration, Mark::UndoStarted)
        .unwrap();
    world
        .log(operation, Step::PreLiveMigration, Mark::Undone)
        .unwrap();
    let effect = Effect::RefuseMigration(why);
    world
        .advance(operation, Step::Claim, Mark::Undone, effect)
        .unwrap();
    assert_eq!(
        world.state.vm(&vm_name("a")).unwrap().state,
        VmState::Active
    );
    assert_eq!((world.used("h1", "PCPU"), world.used("h2", "PCPU")), (1, 0));
}

#[test]
fn a_swap_takes_the_new_cpus_and_gives_the_old_back_at_once() {
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    let operation = world.begin_migration("a", "h2").unwrap();
    let id = world.operation(operation).claim.unwrap();
    for step in [Step::CheckDestination, Step::CheckSource] {
        world.log(operation, step, Mark::Succeeded).unwrap();
    }
    let mut assignment = world.state.claim(id).unwrap().assignment.clone();
    let taken: Vec<u32> = assignment.pins().values().map(|c| c.0).collect();
    let free = (0..3).find(|cpu| !taken.contains(cpu)).unwrap();
    for cpu in assignment.cells[0].pins.values_mut() {
        *cpu = CpuId(free);
    }
    let effect = Effect::SwapClaim {
        claim: id,
        assignment: assignment.clone(),
    };
    let step = Step::FitDestination;
    world
        .advance(operation, step, Mark::Succeeded, effect.clone())
        .unwrap();
    let length = world.operation(operation).log.len();
    world
        .advance(operation, step, Mark::Succeeded, effect)
        .unwrap();
    assert_eq!(world.operation(operation).log.len(), length);
    assert_eq!(world.state.claim(id).unwrap().assignment, assignment);
    assert_eq!(
        world.view("h2").usage.cells[0].pinned.to_string(),
        free.to_string()
    );
    world.boot("b", &pinned(2), "h2");
    let pins = world.pins("b");
    for cpu in assignment.cells[0].pins.values_mut() {
        *cpu = CpuId(pins[0]);
    }
    let effect = Effect::SwapClaim {
        claim: id,
        assignment,
    };
    let taken = world.advance(operation, step, Mark::Succeeded, effect);
    assert_eq!(reason(&taken), "NO_VALID_HOST", "that CPU is b's");
}

#[test]
fn a_deletion_keeps_the_claim_until_the_guest_is_gone() {
    let mut world = World::with_hosts(1);
    world.boot("a", &pinned(1), "h1");
    let delete = |world: &mut World| {
        let operation = operation_id(world.fresh());
        let lease = world.lease();
        let vm = vm_name("a");
        world
            .run(Command::BeginDelete {
                operation,
                vm,
                lease,
            })
            .map(|_| operation)
    };
    let operation = delete(&mut world).unwrap();
    assert_eq!(delete(&mut world).unwrap_err().reason, "VM_BUSY");
    let gone = Effect::CompleteDelete;
    let early = world.advance(operation, Step::Destroy, Mark::Succeeded, gone.clone());
    assert_eq!(reason(&early), "STEP_OUT_OF_ORDER");
    world.log(operation, Step::Destroy, Mark::Started).unwrap();
    let waiting = Mark::Failed(refusal("WAITING_FOR_HOST"));
    world.log(operation, Step::Destroy, waiting).unwrap();
    assert_eq!(world.used("h1", "PCPU"), 1);
    world
        .advance(operation, Step::Destroy, Mark::Succeeded, gone.clone())
        .unwrap();
    world
        .advance(operation, Step::Destroy, Mark::Succeeded, gone)
        .unwrap();
    assert!(world.state.vm(&vm_name("a")).is_none());
    assert_eq!(world.used("h1", "PCPU"), 0);
    assert_eq!(delete(&mut world).unwrap_err().reason, "VM_NOT_FOUND");
}

#[test]
fn a_vm_that_holds_nothing_is_deleted_at_once() {
    let mut world = World::with_hosts(1);
    let operation = world.begin_boot("a", &pinned(1), "h1").unwrap();
    let fail = Effect::FailBoot(refusal("ANY"));
    world
        .advance(operation, Step::Claim, Mark::Undone, fail)
        .unwrap();
    let operation = operation_id(world.fresh());
    let (vm, lease) = (vm_name("a"), world.lease());
    world
        .run(Command::BeginDelete {
            operation,
            vm,
            lease,
        })
        .unwrap();
    assert!(world.state.vm(&vm_name("a")).is_none());
    assert_eq!(world.operation(operation).outcome, Some(Outcome::Succeeded));
}

#[test]
fn a_fit_that_others_made_stale_is_refused() {
    let mut world = World::with_hosts(1);
    let claim = world.claim("b", &pinned(2), "h1", Owner::Vm);
    world.boot("a", &pinned(3), "h1");
    let demand = berth_domain::constraint::Demand::boot(&pinned(2)).unwrap();
    let fresh = PreparedDemand::new(&demand).place(world.view("h1"), Strategy::Spread);
    assert_ne!(fresh.unwrap(), claim.assignment);
    let (operation, lease) = (operation_id(world.fresh()), world.lease());
    let outcome = world.run(Command::BeginBoot {
        operation,
        vm: vm_name("b"),
        uid: berth_domain::id::VmUid(uuid(4, 77)),
        spec: Box::new(pinned(2)),
        requested_host: None,
        claim,
        lease,
        project: None,
        restart: Default::default(),
        first_boot: None,
        metadata: Default::default(),
    });
    assert_eq!(reason(&outcome), "NO_VALID_HOST");
}

#[test]
fn what_is_done_is_forgotten_by_count_and_logs_stay_short() {
    let mut world = World::with_hosts(1);
    world.boot("a", &pinned(1), "h1");
    let (operation, lease) = (operation_id(world.fresh()), world.lease());
    let vm = vm_name("a");
    world
        .run(Command::BeginDelete {
            operation,
            vm,
            lease,
        })
        .unwrap();
    for number in 0..200 {
        world.log(operation, Step::Destroy, Mark::Started).unwrap();
        let why = Mark::Failed(refusal(&format!("R{number}")));
        world.log(operation, Step::Destroy, why).unwrap();
    }
    assert_eq!(
        world.operation(operation).log.len(),
        berth_state::apply::LOG_MAX
    );
    world
        .advance(
            operation,
            Step::Destroy,
            Mark::Succeeded,
            Effect::CompleteDelete,
        )
        .unwrap();
}

/// What `decide` saw is looked at again: a MAC address belongs to one VM, until that is gone.
#[test]
fn a_mac_address_belongs_to_one_vm() {
    let mut world = World::with_hosts(1);
    let mut spec = floating(1);
    spec.nics.push(Nic {
        network: None,
        bridge: "br0".to_owned(),
        mac: "52:54:00:00:00:01".to_owned(),
    });
    world.boot("a", &spec, "h1");
    let refused = world.begin_boot("b", &spec, "h1").unwrap_err();
    assert_eq!(refused.reason, "MAC_IN_USE");
    let operation = operation_id(world.fresh());
    let lease = world.lease();
    world
        .run(Command::BeginDelete {
            operation,
            vm: vm_name("a"),
            lease,
        })
        .unwrap();
    world.begin_boot("b", &spec, "h1").unwrap_err();
    world.log(operation, Step::Destroy, Mark::Started).unwrap();
    let gone = Effect::CompleteDelete;
    world
        .advance(operation, Step::Destroy, Mark::Succeeded, gone)
        .unwrap();
    world.begin_boot("b", &spec, "h1").unwrap();
    assert_eq!(
        world.state.vm_with_mac("52:54:00:00:00:01"),
        Some(&vm_name("b"))
    );
}

/// The files of a guest that was lost stayed on its host for ever: the VM was gone at once.
#[test]
fn the_deletion_of_a_lost_vm_waits_for_the_host_that_has_its_files() {
    for is_removed in [false, true] {
        let mut world = World::with_hosts(2);
        world.boot("a", &pinned(1), "h1");
        let migration = world.begin_migration("a", "h2").unwrap();
        world.transfer(migration);
        world.settle(migration, Event::Lost).unwrap();
        let vm = world.state.vm(&vm_name("a")).unwrap();
        assert_eq!(vm.remains_on, Some(host_name("h1")));
        assert!(vm.host.is_none() && vm.claim.is_none());
        if is_removed {
            let host = host_name("h1");
            world.run(Command::RemoveHost { host }).unwrap();
        }
        let operation = operation_id(world.fresh());
        let lease = world.lease();
        world
            .run(Command::BeginDelete {
                operation,
                vm: vm_name("a"),
                lease,
            })
            .unwrap();
        assert_eq!(world.operation(operation).is_done(), is_removed);
        if !is_removed {
            world.log(operation, Step::Destroy, Mark::Started).unwrap();
            let gone = Effect::CompleteDelete;
            world
                .advance(operation, Step::Destroy, Mark::Succeeded, gone)
                .unwrap();
        }
        assert!(world.state.vm(&vm_name("a")).is_none());
    }
}

/// Goal: a VM has a seed exactly where it is stated what is on it, and that is kept exactly until the guest
/// runs or its boot is given up.
#[test]
fn what_a_guest_is_given_lasts_as_long_as_its_boot() {
    let mut seeded = pinned(1);
    seeded.disks.push(Disk::SEED);
    for (spec, given) in [(&seeded, false), (&pinned(1), true)] {
        let mut world = World::with_hosts(1);
        let claim = world.claim("a", spec, "h1", Owner::Vm);
        let (operation, lease) = (operation_id(world.fresh()), world.lease());
        let outcome = world.run(Command::BeginBoot {
            operation,
            vm: vm_name("a"),
            uid: berth_domain::id::VmUid(uuid(4, 1)),
            spec: Box::new(spec.clone()),
            requested_host: None,
            claim,
            lease,
            project: None,
            restart: Default::default(),
            first_boot: given.then(|| Arc::new(first_boot())),
            metadata: Default::default(),
        });
        assert_eq!(reason(&outcome), "SEED_MISMATCH");
    }
    for fails in [false, true] {
        let mut world = World::with_hosts(1);
        let operation = world.begin_boot("a", &seeded, "h1").unwrap();
        let kept = |world: &World| world.state.vm(&vm_name("a")).unwrap().first_boot.clone();
        assert_eq!(kept(&world).as_deref(), Some(&first_boot()));
        world.log(operation, Step::Spawn, Mark::Started).unwrap();
        assert!(kept(&world).is_some());
        let (mark, effect) = match fails {
            false => (Mark::Succeeded, Effect::CompleteBoot),
            true => (Mark::Undone, Effect::None),
        };
        if fails {
            let failed = Mark::Failed(refusal("AGENT_REFUSED"));
            world.log(operation, Step::Spawn, failed).unwrap();
            world
                .log(operation, Step::Spawn, Mark::UndoStarted)
                .unwrap();
        }
        world.advance(operation, Step::Spawn, mark, effect).unwrap();
        if fails {
            let effect = Effect::FailBoot(refusal("AGENT_REFUSED"));
            world
                .advance(operation, Step::Claim, Mark::Undone, effect)
                .unwrap();
        }
        assert_eq!(kept(&world), None, "{fails}");
    }
}
