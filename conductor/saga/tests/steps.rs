//! Goal: from every step of every operation, whatever happens there, the operation ends with the
//! guest on exactly one host (or none, where it was refused or deleted), no leftover claim and a
//! log that makes sense. Method: the lists of steps themselves generate the cases (fails here,
//! is done twice, is undone twice, is cancelled here, its call comes late, its agent restarts),
//! and each case is run again with the conductor dying before and after every single effect.
//! Each case also asserts that its fault really happened where it was meant to.

mod transfer;
mod world;

use berth_domain::agent::{Call, DomainState};
use berth_domain::operation::{Kind, Mark, Outcome, Step};
use berth_domain::version::ServiceVersion;
use berth_domain::{migration, vm};
use berth_saga::plan::Undo;
use berth_saga::{Effect, Ended, Event, steps};
use world::{Death, EFFECTS_MAX, Fault, Script, Transfer, World, assignment, host};

const KINDS: [&str; 12] = [
    "boot",
    "delete",
    "live_migrate",
    "stop",
    "start",
    "start_active",
    "reboot",
    "rebuild",
    "rebuild_stopped",
    "rebuild_broken",
    "snapshot",
    "snapshot_stopped",
];

fn kind(world: &World) -> Kind {
    world.scheduler.operation.kind.clone()
}

/// Steps that ask an agent, with whether they have an undo that does.
fn asking(name: &str) -> Vec<(Step, bool)> {
    let plan = steps(&kind(&World::new(name)));
    plan.iter()
        .filter(|p| p.step != Step::Claim)
        // A guest that was stopped is not started by its rebuild: there is nobody to ask.
        .filter(|p| (name, p.step) != ("rebuild_stopped", Step::Start))
        // Its disks are on no other host.
        .filter(|p| (name, p.step) != ("delete", Step::DropSource))
        .map(|p| (p.step, p.undo == Undo::CallAgent))
        .collect()
}

const FAULTS: [Fault; 9] = [
    Fault::Refuse,
    Fault::NoAnswer(1),
    Fault::NoAnswer(9),
    Fault::LostAnswer,
    Fault::Late(3),
    Fault::Late(12),
    Fault::Restart,
    Fault::RestartUntold,
    Fault::Cancel,
];

/// Every fault at every step, and at every undo (which a refusal of the same step leads to).
fn cases(name: &str) -> Vec<Vec<Script>> {
    let mut cases = vec![Vec::new()];
    for (step, has_undo) in asking(name) {
        for fault in FAULTS {
            let undo = false;
            cases.push(vec![Script { step, undo, fault }]);
        }
        for fault in FAULTS.into_iter().filter(|_| has_undo) {
            let refused = Script {
                step,
                undo: false,
                fault: Fault::Refuse,
            };
            let undo = true;
            cases.push(vec![refused, Script { step, undo, fault }]);
        }
    }
    cases
}

fn transfers(name: &str) -> &'static [Transfer] {
    match name {
        "live_migrate" => &[Transfer::Arrives, Transfer::Fails, Transfer::Loses],
        _ => &[Transfer::Arrives],
    }
}

fn world(name: &str, transfer: Transfer, scripts: &[Script]) -> World {
    let mut world = World::new(name).with(scripts);
    world.transfer_ends = transfer;
    world
}

fn assert_happened(world: &World, scripts: &[Script]) {
    for script in scripts {
        assert!(
            world.happened.contains(script),
            "{script:?} did not happen: {:?}",
            world.scheduler.operation.log
        );
    }
}

