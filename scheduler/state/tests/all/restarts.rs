//! Goal: a VM is started again exactly when its policy says so, never without proof that its host is
//! dead, and no more often than it permits; a guest whose restarts are used up can be started by its
//! user.
//!
//! Method: every policy, absence and host by enumeration; restarts one by one with the clock moved on.
//! [`World`] checks all invariants after each command.

use berth_domain::claim::Owner;
use berth_domain::host::Liveness;
use berth_domain::id::{MigrationId, OperationId, TimeMs};
use berth_domain::name::VmName;
use berth_domain::operation::drain::Progress;
use berth_domain::operation::{DrainSpec, GuestPower, Kind, Mark, Outcome, Step};
use berth_domain::reality::{Absence, Comparison, Finding};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::vm::{
    Disk, DiskFormat, PER_HOUR_MAX, RestartAction, RestartPolicy, State as VmState, Vm, VmSpec,
};
use berth_state::Reply;
use berth_state::command::{Command, Effect};
use berth_testkit::state::*;

use crate::groups;

const HOUR_MS: u64 = 3_600_000;
const LEAVE: RestartAction = RestartAction::Leave;
const RESTART: RestartAction = RestartAction::Restart;
const BY_POLICY: DrainSpec = DrainSpec {
    evacuate: true,
    cold: false,
    parallel: 8,
    by_policy: true,
};

fn policy(on_crash: RestartAction, on_host_failure: RestartAction) -> RestartPolicy {
    RestartPolicy {
        on_crash,
        on_host_failure,
        ..RestartPolicy::default()
    }
}

fn set(world: &mut World, vm: &str, policy: RestartPolicy) -> Result<Reply, Refusal> {
    let vm = vm_name(vm);
    world.run(Command::SetRestartPolicy { vm, policy })
}

fn vm(world: &World, name: &str) -> Vm {
    (**world.state.vm(&vm_name(name)).unwrap()).clone()
}

/// Has the agent report what it found of a guest.
fn find(world: &mut World, name: &str, absence: Option<Absence>) {
    let known = vm(world, name);
    let host = known.host.clone().unwrap();
    let incarnation = world.view(host.as_str()).host.report.incarnation;
    let finding = Finding {
        vm: known.name,
        claim: known.claim.unwrap(),
        generation: known.generation,
        absence,
    };
    let comparison = Comparison {
        basis: world.index,
        unknown: Vec::new(),
        findings: vec![finding],
    };
    let note = Command::NoteReality {
        host,
        incarnation,
        comparison,
    };
    world.run(note).unwrap();
}

fn begin(
    world: &mut World,
    vm: &str,
    kind: Kind,
    by_policy: bool,
) -> Result<(OperationId, Reply), Refusal> {
    let operation = operation_id(world.fresh());
    let begin = Command::BeginPower {
        operation,
        vm: vm_name(vm),
        kind,
        lease: world.lease(),
        by_policy,
    };
    world.run(begin).map(|reply| (operation, reply))
}

/// Begins to start a VM by its policy; nothing where it is left stopped.
fn restart(world: &mut World, vm: &str) -> Result<Option<OperationId>, Refusal> {
    let (operation, reply) = begin(world, vm, Kind::Start, true)?;
    Ok((reply != Reply::None).then_some(operation))
}

/// Ends a start.
fn end(world: &mut World, operation: OperationId, power: GuestPower) {
    world.log(operation, Step::Start, Mark::Started).unwrap();
    let refusal = (power != GuestPower::On)
        .then(|| Refusal::new(Code::FailedPrecondition, "DRAWN", "it does not start"));
    let mark = match &refusal {
        None => Mark::Succeeded,
        Some(refusal) => Mark::Failed(refusal.clone()),
    };
    let ended = Effect::EndPower { power, refusal };
    if power == GuestPower::On {
        world.advance(operation, Step::Start, mark, ended).unwrap();
    } else {
        world.log(operation, Step::Start, mark).unwrap();
        world
            .log(operation, Step::Start, Mark::UndoStarted)
            .unwrap();
        world
            .advance(operation, Step::Start, Mark::Undone, ended)
            .unwrap();
    }
}

