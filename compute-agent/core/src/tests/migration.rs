//! Live migration between two agents: the claim that was fitted is the one that the guest gets,
//! and whatever breaks, it runs on one side.

use berth_domain::agent::{Call, DomainState, FitVerdict, Reply};
use berth_domain::claim::Claim;
use berth_domain::cpu_set::{CpuId, CpuSet};
use berth_domain::flavor::VCPUS_MAX;
use berth_domain::instance::{PageSize, VcpuId};
use berth_domain::name::{HostName, NetworkName, PhysicalNetworkName};
use berth_domain::network::{NetworkAttachment, NetworkLink};
use berth_domain::numa::Assignment;
use berth_domain::refusal::Code;
use berth_domain::vm::Nic;
use berth_driver::conformance::sample;
use berth_driver::sim::Behaviour;
use berth_driver::{Answer, Error, Kind, Request};

use super::rig::{Guest, Rig, bridge_of, host, migration};
use crate::{Effect, Event};

fn pinned() -> Guest {
    Guest::new("a", 1, sample::pinned_spec(2, PageSize::Unspecified))
}

/// Two hosts, `a` on CPUs 1 and 2 of the first, `b` on CPU 1 of the second.
fn rig() -> (Rig, Guest) {
    let mut rig = Rig::new(&[2, 2]);
    let guest = pinned();
    rig.spawn(&host("h1"), &guest, sample::pins(0, &[1, 2], None))
        .unwrap();
    let b = Guest::new("b", 2, sample::pinned_spec(1, PageSize::Unspecified));
    rig.spawn(&host("h2"), &b, sample::pins(0, &[1], None))
        .unwrap();
    (rig, guest.under(77, 2))
}

fn cpus(assignment: &Assignment) -> Vec<u32> {
    assignment.pins().values().map(|c| c.0).collect()
}

#[test]
fn a_guest_moves_and_runs_on_the_cpus_of_its_new_claim() {
    let (mut rig, guest) = rig();
    let (h1, h2) = (host("h1"), host("h2"));
    let data = rig.ready(&h1, &h2, &guest, sample::pins(0, &[3, 2], None));
    let topology = data.numa_topology.as_ref().unwrap();
    assert_eq!(cpus(&topology.assignment), [3, 2]);
    assert_eq!(rig.state(&h2, &guest), DomainState::Prepared);
    assert_eq!(rig.send(&h1, &guest, 1, &data), Ok(Reply::Done));
    assert_eq!(rig.state(&h1, &guest), DomainState::MigratingOut);
    while rig.state(&h2, &guest) != DomainState::Running {}
    rig.settle();
    assert_eq!(rig.state(&h1, &guest), DomainState::Absent);
    let status = rig.status(&h2, &guest);
    assert_eq!(status.claim, data.claim.as_ref().map(|c| c.id));
    assert_eq!(status.epoch, Some(guest.epoch));
    assert_eq!(
        status.vcpu_cpus,
        [(VcpuId(0), 3), (VcpuId(1), 2)].map(|(v, c)| (v, CpuSet::from_iter([CpuId(c)])))
    );
    let post = Call::PostLiveMigrationAtSource {
        migration: migration(1),
    };
    assert_eq!(rig.call(&h1, &guest, post.clone()), Ok(Reply::Done));
    assert_eq!(rig.call(&h1, &guest, post), Ok(Reply::Done));
    // What it held on the source is free for others, and it may come back.
    let c = Guest::new("c", 3, guest.spec.clone());
    rig.spawn(&h1, &c, sample::pins(0, &[1, 2], None)).unwrap();
    let back = guest.under(78, 3);
    let data = rig.ready(&h2, &h1, &back, sample::pins(1, &[5, 6], None));
    rig.send(&h2, &back, 1, &data).unwrap();
    rig.settle();
    assert_eq!(rig.state(&h1, &back), DomainState::Running);
}

