//! Disks that are fetched, given away and deleted: what is late, stopped, or not to be read.

use berth_domain::agent::{Call, DiskSource, DomainState, FetchDisks, Reply, Side};
use berth_domain::numa::Assignment;
use berth_domain::refusal::Code;
use berth_domain::vm::{Disk, DiskFormat};
use berth_driver::conformance::sample;

use super::rig::{Answer, Guest, Rig, host, migration};
use crate::{CallId, Event};

/// A number that no call of the rig has.
const READ: CallId = CallId(u64::MAX);

fn reason(answer: &Answer) -> &str {
    &answer.as_ref().unwrap_err().reason
}

/// Two hosts with storages of their own; a guest with a disk was stopped on the first.
fn stopped(versions: &[u32]) -> (Rig, Guest) {
    let mut rig = Rig::new(versions);
    for name in ["h1", "h2"] {
        rig.world.set_storage(&host(name), name);
    }
    let mut guest = Guest::new("a", 1, sample::plain_spec(1));
    guest.spec.disks.push(Disk {
        image: None,
        format: DiskFormat::Qcow2,
        size_gib: 1,
        seed: false,
    });
    let h1 = host("h1");
    rig.spawn(&h1, &guest, Assignment::default()).unwrap();
    let guest = guest.under(7, 2);
    let _ = rig.call(&h1, &guest, guest.stop_call(0, false));
    (rig, guest)
}

fn fetch(rig: &Rig, guest: &Guest) -> Call {
    let (h1, h2) = (host("h1"), host("h2"));
    Call::FetchDisks(Box::new(FetchDisks {
        migration: migration(1),
        vm: guest.vm.clone(),
        spec: guest.spec.clone(),
        claim: guest.claim(&h2, Assignment::default()),
        source: DiskSource {
            address: "http://h1:7300".to_owned(),
            incarnation: rig.fence(&h1, guest).incarnation,
            host: h1,
        },
        bandwidth_mib_per_s_max: None,
        timeout_ms: None,
    }))
}

fn drop_call(guest: &Guest, side: Side) -> Call {
    Call::DropDisks {
        migration: migration(1),
        side,
        claim: guest.claim(&host("h1"), Assignment::default()).id,
    }
}

/// Asks the first host whether another may read the disks of the guest.
fn may_read(rig: &mut Rig, guest: &Guest) -> Answer {
    let h1 = host("h1");
    let fence = rig.fence(&h1, guest);
    rig.forget_answer(READ);
    rig.step(&h1, Event::Read { id: READ, fence });
    rig.answer(READ)
}

#[test]
fn disks_are_fetched_once_and_not_below_a_guest() {
    let ((mut rig, guest), h2) = (stopped(&[3, 3]), host("h2"));
    for _ in 0..2 {
        let call = fetch(&rig, &guest);
        assert_eq!(rig.call(&h2, &guest, call), Ok(Reply::Done));
    }
    let mut both = rig.world.disks_of(guest.uid);
    both.sort_unstable();
    assert_eq!(both, ["h1", "h2"]);
    let start = guest.start_call(&h2, Assignment::default());
    rig.call(&h2, &guest, start).unwrap();
    let late = fetch(&rig, &guest);
    assert_eq!(reason(&rig.call(&h2, &guest, late)), "LATE_CALL");
    let refused = rig.call(&h2, &guest, drop_call(&guest, Side::Source));
    assert_eq!(reason(&refused), "GUEST_RUNS_HERE");
    assert_eq!(rig.state(&h2, &guest), DomainState::Running);
}