fn due(world: &World) -> Vec<VmName> {
    world.state.due_restarts(TimeMs(world.now), 256).vms
}

fn due_hosts(world: &World) -> Vec<String> {
    let due = world.state.due_restarts(TimeMs(world.now), 256);
    due.hosts.iter().map(ToString::to_string).collect()
}

fn go_down(world: &mut World, host: &str) {
    let (host, liveness) = (host_name(host), Liveness::Down);
    world.run(Command::SetLiveness { host, liveness }).unwrap();
}

/// Goal: what is listed as due is begun, and nothing else. Method: every policy, absence and host.
#[test]
fn every_absence_is_followed_by_its_policy() {
    let mut begun = 0;
    for on_crash in RestartAction::ALL {
        for on_host_failure in RestartAction::ALL {
            for absence in [None].into_iter().chain(Absence::ALL.map(Some)) {
                for host_is_up in [true, false] {
                    let mut world = World::with_hosts(2);
                    world.boot("a", &pinned(1), "h1");
                    let policy = policy(on_crash, on_host_failure);
                    set(&mut world, "a", policy).unwrap();
                    if absence.is_some() {
                        find(&mut world, "a", absence);
                    }
                    if !host_is_up {
                        go_down(&mut world, "h1");
                    }
                    let is_due = absence.is_some_and(|a| policy.on_absence(a) == RESTART);
                    let expected = is_due && host_is_up;
                    assert_eq!(
                        due(&world).len(),
                        usize::from(expected),
                        "{policy:?} {absence:?}"
                    );
                    match restart(&mut world, "a") {
                        Ok(Some(_)) => assert!(expected),
                        Ok(None) => panic!("none was begun yet"),
                        Err(refusal) if is_due => assert_eq!(refusal.reason, "HOST_DOWN"),
                        Err(refusal) => assert_eq!(refusal.reason, "RESTART_NOT_DUE"),
                    }
                    assert_eq!(due(&world), [], "it is being started");
                    begun += usize::from(expected);
                }
            }
        }
    }
    assert_eq!(begun, 2 + 3, "on_crash: stopped, missing; either: missing");
}

/// Goal: a guest that crashes again and again is started as often as permitted, whether the start
/// succeeds or fails; then its VM is STOPPED with its claim, and its user can start it.
#[test]
fn restarts_are_used_up_and_a_user_begins_again() {
    for power in [GuestPower::On, GuestPower::Off] {
        for per_hour_max in [1, 3, PER_HOUR_MAX] {
            let mut world = World::with_hosts(1);
            world.boot("a", &pinned(1), "h1");
            let policy = RestartPolicy {
                per_hour_max,
                ..policy(RESTART, LEAVE)
            };
            set(&mut world, "a", policy).unwrap();
            let first = world.now;
            for number in 0..per_hour_max {
                if vm(&world, "a").trouble.is_none() {
                    find(&mut world, "a", Some(Absence::Stopped));
                }
                if number > 0 {
                    let refusal = restart(&mut world, "a").unwrap_err();
                    assert_eq!(refusal.reason, "RESTART_NOT_DUE", "each one later");
                }
                world.now += 10_000 * u64::from(number);
                let operation = restart(&mut world, "a").unwrap().unwrap();
                end(&mut world, operation, power);
                let after = vm(&world, "a");
                assert_eq!(after.state, VmState::Active);
                assert_eq!(after.trouble.is_some(), power == GuestPower::Off);
                assert_eq!(after.restarts.begun_at.len(), number as usize + 1);
            }
            if power == GuestPower::On {
                find(&mut world, "a", Some(Absence::Stopped));
            }
            assert!(world.now < first + HOUR_MS);
            assert_eq!(due(&world), [vm_name("a")], "it is due to be given up");
            assert_eq!(restart(&mut world, "a"), Ok(None));
            let after = vm(&world, "a");
            assert_eq!((after.state, after.trouble), (VmState::Stopped, None));
            assert!(after.claim.is_some() && after.restarts.gave_up_at.is_some());
            assert_eq!(due(&world), []);
            world.now += 2 * HOUR_MS;
            assert_eq!(due(&world), [], "it stays stopped");
            user_starts(&mut world);
        }
    }
}

