//! What agents find on their hosts.

use berth_domain::fence::Method;
use berth_domain::host::Liveness;
use berth_domain::id::{ClaimId, Incarnation};
use berth_domain::numa::Assignment;
use berth_domain::reality::{Absence, Comparison, Finding, UNKNOWN_MAX, Unknown};
use berth_domain::refusal::Refusal;
use berth_domain::vm::Vm;
use berth_state::command::Command;
use berth_testkit::state::*;
use uuid::Uuid;

fn vm(world: &World, name: &str) -> Vm {
    (**world.state.vm(&vm_name(name)).unwrap()).clone()
}

fn finding(world: &World, name: &str, absence: Option<Absence>) -> Finding {
    let vm = vm(world, name);
    Finding {
        vm: vm.name,
        claim: vm.claim.unwrap(),
        generation: vm.generation,
        absence,
    }
}

fn note(world: &mut World, comparison: Comparison) -> Result<(), Refusal> {
    let incarnation = world.view("h1").host.report.incarnation;
    let note = Command::NoteReality {
        host: host_name("h1"),
        incarnation,
        comparison,
    };
    world.run(note).map(drop)
}

fn found(world: &World, findings: Vec<Finding>) -> Comparison {
    Comparison {
        basis: world.index,
        unknown: Vec::new(),
        findings,
    }
}

fn absence(world: &World, name: &str) -> Option<Absence> {
    vm(world, name).trouble.map(|trouble| trouble.absence)
}

fn unknown(number: u64, claim: Option<ClaimId>, held: Assignment) -> Unknown {
    Unknown {
        uuid: uuid(7, number),
        name: format!("guest{number}"),
        is_ours: claim.is_some(),
        claim,
        held,
    }
}

/// Goal: a guest that does not run marks its VM, and one that runs again clears the mark.
#[test]
fn a_guest_that_does_not_run_is_marked() {
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    for mark in [Some(Absence::Missing), Some(Absence::Stopped), None] {
        let findings = vec![finding(&world, "a", mark)];
        let comparison = found(&world, findings);
        note(&mut world, comparison).unwrap();
        assert_eq!(absence(&world, "a"), mark);
    }
}

/// Goal: a comparison that is out of date marks nobody. Method: the VM moves, or is worked on,
/// between the reading and the report; also away and back.
#[test]
fn what_is_out_of_date_marks_nobody() {
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    let read = finding(&world, "a", Some(Absence::Missing));
    let leaving = world.begin_migration("a", "h2").unwrap();
    for event in [None, Some(berth_domain::migration::Event::Stayed)] {
        if let Some(event) = event {
            world.transfer(leaving);
            world.settle(leaving, event).unwrap();
        }
        let comparison = found(&world, vec![read.clone()]);
        note(&mut world, comparison).unwrap();
        assert_eq!(absence(&world, "a"), None, "{event:?}");
    }
    // It is marked when it is read anew.
    let comparison = found(&world, vec![finding(&world, "a", Some(Absence::Missing))]);
    note(&mut world, comparison.clone()).unwrap();
    assert_eq!(absence(&world, "a"), Some(Absence::Missing));
    // Said twice, it changes nothing.
    let before = vm(&world, "a");
    note(&mut world, comparison).unwrap();
    assert_eq!(vm(&world, "a"), before);
    // Being worked on ends the mark.
    world.begin_migration("a", "h2").unwrap();
    assert_eq!(absence(&world, "a"), None);
}

#[test]
fn another_run_of_the_agent_is_not_heard() {
    let mut world = World::with_hosts(1);
    let stale = Command::NoteReality {
        host: host_name("h1"),
        incarnation: Incarnation(uuid(9, 77)),
        comparison: Comparison::default(),
    };
    assert_eq!(world.run(stale).unwrap_err().reason, "STALE_INCARNATION");
    let mut far = found(&world, Vec::new());
    far.unknown = vec![unknown(1, None, Assignment::default())];
    note(&mut world, far.clone()).unwrap();
    far.basis -= 1;
    let refused = note(&mut world, far.clone()).unwrap_err();
    assert_eq!(refused.reason, "STALE_COMPARISON");
    far.basis = world.index;
    far.unknown = vec![unknown(1, None, Assignment::default()); UNKNOWN_MAX + 1];
    let refused = note(&mut world, far).unwrap_err();
    assert_eq!(refused.reason, "INVALID_COMPARISON");
}

