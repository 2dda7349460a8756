//! The simulation over many seeds, and over the planted bugs.
//!
//! Goal: from every crash, loss, delay and stall the cluster settles: no acknowledged command is
//! lost, members agree, every guest runs on exactly one host with its claim, and nothing is left
//! over. Method: `berth_simulation`, one virtual cluster per seed.
//!
//! Replay one seed, with every event:
//!
//! ```text
//! BERTH_SEED=17 BERTH_TRACE=1 cargo test -p berth-simulation --test all seeds::seeds -- --nocapture
//! ```
//!
//! Other numbers of seeds, or another beginning: `BERTH_SEEDS=5000 BERTH_FIRST_SEED=100000`.
//! A planted bug: `BERTH_BUG=release-early`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use berth_domain::version::ServiceVersion;
use berth_simulation::{Bug, Options, Summary, run};

/// How many seeds an ordinary test run goes through.
const SEEDS: u64 = 100;
/// Within how many seeds each planted bug must be found.
const SEEDS_FOR_BUGS: u64 = 200;
/// Where the seeds begin among which the missing comparison of contents must be found.
const FIRST_SEED_OF_CONTENT: u64 = 1100;
/// How many seeds with volumes an ordinary test run goes through.
const VOLUMES: u64 = 12;
/// How many seeds with writes through any member an ordinary test run goes through.
const WRITERS: u64 = 30;
/// How many seeds with members that come and go an ordinary test run goes through.
const MEMBERSHIPS: u64 = 40;
/// How many seeds with damaged disks an ordinary test run goes through.
const DAMAGES: u64 = 30;
/// How many seeds with a directory that is put back an ordinary test run goes through.
const ROLLBACKS: u64 = 30;
/// How many seeds with lost schedulers an ordinary test run goes through.
const RESTORES: u64 = 30;
/// How many orders of a rolling upgrade an ordinary test run goes through.
const UPGRADES: u64 = 80;

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

fn with_membership(seed: u64) -> Options {
    Options {
        has_membership: true,
        has_writers: seed.is_multiple_of(4),
        ..options(seed)
    }
}

fn with_damage(seed: u64) -> Options {
    Options {
        has_damage: true,
        has_membership: seed.is_multiple_of(3),
        ..options(seed)
    }
}

fn with_rollback(seed: u64) -> Options {
    Options {
        has_rollback: true,
        ..options(seed)
    }
}

fn with_restore(seed: u64) -> Options {
    Options {
        has_restore: true,
        has_faults: !seed.is_multiple_of(3),
        ..options(seed)
    }
}

/// Why something may fail while nodes are exchanged and nothing else goes wrong: somebody is too old,
/// an agent went in the moment in which it was called, a conductor before it had a transfer begun, or
/// the wish made no sense when it came.
const EXPECTED: [&str; 19] = [
    "CLUSTER_VERSION_TOO_OLD",
    "SERVICE_VERSION_TOO_OLD",
    "HOST_UNREACHABLE",
    "FLAVOR_NOT_FOUND",
    "HOST_NOT_FOUND",
    "INVALID_VM",
    "MIGRATION_FAILED",
    "NO_VALID_HOST",
    "OPERATION_DONE",
    "SAME_FLAVOR",
    "SAME_HOST",
    "VM_BUSY",
    "VM_EXISTS",
    "VM_NOT_ACTIVE",
    "VM_NOT_FOUND",
    "VM_STATE",
    // What is drained takes nothing, and keeps what fits nowhere else.
    "HOST_CORDONED",
    "HOST_IS_DRAINED",
    "VMS_STAY",
];

type Outcome = Result<Summary, String>;

/// Runs a seed and says what failed, also where it panicked.
fn outcome(options: Options) -> Outcome {
    let ran = std::panic::catch_unwind(|| run(options));
    match ran {
        Ok(Ok(summary)) => Ok(summary),
        Ok(Err(failure)) => Err(failure.to_string()),
        Err(_) => Err(format!("seed {} panicked", options.seed)),
    }
}

