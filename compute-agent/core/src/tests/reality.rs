//! What an agent compares, and what it does not do while it is cut off.

use berth_domain::agent::{Call, DomainState, DomainStatus, Fence};
use berth_domain::id::{ClaimId, Epoch, Generation, Incarnation, OperationId, TimeMs, VmUid};
use berth_domain::migration_tls::TlsPolicy;
use berth_domain::name::{HostName, VmName};
use berth_domain::numa::Assignment;
use berth_domain::reality::{Absence, Comparison, Expected};
use berth_domain::version::ServiceVersion;
use berth_driver::conformance::sample;
use berth_driver::{Answer, Known, Other, Request, Token};
use uuid::Uuid;

use super::rig::{Guest, migration};
use crate::{Agent, CallId, Effect, Event, Expectation, Facts};

const LEASE_MS: u64 = 15_000;

pub(super) fn agent(known: Vec<Known>) -> Agent {
    Agent::new(
        Facts {
            bridges: Vec::new(),
            host: HostName::new("h1").unwrap(),
            incarnation: Incarnation(Uuid::nil()),
            version: ServiceVersion::CURRENT,
            driver: "sim".to_owned(),
            migration_uri: "sim://h1".to_owned(),
            storage_id: "shared".to_owned(),
            tls: TlsPolicy::Off,
            topology: sample::host(2),
            transfer_ms_max: 60_000,
            compare_ms: 10_000,
        },
        known,
    )
}

pub(super) fn known(number: u128, state: DomainState) -> Known {
    let guest = Guest::new(&format!("vm{number}"), number, sample::plain_spec(1));
    Known {
        domain: berth_driver::DomainSpec {
            bridges: Vec::new(),
            vm: guest.vm.clone(),
            uid: guest.uid,
            spec: guest.spec.clone(),
            claim: Some(ClaimId(Uuid::from_u128(100 + number))),
            epoch: Epoch(1),
            assignment: Assignment::default(),
            shared_cpus: Default::default(),
            volumes: Vec::new(),
            first_boot: None,
            cpu: None,
        },
        state,
    }
}

pub(super) fn expected(number: u128) -> Expected {
    Expected {
        vm: VmName::new(&format!("vm{number}")).unwrap(),
        uid: VmUid(Uuid::from_u128(number)),
        claim: ClaimId(Uuid::from_u128(100 + number)),
        generation: Generation(3),
        is_settled: true,
        recorded: None,
    }
}

pub(super) fn tick(agent: &mut Agent, now: u64) -> Vec<Effect> {
    agent.step(Event::Tick { now: TimeMs(now) })
}

/// Brings the expectation, and returns the token under which the driver is asked.
pub(super) fn ask(agent: &mut Agent, expectation: Expectation) -> Token {
    let effects = agent.step(Event::Expected(expectation));
    let [Effect::Driver { token, request }] = &effects[..] else {
        panic!("{effects:?}");
    };
    assert_eq!(*request, Request::Everything);
    *token
}

pub(super) fn tell(
    agent: &mut Agent,
    token: Token,
    known: &[Known],
    others: &[Other],
) -> Vec<Effect> {
    let answer = Answer::Everything(known.to_vec(), others.to_vec());
    let result = Ok(answer);
    agent.step(Event::DriverDone { token, result })
}

/// Goal: it compares when it starts, and then every interval; while nothing differs nothing is
/// told.
#[test]
fn it_compares_now_and_then() {
    let mut agent = agent(vec![known(1, DomainState::Running)]);
    let asked: Vec<bool> = [1_000, 5_000, 10_999, 11_000, 12_000]
        .into_iter()
        .map(|now| tick(&mut agent, now).contains(&Effect::Expect))
        .collect();
    assert_eq!(asked, [true, false, false, true, false]);
    let expectation = Expectation {
        expected: vec![expected(1)],
        ..Expectation::default()
    };
    let token = ask(&mut agent, expectation.clone());
    // A second one waits for the next time.
    assert_eq!(agent.step(Event::Expected(expectation)), []);
    let told = tell(&mut agent, token, &[known(1, DomainState::Running)], &[]);
    assert_eq!(told, []);
}