/// Goal: a destination whose hypervisor cannot be reached is refused with that reason, before anything is
/// prepared there.
#[test]
fn a_destination_that_cannot_be_reached_is_refused_before_anything_moves() {
    let (mut rig, guest) = rig();
    let (h1, h2) = (host("h1"), host("h2"));
    rig.world.cut(&h1, &h2);
    let refusal = rig.check(&h1, &h2, &guest).unwrap_err();
    assert_eq!(refusal.reason, "PEER_UNREACHABLE");
    assert_eq!(refusal.metadata["host"], "h1");
    assert_eq!(refusal.metadata["migration_uri"], "sim://h2");
    assert_eq!(rig.state(&h1, &guest), DomainState::Running);
    assert_eq!(rig.state(&h2, &guest), DomainState::Absent);
    rig.world.heal(&h1, &h2);
    rig.check(&h1, &h2, &guest).unwrap();
}

/// Goal: a guest on a network is plugged into the bridge of the host that it is on, whatever that is called
/// there, and a host without one refuses it. Method: a boot, a live migration, and a start on each host.
#[test]
fn a_guest_on_a_network_has_the_bridge_of_its_host() {
    let mut rig = Rig::new(&[4, 4]);
    let (h1, h2) = (host("h1"), host("h2"));
    let mut guest = Guest::new("a", 1, sample::pinned_spec(2, PageSize::Unspecified));
    let on = |physical: &str| Nic {
        bridge: String::new(),
        network: Some(NetworkAttachment {
            name: NetworkName::new("web").unwrap(),
            link: NetworkLink {
                physical_network: PhysicalNetworkName::new(physical).unwrap(),
                vlan: Some(7),
                mtu: None,
            },
        }),
        mac: "52:54:00:00:00:01".to_owned(),
    };
    guest.spec.nics = vec![on("elsewhere")];
    let refused = rig.spawn(&h1, &guest, sample::pins(0, &[1, 2], None));
    let refused = refused.unwrap_err();
    assert!(refused.message.contains("elsewhere"), "{refused}");
    assert_eq!(rig.state(&h1, &guest), DomainState::Absent);

    let mut guest = guest.under(77, 2);
    guest.spec.nics = vec![on("physnet1")];
    rig.spawn(&h1, &guest, sample::pins(0, &[1, 2], None))
        .unwrap();
    let bridges = |rig: &Rig, host: &HostName| rig.world.known(host)[0].domain.bridges.clone();
    assert_eq!(bridges(&rig, &h1), [bridge_of(&h1)]);
    let guest = guest.under(78, 3);
    let mut data = rig.check(&h1, &h2, &guest).unwrap();
    // The destination's bridge is another one since it was checked.
    data.destination_bridges[0].bridge = "br-before".to_owned();
    data.claim = Some(guest.claim(&h2, sample::pins(1, &[5, 6], None)));
    let (_, data) = rig.fit(&h2, &guest, data).unwrap();
    assert_eq!(data.destination_bridges, [bridge_of(&h2)]);
    let data = rig.ready(&h1, &h2, &guest, sample::pins(1, &[5, 6], None));
    assert_eq!(data.destination_bridges, [bridge_of(&h2)]);
    rig.send(&h1, &guest, 1, &data).unwrap();
    rig.settle();
    assert_eq!(rig.state(&h2, &guest), DomainState::Running);
    assert_eq!(bridges(&rig, &h2), [bridge_of(&h2)]);
}

