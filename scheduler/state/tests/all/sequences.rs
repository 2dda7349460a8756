//! Goal: no sequence of commands, sensible or not, breaks an invariant, and the state follows
//! from commands and from rows alone.
//!
//! Method: commands are drawn against a small cluster, most of them with arguments that exist,
//! many of them in the wrong moment. [`World`](berth_testkit::state::World) looks at each step from all sides.

use berth_domain::operation::{Kind, Outcome, Step};
use berth_domain::vm;
use berth_state::State;
use berth_testkit::state::World;
use berth_testkit::state::draw::{draws, placement_draws, play, power_draws};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 4, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_sequence_keeps_every_invariant(draws in draws()) {
        let (world, _) = play(&draws);
        let rebuilt = State::from_rows(world.state.rows()).unwrap();
        prop_assert!(rebuilt == world.state, "taken apart and put together it differs");
        let mut backwards: Vec<_> = world.state.rows().collect();
        backwards.reverse();
        prop_assert!(State::from_rows(backwards).unwrap() == world.state);
    }

    #[test]
    fn every_sequence_of_placement_keeps_every_invariant(draws in placement_draws()) {
        let (world, _) = play(&draws);
        let mut backwards: Vec<_> = world.state.rows().collect();
        backwards.reverse();
        prop_assert!(State::from_rows(backwards).unwrap() == world.state);
    }

    #[test]
    fn every_sequence_of_power_keeps_every_invariant(draws in power_draws()) {
        let (world, _) = play(&draws);
        let mut backwards: Vec<_> = world.state.rows().collect();
        backwards.reverse();
        prop_assert!(State::from_rows(backwards).unwrap() == world.state);
    }

    #[test]
    fn equal_commands_give_equal_states(draws in draws()) {
        let (world, played) = play(&draws);
        let mut again = World::with_hosts(3);
        for (request, now, command) in played {
            again.now = now;
            let _ = again.run_as(request, command);
        }
        prop_assert!(again.state == world.state);
    }
}

/// Goal: the sequences above carry out every command of placement. Method: count over fixed draws.
#[test]
fn sequences_of_placement_carry_out_every_command() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
    let mut done = std::collections::BTreeMap::<String, u32>::new();
    for _ in 0..100 {
        let draws = placement_draws().new_tree(&mut runner).unwrap().current();
        let (_, played) = play(&draws);
        let mut again = World::with_hosts(3);
        for (request, now, command) in played {
            again.now = now;
            let text = format!("{command:?}");
            if again.run_as(request, command).is_ok() {
                let kind = text.split(' ').next().unwrap();
                *done.entry(kind.to_owned()).or_default() += 1;
            }
        }
    }
    // 21 commands of placement, and the three with which each sequence begins.
    assert_eq!(done.len(), 24, "{done:#?}");
    assert!(done.values().all(|count| *count > 2), "{done:#?}");
}

/// Goal: the sequences above reach what they are about. Method: count over fixed draws.
#[test]
fn sequences_reach_the_far_corners() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
    let (mut settled, mut deleted, mut excluded, mut unsettled) = (0, 0, 0, 0);
    let mut misshapen = 0;
    let (mut resized, mut reverted, mut shelved, mut unshelved, mut moved) = (0, 0, 0, 0, 0);
    for _ in 0..260 {
        let draws = draws().new_tree(&mut runner).unwrap().current();
        let (world, _) = play(&draws);
        for operation in world.state.operations().values() {
            let done = operation.is_done();
            settled += usize::from(done && operation.log.iter().any(|e| e.step == Step::Settle));
            deleted += usize::from(done && operation.kind == Kind::Delete);
            excluded += usize::from(!operation.excluded.is_empty());
            let well = operation.outcome == Some(Outcome::Succeeded);
            reverted += usize::from(well && matches!(operation.kind, Kind::RevertResize { .. }));
            shelved += usize::from(well && operation.kind == Kind::Shelve);
            unshelved += usize::from(well && operation.kind == Kind::Unshelve);
            moved += usize::from(well && matches!(operation.kind, Kind::ColdMigrate { .. }));
        }
        let migrations = world.state.migrations().values();
        resized += migrations.filter(|m| m.resize.is_some()).count();
        let migrations = world.state.migrations().values();
        let mut hosts = world.state.hosts().values();
        misshapen += usize::from(hosts.any(|view| view.host.shape_refused.is_some()));
        unsettled += migrations.filter(|m| m.error.is_some()).count();
    }
    let cold = [resized, reverted, shelved, unshelved, moved];
    assert!(cold.iter().all(|count| *count > 5), "{cold:?}");
    let all = [settled, deleted, excluded, unsettled, misshapen];
    assert!(all.iter().all(|count| *count > 5), "{all:?}");
}

/// Goal: the sequences on VMs where they are reach what they are about. Method: count over fixed
/// draws.
#[test]
fn sequences_of_power_reach_every_end() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
    let (mut stopped, mut broken) = (0, 0);
    let mut ends = std::collections::BTreeMap::<&str, [u32; 2]>::new();
    for _ in 0..200 {
        let draws = power_draws().new_tree(&mut runner).unwrap().current();
        let (world, _) = play(&draws);
        for operation in world.state.operations().values() {
            let power = operation.kind.is_power();
            let Some(task) = operation.kind.task().filter(|_| power) else {
                continue;
            };
            let end = ends.entry(task).or_default();
            match &operation.outcome {
                Some(Outcome::Succeeded) => end[0] += 1,
                Some(Outcome::Failed(_)) => end[1] += 1,
                None => {}
            }
        }
        for vm in world.state.vms().values() {
            stopped += u32::from(vm.state == vm::State::Stopped);
            broken += u32::from(vm.state == vm::State::Error && vm.claim.is_some());
        }
    }
    assert_eq!(ends.len(), 5, "{ends:?}");
    let all = ends.values().flatten().chain([&stopped, &broken]);
    assert!(
        all.into_iter().all(|count| *count > 5),
        "{ends:?} {stopped} {broken}"
    );
}