#[test]
fn every_step_meets_every_fault() {
    for name in KINDS {
        for transfer in transfers(name) {
            for scripts in cases(name) {
                let mut world = world(name, *transfer, &scripts);
                assert_eq!(world.run(None), Ended::Finished, "{name} {scripts:?}");
                assert_happened(&world, &scripts);
                world.check_end();
                let refused = &world.scheduler.refused;
                let cancelled = scripts.iter().any(|s| s.fault == Fault::Cancel);
                assert!(refused.is_empty() || cancelled, "{scripts:?}: {refused:?}");
                if let [only] = scripts[..]
                    && only.fault == Fault::Cancel
                {
                    // A spawn learns of it with its own end, unless its driver says so before.
                    let ends = steps(&kind(&world)).last().map(|p| p.step) == Some(only.step);
                    let too_late = matches!(
                        only.step,
                        Step::Spawn | Step::Destroy | Step::LiveMigration | Step::Settle
                    ) || ends;
                    // A guest that stays is what was wished for, whoever was first.
                    let source = world.agents.get(&host("h1")).map(|agent| agent.state);
                    let is_transfer = matches!(only.step, Step::LiveMigration | Step::Settle);
                    let stayed = is_transfer && source == Some(DomainState::Running);
                    let too_late = too_late && !stayed;
                    let heeded = matches!(world.outcome(), Outcome::Failed(r) if r.reason == "OPERATION_CANCELLED");
                    assert_eq!(heeded, !too_late, "{only:?}");
                }
            }
        }
    }
}

#[test]
fn every_case_survives_the_conductors_death_at_every_effect() {
    let mut runs = 0;
    for name in KINDS {
        for transfer in transfers(name) {
            for scripts in cases(name) {
                let mut without = world(name, *transfer, &scripts);
                without.run(None);
                let effects = without.effects.len();
                for number in 1..=effects {
                    for death in [Death::Before(number), Death::After(number)] {
                        let mut world = world(name, *transfer, &scripts);
                        world.run(Some(death));
                        world.check_end();
                        runs += 1;
                    }
                }
            }
        }
    }
    assert!(runs > 5_000, "only {runs}");
}

/// A conductor that lost its lease without noticing goes on beside its successor.
#[test]
fn a_conductor_that_lost_its_lease_does_no_harm() {
    for name in KINDS {
        for transfer in transfers(name) {
            let mut without = world(name, *transfer, &[]);
            without.run(None);
            for number in 1..=without.effects.len() {
                for rhythm in 0..4_usize {
                    let mut world = world(name, *transfer, &[]);
                    side_by_side(&mut world, number, rhythm);
                    world.check_end();
                }
            }
        }
    }
}

/// Runs one conductor for some effects, then a second one beside it: in turns, or with the old
/// one held back for a while.
fn side_by_side(world: &mut World, effects: usize, rhythm: usize) {
    let mut old = world.take_over();
    let mut pending = old.step(Event::Begin);
    for _ in 1..effects {
        let effect = pending.take().expect("an effect");
        let Some(event) = world.perform(&effect) else {
            return;
        };
        pending = old.step(event);
    }
    let mut new = world.take_over();
    let mut next = new.step(Event::Begin);
    for turn in 0..EFFECTS_MAX {
        let is_olds_turn = match rhythm {
            0 => turn % 2 == 0,
            1 => turn % 2 == 1,
            2 => turn % 7 == 6,
            _ => next.is_none(),
        };
        let (saga, effect) = if is_olds_turn && pending.is_some() {
            (&mut old, &mut pending)
        } else if next.is_some() {
            (&mut new, &mut next)
        } else {
            (&mut old, &mut pending)
        };
        let Some(taken) = effect.take() else {
            return;
        };
        if let Some(event) = world.perform(&taken) {
            *effect = saga.step(event);
        }
    }
    panic!("no end: {:#?}", world.scheduler.operation.log);
}

/// The scheduler has no leader for a while: what was committed may have been.
#[test]
fn commits_without_an_answer_are_made_again() {
    for name in KINDS {
        for transfer in transfers(name) {
            let mut without = world(name, *transfer, &[]);
            without.run(None);
            let commits = without
                .effects
                .iter()
                .filter(|e| matches!(e, Effect::Commit(_)))
                .count();
            for number in 0..commits {
                let mut world = world(name, *transfer, &[]);
                let mut seen = 0;
                world.watch(|world, _, effect| {
                    if matches!(effect, Effect::Commit(_)) {
                        if seen == number {
                            world.scheduler.mute = 3;
                        }
                        seen += 1;
                    }
                });
                assert!(seen >= number + 4, "{name}: the answers were not lost");
                world.check_end();
                assert_eq!(world.outcome(), without.outcome());
            }
        }
    }
}

