//! Goal: a host that reports after the recovery takes part in it: no guest of it that may be the only one
//! is stopped, and none runs twice because of it.
//!
//! Method: every record of a VM, met by a late host that has its guest, on or off; the host was added in
//! the time that is lost, or fenced during the recovery.

use std::collections::BTreeSet;

use berth_domain::agent::DomainState;
use berth_domain::fence::Method;
use berth_domain::host::Liveness;
use berth_domain::id::ClaimId;
use berth_domain::name::HostName;
use berth_domain::operation::{GuestPower, Kind, Mark, Step};
use berth_domain::reality::{Comparison, Unknown};
use berth_domain::recovery::ReportedGuest;
use berth_domain::refusal::Refusal;
use berth_domain::vm::{State as VmState, Vm};
use berth_state::command::{Command, Effect};
use berth_testkit::state::{
    World, host_name, operation_id, pinned, report, topology, uuid, vm_name,
};

use super::guests_of;
use crate::{cold_moves, power};

/// What the state has of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record {
    Nothing,
    Active,
    Stopped,
    Shelved,
    Error,
    Resized,
    /// A migration to h2 has begun since the recovery.
    Migrating,
}

const RECORDS: [Record; 7] = [
    Record::Nothing,
    Record::Active,
    Record::Stopped,
    Record::Shelved,
    Record::Error,
    Record::Resized,
    Record::Migrating,
];

/// Why a host is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Late {
    Added,
    Fenced,
}

/// What becomes of it.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    vm: VmState,
    host: Option<&'static str>,
    is_orphan: bool,
    is_stopped: bool,
}

fn expected(record: Record, late: Late, state: DomainState) -> Outcome {
    let is_on = state == DomainState::Running;
    let (vm, host) = match (record, late, is_on) {
        (Record::Nothing | Record::Stopped | Record::Shelved, _, true) => {
            (VmState::Active, Some("h3"))
        }
        (Record::Nothing, _, false) => (VmState::Stopped, Some("h3")),
        (Record::Active | Record::Resized, Late::Added, true) => {
            (VmState::Error, Some(at_first(record)))
        }
        (Record::Active, _, _) => (VmState::Active, Some("h1")),
        (Record::Stopped, _, false) => (VmState::Stopped, Some("h1")),
        (Record::Shelved, _, false) => (VmState::Shelved, None),
        (Record::Error, _, _) => (VmState::Error, None),
        (Record::Resized, _, _) => (VmState::Resized, Some("h2")),
        (Record::Migrating, _, _) => (VmState::Migrating, Some("h1")),
    };
    let is_its_vms = host == Some("h3");
    let is_useless =
        matches!(record, Record::Active | Record::Migrating) && (!is_on || late == Late::Fenced);
    Outcome {
        vm,
        host,
        is_orphan: !is_its_vms && !is_useless,
        // Beside a VM that is on its way only a fenced host is cleared at once.
        is_stopped: is_useless && (record == Record::Active || late == Late::Fenced),
    }
}

fn at_first(record: Record) -> &'static str {
    if record == Record::Resized {
        "h2"
    } else {
        "h1"
    }
}

/// Returns a world in which VM `a` is recorded so, before its schedulers are lost.
fn past(record: Record) -> World {
    let mut world = World::with_hosts(2);
    match record {
        Record::Nothing => {}
        // What is interrupted has failed after the recovery.
        Record::Error => drop(world.begin_boot("a", &pinned(1), "h1").unwrap()),
        Record::Active
        | Record::Stopped
        | Record::Shelved
        | Record::Resized
        | Record::Migrating => {
            world.boot("a", &pinned(1), "h1");
        }
    }
    match record {
        Record::Nothing | Record::Error | Record::Active | Record::Migrating => {}
        Record::Stopped => {
            let stop = Kind::Stop { timeout_ms: 1_000 };
            end_power(&mut world, stop, Step::Stop, GuestPower::Off);
        }
        Record::Shelved => world.shelve("a"),
        Record::Resized => {
            let moved = cold_moves::begin(&mut world, "a", "h2", cold_moves::RESIZE).unwrap();
            cold_moves::carry_out(&mut world, moved);
        }
    }
    world
}