/// Goal: what differs is told, nothing is stopped, and a guest that is gone holds nothing here.
#[test]
fn what_differs_is_told_and_left_alone() {
    let mut agent = agent(vec![known(1, DomainState::Running)]);
    let expectation = Expectation {
        revision: 7,
        expected: vec![expected(1)],
        ..Expectation::default()
    };
    let token = ask(&mut agent, expectation);
    let other = Other {
        uuid: Uuid::from_u128(9),
        name: "by-hand".to_owned(),
    };
    let stray = known(5, DomainState::Running);
    let told = tell(&mut agent, token, &[stray], &[other]);
    let [
        Effect::Report(Comparison {
            basis,
            unknown,
            findings,
        }),
    ] = &told[..]
    else {
        panic!("{told:?}");
    };
    assert_eq!(*basis, 7);
    let names: Vec<_> = unknown.iter().map(|u| (&*u.name, u.is_ours)).collect();
    assert_eq!(names, [("vm5", true), ("by-hand", false)]);
    assert_eq!(findings[0].absence, Some(Absence::Missing));
    let held: Vec<_> = agent.domains().map(|domain| domain.vm.as_str()).collect();
    assert_eq!(held, ["vm5"], "what is gone holds nothing any more");
}

/// Goal: a guest that was waited for and runs can be moved on, though no call queried that it does, as after a
/// fence of its host in the middle of its migration. One that is being received may be paused meanwhile.
/// Method: every state in which one is waited for, as it was, paused, and running; and what a query of its
/// state concludes.
#[test]
fn a_guest_that_was_waited_for_is_taken_up() {
    for (before, is_received) in [
        (DomainState::Absent, false),
        (DomainState::Starting, false),
        (DomainState::Prepared, true),
        (DomainState::MigratingIn, true),
    ] {
        for (after, runs) in [
            (before, false),
            (DomainState::Paused, !is_received),
            (DomainState::Running, true),
        ] {
            let uid = VmUid(Uuid::from_u128(1));
            let mut compared = agent(vec![known(1, before)]);
            let _ = tick(&mut compared, 1_000);
            let query = ask(&mut compared, Expectation::default());
            let _ = tell(&mut compared, query, &[known(1, after)], &[]);
            assert_eq!(compared.running(uid).is_ok(), runs, "{before:?} {after:?}");

            let mut queried = agent(vec![known(1, before)]);
            let status = DomainStatus {
                state: after,
                ..DomainStatus::absent()
            };
            let _ = queried.overlaid(uid, status);
            assert_eq!(queried.running(uid).is_ok(), runs, "{before:?} {after:?}");
        }
    }
}

/// Goal: a comparison takes up what runs here and is not known to the agent, and nothing on which a call
/// works or has just worked. Method: every state of a domain; idle, with its deletion under way, and with
/// its deletion done after the hypervisor was queried.
#[test]
fn a_forgotten_guest_is_taken_up() {
    let states = [
        (DomainState::Absent, false),
        (DomainState::Starting, false),
        (DomainState::Running, true),
        (DomainState::Paused, true),
        (DomainState::Prepared, false),
        (DomainState::MigratingIn, false),
        (DomainState::MigratingOut, false),
        (DomainState::Stopped, false),
        (DomainState::PostCopyBroken, false),
    ];
    for (state, is_running) in states {
        for (deletes, ends) in [(false, false), (true, false), (true, true)] {
            let mut agent = agent(vec![]);
            let _ = tick(&mut agent, 1_000);
            let query = ask(&mut agent, Expectation::default());
            if deletes {
                let guest = Guest::new("vm1", 1, sample::plain_spec(1));
                let fence = Fence {
                    vm: guest.uid,
                    operation: OperationId(Uuid::from_u128(1)),
                    epoch: Epoch(1),
                    incarnation: Incarnation(Uuid::nil()),
                    attempt: 0,
                };
                let effects = agent.step(Event::Call {
                    id: CallId(1),
                    fence,
                    call: Call::DestroyVm,
                });
                let [Effect::Driver { token, .. }] = effects[..] else {
                    panic!("{effects:?}");
                };
                if ends {
                    let result = Ok(Answer::Done);
                    let _ = agent.step(Event::DriverDone { token, result });
                }
            }
            let _ = tell(&mut agent, query, &[known(1, state)], &[]);
            let count = agent.domains().count();
            let expected = usize::from(is_running && !deletes);
            assert_eq!(count, expected, "{state:?} {deletes} {ends}");
        }
    }
}