fn user_starts(world: &mut World) {
    let begun = begin(world, "a", Kind::Start, false);
    let (operation, _) = begun.unwrap();
    end(world, operation, GuestPower::On);
    let after = vm(world, "a");
    assert_eq!(after.state, VmState::Active);
    assert_eq!(after.restarts.begun_at, []);
    assert_eq!(after.restarts.gave_up_at, None);
    find(world, "a", Some(Absence::Stopped));
    assert_eq!(due(world), [vm_name("a")], "counted from the beginning");
}

/// Goal: the start that a user requests and that fails is not repeated by policy.
#[test]
fn a_failed_start_of_a_user_leaves_the_vm_stopped() {
    let mut world = World::with_hosts(1);
    world.boot("a", &pinned(1), "h1");
    set(&mut world, "a", policy(RESTART, RESTART)).unwrap();
    find(&mut world, "a", Some(Absence::Stopped));
    let begun = begin(&mut world, "a", Kind::Start, false);
    let (operation, _) = begun.unwrap();
    end(&mut world, operation, GuestPower::Off);
    assert_eq!(vm(&world, "a").state, VmState::Stopped);
    assert_eq!(due(&world), []);
}

#[test]
fn a_policy_is_set_once_and_checked() {
    let mut world = World::with_hosts(1);
    world.boot("a", &pinned(1), "h1");
    let generation = |world: &World| vm(world, "a").generation;
    let before = generation(&world);
    set(&mut world, "a", RestartPolicy::default()).unwrap();
    assert_eq!(generation(&world), before, "nothing changes");
    set(&mut world, "a", policy(RESTART, LEAVE)).unwrap();
    assert_ne!(generation(&world), before);
    let refused = set(&mut world, "b", policy(RESTART, LEAVE)).unwrap_err();
    assert_eq!(refused.reason, "VM_NOT_FOUND");
    for (priority, per_hour_max) in [(101, 1), (0, 0), (0, PER_HOUR_MAX + 1)] {
        let policy = RestartPolicy {
            priority,
            per_hour_max,
            ..RestartPolicy::default()
        };
        let refused = set(&mut world, "a", policy).unwrap_err();
        assert_eq!(refused.reason, "INVALID_RESTART_POLICY");
    }
    find(&mut world, "a", Some(Absence::Stopped));
    let reboot = Kind::Reboot { timeout_ms: 0 };
    let refused = begin(&mut world, "a", reboot, true).unwrap_err();
    assert_eq!(refused.reason, "KIND_NOT_ALLOWED");
}

fn begin_evacuation(world: &mut World, host: &str) -> Result<OperationId, Refusal> {
    let operation = operation_id(world.fresh());
    let command = Command::BeginDrain {
        operation,
        host: host_name(host),
        spec: BY_POLICY,
        by: "conductor:c1".to_owned(),
        plan: Vec::new(),
        lease: world.lease(),
    };
    world.run(command).map(|_| operation)
}

fn evacuate_one(
    world: &mut World,
    drain: OperationId,
    name: &str,
    to: &str,
) -> Result<(), Refusal> {
    let migration = MigrationId(uuid(5, world.fresh()));
    let operation = operation_id(world.fresh());
    let spec = vm(world, name).spec;
    let begin = Command::BeginMove {
        operation,
        migration,
        vm: vm_name(name),
        spec: None,
        requested_host: None,
        verify: false,
        evacuate: true,
        claim: world.claim(name, &spec, to, Owner::Migration(migration)),
        lease: world.lease(),
    };
    let epoch = world.epoch(drain);
    world.run(Command::MoveDrained {
        drain,
        epoch,
        begin: Box::new(begin),
    })?;
    let step = Step::StartDestination;
    world.log(operation, step, Mark::Started).unwrap();
    let done = world.advance(operation, step, Mark::Succeeded, Effect::CompleteMove);
    done.unwrap();
    record(world, drain, name, None);
    Ok(())
}

