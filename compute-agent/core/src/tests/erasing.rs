//! Erasing what guests have left: what was asked, what was told meanwhile, and on which device.

use super::rig::host;
use crate::{Agent, CallId, Effect, Event, Expectation, Facts};
use berth_domain::agent::{Call, DomainState, Fence};
use berth_domain::claim::{Claim, Owner, State};
use berth_domain::id::{ClaimId, Epoch, Incarnation, OperationId, TimeMs, VmUid};
use berth_domain::migration_tls::TlsPolicy;
use berth_domain::name::{PmemName, VmName};
use berth_domain::numa::Assignment;
use berth_domain::pmem::{Label, PmemDevice, PmemNamespace};
use berth_domain::version::ServiceVersion;
use berth_driver::conformance::sample;
use berth_driver::{Answer, DomainSpec, Known, Request};
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

fn ns(name: &str, path: &str) -> PmemNamespace {
    PmemNamespace {
        name: PmemName::new(name).unwrap(),
        class: Label::parse("SMALL").unwrap().class(),
        size_bytes: 1 << 30,
        align_bytes: 2 << 20,
        path: path.to_owned(),
        cell: None,
        region: String::new(),
        trouble: String::new(),
    }
}
fn agent(compare_ms: u64) -> Agent {
    let topology = (*sample::host(2)).clone();
    let topology = topology
        .with_pmem(vec![ns("ns0", "/dev/dax0.0"), ns("ns1", "/dev/dax1.0")])
        .unwrap();
    let facts = Facts {
        bridges: Vec::new(),
        host: host("h1"),
        incarnation: Incarnation(Uuid::from_u128(1)),
        version: ServiceVersion::CURRENT,
        driver: "sim".to_owned(),
        migration_uri: "x".into(),
        storage_id: "shared".to_owned(),
        tls: TlsPolicy::Off,
        topology: Arc::new(topology),
        transfer_ms_max: 60_000,
        compare_ms,
    };
    Agent::new(facts, Vec::new())
}
fn claim_id(n: u128) -> ClaimId {
    ClaimId(Uuid::from_u128(n))
}
fn device(name: &str, path: &str) -> PmemDevice {
    PmemDevice::from(&ns(name, path))
}
fn domain(n: u128, d: PmemDevice) -> DomainSpec {
    DomainSpec {
        bridges: Vec::new(),
        vm: VmName::new("a").unwrap(),
        uid: VmUid(Uuid::from_u128(n)),
        spec: sample::plain_spec(1),
        claim: Some(claim_id(n)),
        epoch: Epoch(1),
        assignment: Assignment {
            pmem: vec![d],
            ..Assignment::default()
        },
        shared_cpus: Default::default(),
        volumes: Vec::new(),
        first_boot: None,
        cpu: None,
    }
}
fn everything(effects: Vec<Effect>) -> berth_driver::Token {
    effects
        .into_iter()
        .find_map(|e| match e {
            Effect::Driver {
                token,
                request: Request::Everything,
            } => Some(token),
            Effect::Driver { .. }
            | Effect::Reply { .. }
            | Effect::Expect
            | Effect::Report(_)
            | Effect::ReportGuests(..)
            | Effect::ReportErasures(_)
            | Effect::Watchdog(_) => None,
        })
        .unwrap()
}
fn expectation(e: Vec<(ClaimId, PmemDevice)>) -> Event {
    Event::Expected(Expectation {
        erasures: e,
        ..Expectation::default()
    })
}