#[test]
fn the_destination_confirms_swaps_or_refuses_the_held_claim() {
    let (mut rig, guest) = rig();
    let (h1, h2) = (host("h1"), host("h2"));
    let mut data = rig.check(&h1, &h2, &guest).unwrap();
    assert!(data.claim.is_none());
    assert_eq!(data.destination_shared.to_string(), "0,4");
    let mut fit = |rig: &mut Rig, guest: &Guest, held: Assignment| {
        data.claim = Some(guest.claim(&h2, held));
        rig.fit(&h2, guest, data.clone())
    };
    let (verdict, out) = fit(&mut rig, &guest, sample::pins(0, &[2, 3], None)).unwrap();
    assert_eq!(verdict, FitVerdict::Confirm);
    assert_eq!(cpus(&out.claim.unwrap().assignment), [2, 3]);

    // CPU 1 is b's: the scheduler did not know.
    let (verdict, out) = fit(&mut rig, &guest, sample::pins(0, &[1, 2], None)).unwrap();
    let FitVerdict::Swap(swapped) = verdict else {
        panic!("{verdict:?}")
    };
    assert!(!swapped.dedicated().contains(CpuId(1)));
    assert_eq!(out.claim.unwrap().assignment, swapped);
    assert_eq!(out.numa_topology.unwrap().assignment, swapped);
    assert_eq!(out.destination_uri, "sim://h2");

    // Two more guests leave one dedicated CPU in each cell.
    for (name, number, cell, on) in [("c", 3, 0, [2]), ("d", 4, 1, [5])] {
        let other = Guest::new(name, number, sample::pinned_spec(1, PageSize::Unspecified));
        rig.spawn(&h2, &other, sample::pins(cell, &on, None))
            .unwrap();
    }
    let e = Guest::new("e", 5, sample::pinned_spec(1, PageSize::Unspecified));
    rig.spawn(&h2, &e, sample::pins(1, &[6], None)).unwrap();
    let refused = fit(&mut rig, &guest, sample::pins(0, &[2, 3], None)).unwrap_err();
    assert_eq!(
        (refused.code, refused.reason.as_str()),
        (Code::ResourceExhausted, "DOES_NOT_FIT")
    );
    let detail = &refused.hosts[0];
    assert!(detail.host_cell.is_some());
    let missing = detail.missing.as_ref().unwrap();
    assert_eq!((missing.requested, missing.available), (2, 1));
    assert!(
        refused
            .message
            .contains("1 free dedicated CPUs, guest NUMA node 0 needs 2"),
        "{refused}"
    );
}

/// The guest keeps its page size, and pages that somebody else on the host has do not count.
#[test]
fn pages_are_fitted_to_what_is_really_free() {
    let mut rig = Rig::new(&[2, 2]);
    let (h1, h2) = (host("h1"), host("h2"));
    let guest = Guest::new("a", 1, sample::pinned_spec(1, PageSize::Large));
    rig.spawn(&h1, &guest, sample::pins(0, &[1], Some(2048)))
        .unwrap();
    let guest = guest.under(77, 2);
    let mut data = rig.check(&h1, &h2, &guest).unwrap();
    data.claim = Some(guest.claim(&h2, sample::pins(0, &[1], Some(2048))));
    let (verdict, _) = rig.fit(&h2, &guest, data.clone()).unwrap();
    assert_eq!(verdict, FitVerdict::Confirm);

    // Guests that this agent was never told of, as after a start by hand.
    for (number, cpu) in [(90, 1), (91, 2)] {
        let spec = sample::pinned_spec(1, PageSize::Large);
        let foreign = sample::domain("x", number, spec, sample::pins(0, &[cpu], Some(2048)));
        let request = berth_driver::Request::Create(Box::new(foreign));
        let now = rig.now;
        rig.world.begin(
            now,
            &h2,
            berth_driver::Token(9_000 + number as u64),
            request,
        );
    }
    rig.settle();
    let (verdict, out) = rig.fit(&h2, &guest, data).unwrap();
    assert!(matches!(verdict, FitVerdict::Swap(_)), "{verdict:?}");
    let given = &out.claim.unwrap().assignment.cells[0];
    assert_eq!((given.host_cell.0, given.page_size_kib), (1, Some(2048)));
}

#[test]
fn a_repeated_order_sends_once_and_one_that_comes_after_the_question_not_at_all() {
    let (h1, h2) = (host("h1"), host("h2"));
    let (mut rig, guest) = rig();
    let data = rig.ready(&h1, &h2, &guest, sample::pins(0, &[3, 2], None));
    // The conductor asked, heard that nothing moves, and gave up.
    assert_eq!(rig.state(&h1, &guest), DomainState::Running);
    let refused = rig.send(&h1, &guest, 1, &data).unwrap_err();
    assert_eq!(refused.reason, "LATE_CALL");
    rig.roll_back(&h2, &guest, 1).unwrap();
    rig.roll_back(&h2, &guest, 1).unwrap();
    assert_eq!(rig.state(&h2, &guest), DomainState::Absent);
    let refused = rig.prepare(&h2, &guest, 1, &data).unwrap_err();
    assert_eq!(refused.reason, "LATE_CALL");

    // Another operation may send it.
    let next = guest.under(78, 3);
    rig.prepare(&h2, &next, 2, &data).unwrap();
    rig.send(&h1, &next, 2, &data).unwrap();
    rig.send(&h1, &next, 2, &data).unwrap();
    rig.settle();
    assert_eq!(rig.state(&h2, &next), DomainState::Running);
    // Repeated when it is long gone: still the same answer.
    assert_eq!(rig.send(&h1, &next, 2, &data), Ok(Reply::Done));
}