fn record(world: &mut World, drain: OperationId, name: &str, refusal: Option<Refusal>) {
    let epoch = world.epoch(drain);
    let record = Command::RecordDrained {
        drain,
        epoch,
        vm: vm_name(name),
        refusal,
    };
    world.run(record).unwrap();
}

/// Goal: of a dead host exactly the VMs are started elsewhere whose policy says so; without proof none
/// is; its cordon ends with that.
#[test]
fn a_dead_host_is_evacuated_by_policy() {
    let mut world = World::with_hosts(3);
    for (name, on_host_failure) in [("a", RESTART), ("b", LEAVE), ("c", RESTART)] {
        world.boot(name, &pinned(1), "h1");
        set(&mut world, name, policy(LEAVE, on_host_failure)).unwrap();
    }
    stop(&mut world, "c");
    assert_eq!(due_hosts(&world), [""; 0]);
    assert_eq!(
        begin_evacuation(&mut world, "h1").unwrap_err().reason,
        "HOST_IS_ALIVE"
    );
    go_down(&mut world, "h1");
    assert_eq!(due_hosts(&world), [""; 0], "no proof");
    assert_eq!(
        begin_evacuation(&mut world, "h1").unwrap_err().reason,
        "HOST_NOT_FENCED"
    );
    groups::fence(&mut world, "h1");
    assert_eq!(due_hosts(&world), ["h1"]);
    let drain = begin_evacuation(&mut world, "h1").unwrap();
    assert!(world.view("h1").host.cordoned);
    assert_eq!(due_hosts(&world), [""; 0], "it is under way");
    let second = begin_evacuation(&mut world, "h1").unwrap_err();
    assert_eq!(second.reason, "HOST_IS_DRAINED");
    let listed = |world: &World| {
        let operation = world.operation(drain).clone();
        let vms = operation.drain().unwrap().vms.clone();
        Vec::from_iter(
            vms.into_iter()
                .map(|drained| (drained.vm, drained.progress)),
        )
    };
    assert_eq!(listed(&world), [(vm_name("a"), Progress::Waiting)]);
    evacuate_one(&mut world, drain, "a", "h2").unwrap();
    assert_eq!(world.operation(drain).outcome, Some(Outcome::Succeeded));
    assert_eq!(vm(&world, "a").host, Some(host_name("h2")));
    assert_eq!(vm(&world, "a").restarts.begun_at.len(), 1);
    assert_eq!(vm(&world, "b").host, Some(host_name("h1")));
    assert_eq!(
        vm(&world, "c").host,
        Some(host_name("h1")),
        "it was stopped"
    );
    assert!(!world.view("h1").host.cordoned, "the fence keeps it closed");
    assert_eq!(due_hosts(&world), [""; 0], "nothing is left to do");
}

fn stop(world: &mut World, name: &str) {
    let begun = begin(world, name, Kind::Stop { timeout_ms: 0 }, false);
    let (operation, _) = begun.unwrap();
    world.log(operation, Step::Stop, Mark::Started).unwrap();
    let ended = Effect::EndPower {
        power: GuestPower::Off,
        refusal: None,
    };
    let stopped = world.advance(operation, Step::Stop, Mark::Succeeded, ended);
    stopped.unwrap();
}