// ---- single stories ------------------------------------------------------------------------

fn script(step: Step, fault: Fault) -> Script {
    Script {
        step,
        undo: false,
        fault,
    }
}

fn name_of(call: &Call) -> &'static str {
    match call {
        Call::SpawnVm { .. } => "spawn",
        Call::DestroyVm => "destroy",
        Call::GetDomain => "get",
        Call::CheckCanLiveMigrateDestination { .. } => "check_destination",
        Call::CheckCanLiveMigrateSource { .. } => "check_source",
        Call::FitLiveMigration { .. } => "fit",
        Call::PreLiveMigration { .. } => "pre",
        Call::LiveMigration { .. } => "live_migration",
        Call::RollbackLiveMigrationAtDestination { .. } => "rollback",
        Call::PostLiveMigrationAtSource { .. } => "post",
        Call::StopVm { .. } => "stop",
        Call::StartVm { .. } => "start",
        Call::SettleVm => "settle",
        Call::AbortLiveMigration { .. } => "abort",
        Call::ForceCompleteLiveMigration { .. } => "force_complete",
        Call::MakeDisks { .. } => "make_disks",
        Call::CopyDisk { .. } => "copy_disk",
        Call::PublishImage { .. } => "publish",
        Call::DropImage { .. } => "drop",
        Call::FetchDisks(_) => "fetch_disks",
        Call::DropDisks { .. } => "drop_disks",
    }
}

pub(crate) fn calls(world: &World) -> Vec<(String, &'static str)> {
    let calls = world.effects.iter().filter_map(|e| match e {
        Effect::Call(call) => Some((call.host.to_string(), name_of(&call.call))),
        Effect::Commit(_)
        | Effect::ScheduleNext { .. }
        | Effect::Refresh
        | Effect::Wait { .. }
        | Effect::Watch(_)
        | Effect::Done(_) => None,
    });
    calls.collect()
}

#[test]
fn a_live_migration_asks_in_the_order_of_the_handshake() {
    let mut world = world("live_migrate", Transfer::Arrives, &[]);
    world.run(None);
    let mut calls: Vec<(String, &str)> = calls(&world);
    calls.dedup();
    calls.truncate(7);
    let expected = [
        ("h2", "check_destination"),
        ("h1", "check_source"),
        ("h2", "fit"),
        ("h2", "pre"),
        ("h1", "live_migration"),
        ("h1", "get"),
        ("h2", "get"),
    ];
    let calls: Vec<(&str, &str)> = calls.iter().map(|(h, c)| (h.as_str(), *c)).collect();
    assert_eq!(calls, expected);
    assert_eq!(*world.outcome(), Outcome::Succeeded);
}

#[test]
fn a_refusing_host_is_followed_by_the_next() {
    for (name, step) in [
        ("boot", Step::Spawn),
        ("live_migrate", Step::FitDestination),
    ] {
        let mut world = world(name, Transfer::Arrives, &[script(step, Fault::Refuse)]);
        world.run(None);
        world.check_end();
        assert_eq!(*world.outcome(), Outcome::Succeeded, "{name}");
        assert_eq!(world.scheduler.operation.excluded.len(), 1);
    }
}

#[test]
fn three_hosts_are_tried_and_no_more() {
    for (name, step, first) in [
        ("boot", Step::Spawn, 1),
        ("live_migrate", Step::CheckDestination, 2),
    ] {
        let fault = [script(step, Fault::Refuse); 4];
        let mut world = world(name, Transfer::Arrives, &fault);
        world.scheduler.candidates = ["h1", "h2", "h3", "h4"].map(host).to_vec();
        world.run(None);
        world.check_end();
        assert_eq!(world.refusal().reason, "SCRIPTED");
        assert_eq!(world.happened.len(), 3, "{name}");
        let last = world.refusal().metadata.get("host").cloned();
        assert_eq!(last, Some(format!("h{}", first + 2)));
    }
}