/// Runs so many seeds from the first one, as many at once as there are processors; tells what came
/// of each in their order.
fn outcomes(first: u64, seeds: u64, options: impl Fn(u64) -> Options + Sync) -> Vec<Outcome> {
    let next = AtomicU64::new(first);
    thread::scope(|scope| {
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let work = || {
            let mut results = Vec::new();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= first + seeds {
                    return results;
                }
                results.push((seed, outcome(options(seed))));
            }
        };
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let results = workers.into_iter();
        let results: BTreeMap<u64, Outcome> = results
            .flat_map(|w| w.join().expect("a worker returns"))
            .collect();
        results.into_values().collect()
    })
}

#[track_caller]
fn none_failed(results: &[Outcome]) {
    let failures: Vec<&String> = results.iter().filter_map(|r| r.as_ref().err()).collect();
    assert!(
        failures.is_empty(),
        "{} seeds failed; replay one with BERTH_SEED=…:\n{}",
        failures.len(),
        failures
            .iter()
            .take(number("BERTH_FAILURES").map_or(5, |n| n as usize))
            .map(|f| f.as_str())
            .collect::<Vec<_>>()
            .join("\n")
    );
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
    let results = outcomes(first, seeds, options);
    let good: Vec<_> = results.iter().filter_map(|r| r.as_ref().ok()).collect();
    println!(
        "{} seeds from {first}: {} events, {} acknowledged commands, {} migrations arrived, {} did not",
        results.len(),
        good.iter().map(|s| s.events).sum::<u64>(),
        good.iter().map(|s| s.acknowledged).sum::<usize>(),
        good.iter().map(|s| s.migrated).sum::<usize>(),
        good.iter().map(|s| s.stayed).sum::<usize>(),
    );
    none_failed(&results);
    let migrated: usize = good.iter().map(|s| s.migrated).sum();
    assert!(
        seeds < 20 || migrated > 0,
        "not one guest was moved: the simulation does nothing"
    );
}

/// Goal: a cluster whose schedulers are all lost, and that goes on with a state from any moment before,
/// settles with its hosts: in between nothing is started twice and no call of the lost time is carried
/// out; in the end every guest that runs has a VM and a claim, and nothing conflicts.
///
/// Replay one with `BERTH_SEED=…` as above; other numbers of seeds by `BERTH_RESTORES`.
#[test]
fn clusters_older_than_their_hosts_settle() {
    let (first, seeds) = match number("BERTH_SEED") {
        Some(seed) => (seed, 1),
        None => (
            number("BERTH_FIRST_SEED").unwrap_or(1),
            number("BERTH_RESTORES").unwrap_or(RESTORES),
        ),
    };
    let results = outcomes(first, seeds, with_restore);
    let good: Vec<_> = results.iter().filter_map(|r| r.as_ref().ok()).collect();
    let recoveries: usize = good.iter().map(|s| s.recoveries).sum();
    println!(
        "{} seeds from {first}: {recoveries} recoveries, {} requests granted, {} migrations arrived",
        results.len(),
        good.iter().map(|s| s.granted).sum::<usize>(),
        good.iter().map(|s| s.migrated).sum::<usize>(),
    );
    none_failed(&results);
    assert!(
        seeds < 20 || recoveries as u64 >= seeds,
        "{recoveries} recoveries"
    );
}

/// Goal: whatever is lost, late or dead while volumes are created, published and deleted, in the end
/// each host has exactly the devices that the cluster knows, where it knows them, none over another.
///
/// Replay one with `BERTH_SEED=…` as above; other numbers of seeds by `BERTH_VOLUMES`.
#[test]
fn volumes_are_neither_lost_nor_left_over() {
    let with_volumes = |seed: u64| Options {
        has_volumes: true,
        ..options(seed)
    };
    let (first, seeds) = match number("BERTH_SEED") {
        Some(seed) => (seed, 1),
        None => (1, number("BERTH_VOLUMES").unwrap_or(VOLUMES)),
    };
    let results = outcomes(first, seeds, with_volumes);
    none_failed(&results);
    let done = results.iter().filter_map(|r| r.as_ref().ok());
    let done = done.fold([0; 3], |sum, summary| {
        [0, 1, 2].map(|at| sum[at] + summary.volumes[at])
    });
    println!("volumes created, published and deleted in {seeds} seeds: {done:?}");
    assert!(seeds < 10 || done.iter().all(|done| *done > 0), "{done:?}");
}