/// Goal: a guest that was off before its host died is started elsewhere only if it was to be started
/// again. Method: every policy and absence.
#[test]
fn a_guest_that_was_off_stays_off_when_its_host_dies() {
    for on_crash in RestartAction::ALL {
        for absence in [None].into_iter().chain(Absence::ALL.map(Some)) {
            let mut world = World::with_hosts(2);
            world.boot("a", &pinned(1), "h1");
            let policy = policy(on_crash, RESTART);
            set(&mut world, "a", policy).unwrap();
            if absence.is_some() {
                find(&mut world, "a", absence);
            }
            go_down(&mut world, "h1");
            groups::fence(&mut world, "h1");
            let is_due = absence.is_none_or(|absence| policy.on_absence(absence) == RESTART);
            assert_eq!(
                due_hosts(&world).len(),
                usize::from(is_due),
                "{policy:?} {absence:?}"
            );
        }
    }
}

/// Goal: how a guest ended stays known when its hypervisor has forgotten it, as after a restart of the
/// machine. Method: every absence after every other.
#[test]
fn how_a_guest_ended_is_not_forgotten() {
    let all = || [None].into_iter().chain(Absence::ALL.map(Some));
    for first in all() {
        for then in all() {
            let mut world = World::with_hosts(1);
            world.boot("a", &pinned(1), "h1");
            find(&mut world, "a", first);
            find(&mut world, "a", then);
            let found = vm(&world, "a").trouble.map(|trouble| trouble.absence);
            let is_kept = first.is_some() && then == Some(Absence::Missing);
            let expected = if is_kept { first } else { then };
            assert_eq!(found, expected, "{first:?}, then {then:?}");
        }
    }
}

/// Goal: another policy that is set while a restart is under way takes nothing from it: it counts, and
/// is repeated if it fails; what it takes back of an evacuation is not begun.
#[test]
fn a_policy_that_is_set_meanwhile_is_followed() {
    let mut world = World::with_hosts(3);
    world.boot("a", &pinned(1), "h1");
    set(&mut world, "a", policy(RESTART, RESTART)).unwrap();
    find(&mut world, "a", Some(Absence::Stopped));
    let operation = restart(&mut world, "a").unwrap().unwrap();
    let other = RestartPolicy {
        priority: 7,
        ..policy(RESTART, RESTART)
    };
    set(&mut world, "a", other).unwrap();
    end(&mut world, operation, GuestPower::Off);
    let after = vm(&world, "a");
    assert_eq!(after.state, VmState::Active);
    assert_eq!(after.restarts.begun_at.len(), 1);

    world.boot("b", &pinned(1), "h1");
    set(&mut world, "b", policy(LEAVE, RESTART)).unwrap();
    go_down(&mut world, "h1");
    groups::fence(&mut world, "h1");
    let drain = begin_evacuation(&mut world, "h1").unwrap();
    set(&mut world, "b", policy(LEAVE, LEAVE)).unwrap();
    let refused = evacuate_one(&mut world, drain, "b", "h2").unwrap_err();
    assert_eq!(refused.reason, "RESTART_NOT_DUE");
    evacuate_one(&mut world, drain, "a", "h2").unwrap();
}

/// Goal: only what an evacuation has left waits: not what was at work then, nor another death of the host.
#[test]
fn what_an_evacuation_did_not_see_is_due_at_once() {
    let mut world = World::with_hosts(3);
    for name in ["a", "b"] {
        world.boot(name, &pinned(1), "h1");
        set(&mut world, name, policy(RESTART, RESTART)).unwrap();
    }
    find(&mut world, "b", Some(Absence::Stopped));
    let busy = restart(&mut world, "b").unwrap().unwrap();
    go_down(&mut world, "h1");
    groups::fence(&mut world, "h1");
    let drain = begin_evacuation(&mut world, "h1").unwrap();
    let full = Refusal::new(Code::ResourceExhausted, "NO_VALID_HOST", "no host fits");
    record(&mut world, drain, "a", Some(full));
    assert_eq!(due_hosts(&world), [""; 0], "a was left, b is at work");
    end(&mut world, busy, GuestPower::Off);
    assert_eq!(due_hosts(&world), ["h1"], "b was not among its vms");
    let drain = begin_evacuation(&mut world, "h1").unwrap();
    evacuate_one(&mut world, drain, "b", "h2").unwrap();
    let full = Refusal::new(Code::ResourceExhausted, "NO_VALID_HOST", "no host fits");
    record(&mut world, drain, "a", Some(full));
    assert_eq!(due_hosts(&world), [""; 0], "a was left again");
    // The host comes back and dies again.
    let (host, liveness) = (host_name("h1"), Liveness::Up);
    world.run(Command::SetLiveness { host, liveness }).unwrap();
    world.now += 1;
    go_down(&mut world, "h1");
    groups::fence(&mut world, "h1");
    assert_eq!(due_hosts(&world), ["h1"]);
}