#[test]
fn a_broken_transfer_leaves_the_guest_and_says_why() {
    let (h1, h2) = (host("h1"), host("h2"));
    let (mut rig, guest) = rig();
    let data = rig.ready(&h1, &h2, &guest, sample::pins(0, &[3, 2], None));
    rig.send(&h1, &guest, 1, &data).unwrap();
    while rig.state(&h1, &guest) != DomainState::MigratingOut {}
    rig.world.cut(&h1, &h2);
    rig.settle();
    let status = rig.status(&h1, &guest);
    assert_eq!(status.state, DomainState::Running);
    assert!(status.migration_error.unwrap().contains("broke"));
    // The same order again is a repetition, not a second attempt.
    rig.world.heal(&h1, &h2);
    assert_eq!(rig.send(&h1, &guest, 1, &data), Ok(Reply::Done));
    rig.settle();
    assert_eq!(rig.state(&h1, &guest), DomainState::Running);
    rig.roll_back(&h2, &guest, 1).unwrap();
}

#[test]
fn a_guest_that_arrives_or_has_arrived_is_not_rolled_back_or_destroyed_on_the_way() {
    let (h1, h2) = (host("h1"), host("h2"));
    let (mut rig, guest) = rig();
    let data = rig.ready(&h1, &h2, &guest, sample::pins(0, &[3, 2], None));
    rig.send(&h1, &guest, 1, &data).unwrap();
    while rig.state(&h2, &guest) != DomainState::MigratingIn {}
    let refused = rig.roll_back(&h2, &guest, 1).unwrap_err();
    assert_eq!(refused.reason, "GUEST_ARRIVES");
    let refused = rig.call(&h1, &guest, Call::DestroyVm).unwrap_err();
    assert_eq!(refused.reason, "GUEST_MOVES");
    rig.settle();
    let refused = rig.roll_back(&h2, &guest, 1).unwrap_err();
    assert_eq!(refused.reason, "GUEST_RUNS_HERE");
    assert_eq!(rig.state(&h2, &guest), DomainState::Running);
}

/// Goal: a repeated preparation that comes late does not make an agent forget a guest that arrives or has
/// arrived. Method: its state is queried last while it arrives, or not at all, so that the agent of h2 does
/// not know that it is there.
#[test]
fn a_late_preparation_is_refused_and_its_guest_stays_known() {
    for (is_arriving, reason) in [(true, "GUEST_ARRIVES"), (false, "GUEST_RUNS_HERE")] {
        let (h1, h2) = (host("h1"), host("h2"));
        let (mut rig, guest) = rig();
        let data = rig.ready(&h1, &h2, &guest, sample::pins(0, &[3, 2], None));
        rig.send(&h1, &guest, 1, &data).unwrap();
        match is_arriving {
            true => while rig.state(&h2, &guest) != DomainState::MigratingIn {},
            false => rig.settle(),
        }
        let refused = rig.prepare(&h2, &guest, 1, &data).unwrap_err();
        assert_eq!(refused.reason, reason);
        rig.settle();
        assert_eq!(rig.state(&h2, &guest), DomainState::Running);
        // It can be moved on from there.
        let back = guest.under(78, 3);
        let data = rig.ready(&h2, &h1, &back, sample::pins(0, &[1, 2], None));
        assert_eq!(rig.send(&h2, &back, 1, &data), Ok(Reply::Done));
        while rig.state(&h1, &back) != DomainState::Running {}
    }
}