/// The calls with which operations begin and end on a host, whichever way they end.
fn ends(guest: &Guest) -> Vec<(&'static str, Call)> {
    let host = HostName::new("h1").unwrap();
    let migration = migration(1);
    let keep_disks = false;
    vec![
        (
            "boot or evacuation",
            guest.spawn_call(&host, Assignment::default()),
        ),
        ("boot undone, or deletion", Call::DestroyVm),
        (
            "migration done",
            Call::PostLiveMigrationAtSource { migration },
        ),
        (
            "migration aborted",
            Call::RollbackLiveMigrationAtDestination {
                migration,
                keep_disks,
            },
        ),
        (
            "migration to be aborted",
            Call::AbortLiveMigration { migration },
        ),
        ("stop", guest.stop_call(0, true)),
        ("start", guest.start_call(&host, Assignment::default())),
        ("migration not known", Call::SettleVm),
    ]
}

/// What the driver does of a call; nothing while it is under way.
fn outcomes() -> [Option<Result<Answer, berth_driver::Error>>; 4] {
    let message = "no".to_owned();
    [
        None,
        Some(Ok(Answer::Done)),
        Some(Err(berth_driver::Error::Refused {
            message: message.clone(),
        })),
        Some(Err(berth_driver::Error::Unreachable { message })),
    ]
}

/// When a call comes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    /// Before the expectation is requested.
    Unrequested,
    /// After that: the expectation may be from before its claim.
    Requested,
    /// After the hypervisor was queried.
    Queried,
}

fn call_under_way(agent: &mut Agent, guest: &Guest, call: Call) -> Option<(Token, Request)> {
    let fence = Fence {
        vm: guest.uid,
        operation: guest.operation,
        epoch: guest.epoch,
        incarnation: Incarnation(Uuid::nil()),
        attempt: 0,
    };
    let id = CallId(1);
    let effects = agent.step(Event::Call { id, fence, call });
    effects.iter().find_map(|effect| match effect {
        Effect::Driver { token, request } => Some((*token, request.clone())),
        Effect::Reply { .. }
        | Effect::Expect
        | Effect::Report(_)
        | Effect::ReportGuests(..)
        | Effect::ReportErasures(_)
        | Effect::Watchdog(_) => None,
    })
}

fn reports_unknown(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| match effect {
        Effect::Report(comparison) => !comparison.unknown.is_empty(),
        Effect::Reply { .. }
        | Effect::Driver { .. }
        | Effect::Expect
        | Effect::ReportGuests(..)
        | Effect::ReportErasures(_)
        | Effect::Watchdog(_) => false,
    })
}

