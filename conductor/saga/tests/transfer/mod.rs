//! What somebody wants of a transfer past its point of no return: that it is stopped, or ends soon.
//!
//! Method: the world's transfers go on for ever unless the source is told; the outcome has to be the
//! one that the two hypervisors show, whatever was wanted.

mod dead;

use berth_domain::agent::{Call, DomainState};
use berth_domain::migration;
use berth_domain::operation::{Mark, Outcome, Step};
use berth_domain::transfer::{TimeoutAction, TransferPolicy};
use berth_domain::version::ServiceVersion;
use berth_saga::Effect;

use crate::calls;
use crate::world::{Death, Told, Transfer, World, host};

const FOR_EVER: u32 = 10_000;

fn endless() -> World {
    let mut world = World::new("live_migrate");
    world.transfer_takes = FOR_EVER;
    world
}

fn sends(world: &World) -> bool {
    world.agents[&host("h1")].state == DomainState::MigratingOut
}

fn count(world: &World, name: &str) -> usize {
    calls(world)
        .iter()
        .filter(|(_, call)| *call == name)
        .count()
}

#[test]
fn a_transfer_that_somebody_cancels_is_stopped_and_the_guest_stays() {
    let mut world = endless();
    world.watch(|world, _, _| {
        if sends(world) {
            world.scheduler.operation.cancelled = true;
        }
    });
    world.check_end();
    assert_eq!(count(&world, "abort"), 1);
    assert_eq!(world.refusal().reason, "OPERATION_CANCELLED");
    assert!(!world.agents[&host("h2")].kept_disks);
    let migration = world.scheduler.migration.as_ref().unwrap();
    assert_eq!(migration.state, migration::State::Failed);
    assert_eq!(world.agents[&host("h1")].state, DomainState::Running);
}

/// Goal: whoever carries the operation heeds what was asked of another. Method: the conductor dies
/// at every effect, before and after it.
#[test]
fn the_wish_outlives_the_conductor() {
    for number in 1..40 {
        for death in [Death::Before(number), Death::After(number)] {
            let mut world = endless();
            world.scheduler.operation.force_complete = true;
            world.run(Some(death));
            world.check_end();
            // One that died between the entry and the call has begun nothing.
            let began = world.agents[&host("h1")].sent_as.is_some();
            let succeeded = *world.outcome() == Outcome::Succeeded;
            assert_eq!(succeeded, began, "{death:?}");
        }
    }
}

#[test]
fn a_transfer_that_is_to_end_soon_arrives() {
    let mut world = endless();
    let migration = world.scheduler.migration.as_mut().unwrap();
    migration.transfer = TransferPolicy {
        post_copy: true,
        timeout_action: TimeoutAction::PostCopy,
        ..TransferPolicy::default()
    };
    let policy = migration.transfer.clone();
    let mut asked = None;
    world.watch(|world, _, effect| {
        if sends(world) {
            world.scheduler.operation.force_complete = true;
        }
        if let Effect::Call(call) = effect
            && let Call::ForceCompleteLiveMigration { post_copy, .. } = call.call
        {
            asked = Some(post_copy);
        }
    });
    world.check_end();
    assert_eq!(*world.outcome(), Outcome::Succeeded);
    assert_eq!(asked, Some(true), "as the migration allows");
    assert_eq!(world.agents[&host("h1")].sent_as, Some(policy));
}

/// Goal: that a transfer be stopped comes before that it end soon.
#[test]
fn to_stop_comes_before_to_end_soon() {
    let mut world = endless();
    world.watch(|world, _, _| {
        if sends(world) {
            world.scheduler.operation.force_complete = true;
            world.scheduler.operation.cancelled = true;
        }
    });
    world.check_end();
    assert_eq!(count(&world, "force_complete"), 0);
    assert_eq!(world.agents[&host("h1")].state, DomainState::Running);
}

#[test]
fn a_refused_stop_is_said_once_and_the_transfer_goes_on() {
    let mut world = World::new("live_migrate");
    world.transfer_takes = 10;
    world.agents.get_mut(&host("h1")).unwrap().in_post_copy = true;
    world.watch(|world, _, _| {
        if sends(world) {
            world.scheduler.operation.cancelled = true;
        }
    });
    world.check_end();
    assert_eq!(
        *world.outcome(),
        Outcome::Succeeded,
        "it could not be stopped"
    );
    assert!(count(&world, "abort") > 1);
    let said = world.scheduler.operation.log.iter().filter(|e| {
        matches!(&e.mark, Mark::Failed(r) if e.step == Step::Settle && r.reason == "TRANSFER_GOES_ON")
    });
    assert_eq!(said.count(), 1);
}

#[test]
fn agents_that_do_not_know_how_are_not_asked() {
    let mut world = World::new("live_migrate");
    let old = ServiceVersion(ServiceVersion::TRANSFER_CONTROL.0 - 1);
    world.agents.get_mut(&host("h1")).unwrap().version = old;
    world.watch(|world, _, _| {
        if sends(world) {
            world.scheduler.operation.cancelled = true;
        }
    });
    world.check_end();
    assert_eq!(count(&world, "abort"), 0);
    assert_eq!(*world.outcome(), Outcome::Succeeded);
}