#[test]
fn a_named_host_has_no_alternative() {
    for (name, step) in [
        ("boot", Step::Spawn),
        ("live_migrate", Step::FitDestination),
    ] {
        let mut world = world(name, Transfer::Arrives, &[script(step, Fault::Refuse)]);
        world.scheduler.operation.requested_host = Some(host("h2"));
        world.run(None);
        world.check_end();
        assert_eq!(world.refusal().reason, "SCRIPTED", "{name}");
    }
}

#[test]
fn the_refusal_says_why_there_was_no_other_host() {
    let mut world = world(
        "boot",
        Transfer::Arrives,
        &[script(Step::Spawn, Fault::Refuse)],
    );
    world.scheduler.candidates.truncate(1);
    world.run(None);
    world.check_end();
    assert_eq!(world.refusal().reason, "SCRIPTED");
    assert_eq!(world.refusal().metadata["alternatives"], "no host has room");
}

#[test]
fn a_sources_refusal_is_not_held_against_other_destinations() {
    let refused = [script(Step::CheckSource, Fault::Refuse)];
    let mut world = world("live_migrate", Transfer::Arrives, &refused);
    world.run(None);
    world.check_end();
    assert_eq!(world.refusal().reason, "SCRIPTED");
    assert!(calls(&world).iter().all(|(host, _)| host != "h3"));
}

#[test]
fn a_swapped_claim_is_what_the_guest_arrives_on() {
    let mut world = world("live_migrate", Transfer::Arrives, &[]);
    world.agents.get_mut(&host("h2")).unwrap().fits = Some(assignment(7));
    world.run(None);
    world.check_end();
    let claim = world.scheduler.claims.values().next().unwrap();
    assert_eq!(claim.assignment, assignment(7));
}

#[test]
fn a_wrong_answer_is_a_refusal() {
    for step in [
        Step::CheckDestination,
        Step::CheckSource,
        Step::FitDestination,
    ] {
        let wrong = [script(step, Fault::WrongAnswer)];
        let mut world = world("live_migrate", Transfer::Arrives, &wrong);
        world.scheduler.operation.requested_host = Some(host("h2"));
        world.run(None);
        world.check_end();
        assert_eq!(world.refusal().reason, "UNEXPECTED_ANSWER");
    }
}

#[test]
fn agents_that_are_too_old_are_not_even_asked() {
    for (source, destination, side) in [(1, 2, "the source"), (2, 1, "the destination")] {
        let mut world = world("live_migrate", Transfer::Arrives, &[]);
        world.scheduler.operation.requested_host = Some(host("h2"));
        world.agents.get_mut(&host("h1")).unwrap().version = ServiceVersion(source);
        world.agents.get_mut(&host("h2")).unwrap().version = ServiceVersion(destination);
        world.run(None);
        world.check_end();
        assert!(calls(&world).is_empty());
        assert_eq!(world.refusal().reason, "SERVICE_VERSION_TOO_OLD");
        assert!(world.refusal().message.contains(side));
    }
}

/// Goal: the gate is asked before every call, and not only before the first. Method: at each call
/// its agent turns out to have been started anew, at an older version; with the new facts the gate
/// is asked again. Past the point of no return it is not: the hypervisors decide there.
#[test]
fn the_version_gate_is_asked_at_every_step() {
    for (name, asked) in [
        ("check_destination", "h2"),
        ("check_source", "h1"),
        ("fit", "h2"),
        ("pre", "h2"),
        ("live_migration", "h1"),
    ] {
        let mut world = world("live_migrate", Transfer::Arrives, &[]);
        world.scheduler.operation.requested_host = Some(host("h2"));
        let mut met = 0;
        world.watch(|world, _, effect| {
            let Effect::Call(call) = effect else { return };
            if name_of(&call.call) != name {
                return;
            }
            met += 1;
            assert_eq!(call.host, host(asked));
            let agent = world.agents.get_mut(&call.host).unwrap();
            if agent.version >= ServiceVersion::NUMA_LIVE_MIGRATION {
                agent.restart();
                agent.version = ServiceVersion(1);
                agent.told = agent.incarnation;
            }
        });
        world.check_end();
        assert_eq!(met, 1, "{name}: it is not called again");
        assert_eq!(world.refusal().reason, "SERVICE_VERSION_TOO_OLD", "{name}");
        assert_eq!(world.scheduler.vm.as_ref().unwrap().host, Some(host("h1")));
    }
}

