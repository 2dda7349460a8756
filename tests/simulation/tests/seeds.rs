//! The simulation over many seeds, and over the planted bugs.
//!
//! Goal: from every crash, loss, delay and stall the cluster settles: no acknowledged command is
//! lost, members agree, every guest runs on exactly one host with its claim, and nothing is left
//! over. Method: `berth_simulation`, one virtual cluster per seed.
//!
//! Replay one seed, with every event:
//!
//! ```text
//! BERTH_SEED=17 BERTH_TRACE=1 cargo test -p berth-simulation --test seeds seeds -- --nocapture
//! ```
//!
//! Other numbers of seeds, or another beginning: `BERTH_SEEDS=5000 BERTH_FIRST_SEED=100000`.
//! A planted bug: `BERTH_BUG=release-early`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use berth_simulation::{Bug, Options, run};

/// How many seeds an ordinary test run goes through.
const SEEDS: u64 = 500;
/// Within how many seeds each planted bug must be found.
const SEEDS_FOR_BUGS: u64 = 200;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text:?} is not a number")),
    )
}

fn options(seed: u64) -> Options {
    let bug = std::env::var("BERTH_BUG")
        .ok()
        .map(|text| text.parse().expect("a known bug"));
    Options {
        bug,
        trace: std::env::var_os("BERTH_TRACE").is_some(),
        ..Options::new(seed)
    }
}

/// Runs a seed and says what failed, also where it panicked.
fn outcome(options: Options) -> Result<berth_simulation::Summary, String> {
    let ran = std::panic::catch_unwind(|| run(options));
    match ran {
        Ok(Ok(summary)) => Ok(summary),
        Ok(Err(failure)) => Err(failure.to_string()),
        Err(_) => Err(format!("seed {} panicked", options.seed)),
    }
}

#[test]
fn seeds() {
    let (first, seeds) = match number("BERTH_SEED") {
        Some(seed) => (seed, 1),
        None => (
            number("BERTH_FIRST_SEED").unwrap_or(1),
            number("BERTH_SEEDS").unwrap_or(SEEDS),
        ),
    };
    let next = AtomicU64::new(first);
    let results = thread::scope(|scope| {
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let work = || {
            let mut results = Vec::new();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= first + seeds {
                    return results;
                }
                results.push(outcome(options(seed)));
            }
        };
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .flat_map(|w| w.join().expect("a worker returns"))
            .collect::<Vec<_>>()
    });
    let failures: Vec<&String> = results.iter().filter_map(|r| r.as_ref().err()).collect();
    let good: Vec<_> = results.iter().filter_map(|r| r.as_ref().ok()).collect();
    println!(
        "{} seeds from {first}: {} events, {} acknowledged commands, {} migrations arrived, {} did not",
        results.len(),
        good.iter().map(|s| s.events).sum::<u64>(),
        good.iter().map(|s| s.acknowledged).sum::<usize>(),
        good.iter().map(|s| s.migrated).sum::<usize>(),
        good.iter().map(|s| s.stayed).sum::<usize>(),
    );
    let migrated: usize = good.iter().map(|s| s.migrated).sum();
    assert!(
        failures.is_empty(),
        "{} seeds failed; replay one with BERTH_SEED=…:\n{}",
        failures.len(),
        failures
            .iter()
            .take(5)
            .map(|f| f.as_str())
            .collect::<Vec<_>>()
            .join("\n")
    );
    assert!(
        seeds < 20 || migrated > 0,
        "not one guest was moved: the simulation does nothing"
    );
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in 1..=3 {
        assert_eq!(outcome(Options::new(seed)), outcome(Options::new(seed)));
    }
}

#[test]
fn planted_bugs_are_found() {
    for bug in Bug::ALL {
        let found = (1..=SEEDS_FOR_BUGS).find_map(|seed| {
            outcome(Options {
                bug: Some(bug),
                ..Options::new(seed)
            })
            .err()
        });
        match found {
            Some(failure) => println!(
                "{bug:?} is found: {}",
                failure.chars().take(300).collect::<String>()
            ),
            None => panic!("{bug:?} is not found within {SEEDS_FOR_BUGS} seeds"),
        }
    }
}