/// The agents' memory is gone, the hypervisors' is not.
#[test]
fn agents_that_are_restarted_during_a_transfer_still_tell_where_the_guest_is() {
    let (h1, h2) = (host("h1"), host("h2"));
    let (mut rig, guest) = rig();
    let data = rig.ready(&h1, &h2, &guest, sample::pins(0, &[3, 2], None));
    rig.send(&h1, &guest, 1, &data).unwrap();
    while rig.state(&h2, &guest) != DomainState::MigratingIn {}
    rig.restart_agent(&h1);
    rig.restart_agent(&h2);
    assert_eq!(rig.state(&h1, &guest), DomainState::MigratingOut);
    assert_eq!(rig.state(&h2, &guest), DomainState::MigratingIn);
    rig.settle();
    assert_eq!(rig.state(&h1, &guest), DomainState::Absent);
    assert_eq!(rig.state(&h2, &guest), DomainState::Running);
    // Both have drawn their conclusions about who holds what.
    let c = Guest::new("c", 3, guest.spec.clone());
    rig.spawn(&h1, &c, sample::pins(0, &[1, 2], None)).unwrap();
    let d = Guest::new("d", 4, guest.spec.clone());
    assert!(rig.spawn(&h2, &d, sample::pins(0, &[2, 3], None)).is_err());
}

#[test]
fn a_destination_bounds_what_it_makes_ready_for() {
    let (mut rig, guest) = rig();
    let (h1, h2) = (host("h1"), host("h2"));
    let mut data = rig.check(&h1, &h2, &guest).unwrap();
    data.claim = Some(guest.claim(&h2, sample::pins(0, &[3, 2], None)));
    data.spec.flavor.vcpus = VCPUS_MAX + 1;
    let refused = rig.prepare(&h2, &guest, 1, &data).unwrap_err();
    assert_eq!(refused.reason, "INVALID_VM");
    assert_eq!(rig.state(&h2, &guest), DomainState::Absent);
}

#[test]
fn a_transfer_without_end_is_stopped() {
    let (h1, h2) = (host("h1"), host("h2"));
    let (mut rig, guest) = rig();
    let data = rig.ready(&h1, &h2, &guest, sample::pins(0, &[3, 2], None));
    // The hypervisor takes the order and does not get to it.
    let late = Behaviour::Late { by_ms: 3_600_000 };
    rig.world.script(&h1, Kind::Migrate, [late]);
    rig.send(&h1, &guest, 1, &data).unwrap();
    rig.now.0 += 61_000;
    let now = rig.now;
    let agent = rig.agents.get_mut(&h1).unwrap();
    let effects = agent.step(Event::Tick { now });
    assert_eq!(effects.len(), 1, "{effects:?}");
    let effects = agent.step(Event::Tick { now });
    assert_eq!(effects, [], "it is being told already");
}

/// An order to stop that failed once was never given again.
#[test]
fn a_transfer_that_could_not_be_stopped_is_stopped_again() {
    let (h1, h2) = (host("h1"), host("h2"));
    let (mut rig, guest) = rig();
    let data = rig.ready(&h1, &h2, &guest, sample::pins(0, &[3, 2], None));
    let late = Behaviour::Late { by_ms: 3_600_000 };
    rig.world.script(&h1, Kind::Migrate, [late]);
    rig.send(&h1, &guest, 1, &data).unwrap();
    rig.now.0 += 61_000;
    let now = rig.now;
    let agent = rig.agents.get_mut(&h1).unwrap();
    let unreachable = Err(Error::Unreachable {
        message: "the connection was lost".to_owned(),
    });
    for result in [unreachable, Ok(Answer::Done)] {
        let effects = agent.step(Event::Tick { now });
        let [Effect::Driver { token, request }] = &effects[..] else {
            panic!("{effects:?}")
        };
        assert_eq!(*request, Request::Abort(guest.uid));
        let token = *token;
        assert_eq!(agent.step(Event::DriverDone { token, result }), []);
    }
}

