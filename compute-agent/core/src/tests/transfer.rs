//! A transfer under way: how far it is, what the conductor wants of it, and what is done when it takes
//! too long.

use berth_domain::agent::{Call, DomainState, Reply};
use berth_domain::instance::PageSize;
use berth_domain::migration::MigrateData;
use berth_domain::refusal::Code;
use berth_domain::transfer::{DiskCopy, Phase, TimeoutAction, TransferPolicy};
use berth_driver::Kind;
use berth_driver::conformance::sample;
use berth_driver::sim::Behaviour;

use super::rig::{Guest, Rig, host, migration};

/// A guest on CPUs 1 and 2 of the first of two hosts, ready to be sent so slowly that it takes more
/// than two minutes.
fn rig(versions: &[u32], policy: &TransferPolicy) -> (Rig, Guest, MigrateData) {
    let mut rig = Rig::new(versions);
    let guest = Guest::new("a", 1, sample::pinned_spec(2, PageSize::Unspecified));
    let (h1, h2) = (host("h1"), host("h2"));
    rig.spawn(&h1, &guest, sample::pins(0, &[1, 2], None))
        .unwrap();
    let guest = guest.under(77, 2);
    let mut data = rig.ready(&h1, &h2, &guest, sample::pins(0, &[3, 2], None));
    data.transfer = TransferPolicy {
        bandwidth_mib_per_s_max: Some(1),
        ..policy.clone()
    };
    rig.send(&h1, &guest, 1, &data).unwrap();
    rig.live_on(5_000);
    (rig, guest, data)
}

fn abort(number: u128) -> Call {
    Call::AbortLiveMigration {
        migration: migration(number),
    }
}

fn force(number: u128, post_copy: bool) -> Call {
    Call::ForceCompleteLiveMigration {
        migration: migration(number),
        post_copy,
    }
}

#[test]
fn a_transfer_says_how_far_it_is() {
    let (mut rig, guest, _) = rig(&[3, 3], &TransferPolicy::default());
    let status = rig.status(&host("h1"), &guest);
    assert_eq!(status.state, DomainState::MigratingOut);
    let progress = status.progress.expect("it is sent");
    assert_eq!(progress.phase, Phase::PreCopy);
    assert_eq!(progress.memory.total, 128 << 20);
    assert!(
        (4..=8).contains(&(progress.memory.processed >> 20)),
        "{progress:?}"
    );
    assert_eq!(rig.status(&host("h2"), &guest).progress, None);
}

#[test]
fn the_conductor_stops_a_transfer_or_has_it_end() {
    let policy = TransferPolicy {
        post_copy: true,
        ..TransferPolicy::default()
    };
    for (call, stays) in [
        (abort(1), true),
        (force(1, false), false),
        (force(1, true), false),
    ] {
        let (mut rig, guest, _) = rig(&[3, 3], &policy);
        let (h1, h2) = (host("h1"), host("h2"));
        assert_eq!(rig.call(&h1, &guest, call.clone()), Ok(Reply::Done));
        assert_eq!(
            rig.call(&h1, &guest, call.clone()),
            Ok(Reply::Done),
            "again"
        );
        rig.live_on(2_000);
        let there = rig.state(&h2, &guest);
        assert_eq!(there == DomainState::Running, !stays, "{call:?}");
        if stays {
            let status = rig.status(&h1, &guest);
            assert_eq!(status.state, DomainState::Running);
            assert!(
                status
                    .migration_error
                    .unwrap()
                    .contains("stopped on request")
            );
        }
        // It is over: the same again has no effect.
        assert_eq!(rig.call(&h1, &guest, call), Ok(Reply::Done));
    }
}

#[test]
fn what_was_not_allowed_is_refused_and_the_transfer_goes_on() {
    let (mut rig, guest, _) = rig(&[3, 3], &TransferPolicy::default());
    let h1 = host("h1");
    let refusal = rig.call(&h1, &guest, force(1, true)).unwrap_err();
    assert_eq!(refusal.reason, "HYPERVISOR_REFUSED");
    assert_eq!(rig.state(&h1, &guest), DomainState::MigratingOut);
}

#[test]
fn a_word_about_another_transfer_has_no_effect() {
    let (mut rig, guest, _) = rig(&[3, 3], &TransferPolicy::default());
    let h1 = host("h1");
    assert_eq!(rig.call(&h1, &guest, abort(2)), Ok(Reply::Done));
    assert_eq!(rig.state(&h1, &guest), DomainState::MigratingOut);
    // After a restart it is not known which one it is; the fence keeps older words out.
    rig.restart_agent(&h1);
    assert_eq!(rig.call(&h1, &guest, abort(1)), Ok(Reply::Done));
    rig.live_on(1_000);
    assert_eq!(rig.state(&h1, &guest), DomainState::Running);
}