/// Goal: a late word of the leader does not begin what a guest has by now.
#[test]
fn what_a_guest_has_by_now_is_not_erased() {
    let mut a = agent(1000);
    a.step(Event::Tick { now: TimeMs(1) });
    let both = vec![
        (claim_id(1), device("ns0", "/dev/dax0.0")),
        (claim_id(2), device("ns1", "/dev/dax1.0")),
    ];
    let token = everything(a.step(expectation(both.clone())));
    a.step(Event::DriverDone {
        token,
        result: Ok(Answer::Everything(vec![], vec![])),
    });
    // The answer is lost; a guest of claim 1 is there at the next comparison.
    let token = everything(a.step(expectation(both)));
    let known = Known {
        domain: domain(1, device("ns0", "/dev/dax0.0")),
        state: DomainState::Running,
    };
    a.step(Event::DriverDone {
        token,
        result: Ok(Answer::Everything(vec![known], vec![])),
    });
    let due = vec![
        (claim_id(1), PmemName::new("ns0").unwrap()),
        (claim_id(2), PmemName::new("ns1").unwrap()),
    ];
    let e = a.step(Event::ErasuresDue(due));
    let erased: Vec<String> = e
        .iter()
        .filter_map(|e| match e {
            Effect::Driver {
                request: Request::Erase(d),
                ..
            } => Some(d[0].name.to_string()),
            Effect::Driver { .. }
            | Effect::Reply { .. }
            | Effect::Expect
            | Effect::Report(_)
            | Effect::ReportGuests(..)
            | Effect::ReportErasures(_)
            | Effect::Watchdog(_) => None,
        })
        .collect();
    assert_eq!(erased, ["ns1"], "ns0 is held by a running guest");
}

/// Goal: a guest starts on the device that its namespace has now, not on that of when it was given.
#[test]
fn a_guest_starts_on_the_device_of_today() {
    let mut a = agent(1000);
    a.step(Event::Tick { now: TimeMs(1) });
    // The host was started anew, and its devices are numbered the other way round.
    a.step(Event::Namespaces(vec![
        ns("ns0", "/dev/dax1.0"),
        ns("ns1", "/dev/dax0.0"),
    ]));
    let mut spec = sample::plain_spec(1);
    let extra: BTreeMap<_, _> = [("hw:pmem".to_owned(), "SMALL".to_owned())].into();
    spec.flavor.extra_specs.extend(extra);
    let claim = Claim {
        id: claim_id(7),
        vm: VmName::new("a").unwrap(),
        owner: Owner::Vm,
        host: host("h1"),
        state: State::Active,
        resources: BTreeMap::new(),
        assignment: Assignment {
            pmem: vec![device("ns0", "/dev/dax0.0")],
            ..Assignment::default()
        },
        erasures: BTreeMap::new(),
        cpu: None,
    };
    let fence = Fence {
        vm: VmUid(Uuid::from_u128(7)),
        operation: OperationId(Uuid::from_u128(8)),
        epoch: Epoch(1),
        incarnation: Incarnation(Uuid::from_u128(1)),
        attempt: 0,
    };
    let call = Call::StartVm {
        vm: claim.vm.clone(),
        spec,
        claim,
    };
    let e = a.step(Event::Call {
        id: CallId(1),
        fence,
        call,
    });
    let path = e.iter().find_map(|e| match e {
        Effect::Driver {
            request: Request::Start(d),
            ..
        } => Some(d.assignment.pmem[0].path.clone()),
        Effect::Driver { .. }
        | Effect::Reply { .. }
        | Effect::Expect
        | Effect::Report(_)
        | Effect::ReportGuests(..)
        | Effect::ReportErasures(_)
        | Effect::Watchdog(_) => None,
    });
    assert_eq!(path.as_deref(), Some("/dev/dax1.0"), "{e:?}");
}

/// Goal: what the leader does not want erased any more keeps no guest from starting.
#[test]
fn what_is_not_due_any_more_is_free() {
    let mut a = agent(1000);
    a.step(Event::Tick { now: TimeMs(1) });
    let token = everything(a.step(expectation(vec![(
        claim_id(1),
        device("ns0", "/dev/dax0.0"),
    )])));
    a.step(Event::DriverDone {
        token,
        result: Ok(Answer::Everything(vec![], vec![])),
    });
    // The leader: nothing is to be erased here.
    a.step(Event::ErasuresDue(vec![]));
    let taken = a.taken_by_others(VmUid(Uuid::from_u128(9)));
    assert!(
        taken.pmem.is_empty(),
        "the leader has said that it is not to be erased"
    );
}