pub(super) fn end_power(world: &mut World, kind: Kind, step: Step, power: GuestPower) {
    let operation = power::begin(world, "a", kind).unwrap();
    world.log(operation, step, Mark::Started).unwrap();
    let effect = Effect::EndPower {
        power,
        refusal: None,
    };
    world
        .advance(operation, step, Mark::Succeeded, effect)
        .unwrap();
}

/// Fences a host that is down.
pub(super) fn fence(world: &mut World, name: &str) {
    let (host, liveness) = (host_name(name), Liveness::Down);
    world.run(Command::SetLiveness { host, liveness }).unwrap();
    let incarnation = world.view(name).host.report.incarnation;
    world
        .run(Command::FenceHost {
            host: host_name(name),
            method: Method::Operator,
            by: "me".to_owned(),
            output: String::new(),
            incarnation,
        })
        .unwrap();
}

/// Returns the world after the recovery, with the late host `h3` that has not reported.
fn recovered(record: Record, late: Late) -> World {
    let mut world = past(record);
    if late == Late::Fenced {
        world.register("h3", report(topology(2, 3, 1))).unwrap();
    }
    let present = world.state.clone();
    let mut world = world.recovered();
    if late == Late::Fenced {
        fence(&mut world, "h3");
    }
    for _ in 0..2 {
        for host in ["h1", "h2"] {
            let guests = guests_of(&present, &host_name(host));
            world.report_guests(host, &guests).unwrap();
        }
    }
    let accept_conflicts = false;
    world
        .run(Command::EndRecovery { accept_conflicts })
        .unwrap();
    if record == Record::Migrating {
        let _ = world.begin_migration("a", "h2").unwrap();
    }
    match late {
        Late::Added => drop(world.register("h3", report(topology(2, 3, 1))).unwrap()),
        Late::Fenced => {
            let (host, liveness) = (host_name("h3"), Liveness::Up);
            world.run(Command::SetLiveness { host, liveness }).unwrap();
        }
    }
    world
}

/// Returns VM `a`'s guest on `h3`, on a claim of the time that is lost.
fn late_guest(world: &World, state: DomainState) -> ReportedGuest {
    let vm = world.state.vm(&vm_name("a"));
    let uid = vm.map_or(uuid(4, 7_000), |vm| vm.uid.0);
    let mut other = World::with_hosts(3);
    other.boot("a", &pinned(1), "h3");
    let claim = other.state.claims().values().next().unwrap();
    ReportedGuest {
        domain: Unknown {
            uuid: uid,
            name: "a".to_owned(),
            is_ours: true,
            claim: Some(ClaimId(uuid(3, 9_000))),
            held: claim.assignment.clone(),
        },
        state,
        spec: Some(Box::new(pinned(1))),
    }
}

/// Returns the world in which `h3` has reported that guest.
pub(super) fn reported(record: Record, late: Late, state: DomainState) -> World {
    let mut world = recovered(record, late);
    let guest = late_guest(&world, state);
    world.report_guests("h3", &[guest]).unwrap();
    world
}

fn vm(world: &World) -> &Vm {
    world.state.vm(&vm_name("a")).unwrap()
}

fn outcome(world: &World) -> Outcome {
    let host = &world.view("h3").host;
    let at = |host: &HostName| ["h1", "h2", "h3"].into_iter().find(|h| *h == host.as_str());
    Outcome {
        vm: vm(world).state,
        host: vm(world).host.as_ref().and_then(at),
        is_orphan: !host.orphans.is_empty(),
        is_stopped: !world.state.lost_of(host).is_empty(),
    }
}