/// Goal: a guest that comes or goes while hosts are compared is not reported as unknown, for which
/// boots would be refused; one that stays without a claim is, by the next comparison, and at once
/// by a host that was fenced. Method: every end of every operation, whatever the driver does of it,
/// at every moment of a comparison whose expectation has no claim for the guest.
#[test]
fn a_guest_that_comes_or_goes_meanwhile_is_not_unknown() {
    let guest = Guest::new("vm1", 1, sample::plain_spec(1));
    let all = [known(1, DomainState::Running)];
    let moments = [Moment::Unrequested, Moment::Requested, Moment::Queried];
    let (mut cases, mut over) = (0, 0);
    for (end, call) in ends(&guest) {
        for (outcome, moment, fenced) in outcomes()
            .into_iter()
            .flat_map(|o| moments.map(|m| (o.clone(), m)))
            .flat_map(|(o, m)| [false, true].map(|fenced| (o.clone(), m, fenced)))
        {
            let what = format!("{end}: {outcome:?}, {moment:?}, fenced: {fenced}");
            // What is to be started is not there before.
            let starts = matches!(call, Call::SpawnVm { .. } | Call::StartVm { .. });
            let mut agent = agent(if starts { Vec::new() } else { all.to_vec() });
            let expectation = Expectation {
                fenced,
                ..Expectation::default()
            };
            let mut token = None;
            let mut begin = |agent: &mut Agent, now: Moment| {
                if now == moment {
                    token = call_under_way(agent, &guest, call.clone());
                }
            };
            begin(&mut agent, Moment::Unrequested);
            // Without work for the driver it has ended before anything is compared.
            let is_over = moment == Moment::Unrequested && !agent.is_worked_on(guest.uid);
            over += u32::from(is_over);
            assert!(tick(&mut agent, 1_000).contains(&Effect::Expect), "{what}");
            begin(&mut agent, Moment::Requested);
            let query = ask(&mut agent, expectation.clone());
            begin(&mut agent, Moment::Queried);
            // A query is answered with a status, never with "done": it stays under way.
            let is_query = matches!(&token, Some((_, Request::Domain(_))));
            let outcome = outcome.filter(|outcome| !is_query || outcome.is_err());
            if let (Some((token, _)), Some(result)) = (token, outcome) {
                agent.step(Event::DriverDone { token, result });
            }
            let reported = tell(&mut agent, query, &all, &[]);
            assert_eq!(reports_unknown(&reported), fenced || is_over, "{what}");
            cases += 1;
        }
    }
    assert_eq!(cases, 8 * 4 * 3 * 2);
    assert!(over <= 3 * 4 * 2, "{over}");
    // Nothing works on it: it is reported, and stays so while a call works on it.
    let mut agent = agent(all.to_vec());
    tick(&mut agent, 1_000);
    let query = ask(&mut agent, Expectation::default());
    let reported = tell(&mut agent, query, &all, &[]);
    let [Effect::Report(comparison)] = &reported[..] else {
        panic!("{reported:?}");
    };
    let recorded = Expectation {
        unknown: comparison.unknown.clone(),
        ..Expectation::default()
    };
    let (token, _) = call_under_way(&mut agent, &guest, Call::DestroyVm).unwrap();
    tick(&mut agent, 11_000);
    let query = ask(&mut agent, recorded.clone());
    assert_eq!(tell(&mut agent, query, &all, &[]), [], "it is recorded");
    // Once it is gone, that is compared at once.
    assert!(!tick(&mut agent, 12_000).contains(&Effect::Expect));
    let result = Ok(Answer::Done);
    agent.step(Event::DriverDone { token, result });
    assert!(tick(&mut agent, 12_001).contains(&Effect::Expect));
    let query = ask(&mut agent, recorded);
    let reported = tell(&mut agent, query, &[], &[]);
    let [Effect::Report(comparison)] = &reported[..] else {
        panic!("{reported:?}");
    };
    assert_eq!(comparison.unknown, []);
}

/// Goal: a driver that does not answer makes no guest missing.
#[test]
fn silence_is_not_absence() {
    let mut agent = agent(vec![known(1, DomainState::Running)]);
    let expectation = Expectation {
        expected: vec![expected(1)],
        ..Expectation::default()
    };
    let token = ask(&mut agent, expectation);
    let result = Err(berth_driver::Error::Unreachable {
        message: "libvirtd is down".to_owned(),
    });
    assert_eq!(agent.step(Event::DriverDone { token, result }), []);
    assert_eq!(agent.domains().count(), 1);
}