#[test]
fn an_old_agent_drops_what_it_does_not_know_and_refuses_to_fit() {
    let (h1, h2) = (host("h1"), host("h2"));
    let mut rig = Rig::new(&[1, 2]);
    let guest = pinned();
    rig.spawn(&h1, &guest, sample::pins(0, &[1, 2], None))
        .unwrap();
    let guest = guest.under(77, 2);
    let data = rig.check(&h1, &h2, &guest).unwrap();
    assert!(data.numa_topology.is_none(), "dropped by the old source");
    let with_claim = |on: &_| {
        let mut data = data.clone();
        data.claim = Some(guest.claim(on, sample::pins(0, &[3, 2], None)));
        data
    };
    let refused = rig.fit(&h1, &guest, with_claim(&h1)).unwrap_err();
    assert_eq!(
        (refused.code, refused.reason.as_str()),
        (Code::Unimplemented, "SERVICE_VERSION_TOO_OLD")
    );
    let refused = rig.fit(&h2, &guest, with_claim(&h2)).unwrap_err();
    assert_eq!(refused.reason, "MIGRATE_DATA_INCOMPLETE");

    // Without the gate this is what would happen: the guest keeps the CPUs that it had.
    rig.prepare(&h2, &guest, 1, &with_claim(&h2)).unwrap();
    rig.send(&h1, &guest, 1, &with_claim(&h2)).unwrap();
    rig.settle();
    let seen = rig.status(&h2, &guest).vcpu_cpus;
    let old = [(VcpuId(0), 1), (VcpuId(1), 2)].map(|(v, c)| (v, CpuSet::from_iter([CpuId(c)])));
    assert_eq!(seen, old);
}

/// Two old agents, or an old and a new one, still move what does not care where it runs.
#[test]
fn a_guest_without_topology_moves_between_agents_of_any_age() {
    for versions in [[1, 1], [1, 2], [2, 1], [2, 2]] {
        let (h1, h2) = (host("h1"), host("h2"));
        let mut rig = Rig::new(&versions);
        let guest = Guest::new("p", 1, sample::plain_spec(1));
        rig.spawn(&h1, &guest, Assignment::default()).unwrap();
        let guest = guest.under(77, 2);
        let mut data = rig.check(&h1, &h2, &guest).unwrap();
        if versions == [2, 2] {
            let claim: Claim = guest.claim(&h2, Assignment::default());
            data.claim = Some(claim);
            let (verdict, fitted) = rig.fit(&h2, &guest, data).unwrap();
            assert_eq!(verdict, FitVerdict::Confirm);
            data = fitted;
        }
        rig.prepare(&h2, &guest, 1, &data).unwrap();
        rig.send(&h1, &guest, 1, &data).unwrap();
        rig.settle();
        let status = rig.status(&h2, &guest);
        assert_eq!(status.state, DomainState::Running, "{versions:?}");
        let shared = "0,4".parse().unwrap();
        assert_eq!(status.vcpu_cpus, [(VcpuId(0), shared)]);
    }
}

#[test]
fn the_source_refuses_what_cannot_arrive() {
    let (mut rig, guest) = rig();
    let (h1, h2) = (host("h1"), host("h2"));
    let good = rig.check_destination(&h2, &guest).unwrap();
    let ask = |rig: &mut Rig, guest: &Guest, destination| {
        let call = Call::CheckCanLiveMigrateSource {
            migration: migration(1),
            destination,
        };
        rig.call(&h1, guest, call).unwrap_err().reason
    };
    let mut other = good.clone();
    other.driver = "libvirt".to_owned();
    assert_eq!(ask(&mut rig, &guest, other), "DRIVER_DIFFERS");
    let unknown = Guest::new("z", 99, guest.spec.clone());
    assert_eq!(ask(&mut rig, &unknown, good.clone()), "GUEST_NOT_FOUND");
    let refused = rig.check_destination(&h1, &guest).unwrap_err();
    assert_eq!(refused.reason, "GUEST_EXISTS");
    let now = rig.now;
    rig.world.crash_guest(now, &h1, guest.uid);
    assert_eq!(ask(&mut rig, &guest, good.clone()), "GUEST_NOT_RUNNING");

    let mut with_disk = Guest::new("d", 50, sample::plain_spec(1));
    with_disk.spec.disks.push(berth_domain::vm::Disk {
        image: None,
        format: berth_domain::vm::DiskFormat::Raw,
        size_gib: 1,
        seed: false,
    });
    rig.spawn(&h1, &with_disk, Assignment::default()).unwrap();
    let mut elsewhere = good;
    elsewhere.storage_id = "other".to_owned();
    assert_eq!(ask(&mut rig, &with_disk, elsewhere), "DISKS_NOT_SHARED");
}