#[test]
fn a_late_host_is_settled_when_it_reports() {
    for record in RECORDS {
        for late in [Late::Added, Late::Fenced] {
            for state in [DomainState::Running, DomainState::Stopped] {
                let world = reported(record, late, state);
                assert_eq!(
                    outcome(&world),
                    expected(record, late, state),
                    "{record:?} {late:?} {state:?}"
                );
            }
        }
    }
}

/// Goal: nothing is placed on a host as long as it is not known what it has; it reports once.
#[test]
fn a_late_host_gets_no_guests_before_it_has_reported() {
    for late in [Late::Added, Late::Fenced] {
        let mut world = recovered(Record::Nothing, late);
        let refused = world.begin_boot("b", &pinned(1), "h3").unwrap_err();
        let unfenced = if late == Late::Added {
            "HOST_NOT_REPORTED"
        } else {
            "HOST_FENCED"
        };
        assert!(refused.causes.contains_key(unfenced), "{refused}");
        assert!(world.state.has_unreported_guests(&world.view("h3").host));
        world.report_guests("h3", &[]).unwrap();
        assert!(!world.state.has_unreported_guests(&world.view("h3").host));
        let again = world.report_guests("h3", &[]).unwrap_err();
        assert_eq!(again.reason, "NOT_RECOVERING");
        compare(&mut world, Vec::new());
        world.boot("b", &pinned(1), "h3");
    }
}

/// Has `h3` compare: it has these unknown guests.
fn compare(world: &mut World, unknown: Vec<Unknown>) {
    let comparison = Comparison {
        basis: world.state.revision(),
        unknown,
        findings: Vec::new(),
    };
    world
        .run(Command::NoteReality {
            host: host_name("h3"),
            incarnation: world.view("h3").host.report.incarnation,
            comparison,
        })
        .unwrap();
}

/// Begins each operation on VM `a` that a record permits, and returns what is refused.
fn begun(world: &World, record: Record) -> Vec<(&'static str, Option<Refusal>)> {
    let on_host = |kind: Kind| {
        let mut trial = world.clone();
        power::begin(&mut trial, "a", kind).err()
    };
    let images = Vec::new();
    let start = ("start", on_host(Kind::Start));
    let rebuild = ("rebuild", on_host(Kind::Rebuild { images }));
    let moved = {
        let mut trial = world.clone();
        let moved = cold_moves::begin(&mut trial, "a", "h2", cold_moves::AS_IT_IS);
        ("migrate", moved.err())
    };
    let plain = |command: Command| world.clone().run(command).err();
    let (operation, lease, vm) = (operation_id(8_888), world.lease(), vm_name("a"));
    let delete = Command::BeginDelete {
        operation,
        vm: vm.clone(),
        lease: lease.clone(),
    };
    let delete = ("delete", plain(delete));
    let shelve = Command::BeginShelve {
        operation,
        vm: vm.clone(),
        lease: lease.clone(),
    };
    let shelve = ("shelve", plain(shelve));
    let unshelve = {
        let mut trial = world.clone();
        let spec = pinned(1);
        let claim = trial.claim("a", &spec, "h2", berth_domain::claim::Owner::Vm);
        let unshelve = Command::BeginUnshelve {
            operation,
            vm,
            requested_host: None,
            claim,
            lease,
        };
        ("unshelve", trial.run(unshelve).err())
    };
    match record {
        Record::Nothing | Record::Resized | Record::Migrating => Vec::new(),
        Record::Active => vec![start, rebuild, delete],
        Record::Stopped => vec![start, rebuild, moved, delete, shelve],
        Record::Shelved => vec![unshelve, delete],
        Record::Error => vec![delete],
    }
}

