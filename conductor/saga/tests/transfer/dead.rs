//! Past the point of no return a host dies and is fenced: the migration ends all the same, with one
//! host, one claim, and no guest that runs twice.
//!
//! Method: the hosts die at every effect of a transfer that arrives, fails, or breaks in post-copy;
//! the outcome is held against where the guest was when the last of them died.

use berth_domain::agent::DomainState as D;
use berth_domain::migration::State;
use berth_domain::operation::{Mark, Outcome, Step};
use berth_domain::vm;
use berth_saga::Effect;

use super::{FOR_EVER, count};
use crate::world::{Transfer, World, host};

/// Runs a migration; when `when` holds for the first time, the hosts die.
fn run(mut world: World, dying: &[&str], when: impl Fn(&World, usize) -> bool) -> World {
    let mut number = 0;
    let mut died = false;
    world.watch(|world, _, _| {
        number += 1;
        if !died && when(world, number) {
            died = true;
            for name in dying {
                world.kill(&host(name));
            }
        }
    });
    world
}

fn transferring(world: &World) -> bool {
    world.scheduler.migration.as_ref().unwrap().state != State::Preparing
}

fn ended(world: &World) -> (State, String) {
    let migration = world.scheduler.migration.as_ref().unwrap();
    assert!(migration.state.is_ended(), "{migration:#?}");
    let record = world.scheduler.vm.as_ref().unwrap();
    assert_eq!(record.operation, None);
    assert_eq!(
        world.scheduler.claims.len(),
        usize::from(record.claim.is_some())
    );
    let at = record
        .host
        .as_ref()
        .map_or(String::new(), ToString::to_string);
    (migration.state, at)
}

fn check_ended(world: &World) {
    let (_, at) = ended(world);
    let record = world.scheduler.vm.as_ref().unwrap();
    // On its host it runs, or the host is dead and it can be evacuated.
    assert_eq!(record.state, vm::State::Active);
    let is_dead = world.dead.iter().any(|name| name.to_string() == at);
    for (name, agent) in &world.agents {
        let is_here = name.to_string() == at && !is_dead;
        let wanted = if is_here { D::Running } else { D::Absent };
        assert_eq!(agent.state, wanted, "{name}, the vm is on {at}");
    }
}

/// Goal: as in the header. Method: every effect x who dies x how the transfer would have ended.
#[test]
fn it_ends_whenever_a_host_dies() {
    let mut met = 0;
    for ends in [Transfer::Arrives, Transfer::Fails] {
        for dying in [&["h1"][..], &["h2"], &["h1", "h2"]] {
            for at in 1..60 {
                let mut world = World::new("live_migrate");
                world.transfer_ends = ends;
                let world = run(world, dying, |w, n| n >= at && transferring(w));
                if world.dead.is_empty() {
                    break;
                }
                met += 1;
                check_ended(&world);
            }
        }
    }
    assert!(met > 60, "{met}");
}

/// Goal: nobody waits for a transfer to a dead host to give up by itself.
#[test]
fn a_transfer_to_a_dead_host_is_stopped() {
    let mut world = World::new("live_migrate");
    world.transfer_takes = FOR_EVER;
    let world = run(world, &["h2"], |w, _| {
        w.agents[&host("h1")].state == D::MigratingOut
    });
    assert!(count(&world, "abort") >= 1);
    assert_eq!(ended(&world), (State::Failed, "h1".to_owned()));
    assert_eq!(world.refusal().reason, "DESTINATION_DEAD");
    check_ended(&world);
}

#[test]
fn a_vm_whose_source_died_is_where_it_can_be_evacuated_from() {
    let mut world = World::new("live_migrate");
    world.transfer_takes = FOR_EVER;
    let world = run(world, &["h1"], |w, _| {
        w.agents[&host("h1")].state == D::MigratingOut
    });
    assert_eq!(ended(&world), (State::Failed, "h1".to_owned()));
    assert_eq!(world.refusal().reason, "SOURCE_DEAD");
    let hint = world.refusal().hint.clone().unwrap();
    assert!(hint.contains("berth vm evacuate"), "{hint}");
    assert!(
        world.agents[&host("h2")].kept_disks,
        "it may have run there for a moment"
    );
}

/// Goal: half a guest is dropped, once the other half is proven dead and not before; the vm is where
/// it ran last.
#[test]
fn half_a_guest_is_dropped_when_its_other_half_is_dead() {
    for (dies, lives) in [("h1", "h2"), ("h2", "h1")] {
        let mut world = World::new("live_migrate");
        world.transfer_ends = Transfer::Breaks;
        let world = run(world, &[dies], |w, _| {
            let migration = w.scheduler.migration.as_ref().unwrap();
            migration.state == State::Unsettled
        });
        assert_eq!(ended(&world), (State::Completed, "h2".to_owned()));
        assert_eq!(*world.outcome(), Outcome::Succeeded);
        assert_eq!(world.agents[&host(lives)].state, D::Absent, "{lives}");
        let log = &world.scheduler.operation.log;
        let said = log.iter().any(|e| {
            e.step == Step::Settle
                && matches!(&e.mark, Mark::Failed(r) if r.reason == "POST_COPY_ENDED")
        });
        assert!(said, "{log:#?}");
    }
}

/// Goal: of a guest that left for a dead host, and whose disks were being copied, nobody guesses
/// which disks are whole.
#[test]
fn copied_disks_are_not_guessed_about() {
    for copied in [false, true] {
        let mut world = World::new("live_migrate");
        if copied {
            world.agents.get_mut(&host("h2")).unwrap().storage_id = "other".to_owned();
            let record = world.scheduler.vm.as_mut().unwrap();
            record.spec.disks.push(berth_domain::vm::Disk {
                image: None,
                format: berth_domain::vm::DiskFormat::Qcow2,
                size_gib: 1,
                seed: false,
            });
        }
        let world = run(world, &["h2"], |w, _| {
            transferring(w) && w.agents[&host("h1")].state == D::Absent
        });
        let wanted = match copied {
            false => (State::Completed, "h2".to_owned()),
            true => (State::Failed, String::new()),
        };
        assert_eq!(ended(&world), wanted);
        assert_eq!(count(&world, "post"), usize::from(!copied));
    }
}

/// Goal: one silent host is not taken for dead because the other one is.
#[test]
fn a_silent_host_is_waited_for_beside_a_dead_one() {
    for (dies, silent) in [("h1", "h2"), ("h2", "h1")] {
        let mut world = World::new("live_migrate");
        world.transfer_takes = FOR_EVER;
        let mut waits = 0;
        let mut died = false;
        world.watch(|world, _, effect| {
            if !died && world.agents[&host("h1")].state == D::MigratingOut {
                died = true;
                world.kill(&host(dies));
                world.silent.insert(host(silent), u32::MAX);
            }
            waits += u32::from(died && matches!(effect, Effect::Wait { .. }));
            if waits < 30 {
                let migration = world.scheduler.migration.as_ref().unwrap();
                assert!(!migration.state.is_ended());
            } else {
                world.silent.clear();
            }
        });
        assert!(waits >= 30);
        check_ended(&world);
    }
}