/// The deletion stops the fetch that goes on, and the one that waits behind it.
#[test]
fn a_deletion_stops_what_is_being_fetched_and_nothing_comes_after_it() {
    let ((mut rig, guest), h2) = (stopped(&[3, 3]), host("h2"));
    let (first, second) = (fetch(&rig, &guest), fetch(&rig, &guest));
    let goes_on = rig.begin(&h2, &guest, first);
    let waits = rig.begin(&h2, &guest, second);
    rig.advance();
    assert_eq!(rig.answered(goes_on), None);
    let dropped = rig.call(&h2, &guest, drop_call(&guest, Side::Destination));
    assert_eq!(dropped, Ok(Reply::Done));
    assert_eq!(reason(&rig.answer(goes_on)), "HYPERVISOR_REFUSED");
    assert_eq!(reason(&rig.answer(waits)), "LATE_CALL");
    let late = fetch(&rig, &guest);
    assert_eq!(reason(&rig.call(&h2, &guest, late)), "LATE_CALL");
    let start = guest.start_call(&h2, Assignment::default());
    assert_eq!(reason(&rig.call(&h2, &guest, start)), "LATE_CALL");
    assert_eq!(rig.world.disks_of(guest.uid), ["h1"]);
    // Another attempt, on another claim in truth, is another operation's.
    let again = rig.call(&h2, &guest, drop_call(&guest, Side::Destination));
    assert_eq!(again, Ok(Reply::Done));
}

#[test]
fn disks_are_given_only_of_a_guest_that_is_off_and_under_the_newest_lease() {
    let ((mut rig, guest), h1) = (stopped(&[3, 3]), host("h1"));
    assert_eq!(may_read(&mut rig, &guest), Ok(Reply::Done));
    let other = guest.under(8, 3);
    let started = other.start_call(&h1, Assignment::default());
    let start = rig.begin(&h1, &other, started);
    assert_eq!(reason(&may_read(&mut rig, &guest)), "STALE_EPOCH");
    assert_eq!(reason(&may_read(&mut rig, &other)), "GUEST_RUNS_HERE");
    rig.answer(start).unwrap();
    assert_eq!(reason(&may_read(&mut rig, &other)), "GUEST_RUNS_HERE");
    rig.call(&h1, &other, other.stop_call(0, true)).unwrap();
    rig.call(&h1, &other, drop_call(&other, Side::Source))
        .unwrap();
    assert_eq!(reason(&may_read(&mut rig, &other)), "LATE_CALL");
    assert!(rig.world.disks_of(guest.uid).is_empty());
}

/// A source that breaks off is no reason to say "no": with its new run it is asked again.
#[test]
fn a_source_that_is_started_anew_breaks_the_fetch_and_can_be_asked_again() {
    let ((mut rig, guest), h2) = (stopped(&[3, 3]), host("h2"));
    let call = fetch(&rig, &guest);
    let goes_on = rig.begin(&h2, &guest, call);
    rig.advance();
    rig.restart_agent(&host("h1"));
    let broken = rig.answer(goes_on).unwrap_err();
    assert_eq!(broken.code, Code::Unavailable, "{broken}");
    let call = fetch(&rig, &guest);
    assert_eq!(rig.call(&h2, &guest, call), Ok(Reply::Done));
}

#[test]
fn an_older_agent_does_neither() {
    let ((mut rig, guest), h2) = (stopped(&[3, 2]), host("h2"));
    let call = fetch(&rig, &guest);
    for call in [call, drop_call(&guest, Side::Destination)] {
        let refused = rig.call(&h2, &guest, call).unwrap_err();
        assert_eq!(refused.code, Code::Unimplemented, "{refused}");
    }
}

/// Goal: no guest starts with a seed that has nothing on it.
#[test]
fn a_seed_comes_with_what_is_on_it() {
    let (mut rig, h1) = (Rig::new(&[4]), host("h1"));
    let mut guest = Guest::new("a", 1, sample::plain_spec(1));
    guest.spec.disks.push(Disk::SEED);
    let call = guest.spawn_call(&h1, Assignment::default());
    let Call::SpawnVm {
        vm, spec, claim, ..
    } = call.clone()
    else {
        panic!("{call:?}");
    };
    let without = Call::SpawnVm {
        vm,
        spec,
        claim,
        first_boot: None,
    };
    let refused = rig.call(&h1, &guest, without);
    assert_eq!(reason(&refused), "FIRST_BOOT_MISSING");
    assert!(rig.call(&h1, &guest, call).is_ok());
}