/// Goal: as long as another host has a guest of a VM from before the recovery, nothing starts, moves or
/// deletes it; once the guest is gone there, everything does.
#[test]
fn a_vm_with_an_orphan_is_left_alone_until_it_is_gone() {
    let mut refused = BTreeSet::new();
    for record in RECORDS {
        for state in [DomainState::Running, DomainState::Stopped] {
            let mut world = reported(record, Late::Added, state);
            if world.view("h3").host.orphans.is_empty() {
                continue;
            }
            for (name, refusal) in begun(&world, record) {
                let refusal = refusal.unwrap_or_else(|| panic!("{record:?}: {name} is done"));
                assert_eq!(refusal.reason, "GUEST_RUNS_TWICE", "{record:?}: {name}");
                let hint = refusal.hint.unwrap_or_default();
                assert!(hint.contains("berth host show h3"), "{hint}");
                refused.insert(name);
            }
            // It stays as long as it is reported.
            let unknown = world.view("h3").host.unknown.clone();
            compare(&mut world, unknown);
            assert_eq!(world.view("h3").host.orphans.len(), 1);
            compare(&mut world, Vec::new());
            assert!(world.view("h3").host.orphans.is_empty());
            for (name, refusal) in begun(&world, record) {
                assert_eq!(refusal, None, "{record:?}: {name}");
            }
        }
    }
    let expected = [
        "delete", "migrate", "rebuild", "shelve", "start", "unshelve",
    ];
    assert_eq!(Vec::from_iter(refused), expected);
}

/// Goal: a VM of which two guests ran goes on where it is recorded, once the other is gone.
#[test]
fn a_vm_that_ran_twice_is_started_again() {
    let mut world = reported(Record::Active, Late::Added, DomainState::Running);
    assert_eq!(vm(&world).state, VmState::Error);
    compare(&mut world, Vec::new());
    end_power(&mut world, Kind::Start, Step::Start, GuestPower::On);
    let vm = vm(&world);
    assert_eq!((vm.state, &vm.error), (VmState::Active, &None));
    assert_eq!(vm.host, Some(host_name("h1")));
}

/// Goal: on a host whose guests are not known no guest of its own is started, none is stopped and nothing
/// erased, whatever its agent knows of recoveries.
#[test]
fn nothing_happens_on_a_host_before_it_has_reported() {
    let mut world = past(Record::Stopped);
    let host = host_name("h1");
    let down = Command::SetLiveness {
        host: host.clone(),
        liveness: Liveness::Down,
    };
    world.run(down).unwrap();
    let mut world = world.recovered();
    let incarnation = world.view("h1").host.report.incarnation;
    let by = "me".to_owned();
    let (method, output) = (Method::Operator, String::new());
    world
        .run(Command::FenceHost {
            host: host.clone(),
            method,
            by,
            output,
            incarnation,
        })
        .unwrap();
    for _ in 0..2 {
        world.report_guests("h2", &[]).unwrap();
    }
    let accept_conflicts = false;
    world
        .run(Command::EndRecovery { accept_conflicts })
        .unwrap();
    let liveness = Liveness::Up;
    world.run(Command::SetLiveness { host, liveness }).unwrap();
    let refused = power::begin(&mut world, "a", Kind::Start).unwrap_err();
    assert_eq!(refused.reason, "HOST_NOT_REPORTED", "{refused}");
    // An older agent compares, although it should report.
    let strange = late_guest(&world, DomainState::Running).domain;
    let comparison = Comparison {
        basis: world.state.revision(),
        unknown: vec![Unknown {
            uuid: uuid(4, 7_777),
            name: "b".to_owned(),
            ..strange
        }],
        findings: Vec::new(),
    };
    world
        .run(Command::NoteReality {
            host: host_name("h1"),
            incarnation,
            comparison,
        })
        .unwrap();
    let host = &world.view("h1").host;
    assert_eq!((host.unknown.len(), world.state.lost_of(host)), (1, vec![]));
    world.report_guests("h1", &[]).unwrap();
    power::begin(&mut world, "a", Kind::Start).unwrap();
}
