//! Starting and taking away: once, twice, at the same time, with an unknown outcome.

use berth_domain::agent::{Call, DomainState, Reply};
use berth_domain::flavor::VCPUS_MAX;
use berth_domain::instance::PageSize;
use berth_domain::name::NetworkName;
use berth_domain::network::{NetworkAttachment, NetworkLink};
use berth_domain::numa::Assignment;
use berth_domain::refusal::Code;
use berth_domain::vm::Nic;
use berth_driver::Kind;
use berth_driver::conformance::sample;
use berth_driver::sim::Behaviour;

use super::rig::{Guest, Rig, bridge_of, host};

fn pinned() -> Guest {
    Guest::new("a", 1, sample::pinned_spec(2, PageSize::Unspecified))
}

fn on_1_and_2() -> Assignment {
    sample::pins(0, &[1, 2], None)
}

#[test]
fn a_guest_starts_once_however_often_it_is_asked_for() {
    let (mut rig, h1, guest) = (Rig::new(&[2]), host("h1"), pinned());
    let call = guest.spawn_call(&h1, on_1_and_2());
    let first = rig.begin(&h1, &guest, call.clone());
    let second = rig.begin(&h1, &guest, call);
    assert_eq!(rig.state(&h1, &guest), DomainState::Running);
    assert_eq!(rig.answer(first), Ok(Reply::Done));
    assert_eq!(rig.answer(second), Ok(Reply::Done));
    assert_eq!(rig.spawn(&h1, &guest, on_1_and_2()), Ok(Reply::Done));
    let status = rig.status(&h1, &guest);
    assert_eq!(status.claim, Some(guest.claim(&h1, on_1_and_2()).id));
    assert_eq!(status.epoch, Some(guest.epoch));
}

/// Whoever reaches the agent could ask for something whose size alone would end it.
#[test]
fn guests_beyond_all_bounds_are_refused() {
    let (mut rig, h1) = (Rig::new(&[2]), host("h1"));
    let with = |vcpus: u32, bridge: &str| {
        let mut guest = Guest::new("a", 1, sample::plain_spec(1));
        guest.spec.flavor.vcpus = vcpus;
        guest.spec.nics = vec![Nic {
            network: None,
            bridge: bridge.to_owned(),
            mac: "52:54:00:00:00:01".to_owned(),
        }];
        guest
    };
    for (vcpus, bridge, told) in [
        (0, "br0", "0 vCPUs are not from 1 to"),
        (VCPUS_MAX + 1, "br0", "vCPUs are not from 1 to"),
        (u32::MAX, "br0", "4294967295 vCPUs are not from 1 to"),
        (1, "../br0", "\"../br0\" is not the name of a bridge"),
    ] {
        let guest = with(vcpus, bridge);
        let refused = rig.spawn(&h1, &guest, Assignment::default()).unwrap_err();
        assert_eq!(refused.code, Code::InvalidArgument);
        assert_eq!(refused.reason, "INVALID_VM");
        assert!(refused.message.contains(told), "{refused}");
        assert_eq!(rig.state(&h1, &guest), DomainState::Absent);
    }
    let attachment = |vlan| NetworkAttachment {
        name: NetworkName::new("web").unwrap(),
        link: NetworkLink {
            physical_network: bridge_of(&h1).physical_network,
            vlan: Some(vlan),
            mtu: None,
        },
    };
    for (bridge, vlan, message) in [
        (
            "br0",
            7,
            "an interface on a network names bridge \"br0\", too",
        ),
        ("", 4095, "network web: vlan = \"4095\": must be 1 to 4094"),
    ] {
        let mut guest = with(1, bridge);
        guest.spec.nics[0].network = Some(attachment(vlan));
        let refused = rig.spawn(&h1, &guest, Assignment::default()).unwrap_err();
        assert_eq!(refused.reason, "INVALID_VM");
        assert_eq!(refused.message, message);
    }
    let guest = with(1, "br0");
    rig.spawn(&h1, &guest, Assignment::default()).unwrap();
}

#[test]
fn while_it_starts_the_guest_is_starting() {
    let (mut rig, h1, guest) = (Rig::new(&[2]), host("h1"), pinned());
    rig.world
        .script(&h1, Kind::Create, [Behaviour::Late { by_ms: 500 }]);
    let id = rig.begin(&h1, &guest, guest.spawn_call(&h1, on_1_and_2()));
    assert_eq!(rig.state(&h1, &guest), DomainState::Starting);
    assert!(rig.answered(id).is_none());
    assert_eq!(rig.answer(id), Ok(Reply::Done));
    assert_eq!(rig.state(&h1, &guest), DomainState::Running);
}

