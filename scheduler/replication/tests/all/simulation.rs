//! The replica under simulated faults: a whole group in one thread, with virtual time.
//!
//! Goal: no acknowledged command is lost, members agree at equal index, predictions hold, one
//! leader decides per term, reads see everything acknowledged before them; under loss,
//! duplication, reordering, partitions, crashes that drop what was not synchronised, damaged
//! tables and checkpoints, and changes of the membership.
//!
//! Method: each seed is one run and decides everything in it. A failure prints its seed; replay it
//! with `BERTH_SEED=<seed> cargo test -p berth-replication --test all simulation::`. `BERTH_SEEDS=<n>`
//! runs more of them.

mod node;
mod world;

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};

use world::{Fault, Faults, World};

fn seeds(usual: u64) -> Vec<u64> {
    let number = |name| env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    match (number("BERTH_SEED"), number("BERTH_SEEDS")) {
        (Some(seed), _) => vec![seed],
        (None, Some(count)) => (1..=count).collect(),
        (None, None) => (1..=usual).collect(),
    }
}

fn run_all(usual: u64, faults: Faults, members: u64) {
    for seed in seeds(usual) {
        let run = || World::new(seed, faults, members).run();
        if let Err(cause) = catch_unwind(AssertUnwindSafe(run)) {
            eprintln!("seed {seed} failed; replay with BERTH_SEED={seed}");
            std::panic::resume_unwind(cause);
        }
    }
}

#[test]
fn calm_group_of_three() {
    run_all(20, Faults::NONE, 3);
}

#[test]
fn lossy_network() {
    run_all(100, Faults::NETWORK, 3);
}

#[test]
fn crashes_and_damage() {
    run_all(150, Faults::ALL, 3);
}

#[test]
fn five_members_under_everything() {
    run_all(50, Faults::ALL, 5);
}

#[test]
fn a_lone_member_that_crashes() {
    run_all(50, Faults::ALL, 1);
}

#[test]
fn disks_that_hang() {
    run_all(80, HANGING_DISKS, 3);
    run_all(30, HANGING_DISKS, 5);
}

const HANGING_DISKS: Faults = Faults {
    disks: true,
    ..Faults::ALL
};

/// Goal and method: see `world::gray`. Each fault, at the leader and at a follower, in groups of
/// three and of five.
#[test]
fn a_member_that_is_neither_up_nor_down() {
    let mut runs = 0;
    let mut wrong = Vec::new();
    let mut longest = 0;
    for fault in Fault::EVERY {
        for (at_leader, members) in [(true, 3), (false, 3), (true, 5), (false, 5)] {
            for seed in seeds(1) {
                let observed = World::new(seed, Faults::NONE, members).run_gray(fault, at_leader);
                runs += 1;
                longest = longest.max(observed.write_gap);
                if let Some(what) = observed.wrong() {
                    wrong.push(format!(
                        "seed {seed}, {members} members, {fault:?}, at leader: {at_leader}: \
                         {what}: {observed:?}"
                    ));
                }
            }
        }
    }
    eprintln!("{runs} runs, longest gap of writes: {longest} units");
    assert!(
        wrong.is_empty(),
        "{} of {runs} runs:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn members_come_and_go() {
    run_all(80, COMING_AND_GOING, 3);
}

const COMING_AND_GOING: Faults = Faults {
    members: true,
    ..Faults::ALL
};

#[test]
fn seeds_that_failed_once() {
    let failed = [
        // A batched append whose entries did not follow what it claimed they followed.
        (17, Faults::NETWORK, 3),
        (49, Faults::NETWORK, 3),
        // A snapshot that came too late and was not answered.
        (75, Faults::ALL, 3),
        // A leader that applied its own removal, asked for by the leader before it.
        (226, COMING_AND_GOING, 3),
    ];
    for (seed, faults, members) in failed {
        World::new(seed, faults, members).run();
    }
}

#[test]
fn a_seed_gives_the_same_run_twice() {
    for seed in [3, 77, 1001] {
        let one = World::new(seed, Faults::ALL, 3).run();
        let two = World::new(seed, Faults::ALL, 3).run();
        assert_eq!(one, two, "seed {seed}");
    }
}
