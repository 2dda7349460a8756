//! What an agent does while the cluster recovers: it refuses the calls from before, and reports all of
//! its guests once none of those calls is in progress.

use berth_domain::agent::{Call, DomainState, Fence};
use berth_domain::id::{Epoch, Incarnation, OperationId, TimeMs};
use berth_domain::recovery::{JUMP, ReportedGuest};
use berth_domain::refusal::Refusal;
use berth_driver::{Answer, Error, Known, Request, Token};
use uuid::Uuid;

use super::reality::{agent, ask, expected, known, tell, tick};
use crate::{Agent, CallId, Effect, Event, Expectation};

/// The least epoch from after the recovery.
const LEAST: Epoch = Epoch(1_000);

fn recovering(revision: u64) -> Expectation {
    Expectation {
        revision,
        expected: vec![expected(1)],
        recovery: Some(LEAST),
        ..Expectation::default()
    }
}

fn call(agent: &mut Agent, known: &Known, epoch: Epoch) -> Vec<Effect> {
    agent.step(Event::Call {
        id: CallId(epoch.0),
        fence: Fence {
            vm: known.domain.uid,
            operation: OperationId(Uuid::from_u128(1)),
            epoch,
            incarnation: Incarnation(Uuid::nil()),
            attempt: 0,
        },
        call: Call::DestroyVm,
    })
}

fn refusal(effects: &[Effect]) -> Option<&Refusal> {
    match effects {
        [Effect::Reply { result, .. }] => result.as_ref().err(),
        _ => None,
    }
}

fn report(effects: &[Effect]) -> Option<(u64, &[ReportedGuest])> {
    match effects {
        [] => None,
        [Effect::ReportGuests(basis, guests)] => Some((*basis, guests)),
        others => panic!("{others:?}"),
    }
}

/// Goal: every guest of Berth's is reported, with its specification where no claim is for it; nothing
/// else is, and nothing is stopped.
#[test]
fn all_guests_are_reported() {
    let here = [
        known(1, DomainState::Running),
        known(2, DomainState::Stopped),
    ];
    let mut agent = agent(here.to_vec());
    let mut expectation = recovering(7);
    expectation.lost = vec![(here[1].domain.uid, here[1].domain.claim)];
    let token = ask(&mut agent, expectation);
    let effects = tell(&mut agent, token, &here, &[]);
    let (basis, guests) = report(&effects).expect("a report");
    assert_eq!(basis, 7);
    let seen = guests.iter().map(|guest| {
        let has_spec = guest.spec.as_deref() == Some(&here[1].domain.spec);
        (guest.domain.uuid, guest.state, has_spec)
    });
    let seen: Vec<_> = seen.collect();
    let uuid = |number: usize| here[number].domain.uid.0;
    assert_eq!(
        seen,
        [
            (uuid(0), DomainState::Running, false),
            (uuid(1), DomainState::Stopped, true),
        ]
    );
}

/// Goal: from the first expectation on no call from before is carried out, for whatever guest; one from
/// after it is.
#[test]
fn calls_from_before_are_refused() {
    let (here, other) = (
        known(1, DomainState::Running),
        known(9, DomainState::Running),
    );
    let mut agent = agent(vec![here.clone()]);
    let token = ask(&mut agent, recovering(7));
    for guest in [&here, &other] {
        let effects = call(&mut agent, guest, Epoch(LEAST.0 - 1));
        let refusal = refusal(&effects).expect("it is refused");
        assert_eq!(refusal.reason, "STALE_EPOCH");
    }
    assert!(report(&tell(&mut agent, token, std::slice::from_ref(&here), &[])).is_some());
    let effects = call(&mut agent, &here, LEAST);
    assert_eq!(refusal(&effects), None, "{effects:?}");
}

/// Goal: nothing is reported while a call from before may still change a guest: it is in progress, it came
/// after the expectation was requested, it is a transfer. Method: one call, begun before the expectation,
/// that ends before the hypervisor's answer, after it, or never.
#[test]
fn nothing_is_reported_while_a_call_is_in_progress() {
    let here = known(1, DomainState::Running);
    for ends in [false, true] {
        let mut agent = agent(vec![here.clone()]);
        assert!(tick(&mut agent, 1_000).contains(&Effect::Expect));
        let effects = call(&mut agent, &here, Epoch(5));
        let [Effect::Driver { token: work, .. }] = effects[..] else {
            panic!("{effects:?}");
        };
        let token = ask(&mut agent, recovering(7));
        if ends {
            finish(&mut agent, work);
        }
        assert_eq!(
            report(&tell(&mut agent, token, std::slice::from_ref(&here), &[])),
            None
        );
        // The next one follows at once, not at the usual interval.
        assert!(tick(&mut agent, 2_000).contains(&Effect::Expect));
        let token = ask(&mut agent, recovering(8));
        let effects = tell(&mut agent, token, std::slice::from_ref(&here), &[]);
        assert_eq!(report(&effects).is_some(), ends);
        if !ends {
            finish(&mut agent, work);
            let token = ask(&mut agent, recovering(9));
            assert!(report(&tell(&mut agent, token, &[], &[])).is_some());
        }
    }
}