#[test]
fn guests_without_a_topology_move_between_old_agents() {
    for (source, destination) in [(1, 2), (2, 1), (1, 1)] {
        let mut world = world("live_migrate", Transfer::Arrives, &[]);
        world.scheduler.vm.as_mut().unwrap().spec.topology = None;
        world.agents.get_mut(&host("h1")).unwrap().has_topology = false;
        world.agents.get_mut(&host("h1")).unwrap().version = ServiceVersion(source);
        world.agents.get_mut(&host("h2")).unwrap().version = ServiceVersion(destination);
        world.run(None);
        world.check_end();
        assert_eq!(*world.outcome(), Outcome::Succeeded);
        assert!(calls(&world).iter().all(|(_, call)| *call != "fit"));
    }
}

#[test]
fn a_silent_destination_leaves_it_openly_unsettled_until_it_speaks() {
    let mut world = world("live_migrate", Transfer::Arrives, &[]);
    let mut said = None;
    world.watch(|world, _, _| {
        let accepted = world.agents[&host("h1")].state == DomainState::MigratingOut;
        if accepted && said.is_none() {
            world.silent.insert(host("h2"), 20);
        }
        let migration = world.scheduler.migration.as_ref().unwrap();
        if migration.state == migration::State::Unsettled {
            assert_eq!(world.scheduler.claims.len(), 2);
            said = Some(world.scheduler.operation.log.last().unwrap().mark.clone());
        }
    });
    let Some(Mark::Failed(refusal)) = said else {
        panic!("it was never unsettled")
    };
    assert_eq!(refusal.reason, "MIGRATION_UNSETTLED");
    assert_eq!(refusal.metadata["waits_for"], "h2");
    world.check_end();
    assert_eq!(*world.outcome(), Outcome::Succeeded);
    // Said once, although it was asked many times.
    let doubts = world.scheduler.operation.log.iter();
    let doubts = doubts.filter(|e| e.step == Step::Settle && matches!(e.mark, Mark::Failed(_)));
    assert_eq!(doubts.count(), 1);
}

/// A destination that would not drop what it had of the guest was asked for ever without a word.
#[test]
fn a_destination_that_does_not_clean_up_is_told_of_once() {
    let mut world = world("live_migrate", Transfer::Fails, &[]);
    world.agents.get_mut(&host("h2")).unwrap().keeps = 20;
    world.run(None);
    world.check_end();
    assert_eq!(world.agents[&host("h2")].keeps, 0);
    assert_eq!(world.refusal().reason, "MIGRATION_FAILED");
    let log = world.scheduler.operation.log.iter();
    let doubts: Vec<_> = log
        .filter(|e| e.step == Step::Settle)
        .filter_map(|e| match &e.mark {
            Mark::Failed(refusal) => Some(refusal),
            Mark::Started | Mark::Succeeded | Mark::UndoStarted | Mark::Undone => None,
        })
        .collect();
    assert_eq!(doubts.len(), 1, "{doubts:?}");
    assert_eq!(doubts[0].metadata["waits_for"], "h2");
    assert_eq!(doubts[0].metadata["doubt"], "DestinationUnclean");
}

#[test]
fn a_source_that_dies_after_the_guest_has_left_keeps_nobody_waiting() {
    let mut world = world("live_migrate", Transfer::Arrives, &[]);
    world.watch(|world, _, effect| {
        if let Effect::Call(call) = effect
            && matches!(call.call, Call::PostLiveMigrationAtSource { .. })
        {
            world.silent.insert(host("h1"), 1000);
        }
    });
    // It said that it does not have the guest before it died, and that is all that is needed.
    world.check_end();
    assert!(world.silent[&host("h1")] > 900);
}

