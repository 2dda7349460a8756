//! Stopping and starting: the time that a guest is given, and calls that were overtaken.

use berth_domain::agent::{Call, DomainState, Reply};
use berth_domain::id::{ClaimId, VmUid};
use berth_domain::instance::PageSize;
use berth_domain::numa::Assignment;
use berth_domain::refusal::Code;
use berth_driver::Kind;
use berth_driver::conformance::sample;
use berth_driver::sim::Behaviour;
use uuid::Uuid;

use super::rig::{Answer, Guest, Rig, host};

fn on() -> Assignment {
    sample::pins(0, &[1], None)
}

/// One host with a guest that runs.
fn running() -> (Rig, Guest) {
    let mut rig = Rig::new(&[3]);
    let guest = Guest::new("a", 1, sample::pinned_spec(1, PageSize::Unspecified));
    rig.spawn(&host("h1"), &guest, on()).unwrap();
    (rig, guest.under(1, 2))
}

/// A guest that does not hear that it is to power off.
fn deaf() -> (Rig, Guest) {
    let (mut rig, guest) = running();
    let deaf = Behaviour::Gone { effect: false };
    rig.world.script(&host("h1"), Kind::Shutdown, [deaf]);
    (rig, guest)
}

fn reason(answer: Answer) -> String {
    answer.unwrap_err().reason
}

#[test]
fn a_guest_is_stopped_and_started_again_and_both_can_be_repeated() {
    let ((mut rig, guest), h1) = (running(), host("h1"));
    for timeout_ms in [5_000, 0] {
        assert_eq!(
            rig.call(&h1, &guest, guest.stop_call(timeout_ms, false)),
            Ok(Reply::Done)
        );
        assert_eq!(rig.state(&h1, &guest), DomainState::Absent);
    }
    let start = guest.under(2, 3);
    for _ in 0..2 {
        assert_eq!(
            rig.call(&h1, &start, start.start_call(&h1, on())),
            Ok(Reply::Done)
        );
        assert_eq!(rig.state(&h1, &start), DomainState::Running);
    }
    // A guest that crashed is started anew.
    rig.world.crash_guest(rig.now, &h1, guest.uid);
    assert_eq!(rig.state(&h1, &start), DomainState::Stopped);
    let again = guest.under(3, 4);
    rig.call(&h1, &again, again.start_call(&h1, on())).unwrap();
    assert_eq!(rig.state(&h1, &again), DomainState::Running);
}

#[test]
fn a_guest_that_does_not_power_off_has_its_time_and_then_its_plug_is_pulled() {
    let ((mut rig, guest), h1) = (deaf(), host("h1"));
    let stop = rig.begin(&h1, &guest, guest.stop_call(5_000, false));
    rig.settle();
    for _ in 0..4 {
        rig.pass(1_000);
        assert_eq!(rig.answered(stop), None);
        assert_eq!(rig.state(&h1, &guest), DomainState::Running);
    }
    rig.pass(1_000);
    assert_eq!(rig.answered(stop), Some(&Ok(Reply::Done)));
    assert_eq!(rig.state(&h1, &guest), DomainState::Absent);
}

#[test]
fn a_guest_that_powers_off_late_is_not_waited_for_any_longer() {
    let ((mut rig, guest), h1) = (deaf(), host("h1"));
    let stop = rig.begin(&h1, &guest, guest.stop_call(60_000, false));
    rig.pass(1_000);
    assert_eq!(rig.answered(stop), None);
    rig.world.crash_guest(rig.now, &h1, guest.uid);
    rig.pass(1_000);
    assert_eq!(rig.answered(stop), Some(&Ok(Reply::Done)));
}

/// The stop is given up while the guest has its time: it runs on, and is never stopped for that.
#[test]
fn settling_ends_the_wait_without_pulling_the_plug() {
    let ((mut rig, guest), h1) = (deaf(), host("h1"));
    let stop = rig.begin(&h1, &guest, guest.stop_call(5_000, false));
    let waiting = rig.begin(&h1, &guest, guest.stop_call(0, false));
    rig.settle();
    let settled = rig.call(&h1, &guest, Call::SettleVm).unwrap();
    let Reply::Domain(status) = settled else {
        panic!("{settled:?}")
    };
    assert_eq!(status.state, DomainState::Absent, "a stop had come before");
    assert_eq!(reason(rig.answer(stop)), "LATE_CALL");
    assert_eq!(rig.answer(waiting), Ok(Reply::Done));

    let ((mut rig, guest), h1) = (deaf(), host("h1"));
    let stop = rig.begin(&h1, &guest, guest.stop_call(5_000, false));
    // While the driver is being asked.
    let settled = rig.call(&h1, &guest, Call::SettleVm).unwrap();
    let Reply::Domain(status) = settled else {
        panic!("{settled:?}")
    };
    assert_eq!(status.state, DomainState::Running);
    assert_eq!(reason(rig.answer(stop)), "LATE_CALL");
    rig.pass(10_000);
    for late in [guest.stop_call(0, false), guest.start_call(&h1, on())] {
        assert_eq!(reason(rig.call(&h1, &guest, late)), "LATE_CALL");
    }
    assert_eq!(rig.state(&h1, &guest), DomainState::Running);
    let next = guest.under(2, 3);
    rig.call(&h1, &next, next.stop_call(0, false)).unwrap();
    assert_eq!(rig.state(&h1, &next), DomainState::Absent);
}

