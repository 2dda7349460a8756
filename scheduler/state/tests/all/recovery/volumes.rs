//! Goal: what another VM has come to use in the time that is lost is that VM's after the recovery, be it a
//! namespace or a volume; the VM that the backup has it for is listed, and is not started without it. Of
//! two guests that have it none loses it.
//!
//! Method: a table of every kind of persistent memory, of what became of the VM that had it, of whether
//! the backup has a VM with the name of the one that has it now, and of whether that one runs.

use berth_domain::agent::DomainState;
use berth_domain::host::Liveness;
use berth_domain::id::VmUid;
use berth_domain::operation::{GuestPower, Kind as Operation, Step};
use berth_domain::recovery::ReportedGuest;
use berth_domain::vm::{AttachedAs, State as VmState, VmSpec};
use berth_domain::volume::{DeviceMode, Kind, Region};
use berth_domain::{name::RegionName, topology::CellId};
use berth_state::State;
use berth_state::command::Command;
use berth_state::recovery::{Conflict, Settled};
use berth_state::row::Row;
use berth_testkit::state::{World, floating, host_name, pinned, reason, report, topology, vm_name};

use super::guests_of;
use super::late::{end_power, fence};
use super::left::erase;
use crate::attached::{delete_vm, id, made, with};
use crate::pmem::{guest, namespace};
use crate::power;

/// What the VMs have of persistent memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Device {
    Namespace,
    Disk,
    Nvdimm,
    /// On both hosts; the VM that had it was on `h2`.
    Cache,
}

const DEVICES: [Device; 4] = [
    Device::Namespace,
    Device::Disk,
    Device::Nvdimm,
    Device::Cache,
];

/// What became of VM `a`, that the backup has it for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Former {
    /// It is STOPPED in the backup, and was deleted.
    Stopped,
    /// It is ACTIVE in the backup, and was deleted.
    Deleted,
    /// Its domain is left on its host, off.
    Off,
    /// Its guest runs on its host.
    Runs,
    /// Its host was fenced, and reports after the recovery.
    HostLost,
}

const FORMER: [Former; 5] = [
    Former::Stopped,
    Former::Deleted,
    Former::Off,
    Former::Runs,
    Former::HostLost,
];

/// What becomes of the guest of VM `b` on `h1`, which has it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It is a VM with it.
    Adopted,
    Conflict,
    /// It is no VM's, after the recovery.
    Orphan,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    device: Device,
    former: Former,
    /// The backup has another VM `b`.
    is_known: bool,
    is_on: bool,
}

impl Case {
    fn expected(self) -> Outcome {
        match (self.former, self.device) {
            (Former::Stopped | Former::Deleted, _) => Outcome::Adopted,
            // What is off gives a volume up to what runs. It keeps its namespaces with its claim.
            (Former::Off, Device::Namespace) => Outcome::Conflict,
            (Former::Off, _) if self.is_on => Outcome::Adopted,
            (Former::Off | Former::Runs, _) => Outcome::Conflict,
            // A host that has reported in time has the guest.
            (Former::HostLost, Device::Cache) => Outcome::Adopted,
            (Former::HostLost, Device::Namespace) => Outcome::Orphan,
            // Its name is that of a VM, which may have been started since.
            (Former::HostLost, _) if self.is_known => Outcome::Orphan,
            (Former::HostLost, _) => Outcome::Adopted,
        }
    }

