//! Goal: the state accepts what a saga logs, and refuses what that saga would not log next.
//!
//! Method: the saga of each kind of operation is played against the state, with agents that succeed
//! or refuse. What it commits must be accepted. Before each commit of a play without faults, every
//! other step with every mark and every effect is examined too: nothing with an effect in the world
//! may be accepted but what the saga logs.

mod player;
mod recovery;
mod scenario;

use std::collections::BTreeSet;
use std::mem::discriminant;

use berth_domain::host::Liveness;
use berth_domain::operation::{Kind, Outcome, Step};
use berth_domain::vm::State;
use berth_state::command::Command;
use berth_testkit::state::{host_name, vm_name};
use player::Refusals;
use scenario::{SCENARIOS, Scenario};

/// Returns a number for each kind, without a gap: a kind that is added has no scenario.
fn number(kind: &Kind) -> usize {
    match kind {
        Kind::Boot => 0,
        Kind::Delete => 1,
        Kind::LiveMigrate { .. } => 2,
        Kind::ColdMigrate { .. } => 3,
        Kind::RevertResize { .. } => 4,
        Kind::Evacuate { .. } => 5,
        Kind::Shelve => 6,
        Kind::Unshelve => 7,
        Kind::Stop { .. } => 8,
        Kind::Start => 9,
        Kind::Reboot { .. } => 10,
        Kind::Rebuild { .. } => 11,
        Kind::Snapshot { .. } => 12,
        Kind::ConfirmResize { .. } => 13,
        Kind::DrainHost(_) => unreachable!("no saga: see `drains`"),
    }
}

const KINDS: usize = 14;

#[test]
fn the_state_accepts_what_the_saga_logs_and_nothing_else() {
    let (mut kinds, mut steps) = (BTreeSet::new(), BTreeSet::new());
    for scenario in SCENARIOS {
        let mut player = scenario.player();
        player.examines_others = true;
        player.play();
        let operation = player.operation();
        assert_eq!(operation.outcome, Some(Outcome::Succeeded), "{scenario:?}");
        kinds.insert(number(&operation.kind));
        steps.extend(operation.log.iter().map(|entry| entry.step));
        assert!(
            player.examined > 100,
            "{scenario:?}: only {}",
            player.examined
        );
    }
    assert_eq!(kinds, (0..KINDS).collect(), "kinds without a scenario");
    let unplayed: Vec<_> = Step::ALL.iter().filter(|s| !steps.contains(s)).collect();
    assert!(unplayed.is_empty(), "no scenario has {unplayed:?}");
}

/// Method: the agent refuses the call of one step once, and so often that the operation gives up
/// where it can.
#[test]
fn the_state_accepts_how_the_saga_gives_up() {
    let mut gave_up = BTreeSet::new();
    for scenario in SCENARIOS {
        let mut clean = scenario.player();
        clean.play();
        for step in clean.logged.clone() {
            for times in [1, 4] {
                let mut player = scenario.player();
                player.refusals = Some(Refusals { step, times });
                player.play();
                let operation = player.operation();
                let outcome = operation.outcome.clone();
                let outcome = outcome.unwrap_or_else(|| panic!("{scenario:?} {step:?}: no end"));
                if discriminant(&outcome) != discriminant(&Outcome::Succeeded) {
                    gave_up.insert(number(&operation.kind));
                }
            }
        }
    }
    // Those that are never given up: deletion, revert, shelving, confirmation.
    let goes_on = [1, 4, 6, 13];
    let expected: BTreeSet<_> = (0..KINDS).filter(|k| !goes_on.contains(k)).collect();
    assert_eq!(gave_up, expected);
}

#[test]
fn the_state_refuses_an_undo_where_the_saga_has_none() {
    for scenario in SCENARIOS {
        let mut clean = scenario.player();
        clean.play();
        let player = scenario.player();
        let plans = berth_saga::steps(&player.operation().kind);
        for step in &Step::ALL {
            let plan = plans.iter().find(|plan| plan.step == *step);
            let has_undo = plan.is_some_and(|p| p.undo != berth_saga::plan::Undo::NoReturn);
            let accepted = player.accepts_undo(*step);
            assert!(
                has_undo || !accepted,
                "{scenario:?}: {step:?} has no undo in the saga"
            );
            let played = clean.logged.contains(step) && *step != Step::Claim;
            assert!(
                !(has_undo && played) || accepted,
                "{scenario:?}: the undo of {step:?} is refused"
            );
        }
    }
}

/// Goal: a fence command that had no effect does not have a guest run twice. Method: the host reports after
/// the evacuation has begun, before its first step.
#[test]
fn an_evacuation_starts_no_guest_of_a_host_that_reports() {
    let mut player = Scenario::named("evacuation").player();
    player.may_be_refused = true;
    let up = Command::SetLiveness {
        host: host_name("h1"),
        liveness: Liveness::Up,
    };
    player.world.run(up).unwrap();
    player.play();
    let Some(Outcome::Failed(refusal)) = &player.operation().outcome else {
        panic!("{:?}", player.operation().outcome);
    };
    assert_eq!(refusal.reason, "HOST_IS_ALIVE");
    assert!(player.guests.is_empty(), "{:?}", player.guests);
    let vm = player.world.state.vm(&vm_name("a")).unwrap();
    assert_eq!(
        (vm.state, vm.host.as_ref()),
        (State::Active, Some(&host_name("h1")))
    );
}
