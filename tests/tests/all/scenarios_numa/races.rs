//! Scenario 34: no CPU is used twice, whatever happens at once.
//!
//! Method: users boot, move and delete guests with dedicated CPUs at the same time, more than
//! there is room for, while somebody looks again and again at what each host has given away and at
//! what its hypervisor runs.
//!
//! What waits until guests can be resized: the races of confirming and reverting a resize
//! (launchpad 1879878, 1944759, 1953359), in which both sizes of one guest hold CPUs.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use berth_domain::claim::Claim;
use berth_domain::cpu_set::CpuSet;
use berth_domain::numa::Assignment;
use berth_tests::processes::{Cluster, Host, eventually, verdict};
use serde_json::Value;

use super::world::{World, running};

const HOSTS: [&str; 3] = ["r1", "r2", "r3"];
const USERS: u32 = 4;
/// Each round is two boots, two moves and two deletions of each user.
const ROUNDS: u32 = 3;

/// Answers that users must expect while others are at work too.
const EXPECTED: [&str; 2] = ["NO_VALID_HOST", "VM_BUSY"];

/// What was done, so that a test in which everything is refused does not pass.
#[derive(Default)]
struct Tally {
    booted: AtomicU32,
    moved: AtomicU32,
    refused: AtomicU32,
}

#[test]
fn no_cpu_is_used_twice_while_guests_come_move_and_go() {
    let world = World::start(HOSTS.map(Host::new).to_vec());
    // 18 dedicated CPUs are there; the users want 24.
    world.cluster.pinned_flavor("three", 3);
    let (tally, is_over) = (Tally::default(), AtomicBool::new(false));
    let looks = std::thread::scope(|scope| {
        let watch = scope.spawn(|| watch(&world.cluster, &is_over));
        let users: Vec<_> = (0..USERS)
            .map(|number| {
                scope.spawn({
                    let (cluster, tally) = (&world.cluster, &tally);
                    move || user(cluster, number, tally)
                })
            })
            .collect();
        let ends: Vec<_> = users.into_iter().map(|user| user.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        for end in ends {
            end.expect("a user who was answered as expected");
        }
        watch.join().expect("nobody saw a CPU twice")
    });
    eventually("the end of all operations", || {
        let running = world.cluster.ask(&["operation", "list", "--running"])?;
        let count = running.as_array().map_or(0, Vec::len);
        if count == 0 {
            Ok(())
        } else {
            Err(format!("{running:#}"))
        }
    });
    verdict::holds(&world.cluster);
    verdict::runs_what_is_claimed(&world.cluster);
    let [booted, moved, refused] =
        [&tally.booted, &tally.moved, &tally.refused].map(|n| n.load(Ordering::Relaxed));
    println!("{booted} booted, {moved} moved, {refused} refused, {looks} looks");
    assert!(booted >= USERS * ROUNDS / 2, "{booted} booted");
    assert!(moved > 0 && refused > 0, "{moved} moved, {refused} refused");
    assert!(looks >= 10, "only {looks} looks");
}

/// Boots two guests, moves them, and deletes one while it may still move; the other one stays
/// until the next round.
fn user(cluster: &Cluster, number: u32, tally: &Tally) {
    for _ in 0..ROUNDS {
        for twin in ["a", "b"] {
            let vm = format!("u{number}{twin}");
            let booted = tried(cluster, &Cluster::create(&vm, "three"), tally);
            tally.booted.fetch_add(u32::from(booted), Ordering::Relaxed);
            if !booted {
                continue;
            }
            let moved = tried(cluster, &["vm", "migrate", &vm], tally);
            tally.moved.fetch_add(u32::from(moved), Ordering::Relaxed);
        }
        for twin in ["a", "b"] {
            let vm = format!("u{number}{twin}");
            let is_there = cluster.berth(&["vm", "show", &vm]).status == Some(0);
            if is_there {
                // Whoever is first; the other one is told that somebody is at work.
                tried(cluster, &["vm", "migrate", &vm, "--no-wait"], tally);
                eventually("the end of a guest", || {
                    match tried(cluster, &["vm", "delete", &vm], tally) {
                        true => Ok(()),
                        false => Err("somebody is at work on it"),
                    }
                });
            }
        }
    }
}

/// Returns whether it was done; refused may it be for few reasons only.
#[track_caller]
fn tried(cluster: &Cluster, asked: &[&str], tally: &Tally) -> bool {
    let answer = cluster.berth(asked);
    if answer.status == Some(0) {
        return true;
    }
    let said = EXPECTED.iter().any(|reason| answer.stderr.contains(reason));
    assert!(said, "{answer:#?}");
    tally.refused.fetch_add(1, Ordering::Relaxed);
    false
}

/// Looks until it is over, and returns how often at least two guests were seen on one host.
fn watch(cluster: &Cluster, is_over: &AtomicBool) -> u32 {
    let mut looks = 0;
    while !is_over.load(Ordering::Relaxed) {
        for host in HOSTS {
            let shown = cluster.json(&["host", "show", host]);
            let claims: Vec<Claim> =
                serde_json::from_value(shown["claims"].clone()).expect("claims");
            let assignments: Vec<_> = claims.into_iter().map(|c| c.assignment).collect();
            disjoint(host, &assignments, &shown);
            let running = running(cluster, host);
            let assignments: Vec<_> = running.into_iter().map(|(_, given)| given).collect();
            disjoint(host, &assignments, &Value::Null);
            looks += u32::from(assignments.len() > 1);
        }
    }
    looks
}

/// Checks that no two of these take the same CPU, and none the same twice.
#[track_caller]
fn disjoint(host: &str, assignments: &[Assignment], shown: &Value) {
    let mut taken = CpuSet::new();
    for given in assignments {
        let pins = given.cells.iter().flat_map(|cell| cell.pins.values());
        let distinct: BTreeSet<_> = pins.clone().collect();
        assert_eq!(distinct.len(), pins.count(), "{host}: {given:?}");
        let twice = taken.intersection(&given.taken());
        assert!(
            twice.is_empty(),
            "CPUs {twice} of {host} twice: {assignments:?} {shown:#}"
        );
        taken = taken.union(&given.taken());
    }
}