/// Goal: a guest that is partly here and partly there is neither moved nor lost: both claims stay, and
/// the migration says it, until somebody ends it on both sides.
#[test]
fn a_broken_post_copy_stays_unsettled_and_says_so() {
    let mut world = World::new("live_migrate");
    world.transfer_ends = Transfer::Breaks;
    let mut rounds = 0;
    world.watch(|world, _, effect| {
        let state = world.scheduler.migration.as_ref().unwrap().state;
        if state == migration::State::Unsettled {
            assert_eq!(world.scheduler.claims.len(), 2);
            rounds += u32::from(matches!(effect, Effect::Wait { .. }));
        }
        if rounds > 20 {
            // The operator gives the guest up.
            for name in ["h1", "h2"] {
                world.agents.get_mut(&host(name)).unwrap().state = DomainState::Absent;
            }
        }
    });
    let said = world
        .scheduler
        .operation
        .log
        .iter()
        .find_map(|e| match &e.mark {
            Mark::Failed(refusal) if e.step == Step::Settle => Some(refusal.clone()),
            Mark::Failed(_)
            | Mark::Started
            | Mark::Succeeded
            | Mark::UndoStarted
            | Mark::Undone => None,
        });
    let said = said.expect("it is said");
    assert_eq!(said.metadata["doubt"], "PostCopyBroken");
    assert!(said.message.contains("have lost each other"), "{said}");
    assert_eq!(world.refusal().reason, "GUEST_ENDED");
    assert!(
        world.agents[&host("h2")].kept_disks,
        "whichever disk is the newer one"
    );
}

/// Goal: a guest that neither host has any more, as after a power cut of its host, costs its VM nothing
/// that it wrote. Method: what may be on the destination alone (disks that were copied, contents of
/// persistent memory), and what is not; the guest goes at each effect of the transfer.
#[test]
fn a_guest_that_ended_on_its_way_can_be_started_where_it_was() {
    for (has_disk, is_shared, has_pmem) in [
        (false, true, false),
        (false, false, false),
        (true, true, false),
        (true, false, false),
        (false, true, true),
    ] {
        let mut world = World::new("live_migrate");
        world.transfer_takes = u32::MAX;
        if !is_shared {
            world.agents.get_mut(&host("h2")).unwrap().storage_id = "other".to_owned();
        }
        let record = world.scheduler.vm.as_mut().unwrap();
        if has_disk {
            record.spec.disks.push(berth_domain::vm::Disk {
                image: None,
                format: berth_domain::vm::DiskFormat::Qcow2,
                size_gib: 1,
                seed: false,
            });
        }
        if has_pmem {
            let spec = ("hw:pmem".to_owned(), "SMALL".to_owned());
            record.spec.flavor.extra_specs.extend([spec]);
        }
        let mut rounds = 0;
        world.watch(|world, _, _| {
            rounds += u32::from(sends(world));
            if rounds == 5 {
                for name in ["h1", "h2"] {
                    world.agents.get_mut(&host(name)).unwrap().state = DomainState::Absent;
                }
            }
        });
        let stays = !has_pmem && (is_shared || !has_disk);
        let (reason, state) = match stays {
            true => ("GUEST_ENDED", berth_domain::vm::State::Active),
            false => ("GUEST_LOST", berth_domain::vm::State::Error),
        };
        let case = (has_disk, is_shared, has_pmem);
        assert_eq!(world.refusal().reason, reason, "{case:?}");
        let record = world.scheduler.vm.as_ref().unwrap();
        assert_eq!(record.state, state, "{case:?}");
        let source = stays.then(|| host("h1"));
        assert_eq!(record.host, source, "{case:?}");
        let claims = world.scheduler.claims.values();
        let hosts: Vec<_> = claims.map(|claim| claim.host.clone()).collect();
        assert_eq!(hosts, Vec::from_iter(source), "{case:?}");
        assert!(world.agents[&host("h2")].kept_disks, "{case:?}");
    }
}

#[test]
fn as_many_hosts_are_tried_as_the_migration_says() {
    for most in 1..=3 {
        let mut world = World::new("live_migrate");
        world.scheduler.migration.as_mut().unwrap().hosts_tried_max = most;
        for name in ["h2", "h3", "h4"] {
            world.agents.get_mut(&host(name)).unwrap().refuses = true;
        }
        world.run(None);
        world.check_end();
        assert_eq!(count(&world, "check_destination"), most as usize);
    }
}

/// Goal: nothing is between the end of a transfer and the question where the guest is; and it makes
/// no difference to the outcome whether the end is told.
#[test]
fn the_end_of_a_transfer_is_looked_into_at_once() {
    for told in [Told::Truly, Told::Never, Told::AtOnce] {
        let mut world = World::new("live_migrate");
        world.end_is_told = told;
        world.run(None);
        world.check_end();
        assert_eq!(*world.outcome(), Outcome::Succeeded);
        let last = world
            .effects
            .iter()
            .rposition(|e| matches!(e, Effect::Watch(_)));
        let next = &world.effects[last.expect("it was watched") + 1];
        let asks = matches!(next, Effect::Call(call) if matches!(call.call, Call::GetDomain));
        assert_eq!(asks, told != Told::Never, "{told:?}: {next:?}");
    }
}

/// Goal: an agent that tells of an end which the hypervisor does not see makes no busy loop.
#[test]
fn an_end_that_is_none_is_followed_by_a_wait() {
    let mut world = World::new("live_migrate");
    world.end_is_told = Told::AtOnce;
    world.transfer_takes = 20;
    world.run(None);
    world.check_end();
    let waits = |e: &&Effect| matches!(e, Effect::Wait { .. } | Effect::Watch(_));
    let waits: Vec<bool> = world
        .effects
        .iter()
        .filter(waits)
        .map(|e| matches!(e, Effect::Wait { .. }))
        .collect();
    assert!(waits.len() > 20);
    assert!(waits.windows(2).all(|pair| pair[0] != pair[1]), "{waits:?}");
}