    /// Returns the host of VM `a`.
    fn at(self) -> &'static str {
        match self.device {
            Device::Cache => "h2",
            Device::Namespace | Device::Disk | Device::Nvdimm => "h1",
        }
    }

    fn spec(self) -> VmSpec {
        match self.device {
            Device::Namespace => guest("SMALL"),
            Device::Nvdimm => {
                let mut spec = with(pinned(1), &["data"]);
                spec.volumes[0].attached_as = AttachedAs::Nvdimm;
                spec
            }
            Device::Disk | Device::Cache => with(floating(1), &["data"]),
        }
    }

    /// Returns the world of the backup.
    fn past(self) -> World {
        let mut world = World::with_hosts(0);
        for host in ["h1", "h2"] {
            let shape = topology(2, 3, 1).with_pmem(vec![namespace("ns0", "SMALL")]);
            let mut report = report(shape.unwrap());
            report.regions = vec![Region {
                name: RegionName::new("r0").unwrap(),
                cell: Some(CellId(1)),
                mode: DeviceMode::Lvm,
                capacity_bytes: 64 << 30,
                align_bytes: 4 << 20,
                foreign: Vec::new(),
                trouble: String::new(),
            }];
            world.register(host, report).unwrap();
        }
        match self.device {
            Device::Namespace => {}
            Device::Cache => made(&mut world, "data", Kind::Cache, &["h1", "h2"]),
            Device::Disk | Device::Nvdimm => made(&mut world, "data", Kind::Persistent, &["h1"]),
        }
        world.boot("a", &self.spec(), self.at());
        if self.is_known {
            world.boot("b", &floating(1), "h2");
        }
        if self.former == Former::Stopped {
            let stop = Operation::Stop { timeout_ms: 1_000 };
            end_power(&mut world, stop, Step::Stop, GuestPower::Off);
        }
        world
    }

    /// Returns the guest of VM `b`, that was made in the time that is lost, and what is left of `a`.
    fn guests(self, past: &World) -> (ReportedGuest, Option<ReportedGuest>) {
        let mut lost = past.clone();
        for vm in ["a", "b"] {
            if lost.state.vm(&vm_name(vm)).is_some() {
                lost.delete(vm);
            }
        }
        let claims: Vec<_> = lost.state.claims().values().cloned().collect();
        for claim in claims.iter().filter(|claim| !claim.is_in_use()) {
            erase(&mut lost, claim);
        }
        lost.boot("b", &self.spec(), "h1");
        let state = |is_on: bool| match is_on {
            true => DomainState::Running,
            false => DomainState::Stopped,
        };
        let b = guests_of(&lost.state, &host_name("h1")).remove(0);
        assert_eq!(b.domain.name, "b");
        let b = ReportedGuest {
            state: state(self.is_on),
            ..b
        };
        let a = match self.former {
            Former::Stopped | Former::Deleted | Former::HostLost => None,
            Former::Off | Former::Runs => {
                let here = guests_of(&past.state, &host_name(self.at()));
                let a = here.into_iter().find(|guest| guest.domain.name == "a");
                a.map(|a| ReportedGuest {
                    state: state(self.former == Former::Runs),
                    ..a
                })
            }
        };
        (b, a)
    }
}

/// Ends the recovery, or has the host that was fenced report after its end; returns what was in conflict.
fn recover(
    case: Case,
    past: World,
    guests: (ReportedGuest, Option<ReportedGuest>),
) -> (World, Vec<Conflict>) {
    let (b, a) = guests;
    let on = |host: &str| -> Vec<ReportedGuest> {
        let b = (host == "h1").then(|| b.clone());
        let a = a.clone().filter(|_| host == case.at());
        b.into_iter().chain(a).collect()
    };
    let mut world = past.recovered();
    let is_lost = |host: &str| case.former == Former::HostLost && host == case.at();
    if case.former == Former::HostLost {
        fence(&mut world, case.at());
    }
    for _ in 0..2 {
        for host in ["h1", "h2"].into_iter().filter(|host| !is_lost(host)) {
            world.report_guests(host, &on(host)).unwrap();
        }
    }
    let outcome = world.state.recovery_outcome().expect("all have reported");
    let has_given_up = outcome
        .settled
        .iter()
        .any(|settled| matches!(settled, Settled::Failed { vm, .. } if *vm == vm_name("a")));
    let is_in_time = case.expected() == Outcome::Adopted && !is_lost("h1");
    assert_eq!(has_given_up, is_in_time, "{case:?}: {outcome:?}");
    let accept_conflicts = !outcome.conflicts.is_empty();
    world
        .run(Command::EndRecovery { accept_conflicts })
        .unwrap();
    if case.former == Former::HostLost {
        let (host, liveness) = (host_name(case.at()), Liveness::Up);
        world.run(Command::SetLiveness { host, liveness }).unwrap();
        world.report_guests(case.at(), &on(case.at())).unwrap();
    }
    (world, outcome.conflicts)
}