fn finish(agent: &mut Agent, token: Token) {
    let result: Result<Answer, Error> = Ok(Answer::Done);
    let _ = agent.step(Event::DriverDone { token, result });
}

/// Goal: a guest that an earlier run of the agent has sent away may arrive elsewhere.
#[test]
fn nothing_is_reported_while_a_guest_is_sent_away() {
    let sent = known(1, DomainState::MigratingOut);
    let mut agent = agent(vec![sent.clone()]);
    let token = ask(&mut agent, recovering(7));
    assert_eq!(report(&tell(&mut agent, token, &[sent], &[])), None);
    let token = ask(&mut agent, recovering(8));
    assert!(report(&tell(&mut agent, token, &[], &[])).is_some());
}

/// Goal: after the recovery it compares as before.
#[test]
fn the_end_of_the_recovery_is_followed() {
    let here = known(1, DomainState::Running);
    let mut agent = agent(vec![here.clone()]);
    let _ = agent.step(Event::Tick { now: TimeMs(1_000) });
    let token = ask(&mut agent, recovering(7));
    assert!(report(&tell(&mut agent, token, std::slice::from_ref(&here), &[])).is_some());
    assert!(tick(&mut agent, 2_000).contains(&Effect::Expect));
    let expectation = Expectation {
        recovery: None,
        ..recovering(8)
    };
    let token = ask(&mut agent, expectation);
    assert_eq!(tell(&mut agent, token, &[here], &[]), []);
    assert!(!tick(&mut agent, 3_000).contains(&Effect::Expect));
}

/// Goal: members of the cluster from before the recovery, which may come back as a majority, have nothing
/// stopped, and no call of theirs is carried out. Method: what they expect, and a call, after what the
/// recovered cluster expects, while it recovers and later.
#[test]
fn an_older_cluster_is_not_followed() {
    let here = known(1, DomainState::Running);
    for recovery in [Some(Epoch(JUMP)), None] {
        let mut agent = agent(vec![here.clone()]);
        let newer = Expectation {
            recovery,
            ..recovering(JUMP + 3)
        };
        let token = ask(&mut agent, newer);
        let _ = tell(&mut agent, token, std::slice::from_ref(&here), &[]);
        let older = Expectation {
            revision: 9_000,
            lost: vec![(here.domain.uid, here.domain.claim)],
            ..Expectation::default()
        };
        assert_eq!(agent.step(Event::Expected(older)), []);
        let effects = call(&mut agent, &here, Epoch(JUMP - 1));
        let refusal = refusal(&effects).expect("it is refused");
        assert_eq!(refusal.reason, "STALE_EPOCH");
        // That one is still followed.
        let token = ask(&mut agent, recovering(JUMP + 4));
        assert!(report(&tell(&mut agent, token, std::slice::from_ref(&here), &[])).is_some());
    }
}

/// Goal: what was prepared for a guest that does not come any more is removed, once every host is quiet:
/// after the recovery, by whichever run of the agent; what was prepared since is not.
#[test]
fn what_was_prepared_before_is_removed_after_the_recovery() {
    let ended = Expectation {
        recovery: None,
        ..recovering(JUMP + 8)
    };
    let before = known(1, DomainState::Prepared);
    let mut agent = agent(Vec::new());
    let mut restarted = agent.clone();
    let token = ask(&mut agent, recovering(JUMP + 7));
    let effects = tell(&mut agent, token, std::slice::from_ref(&before), &[]);
    assert!(report(&effects).is_some(), "{effects:?}");
    let mut since = known(2, DomainState::Prepared);
    since.domain.epoch = Epoch(JUMP + 1);
    for agent in [&mut agent, &mut restarted] {
        let token = ask(agent, ended.clone());
        let effects = tell(agent, token, &[before.clone(), since.clone()], &[]);
        let mut evicted = Vec::new();
        for effect in &effects {
            if let Effect::Driver { request, .. } = effect {
                evicted.push(request.clone());
            }
        }
        let expected = Request::Evict(before.domain.uid, before.domain.claim);
        assert_eq!(evicted, [expected]);
    }
}
