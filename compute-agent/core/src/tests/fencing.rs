//! Calls of the past: earlier leases, earlier runs of the agent, overtaken calls.

use berth_domain::agent::{Call, DomainState, Reply};
use berth_domain::id::Epoch;
use berth_domain::instance::PageSize;
use berth_domain::refusal::Code;
use berth_driver::Kind;
use berth_driver::conformance::sample;
use berth_driver::sim::Behaviour;

use super::rig::{Guest, Rig, host, migration};

fn pinned() -> Guest {
    Guest::new("a", 1, sample::pinned_spec(1, PageSize::Unspecified))
}

#[test]
fn a_call_for_an_earlier_run_is_refused_and_the_guest_is_found_again() {
    let (mut rig, h1, guest) = (Rig::new(&[2]), host("h1"), pinned());
    rig.spawn(&h1, &guest, sample::pins(0, &[1], None)).unwrap();
    let old = rig.fence(&h1, &guest);
    rig.restart_agent(&h1);
    let id = rig.begin_with(&h1, old, Call::DestroyVm);
    let refused = rig.answer(id).unwrap_err();
    assert_eq!(
        (refused.code, refused.reason.as_str()),
        (Code::FailedPrecondition, "STALE_INCARNATION")
    );
    assert_eq!(rig.state(&h1, &guest), DomainState::Running);
    let other = Guest::new("b", 2, guest.spec.clone());
    let refused = rig.spawn(&h1, &other, sample::pins(0, &[1], None));
    assert!(refused.is_err(), "its claim is known from its metadata");
}

/// Method: every call, after a question under a later lease.
#[test]
fn every_call_of_an_earlier_lease_is_refused() {
    let (mut rig, h1, guest) = (Rig::new(&[2, 2]), host("h1"), pinned());
    rig.spawn(&h1, &guest, sample::pins(0, &[1], None)).unwrap();
    let data = rig.check(&h1, &host("h2"), &guest.under(1, 2)).unwrap();
    let newer = guest.under(1, 7);
    assert_eq!(rig.state(&h1, &newer), DomainState::Running);
    let destination = rig.check_destination(&host("h2"), &newer).unwrap();
    let calls = [
        guest.spawn_call(&h1, sample::pins(0, &[1], None)),
        Call::DestroyVm,
        Call::GetDomain,
        Call::CheckCanLiveMigrateDestination {
            migration: migration(1),
            vm: guest.vm.clone(),
            spec: guest.spec.clone(),
        },
        Call::CheckCanLiveMigrateSource {
            migration: migration(1),
            destination,
        },
        Call::FitLiveMigration {
            migration: migration(1),
            migrate_data: data.clone(),
        },
        Call::PreLiveMigration {
            migration: migration(1),
            migrate_data: data.clone(),
        },
        Call::LiveMigration {
            migration: migration(1),
            migrate_data: data,
        },
        Call::RollbackLiveMigrationAtDestination {
            keep_disks: false,
            migration: migration(1),
        },
        Call::PostLiveMigrationAtSource {
            migration: migration(1),
        },
        guest.stop_call(0, false),
        guest.start_call(&h1, sample::pins(0, &[1], None)),
        Call::SettleVm,
        Call::MakeDisks {
            vm: guest.vm.clone(),
            spec: guest.spec.clone(),
            claim: guest.claim(&h1, sample::pins(0, &[1], None)),
        },
        Call::CopyDisk {
            vm: guest.vm.clone(),
            spec: guest.spec.clone(),
            disk: 0,
            image: "new".to_owned(),
        },
        Call::PublishImage {
            image: "new".to_owned(),
        },
        Call::DropImage {
            image: "new".to_owned(),
        },
    ];
    for call in calls {
        let older = Guest {
            epoch: Epoch(6),
            ..newer.clone()
        };
        let refused = rig.call(&h1, &older, call.clone()).unwrap_err();
        assert_eq!(
            (refused.code, refused.reason.as_str()),
            (Code::Aborted, "STALE_EPOCH"),
            "{call:?}"
        );
    }
    assert_eq!(rig.state(&h1, &newer), DomainState::Running);
}

/// A call that waited in its lane while a later lease began has no effect either.
#[test]
fn a_call_that_waits_is_fenced_when_its_turn_comes() {
    let (mut rig, h1, guest) = (Rig::new(&[2]), host("h1"), pinned());
    let late = Behaviour::Late { by_ms: 1_000 };
    rig.world.script(&h1, Kind::Create, [late]);
    let spawn = rig.begin(
        &h1,
        &guest,
        guest.spawn_call(&h1, sample::pins(0, &[1], None)),
    );
    let destroy = rig.begin(&h1, &guest, Call::DestroyVm);
    let newer = guest.under(1, 2);
    rig.state(&h1, &newer);
    assert_eq!(rig.answer(spawn), Ok(Reply::Done));
    assert_eq!(rig.answer(destroy).unwrap_err().reason, "STALE_EPOCH");
    assert_eq!(rig.state(&h1, &newer), DomainState::Running);
}

/// The boot was given up and undone; its first spawn comes after all, under the same lease.
#[test]
fn no_guest_starts_after_it_was_destroyed() {
    let (mut rig, h1, guest) = (Rig::new(&[2]), host("h1"), pinned());
    assert_eq!(rig.call(&h1, &guest, Call::DestroyVm), Ok(Reply::Done));
    let refused = rig.spawn(&h1, &guest, sample::pins(0, &[1], None));
    assert_eq!(refused.unwrap_err().reason, "LATE_CALL");
    let later = guest.under(1, 9);
    let refused = rig.spawn(&h1, &later, sample::pins(0, &[1], None));
    assert_eq!(refused.unwrap_err().reason, "LATE_CALL");
    assert_eq!(rig.state(&h1, &guest.under(1, 9)), DomainState::Absent);
}

#[test]
fn too_many_waiting_calls_are_turned_away() {
    let (mut rig, h1, guest) = (Rig::new(&[2]), host("h1"), pinned());
    let late = Behaviour::Late { by_ms: 1_000 };
    rig.world.script(&h1, Kind::Create, [late]);
    let call = guest.spawn_call(&h1, sample::pins(0, &[1], None));
    let ids: Vec<_> = (0..18)
        .map(|_| rig.begin(&h1, &guest, call.clone()))
        .collect();
    let busy = rig.answered(ids[17]).unwrap().clone().unwrap_err();
    assert_eq!(
        (busy.code, busy.reason.as_str()),
        (Code::Unavailable, "AGENT_BUSY")
    );
    for id in &ids[..17] {
        assert_eq!(rig.answer(*id), Ok(Reply::Done));
    }
}