fn examine(case: Case) {
    let what = format!("{case:?}");
    let past = case.past();
    let guests = case.guests(&past);
    let uid = VmUid(guests.0.domain.uuid);
    let (mut world, conflicts) = recover(case, past, guests);
    let is_conflict = case.expected() == Outcome::Conflict;
    assert_eq!(!conflicts.is_empty(), is_conflict, "{what}: {conflicts:?}");
    let rebuilt = State::from_rows(world.state.rows()).unwrap();
    assert!(
        rebuilt == world.state,
        "{what}: the indexes follow from the rows"
    );
    let owner = world.state.vm_with_volume(&id("data")).cloned();
    let b = world.state.vm(&vm_name("b")).filter(|b| b.uid == uid);
    if case.expected() != Outcome::Adopted {
        assert!(b.is_none(), "{what}");
        assert!(
            case.device == Device::Namespace || owner == Some(vm_name("a")),
            "{what}"
        );
        let orphans = &world.view("h1").host.orphans;
        assert!(orphans.contains(&uid.0), "{what}: {orphans:?}");
        return;
    }
    let b = b.unwrap_or_else(|| panic!("{what}: its guest is there"));
    let state = match case.is_on {
        true => VmState::Active,
        false => VmState::Stopped,
    };
    assert_eq!(
        (b.state, b.host.as_ref()),
        (state, Some(&host_name("h1"))),
        "{what}"
    );
    assert!(
        case.device == Device::Namespace || owner == Some(vm_name("b")),
        "{what}"
    );
    let a = world.state.vm(&vm_name("a")).expect("it is listed");
    let why = a.error.clone().expect("it says why");
    assert_eq!((a.state, a.claim), (VmState::Error, None), "{what}");
    assert!(a.spec.volumes.is_empty(), "{what}");
    let refused = power::begin(&mut world, "a", Operation::Start).unwrap_err();
    assert_eq!(refused.reason, "VM_STATE", "{what}");
    if case.device == Device::Namespace {
        assert_eq!(why.reason, "CLUSTER_RESTORED", "{what}");
    } else {
        assert_eq!(why.reason, "VOLUME_TAKEN", "{what}");
        for part in ["vm b", "host h1", id("data").as_str()] {
            assert!(refused.message.contains(part), "{what}: {refused}");
        }
        assert_eq!(refused.metadata["volume"], id("data").as_str(), "{what}");
        let hint = refused.hint.as_deref().unwrap_or_default();
        assert!(hint.contains("berth vm delete a"), "{what}: {hint}");
    }
    // Its deletion takes nothing from the other one.
    delete_vm(&mut world, "a").unwrap();
    let owner = world.state.vm_with_volume(&id("data")).cloned();
    assert!(
        case.device == Device::Namespace || owner == Some(vm_name("b")),
        "{what}"
    );
}

#[test]
fn a_volume_follows_the_guest_that_has_it() {
    let mut count = 0;
    for device in DEVICES {
        for former in FORMER {
            for is_known in [false, true] {
                for is_on in [true, false] {
                    examine(Case {
                        device,
                        former,
                        is_known,
                        is_on,
                    });
                    count += 1;
                }
            }
        }
    }
    assert_eq!(count, 80);
}

const DELETED: Case = Case {
    device: Device::Disk,
    former: Former::Deleted,
    is_known: false,
    is_on: true,
};

/// Goal: a recovery that an earlier build began has the outcome that this build had. Method: the header
/// without the mark.
#[test]
fn a_recovery_that_began_before_goes_on_as_it_began() {
    let past = DELETED.past();
    let (b, _) = DELETED.guests(&past);
    let mut world = past.recovered();
    let mut rows: Vec<Row> = world.state.rows().collect();
    for row in &mut rows {
        if let Row::Header(header) = row {
            let recovery = header.recovery.as_mut().expect("it recovers");
            assert!(recovery.volumes_follow_guests, "what this build begins");
            recovery.volumes_follow_guests = false;
            assert!(recovery.keeps_settled, "what this build begins");
            recovery.keeps_settled = false;
        }
    }
    world = World::of(State::from_rows(rows).unwrap());
    for _ in 0..2 {
        world.report_guests("h1", std::slice::from_ref(&b)).unwrap();
        world.report_guests("h2", &[]).unwrap();
    }
    let accept_conflicts = false;
    let ended = world.run(Command::EndRecovery { accept_conflicts });
    assert_eq!(reason(&ended), "RECOVERY_CONFLICTS");
    let owner = world.state.vm_with_volume(&id("data"));
    assert_eq!(owner, Some(&vm_name("a")));
    let accept_conflicts = true;
    let ended = world.run(Command::EndRecovery { accept_conflicts });
    ended.expect("they are accepted");
    let recovery = world.state.header().recovery.expect("the recovery");
    assert_eq!(
        (recovery.settled, world.state.settled_vms().count()),
        (0, 0)
    );
}

/// Goal: a guest that cannot be claimed for another reason takes no volume away. Method: it reports a claim
/// without CPUs that its size needs.
#[test]
fn a_guest_that_is_not_adopted_takes_nothing() {
    let case = Case {
        device: Device::Nvdimm,
        ..DELETED
    };
    let past = case.past();
    let (mut b, _) = case.guests(&past);
    b.domain.held.cells.clear();
    let mut world = past.recovered();
    for _ in 0..2 {
        world.report_guests("h1", std::slice::from_ref(&b)).unwrap();
        world.report_guests("h2", &[]).unwrap();
    }
    let outcome = world.state.recovery_outcome().unwrap();
    assert!(
        matches!(outcome.conflicts[..], [Conflict::Unrecorded { .. }]),
        "{outcome:?}"
    );
    let accept_conflicts = true;
    world
        .run(Command::EndRecovery { accept_conflicts })
        .unwrap();
    let a = world.state.vm(&vm_name("a")).unwrap();
    assert_eq!((a.state, a.spec.volumes.len()), (VmState::Stopped, 1));
    assert!(a.claim.is_some(), "it gave nothing up");
}