/// Goal: what an unknown guest holds is given to nobody, and the refusal says who holds it.
/// Method: the guest of a VM that is then gone from the books while it runs on.
#[test]
fn what_an_unknown_guest_holds_is_not_given_away() {
    let mut world = World::with_hosts(1);
    world.register("h1", report(topology(1, 3, 1))).unwrap();
    let held = world.claim("x", &pinned(2), "h1", berth_domain::claim::Owner::Vm);
    let mut comparison = found(&world, Vec::new());
    comparison.unknown = vec![
        unknown(1, Some(held.id), held.assignment.clone()),
        unknown(2, None, Assignment::default()),
    ];
    note(&mut world, comparison).unwrap();
    let refused = world.begin_boot("a", &pinned(2), "h1").unwrap_err();
    let why = berth_domain::constraint::PreparedDemand::new(
        &berth_domain::constraint::Demand::boot(&pinned(2)).unwrap(),
    )
    .place(world.view("h1"), berth_domain::numa::Strategy::Spread)
    .unwrap_err();
    assert_eq!(refused.code, berth_domain::refusal::Code::ResourceExhausted);
    assert_eq!(why.cause(), "HELD_BY_UNKNOWN_GUEST");
    assert_eq!(
        why.to_string(),
        "CPUs 0-1 are held by unknown guest guest1, for which there is no claim"
    );
    world.boot("b", &pinned(1), "h1");
    assert_eq!(world.pins("b"), [2]);
    // It is gone.
    let gone = found(&world, Vec::new());
    note(&mut world, gone).unwrap();
    world.boot("a", &pinned(2), "h1");
}

/// Goal: a guest whose VM has a claim here is never unknown, however late the report is.
#[test]
fn a_guest_that_was_booted_meanwhile_is_not_unknown() {
    let mut world = World::with_hosts(1);
    let basis = world.index;
    world.boot("a", &pinned(1), "h1");
    let vm = vm(&world, "a");
    let domain = Unknown {
        uuid: vm.uid.0,
        claim: vm.claim,
        ..unknown(1, vm.claim, Assignment::default())
    };
    let other = Unknown {
        claim: Some(ClaimId(Uuid::nil())),
        ..domain.clone()
    };
    for (told, kept) in [(domain, 0), (other, 1)] {
        let comparison = Comparison {
            basis: basis.max(world.view("h1").host.compared),
            unknown: vec![told],
            findings: Vec::new(),
        };
        note(&mut world, comparison).unwrap();
        assert_eq!(world.view("h1").host.unknown.len(), kept);
    }
}

/// Goal: a fence is lifted once the host is heard of and has none of the guests that it lost; these
/// are named to its agent.
#[test]
fn a_fence_is_lifted_when_the_host_is_clean() {
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    let lost = vm(&world, "a").claim.unwrap();
    let domain = Unknown {
        uuid: vm(&world, "a").uid.0,
        ..unknown(
            1,
            Some(lost),
            world.state.claim(lost).unwrap().assignment.clone(),
        )
    };
    let leaving = world.begin_migration("a", "h2").unwrap();
    world.transfer(leaving);
    let fence = Command::FenceHost {
        host: host_name("h1"),
        method: Method::FenceCommand,
        by: String::new(),
        output: String::new(),
        incarnation: world.view("h1").host.report.incarnation,
    };
    world.run(fence).unwrap();
    let clean = found(&world, Vec::new());
    note(&mut world, clean).unwrap();
    assert!(world.view("h1").host.fenced.is_some(), "it is not heard of");
    let host = host_name("h1");
    let liveness = Liveness::Up;
    world.run(Command::SetLiveness { host, liveness }).unwrap();
    let clean = found(&world, Vec::new());
    note(&mut world, clean).unwrap();
    assert!(
        world.view("h1").host.fenced.is_some(),
        "its vm is worked on"
    );
    world
        .settle(leaving, berth_domain::migration::Event::Arrived)
        .unwrap();

    let mut dirty = found(&world, Vec::new());
    dirty.unknown = vec![domain.clone(), unknown(2, None, Assignment::default())];
    note(&mut world, dirty).unwrap();
    let host = world.view("h1").host.clone();
    assert!(host.fenced.is_some());
    assert_eq!(
        world.state.lost_of(&host),
        [(berth_domain::id::VmUid(domain.uuid), Some(lost))]
    );
    // What Berth did not make does not keep it.
    let mut clean = found(&world, Vec::new());
    clean.unknown = vec![unknown(2, None, Assignment::default())];
    note(&mut world, clean).unwrap();
    assert_eq!(world.view("h1").host.fenced, None);
    world.boot("b", &pinned(1), "h1");
}