/// Goal: what a client was told of its write stays true, whatever is lost, late or dead on the way
/// from the member that took it to the leader and back, and however long the client waits: done
/// once, with that outcome, or never.
///
/// Replay one with `BERTH_SEED=…` as above; other numbers of seeds by `BERTH_WRITERS`.
#[test]
fn forwarded_writes_become_what_was_answered() {
    let with_writers = |seed: u64| Options {
        has_writers: true,
        ..options(seed)
    };
    let (first, seeds) = match number("BERTH_SEED") {
        Some(seed) => (seed, 1),
        None => (1, number("BERTH_WRITERS").unwrap_or(WRITERS)),
    };
    let results = outcomes(first, seeds, with_writers);
    let done = results.iter().filter_map(|r| r.as_ref().ok());
    let done = done.fold([0; 3], |sum, summary| {
        [0, 1, 2].map(|at| sum[at] + summary.writes[at])
    });
    println!("writes done, not done and in doubt in {seeds} seeds: {done:?}");
    none_failed(&results);
    assert!(seeds < 10 || done.iter().all(|done| *done > 0), "{done:?}");
}

/// Goal: members come and go, and lose their directories, while everything else goes wrong and users
/// go on: the voters with whole directories are a quorum at each moment, and in the end the members
/// are those whose joining was acknowledged, each with a program, and nothing acknowledged is lost.
///
/// Replay one with `BERTH_SEED=…` as above; other numbers of seeds by `BERTH_MEMBERSHIPS`.
#[test]
fn members_come_and_go() {
    let (first, seeds) = range("BERTH_MEMBERSHIPS", MEMBERSHIPS);
    let results = outcomes(first, seeds, with_membership);
    let done = results.iter().filter_map(|r| r.as_ref().ok());
    let done = done.map(|summary| {
        let done = summary.members;
        let removals = [done.removed, done.refused, done.ended];
        [
            &[done.joined, done.promoted, done.transferred],
            &removals[..],
        ]
        .concat()
    });
    let done = done.fold([0; 6], |sum, done| {
        std::array::from_fn(|at| sum[at] + done[at])
    });
    println!(
        "members joined, promoted by request, transfers, removed, removals refused, ended by \
         themselves in {seeds} seeds: {done:?}"
    );
    none_failed(&results);
    assert!(seeds < 20 || done.iter().all(|done| *done > 0), "{done:?}");
}

/// Goal: what failed once does not fail again, as long as the draws of these seeds stay.
#[test]
fn seeds_that_failed_once() {
    const MEMBERSHIP: [u64; 2] = [1209, 1259];
    const DAMAGE: [u64; 3] = [63, 138, 300_144];
    const ROLLBACK: [u64; 6] = [19, 1027, 1121, 1157, 1570, 1607];
    let all = [
        (&MEMBERSHIP[..], with_membership as fn(u64) -> Options),
        (&DAMAGE[..], with_damage),
        (&ROLLBACK[..], with_rollback),
    ];
    let results = all
        .into_iter()
        .flat_map(|(seeds, with)| seeds.iter().map(move |seed| outcome(with(*seed))));
    none_failed(&results.collect::<Vec<_>>());
}

/// Goal: a member whose disk lost what it had synchronised does not start, whatever is lost and
/// whenever, and is replaced; a loss of power alone never keeps one from starting; nothing
/// acknowledged is lost.
///
/// Replay one with `BERTH_SEED=…` as above; other numbers of seeds by `BERTH_DAMAGES`.
#[test]
fn a_damaged_disk_is_refused_and_replaced() {
    let (first, seeds) = range("BERTH_DAMAGES", DAMAGES);
    let results = outcomes(first, seeds, with_damage);
    let done = results.iter().filter_map(|r| r.as_ref().ok());
    let refused: usize = done.clone().map(|s| s.seen.refused).sum();
    let joined: usize = done.map(|s| s.members.joined).sum();
    println!("starts refused, members joined in {seeds} seeds: {refused}, {joined}");
    none_failed(&results);
    assert!(seeds < 10 || (refused > 0 && joined > 0));
}