/// Goal: the time that the policy gives is kept, and its action done, also when the first order is
/// not heard.
#[test]
fn what_takes_too_long_is_dealt_with() {
    for (timeout_action, post_copy, arrives) in [
        (TimeoutAction::Abort, true, false),
        (TimeoutAction::ForceComplete, false, true),
        (TimeoutAction::ForceComplete, true, true),
        (TimeoutAction::PostCopy, true, true),
        (TimeoutAction::PostCopy, false, false),
    ] {
        let policy = TransferPolicy {
            timeout_ms: Some(20_000),
            timeout_action,
            post_copy,
            ..TransferPolicy::default()
        };
        let (mut rig, guest, _) = rig(&[3, 3], &policy);
        let (h1, h2) = (host("h1"), host("h2"));
        let lost = [Behaviour::Gone { effect: false }];
        rig.world.script(&h1, Kind::Abort, lost.clone());
        rig.world.script(&h1, Kind::Force, lost);
        rig.live_on(14_000);
        assert_eq!(rig.state(&h1, &guest), DomainState::MigratingOut);
        rig.live_on(6_000);
        assert_eq!(
            rig.state(&h2, &guest) == DomainState::Running,
            arrives,
            "{policy:?}"
        );
        let status = rig.status(&h1, &guest);
        assert_eq!(status.state == DomainState::Running, !arrives, "{policy:?}");
        let why = "the transfer took longer than 20000 ms and was stopped";
        let told = status.migration_error.as_deref();
        assert_eq!(told, (!arrives).then_some(why), "{policy:?}");
    }
}

/// Goal: a transfer of which a new run of the agent knows nothing does not go on for ever; and the
/// order to stop it does not hit the next one.
#[test]
fn an_agent_that_was_started_anew_gives_its_own_time() {
    let (mut rig, guest, _) = rig(&[3, 3], &TransferPolicy::default());
    let h1 = host("h1");
    rig.restart_agent(&h1);
    rig.live_on(59_000);
    assert_eq!(rig.state(&h1, &guest), DomainState::MigratingOut);
    rig.live_on(4_000);
    assert_eq!(rig.state(&h1, &guest), DomainState::Running);
    let (h2, again) = (host("h2"), guest.under(78, 3));
    let mut data = rig.ready(&h1, &h2, &again, sample::pins(0, &[3, 2], None));
    data.transfer.bandwidth_mib_per_s_max = Some(10);
    rig.send(&h1, &again, 1, &data).unwrap();
    rig.live_on(20_000);
    assert_eq!(rig.state(&h2, &again), DomainState::Running);
}

#[test]
fn older_agents_drop_the_policy_and_refuse_the_calls() {
    let policy = TransferPolicy {
        timeout_ms: Some(1_000),
        ..TransferPolicy::default()
    };
    let (mut rig, guest, _) = rig(&[2, 3], &policy);
    let h1 = host("h1");
    rig.settle();
    assert_eq!(
        rig.state(&host("h2"), &guest),
        DomainState::Running,
        "at full speed"
    );
    for call in [abort(1), force(1, false)] {
        let refusal = rig.call(&h1, &guest, call).unwrap_err();
        assert_eq!(refusal.code, Code::Unimplemented);
        assert_eq!(refusal.reason, "SERVICE_VERSION_TOO_OLD");
    }
}

/// Goal: the source says which disks have to be copied, and an older one that it cannot.
#[test]
fn disks_that_are_not_shared_are_copied_by_agents_that_know_how() {
    for (version, expected) in [(2, None), (3, Some(1_u64 << 30))] {
        let mut rig = Rig::new(&[version, 3]);
        let h1 = host("h1");
        let mut guest = Guest::new("d", 50, sample::plain_spec(1));
        guest.spec.disks.push(berth_domain::vm::Disk {
            image: None,
            format: berth_domain::vm::DiskFormat::Raw,
            size_gib: 1,
            seed: false,
        });
        rig.spawn(&h1, &guest, Default::default()).unwrap();
        for storage in ["shared", "other"] {
            let mut destination = rig.check_destination(&host("h2"), &guest).unwrap();
            destination.storage_id = storage.to_owned();
            let call = Call::CheckCanLiveMigrateSource {
                migration: migration(1),
                destination,
            };
            let copies = match rig.call(&h1, &guest, call) {
                Ok(Reply::MigrateData(data)) => data.disk_copies,
                Err(refusal) if refusal.reason == "DISKS_NOT_SHARED" => {
                    assert_eq!((storage, expected), ("other", None));
                    continue;
                }
                other => panic!("{other:?}"),
            };
            let wanted = expected.filter(|_| storage == "other");
            let wanted = wanted.map(|virtual_bytes| DiskCopy {
                index: 0,
                virtual_bytes,
            });
            assert_eq!(copies, Vec::from_iter(wanted));
        }
    }
}