/// Goal: what was compared before a guest was evacuated does not say that the host is rid of it. Method:
/// every moment at which the expectation can have been read, with the guest still there.
#[test]
fn an_earlier_comparison_lifts_no_fence() {
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    let mut earlier = vec![found(&world, Vec::new())];
    let leaving = world.begin_migration("a", "h2").unwrap();
    world.transfer(leaving);
    earlier.push(found(&world, Vec::new()));
    let fence = Command::FenceHost {
        host: host_name("h1"),
        method: Method::FenceCommand,
        by: String::new(),
        output: String::new(),
        incarnation: world.view("h1").host.report.incarnation,
    };
    world.run(fence).unwrap();
    earlier.push(found(&world, Vec::new()));
    let host = host_name("h1");
    let liveness = Liveness::Up;
    world.run(Command::SetLiveness { host, liveness }).unwrap();
    earlier.push(found(&world, Vec::new()));
    world
        .settle(leaving, berth_domain::migration::Event::Arrived)
        .unwrap();
    for comparison in earlier {
        let refused = note(&mut world, comparison).unwrap_err();
        assert_eq!(refused.reason, "STALE_COMPARISON");
        assert!(world.view("h1").host.fenced.is_some());
    }
    let clean = found(&world, Vec::new());
    // One that is ahead would void all honest ones that follow.
    let ahead = Comparison {
        basis: clean.basis + (1 << 40),
        unknown: vec![unknown(3, None, Assignment::default())],
        ..clean.clone()
    };
    let refused = note(&mut world, ahead).unwrap_err();
    assert_eq!(refused.reason, "INVALID_COMPARISON");
    note(&mut world, clean).unwrap();
    assert_eq!(world.view("h1").host.fenced, None);
}

/// Goal: a host that was removed with its fence and is back does not keep the guests that were started
/// elsewhere meanwhile; and a domain is named for that reason only, with its claim.
/// Method: VM `a` left h1 and rests on h2; what h1 reports differs in one thing each time.
#[test]
fn a_guest_that_was_started_elsewhere_is_lost_without_a_fence() {
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    let before = vm(&world, "a");
    let leaving = world.begin_migration("a", "h2").unwrap();
    let domain = Unknown {
        uuid: before.uid.0,
        name: "a".to_owned(),
        ..unknown(1, before.claim, Assignment::default())
    };
    let report = |world: &mut World, domain: &Unknown| {
        let mut comparison = found(world, Vec::new());
        comparison.unknown = vec![domain.clone()];
        note(world, comparison).unwrap();
        world.state.lost_of(&world.view("h1").host)
    };
    assert_eq!(report(&mut world, &domain), [], "it is being moved");
    world.transfer(leaving);
    world
        .settle(leaving, berth_domain::migration::Event::Arrived)
        .unwrap();
    assert_eq!(vm(&world, "a").host, Some(host_name("h2")));
    let lost = (berth_domain::id::VmUid(domain.uuid), before.claim);
    for (what, other) in [
        (
            "another life",
            Unknown {
                uuid: Uuid::from_u128(7),
                ..domain.clone()
            },
        ),
        (
            "no VM",
            Unknown {
                name: "nowhere".to_owned(),
                ..domain.clone()
            },
        ),
        (
            "no claim",
            Unknown {
                claim: None,
                ..domain.clone()
            },
        ),
        (
            "not ours",
            Unknown {
                is_ours: false,
                ..domain.clone()
            },
        ),
    ] {
        assert_eq!(report(&mut world, &other), [], "{what}");
    }
    assert_eq!(report(&mut world, &domain), [lost]);
    let back = world.begin_migration("a", "h1").unwrap();
    assert_eq!(
        world.state.lost_of(&world.view("h1").host),
        [],
        "it comes back"
    );
    world.transfer(back);
    world
        .settle(back, berth_domain::migration::Event::Arrived)
        .unwrap();
    assert_eq!(
        world.state.lost_of(&world.view("h1").host),
        [],
        "it is back"
    );
}