/// Goal: an operator's cordon stays, and what could not be placed is tried again after a minute.
#[test]
fn what_is_left_is_tried_again_later() {
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    set(&mut world, "a", policy(LEAVE, RESTART)).unwrap();
    let (host, cordoned) = (host_name("h1"), true);
    world.run(Command::SetCordon { host, cordoned }).unwrap();
    go_down(&mut world, "h1");
    groups::fence(&mut world, "h1");
    let drain = begin_evacuation(&mut world, "h1").unwrap();
    let full = Refusal::new(Code::ResourceExhausted, "NO_VALID_HOST", "no host fits");
    record(&mut world, drain, "a", Some(full));
    let Some(Outcome::Failed(why)) = &world.operation(drain).outcome else {
        panic!("a was left");
    };
    let hint = why.hint.as_deref().unwrap();
    assert!(hint.contains("berth host evacuate h1"), "{hint}");
    assert!(world.view("h1").host.cordoned);
    assert_eq!(
        vm(&world, "a").restarts.begun_at,
        [],
        "it was not restarted"
    );
    assert_eq!(due_hosts(&world), [""; 0]);
    world.now += 60_000;
    assert_eq!(due_hosts(&world), ["h1"]);
}

/// Goal: a VM whose hosts die again and again, perhaps because of it, is not taken to every host.
#[test]
fn restarts_elsewhere_are_counted_too() {
    let mut world = World::with_hosts(5);
    world.boot("a", &pinned(1), "h1");
    set(&mut world, "a", policy(LEAVE, RESTART)).unwrap();
    for (host, next) in [("h1", "h2"), ("h2", "h3"), ("h3", "h4")] {
        go_down(&mut world, host);
        groups::fence(&mut world, host);
        assert_eq!(due_hosts(&world), [host]);
        let drain = begin_evacuation(&mut world, host).unwrap();
        evacuate_one(&mut world, drain, "a", next).unwrap();
    }
    go_down(&mut world, "h4");
    groups::fence(&mut world, "h4");
    assert_eq!(due_hosts(&world), [""; 0]);
    assert_eq!(vm(&world, "a").restarts.begun_at.len(), 3);
    world.now += HOUR_MS;
    assert_eq!(due_hosts(&world), ["h4"]);
}