/// Goal: a fenced host stops exactly what the scheduler names by its claim, then says that it is
/// clean. Method: two guests, one of another claim than is named.
#[test]
fn what_a_fenced_host_lost_is_stopped() {
    let all = [
        known(1, DomainState::Running),
        known(2, DomainState::Running),
    ];
    let mut agent = agent(all.to_vec());
    let lost = |claim: u128, number: u128| {
        (
            VmUid(Uuid::from_u128(number)),
            Some(ClaimId(Uuid::from_u128(claim))),
        )
    };
    let expectation = Expectation {
        expected: vec![expected(2)],
        lost: vec![lost(101, 1), lost(999, 2)],
        fenced: true,
        ..Expectation::default()
    };
    let token = ask(&mut agent, expectation.clone());
    let effects = tell(&mut agent, token, &all, &[]);
    let [Effect::Driver { token, request }, Effect::Report(told)] = &effects[..] else {
        panic!("{effects:?}");
    };
    let (uid, claim) = lost(101, 1);
    assert_eq!(*request, Request::Evict(uid, claim));
    assert_eq!(told.unknown.len(), 1);
    let result = Ok(Answer::Done);
    agent.step(Event::DriverDone {
        token: *token,
        result,
    });
    assert_eq!(agent.domains().count(), 1);
    let token = ask(
        &mut agent,
        Expectation {
            lost: Vec::new(),
            ..expectation
        },
    );
    let effects = tell(&mut agent, token, &all[1..], &[]);
    let [Effect::Report(told)] = &effects[..] else {
        panic!("{effects:?}");
    };
    assert_eq!((told.unknown.len(), told.findings.len()), (0, 0));
}

/// Goal: an agent that is not heard starts nothing new, and does everything else; heard again, it
/// starts again. The lease counts from when the report was sent.
#[test]
fn who_is_cut_off_starts_nothing() {
    let mut agent = agent(Vec::new());
    let host = HostName::new("h1").unwrap();
    let mut calls = 0;
    let mut call = |agent: &mut Agent, number: u128, call: fn(&Guest, &HostName) -> Call| {
        calls += 1;
        let guest = Guest::new(&format!("vm{number}"), number, sample::plain_spec(1));
        let fence = Fence {
            vm: guest.uid,
            operation: OperationId(Uuid::from_u128(calls)),
            epoch: Epoch(1),
            incarnation: Incarnation(Uuid::nil()),
            attempt: 0,
        };
        let id = CallId(u64::try_from(calls).unwrap());
        let call = call(&guest, &host);
        let effects = agent.step(Event::Call { id, fence, call });
        effects.into_iter().find_map(|effect| match effect {
            Effect::Reply { result, .. } => Some(result.map_err(|refusal| refusal.reason)),
            Effect::Driver { .. }
            | Effect::Expect
            | Effect::Report(_)
            | Effect::ReportGuests(..)
            | Effect::ReportErasures(_)
            | Effect::Watchdog(_) => None,
        })
    };
    let spawn = |guest: &Guest, host: &HostName| guest.spawn_call(host, Assignment::default());
    let refused = Some(Err("AGENT_CUT_OFF".to_owned()));
    tick(&mut agent, 1_000_000);
    assert_eq!(call(&mut agent, 1, spawn), None, "never heard: as it was");
    let sent_at = TimeMs(1_000_000);
    let lease_ms = LEASE_MS;
    agent.step(Event::HeartbeatAcknowledged { sent_at, lease_ms });
    tick(&mut agent, 1_000_000 + LEASE_MS);
    assert_eq!(call(&mut agent, 2, spawn), None);
    tick(&mut agent, 1_000_001 + LEASE_MS);
    assert_eq!(call(&mut agent, 3, spawn), refused);
    assert_eq!(
        call(&mut agent, 4, |_, _| Call::GetDomain),
        None,
        "it is asked"
    );
    assert_eq!(
        call(&mut agent, 4, |_, _| Call::DestroyVm),
        None,
        "it is done"
    );
    let sent_at = TimeMs(1_000_000 + LEASE_MS);
    agent.step(Event::HeartbeatAcknowledged { sent_at, lease_ms });
    assert_eq!(call(&mut agent, 5, spawn), None);
}