/// What was left of a guest that was lost stayed on its host's disks for ever.
#[test]
fn the_deletion_of_a_lost_guest_asks_the_host_that_has_its_files() {
    for (remains_on, asked) in [(Some("h1"), 1), (Some("h9"), 0), (None, 0)] {
        let mut world = World::new("delete");
        let record = world.scheduler.vm.as_mut().unwrap();
        record.host = None;
        record.claim = None;
        record.remains_on = remains_on.map(host);
        world.scheduler.claims.clear();
        world.agents.get_mut(&host("h1")).unwrap().state = DomainState::Absent;
        world.run(None);
        world.check_end();
        assert_eq!(*world.outcome(), Outcome::Succeeded);
        let calls = calls(&world);
        let destroyed = calls
            .iter()
            .filter(|(host, call)| (&**host, &**call) == ("h1", "destroy"));
        assert_eq!(destroyed.count(), asked, "{calls:?}");
    }
}

#[test]
fn a_deletion_waits_for_its_host_and_says_so() {
    let mut world = world("delete", Transfer::Arrives, &[]);
    world.silent.insert(host("h1"), 30);
    world.scheduler.operation.cancelled = true;
    world.run(None);
    world.check_end();
    assert_eq!(*world.outcome(), Outcome::Succeeded);
    let said = world
        .scheduler
        .operation
        .log
        .iter()
        .filter(|e| matches!(&e.mark, Mark::Failed(r) if r.reason == "WAITING_FOR_HOST"));
    assert_eq!(said.count(), 1);
    // The waits grow: thirty tries take minutes, not seconds.
    assert!(world.waited_ms > 100_000, "{}", world.waited_ms);
}

#[test]
fn an_undo_waits_for_its_host_and_the_claim_stays() {
    let mut world = world(
        "boot",
        Transfer::Arrives,
        &[script(Step::Spawn, Fault::LostAnswer)],
    );
    world.watch(|world, _, _| {
        if world.agents[&host("h1")].state == DomainState::Running {
            world.silent.entry(host("h1")).or_insert(25);
            assert_eq!(
                world.scheduler.vm.as_ref().unwrap().state,
                vm::State::Building
            );
            assert_eq!(world.scheduler.claims.len(), 1);
        }
    });
    world.check_end();
    assert_eq!(world.scheduler.vm.as_ref().unwrap().host, Some(host("h2")));
    let log = &world.scheduler.operation.log;
    let said = log
        .iter()
        .any(|e| matches!(&e.mark, Mark::Failed(r) if r.reason == "WAITING_FOR_HOST"));
    assert!(said, "{log:#?}");
}

#[test]
fn a_repeated_spawn_starts_one_guest() {
    let twice = [script(Step::Spawn, Fault::LostAnswer)];
    let mut world = world("boot", Transfer::Arrives, &twice);
    world.run(None);
    world.check_end();
    assert_eq!(world.agents[&host("h1")].spawned, 1);
    assert_eq!(calls(&world).len(), 2);
}

#[test]
fn cancelling_while_it_waits_is_heeded() {
    let silent = [script(Step::CheckDestination, Fault::NoAnswer(9))];
    let mut world = world("live_migrate", Transfer::Arrives, &silent);
    let mut cancelled = false;
    world.watch(|world, saga, effect| {
        if matches!(effect, Effect::Wait { .. }) && !cancelled {
            cancelled = true;
            world.scheduler.operation.cancelled = true;
            assert_eq!(saga.step(Event::CancelRequested), None);
        }
    });
    world.check_end();
    assert_eq!(world.refusal().reason, "OPERATION_CANCELLED");
    assert_eq!(calls(&world).len(), 1);
}

#[test]
fn a_spawn_that_is_cancelled_on_the_way_is_undone() {
    let mut world = world("boot", Transfer::Arrives, &[]);
    world.watch(|world, saga, effect| {
        if matches!(effect, Effect::Call(call) if matches!(call.call, Call::SpawnVm { .. })) {
            world.scheduler.operation.cancelled = true;
            assert_eq!(saga.step(Event::CancelRequested), None);
        }
    });
    world.check_end();
    assert_eq!(world.refusal().reason, "OPERATION_CANCELLED");
    assert_eq!(world.agents[&host("h1")].spawned, 1);
}