#[test]
fn a_stop_that_its_own_operations_start_overtook_is_late() {
    let ((mut rig, guest), h1) = (running(), host("h1"));
    rig.call(&h1, &guest, guest.stop_call(0, false)).unwrap();
    rig.call(&h1, &guest, guest.start_call(&h1, on())).unwrap();
    assert_eq!(
        reason(rig.call(&h1, &guest, guest.stop_call(0, false))),
        "LATE_CALL"
    );
    assert_eq!(rig.state(&h1, &guest), DomainState::Running);
    // The undo of that start says that it is the last.
    rig.call(&h1, &guest, guest.stop_call(0, true)).unwrap();
    assert_eq!(
        reason(rig.call(&h1, &guest, guest.start_call(&h1, on()))),
        "LATE_CALL"
    );
    let later = guest.under(7, 8);
    assert_eq!(
        reason(rig.call(&h1, &later, later.start_call(&h1, on()))),
        "LATE_CALL"
    );
    assert_eq!(rig.state(&h1, &later), DomainState::Absent);
}

/// Goal: however calls of three attempts of one operation are mixed, delayed and repeated, a guest
/// that a later one stopped is not started, and one that a later one started is not stopped.
/// Method: all sequences of four.
#[test]
fn calls_of_attempts_take_effect_in_their_order() {
    let h1 = host("h1");
    let mut late = 0;
    for number in 0..6_u32.pow(4) {
        let sequence = [1, 6, 36, 216].map(|place| number / place % 6);
        let (mut rig, guest) = running();
        let (mut stopped, mut started, mut runs) = (None, None, true);
        for (starts, attempt) in sequence.map(|digit| (digit % 2 == 1, digit / 2)) {
            let guest = guest.tried(attempt);
            let (call, is_late) = if starts {
                (guest.start_call(&h1, on()), stopped > Some(attempt))
            } else {
                (guest.stop_call(0, false), started >= Some(attempt))
            };
            let outcome = rig.call(&h1, &guest, call);
            if is_late {
                late += 1;
                assert_eq!(reason(outcome), "LATE_CALL", "{sequence:?}");
            } else {
                assert_eq!(outcome, Ok(Reply::Done), "{sequence:?}");
                let last = if starts { &mut started } else { &mut stopped };
                *last = (*last).max(Some(attempt));
                runs = starts;
            }
            let state = if runs {
                DomainState::Running
            } else {
                DomainState::Absent
            };
            assert_eq!(rig.state(&h1, &guest), state, "{sequence:?}");
        }
    }
    assert!(late > 1_000, "{late} of 5,184 calls were late");
}

#[test]
fn a_stop_on_another_claim_changes_nothing() {
    let ((mut rig, guest), h1) = (running(), host("h1"));
    let stop = Call::StopVm {
        claim: ClaimId(Uuid::from_u128(5)),
        timeout_ms: 0,
        last: false,
    };
    assert_eq!(rig.call(&h1, &guest, stop), Ok(Reply::Done));
    assert_eq!(rig.state(&h1, &guest), DomainState::Running);
    let unknown = Guest {
        uid: VmUid(Uuid::from_u128(99)),
        ..guest
    };
    assert_eq!(
        rig.call(&h1, &unknown, unknown.stop_call(1_000, false)),
        Ok(Reply::Done)
    );
}

#[test]
fn an_agent_of_an_older_version_refuses() {
    let (mut rig, h1) = (Rig::new(&[2]), host("h1"));
    let guest = Guest::new("a", 1, sample::pinned_spec(1, PageSize::Unspecified));
    rig.spawn(&h1, &guest, on()).unwrap();
    for call in [
        guest.stop_call(0, false),
        guest.start_call(&h1, on()),
        Call::SettleVm,
    ] {
        let refused = rig.call(&h1, &guest, call).unwrap_err();
        assert_eq!(refused.code, Code::Unimplemented);
        assert_eq!(refused.reason, "SERVICE_VERSION_TOO_OLD");
    }
    assert_eq!(rig.state(&h1, &guest), DomainState::Running);
}