/// The claim is checked against what really runs here, whoever made it.
#[test]
fn a_claim_that_is_not_free_or_not_here_is_refused() {
    let (mut rig, h1) = (Rig::new(&[2, 2]), host("h1"));
    let (a, b) = (
        pinned(),
        Guest::new("b", 2, sample::pinned_spec(1, PageSize::Unspecified)),
    );
    rig.spawn(&h1, &a, on_1_and_2()).unwrap();
    let refused = rig.spawn(&h1, &b, sample::pins(0, &[2], None)).unwrap_err();
    assert_eq!(refused.reason, "DOES_NOT_FIT");
    assert_eq!(refused.hosts[0].cause, "CPUS_TAKEN");
    let refused = rig.spawn(&h1, &b, sample::pins(0, &[0], None)).unwrap_err();
    assert_eq!(refused.hosts[0].cause, "ASSIGNMENT_MISMATCH");
    let elsewhere = b.spawn_call(&host("h2"), sample::pins(0, &[3], None));
    let refused = rig.call(&h1, &b, elsewhere).unwrap_err();
    assert_eq!(refused.reason, "WRONG_HOST");
    assert_eq!(rig.state(&h1, &b), DomainState::Absent);
    rig.spawn(&h1, &b, sample::pins(0, &[3], None)).unwrap();
}

#[test]
fn what_the_hypervisor_refuses_holds_nothing() {
    let (mut rig, h1, guest) = (Rig::new(&[2]), host("h1"), pinned());
    let refuse = Behaviour::Refuse("no such kernel".to_owned());
    rig.world.script(&h1, Kind::Create, [refuse]);
    let refused = rig.spawn(&h1, &guest, on_1_and_2()).unwrap_err();
    assert_eq!(
        (refused.code, refused.reason.as_str()),
        (Code::FailedPrecondition, "HYPERVISOR_REFUSED")
    );
    assert!(refused.message.contains("no such kernel"));
    let other = Guest::new("b", 2, guest.spec.clone());
    rig.spawn(&h1, &other, on_1_and_2()).unwrap();
}

/// An unknown outcome keeps the claim's CPUs taken, and is cleared up by asking again.
#[test]
fn an_unknown_outcome_is_said_and_cleared_up_by_repeating() {
    for effect in [true, false] {
        for behaviour in [Behaviour::Gone { effect }, Behaviour::TimeOut { effect }] {
            let (mut rig, h1, guest) = (Rig::new(&[2]), host("h1"), pinned());
            rig.world.script(&h1, Kind::Create, [behaviour.clone()]);
            let unknown = rig.spawn(&h1, &guest, on_1_and_2()).unwrap_err();
            assert!(
                matches!(unknown.code, Code::Unavailable | Code::DeadlineExceeded),
                "{behaviour:?}"
            );
            let other = Guest::new("b", 2, guest.spec.clone());
            assert!(rig.spawn(&h1, &other, on_1_and_2()).is_err());
            let seen = rig.state(&h1, &guest);
            let expected = if effect {
                DomainState::Running
            } else {
                DomainState::Absent
            };
            assert_eq!(seen, expected);
            rig.spawn(&h1, &guest, on_1_and_2()).unwrap();
            assert_eq!(rig.state(&h1, &guest), DomainState::Running);
        }
    }
}

#[test]
fn repeated_and_late_answers_of_the_driver_change_nothing() {
    let (mut rig, h1, guest) = (Rig::new(&[2]), host("h1"), pinned());
    rig.world.script(&h1, Kind::Create, [Behaviour::Repeat]);
    rig.spawn(&h1, &guest, on_1_and_2()).unwrap();
    let late = Behaviour::LateAnswer { by_ms: 1_000 };
    rig.world.script(&h1, Kind::Destroy, [late]);
    let destroy = rig.begin(&h1, &guest, Call::DestroyVm);
    let again = rig.begin(&h1, &guest, Call::DestroyVm);
    assert_eq!(rig.answer(destroy), Ok(Reply::Done));
    assert_eq!(rig.answer(again), Ok(Reply::Done));
    assert_eq!(rig.state(&h1, &guest), DomainState::Absent);
}

/// A question that the hypervisor answered before a start, heard after it, must not count.
#[test]
fn an_old_answer_about_a_guest_does_not_make_it_forgotten() {
    let (mut rig, h1, guest) = (Rig::new(&[2]), host("h1"), pinned());
    let late = Behaviour::LateAnswer { by_ms: 300 };
    rig.world.script(&h1, Kind::Domain, [late]);
    let question = rig.begin(&h1, &guest, Call::GetDomain);
    rig.spawn(&h1, &guest, on_1_and_2()).unwrap();
    assert!(rig.answered(question).is_none());
    let Reply::Domain(status) = rig.answer(question).unwrap() else {
        panic!("a question")
    };
    assert_eq!(status.state, DomainState::Running);
    let other = Guest::new("b", 2, guest.spec.clone());
    assert!(rig.spawn(&h1, &other, on_1_and_2()).is_err(), "still taken");
}

#[test]
fn a_guest_that_vanished_gives_its_cpus_back_once_that_is_seen() {
    let (mut rig, h1, guest) = (Rig::new(&[2]), host("h1"), pinned());
    rig.spawn(&h1, &guest, on_1_and_2()).unwrap();
    let now = rig.now;
    rig.world.crash_guest(now, &h1, guest.uid);
    assert_eq!(rig.state(&h1, &guest), DomainState::Stopped);
    rig.world.crash_host(now, &h1);
    assert_eq!(rig.state(&h1, &guest), DomainState::Absent);
    let other = Guest::new("b", 2, guest.spec.clone());
    rig.spawn(&h1, &other, on_1_and_2()).unwrap();
}