/// Goal: where the directory of a member is put back as a whole, which nothing on its disk shows,
/// nothing acknowledged is lost, or a member notices: two histories are never both served.
///
/// Replay one with `BERTH_SEED=…` as above; other numbers of seeds by `BERTH_ROLLBACKS`.
#[test]
fn an_older_directory_is_noticed() {
    let (first, seeds) = range("BERTH_ROLLBACKS", ROLLBACKS);
    let results = outcomes(first, seeds, with_rollback);
    let done = results.iter().filter_map(|r| r.as_ref().ok());
    let noticed = done.clone().filter(|s| s.seen.contradicted > 0).count();
    let split: usize = done.map(|s| s.seen.split).sum();
    println!("noticed by a member, with two histories in {seeds} seeds: {noticed}, {split}");
    none_failed(&results);
    assert!(seeds < 20 || (noticed > 0 && split > 0));
}

/// Returns the first seed and how many there are.
fn range(variable: &str, usual: u64) -> (u64, u64) {
    match number("BERTH_SEED") {
        Some(seed) => (seed, 1),
        None => (
            number("BERTH_FIRST_SEED").unwrap_or(1),
            number(variable).unwrap_or(usual),
        ),
    }
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for (seed, more) in [(1, false), (2, false), (3, false), (1, true)] {
        let options = Options {
            has_volumes: more,
            has_writers: more,
            has_membership: more,
            has_damage: more,
            ..Options::new(seed)
        };
        assert_eq!(outcome(options), outcome(options));
    }
}

#[test]
fn planted_bugs_are_found() {
    for bug in Bug::ALL {
        // Of the rollbacks only about one in a hundred makes other entries of one term, and loses
        // all messages with them.
        let first = match bug {
            Bug::IgnoreContent => FIRST_SEED_OF_CONTENT,
            Bug::AnswerBeforeSync
            | Bug::ReleaseEarly
            | Bug::StaleEpoch
            | Bug::ForgetDoubt
            | Bug::AnswerAsItIs
            | Bug::RemoveBelowQuorum
            | Bug::IgnoreWitness
            | Bug::CarryOutLostCalls => 1,
        };
        let found = (first..first + SEEDS_FOR_BUGS).find_map(|seed| {
            outcome(Options {
                bug: Some(bug),
                has_writers: matches!(bug, Bug::ForgetDoubt | Bug::AnswerAsItIs),
                has_membership: bug == Bug::RemoveBelowQuorum,
                has_damage: bug == Bug::IgnoreWitness,
                has_rollback: bug == Bug::IgnoreContent,
                has_restore: bug == Bug::CarryOutLostCalls,
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

/// Goal: whatever the order in which three members, two conductors and all agents are exchanged for
/// newer programs, and some of them back in between, everything holds that holds without; nothing
/// fails but what somebody was too old for; once the version is raised everything works. Method:
/// 80 orders, from each older version, one half with everything else going wrong too.
///
/// Replay one with `BERTH_SEED=…` as above; other numbers of orders by `BERTH_UPGRADES`.
#[test]
fn upgrades_in_any_order() {
    let upgrade = |seed: u64| Options {
        from: ServiceVersion(1 + u32::try_from(seed % 3).expect("a small number")),
        has_faults: seed % 4 < 2,
        ..options(seed)
    };
    let (first, seeds) = match number("BERTH_SEED") {
        Some(seed) => (seed, 1),
        None => (1, number("BERTH_UPGRADES").unwrap_or(UPGRADES)),
    };
    let results = outcomes(first, seeds, upgrade);
    none_failed(&results);
    let mut quiet = BTreeMap::new();
    let mut granted_afterwards = 0;
    for (seed, summary) in (first..).zip(&results) {
        let Ok(summary) = summary else { continue };
        granted_afterwards += summary.granted_afterwards;
        if !upgrade(seed).has_faults {
            for (reason, count) in &summary.failed {
                *quiet.entry(reason.as_str()).or_insert(0) += count;
            }
        }
    }
    println!("{granted_afterwards} wishes granted afterwards; without other faults: {quiet:#?}");
    let unexpected: Vec<_> = quiet.keys().filter(|r| !EXPECTED.contains(r)).collect();
    assert!(
        unexpected.is_empty(),
        "failed for other reasons: {unexpected:?}"
    );
    assert!(
        seeds < 20 || (granted_afterwards > 0 && quiet.contains_key("CLUSTER_VERSION_TOO_OLD"))
    );
}
