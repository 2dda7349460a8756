//! What an agent compares, and what it does not do while it is cut off.

use berth_domain::agent::{Call, DomainState, Fence};
use berth_domain::id::{ClaimId, Epoch, Generation, Incarnation, OperationId, TimeMs, VmUid};
use berth_domain::name::{HostName, VmName};
use berth_domain::numa::Assignment;
use berth_domain::reality::{Absence, Comparison, Expected};
use berth_domain::version::ServiceVersion;
use berth_driver::conformance::sample;
use berth_driver::{Answer, Known, Other, Request, Token};
use uuid::Uuid;

use super::rig::Guest;
use crate::core::{Agent, CallId, Effect, Event, Expectation, Facts};

const LEASE_MS: u64 = 15_000;

fn agent(known: Vec<Known>) -> Agent {
    Agent::new(
        Facts {
            host: HostName::new("h1").unwrap(),
            incarnation: Incarnation(Uuid::nil()),
            version: ServiceVersion::CURRENT,
            driver: "sim".to_owned(),
            migration_uri: "sim://h1".to_owned(),
            storage_id: "shared".to_owned(),
            topology: sample::host(2),
            transfer_ms_max: 60_000,
            compare_ms: 10_000,
        },
        known,
    )
}

fn known(number: u128, state: DomainState) -> Known {
    let guest = Guest::new(&format!("vm{number}"), number, sample::plain_spec(1));
    Known {
        domain: berth_driver::DomainSpec {
            vm: guest.vm.clone(),
            uid: guest.uid,
            spec: guest.spec.clone(),
            claim: Some(ClaimId(Uuid::from_u128(100 + number))),
            epoch: Epoch(1),
            assignment: Assignment::default(),
            shared_cpus: Default::default(),
            volumes: Vec::new(),
        },
        state,
    }
}

fn expected(number: u128) -> Expected {
    Expected {
        vm: VmName::new(&format!("vm{number}")).unwrap(),
        uid: VmUid(Uuid::from_u128(number)),
        claim: ClaimId(Uuid::from_u128(100 + number)),
        generation: Generation(3),
        is_settled: true,
        recorded: None,
    }
}

fn tick(agent: &mut Agent, now: u64) -> Vec<Effect> {
    agent.step(Event::Tick { now: TimeMs(now) })
}

/// Brings the expectation, and returns the token under which the driver is asked.
fn ask(agent: &mut Agent, expectation: Expectation) -> Token {
    let effects = agent.step(Event::Expected(expectation));
    let [Effect::Driver { token, request }] = &effects[..] else {
        panic!("{effects:?}");
    };
    assert_eq!(*request, Request::Everything);
    *token
}

fn tell(agent: &mut Agent, token: Token, known: &[Known], others: &[Other]) -> Vec<Effect> {
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
    assert_eq!(agent.domains().count(), 0, "it holds nothing any more");
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
        };
        let id = CallId(u64::try_from(calls).unwrap());
        let call = call(&guest, &host);
        let effects = agent.step(Event::Call { id, fence, call });
        effects.into_iter().find_map(|effect| match effect {
            Effect::Reply { result, .. } => Some(result.map_err(|refusal| refusal.reason)),
            Effect::Driver { .. }
            | Effect::Expect
            | Effect::Report(_)
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