/// Goal: a move of a running evacuation is refused once the restarts are used up.
#[test]
fn a_running_evacuation_keeps_the_count() {
    let mut world = World::with_hosts(3);
    world.boot("a", &pinned(1), "h1");
    let policy = RestartPolicy {
        per_hour_max: 1,
        ..policy(RESTART, RESTART)
    };
    set(&mut world, "a", policy).unwrap();
    go_down(&mut world, "h1");
    groups::fence(&mut world, "h1");
    let drain = begin_evacuation(&mut world, "h1").unwrap();
    let mut known = vm(&world, "a");
    known.restarts.record(TimeMs(world.now));
    // As if another restart had begun since: its first move failed on its way.
    let migration = MigrationId(uuid(5, world.fresh()));
    let operation = operation_id(world.fresh());
    let begin = Command::BeginMove {
        operation,
        migration,
        vm: vm_name("a"),
        spec: None,
        requested_host: None,
        verify: false,
        evacuate: true,
        claim: world.claim("a", &known.spec, "h2", Owner::Migration(migration)),
        lease: world.lease(),
    };
    let epoch = world.epoch(drain);
    let command = Command::MoveDrained {
        drain,
        epoch,
        begin: Box::new(begin),
    };
    world.run(command).unwrap();
    let failed = Refusal::new(Code::FailedPrecondition, "DRAWN", "it does not start");
    let step = Step::StartDestination;
    world.log(operation, step, Mark::Started).unwrap();
    world
        .log(operation, step, Mark::Failed(failed.clone()))
        .unwrap();
    world.log(operation, step, Mark::UndoStarted).unwrap();
    world.log(operation, step, Mark::Undone).unwrap();
    let claim = Step::Claim;
    world.log(operation, claim, Mark::UndoStarted).unwrap();
    let effect = Effect::RefuseMigration(failed);
    world
        .advance(operation, claim, Mark::Undone, effect)
        .unwrap();
    record(&mut world, drain, "a", None);
    let refused = evacuate_one(&mut world, drain, "a", "h3").unwrap_err();
    assert_eq!(refused.reason, "RESTARTS_USED_UP");
    assert!(refused.hint.unwrap().contains("berth host evacuate h1"));
}

fn with_disk() -> VmSpec {
    let mut spec = pinned(1);
    spec.flavor.disk_gib = 1;
    spec.disks = vec![Disk {
        image: Some("i".to_owned()),
        format: DiskFormat::Raw,
        size_gib: 1,
        seed: false,
    }];
    spec
}

/// Goal: what cannot be started elsewhere is stated before its host fails, and not tried then.
#[test]
fn what_is_on_its_host_alone_is_stated() {
    let check = |spec: &VmSpec, storages: &[&str], expected: Option<&str>| {
        let mut world = World::with_hosts(0);
        for (number, storage) in storages.iter().enumerate() {
            let mut report = report(topology(2, 4, 4));
            report.storage_id = (*storage).to_owned();
            world.register(&format!("h{}", number + 1), report).unwrap();
        }
        world.boot("a", spec, "h1");
        set(&mut world, "a", policy(LEAVE, RESTART)).unwrap();
        let obstacle = world.state.restart_obstacle(&vm(&world, "a"));
        assert_eq!(obstacle.is_some(), expected.is_some(), "{obstacle:?}");
        if let (Some(obstacle), Some(expected)) = (obstacle, expected) {
            assert!(obstacle.contains(expected), "{obstacle}");
        }
        go_down(&mut world, "h1");
        groups::fence(&mut world, "h1");
        let hosts = due_hosts(&world);
        assert_eq!(hosts.is_empty(), expected.is_some());
    };
    check(&pinned(1), &["s", "t"], None);
    check(&pinned(1), &["s"], Some("no other host"));
    check(&with_disk(), &["s", "t", "s"], None);
    check(
        &with_disk(),
        &["s", "t"],
        Some("its disks are on host h1 alone"),
    );
    check(&with_disk(), &["s"], Some("its disks are on host h1 alone"));
}

/// Goal: those with the highest priority come first, and equal ones in the order of their names.
#[test]
fn priorities_order_what_is_due() {
    let mut world = World::with_hosts(1);
    for (name, priority) in [("a", 10), ("b", 90), ("c", 90), ("d", 0)] {
        world.boot(name, &pinned(1), "h1");
        let policy = RestartPolicy {
            priority,
            ..policy(RESTART, LEAVE)
        };
        set(&mut world, name, policy).unwrap();
    }
    for name in ["a", "b", "c", "d"] {
        find(&mut world, name, Some(Absence::Stopped));
    }
    assert_eq!(due(&world), ["b", "c", "a", "d"].map(vm_name));
    let first = world.state.due_restarts(TimeMs(world.now), 1).vms;
    assert_eq!(first, [vm_name("b")]);
}
