//! Scenarios 1, 3, 4 and 5: what is claimed, and what runs, while a guest moves and when it does not
//! arrive.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use berth_domain::claim::{Claim, Owner};
use berth_domain::cpu_set::CpuSet;
use berth_domain::migration::State;
use serde_json::Value;

use super::stage::{A, B, History, Stage, all_cpus, cpus, guests, parse};

/// Returns what a comparison must not change.
fn records(stage: &Stage) -> Value {
    let vms = ["a", "b"].map(|vm| stage.cluster.json(&["vm", "show", vm]));
    let migrations = stage.cluster.json(&["migration", "list"]);
    let counted = [A, B].map(|host| stage.counted(host));
    serde_json::json!([vms, migrations, counted])
}

/// Compares both hosts, which changes nothing.
#[track_caller]
fn nothing_changes(stage: &mut Stage) {
    let before = records(stage);
    for host in [A, B] {
        stage.is_compared(host);
    }
    assert_eq!(records(stage), before, "a comparison changed something");
}

/// Asserts who has which CPUs, claimed and counted.
#[track_caller]
fn given(stage: &Stage, a: &str, b: &str) {
    for (host, list) in [(A, a), (B, b)] {
        assert_eq!(stage.taken(host), cpus(list), "on {host}");
        assert_eq!(stage.counted(host), cpus(list).len() as u64, "on {host}");
    }
}

/// Asserts that `a` is settled on a host with these CPUs alone, and nothing is left of a move.
#[track_caller]
fn settled(stage: &mut Stage, host: &str, pins: &[u64], state: State) {
    assert_eq!(stage.cluster.pins_on("a", host), pins);
    assert_eq!(stage.cluster.pins_on("b", B), [0, 1]);
    let vm = stage.cluster.json(&["vm", "show", "a"]);
    assert_eq!(vm["vm"]["operation"], Value::Null, "{vm:#}");
    assert_eq!(stage.last_migration("a").unwrap().state, state);
    stage.holds();
    nothing_changes(stage);
    stage.holds();
}

/// Scenario 1: on both hosts a guest has CPUs 0 and 1; the one that moves arrives on 2 and 3, and
/// meanwhile it has both.
#[test]
fn a_guest_arrives_beside_one_that_has_its_cpus() {
    let mut stage = Stage::start();
    stage.cluster.happens(A, "hold transfer");
    let (operation, _) = stage.begin("a", &["--host", B]);
    let sent = stage.is_seen(A, "a", "Sending");
    assert_eq!(sent.cpus, cpus("0-1"));
    assert_eq!(stage.is_seen(B, "a", "Receiving").cpus, cpus("2-3"));
    given(&stage, "0-1", "0-3");
    let migration = stage.last_migration("a").unwrap();
    assert_eq!(migration.state, State::Running);
    assert_eq!(migration.assignment_before.dedicated(), cpus("0-1"));
    let after = migration.assignment_after.as_ref().unwrap();
    assert_eq!(after.dedicated(), cpus("2-3"));
    nothing_changes(&mut stage);
    given(&stage, "0-1", "0-3");

    stage.cluster.happens(A, "let transfer");
    stage.cluster.succeeds(&operation);
    given(&stage, "", "0-3");
    settled(&mut stage, B, &[2, 3], State::Completed);
    assert!(stage.guests(A).is_empty());
}

/// Scenario 3: the claim on the destination survives comparisons, and the destination's agent
/// being started anew, while nothing of the guest is there yet.
#[test]
fn a_claim_for_a_guest_that_has_not_come_survives_comparisons() {
    let mut stage = Stage::start();
    stage.cluster.happens(B, "hold prepare");
    let (operation, _) = stage.begin("a", &["--host", B]);
    stage
        .cluster
        .reaches(&operation, "PreLiveMigration", "Started");
    assert!(!stage.guests(B).contains_key("a"));
    given(&stage, "0-1", "0-3");
    nothing_changes(&mut stage);
    stage.restart_told(1, &[], &[], "hold prepare\n");
    for host in [A, B] {
        stage.is_compared(host);
    }
    given(&stage, "0-1", "0-3");
    let claims = stage.claims(B);
    let held = claims.iter().find(|c| c.vm.as_str() == "a").unwrap();
    assert!(matches!(held.owner, Owner::Migration(_)), "{held:?}");
    stage.cluster.happens(B, "let prepare");
    stage.cluster.succeeds(&operation);
    given(&stage, "", "0-3");
    settled(&mut stage, B, &[2, 3], State::Completed);
}

/// Scenario 4: a transfer that breaks leaves the guest where it was, and nothing else.
#[test]
fn a_transfer_that_breaks_leaves_the_guest_and_nothing_else() {
    let mut stage = Stage::start();
    stage.cluster.happens(A, "hold transfer");
    let (operation, _) = stage.begin("a", &["--host", B]);
    stage.is_seen(B, "a", "Receiving");
    stage.cluster.happens(A, "break a");
    let refusal = stage.fails(&operation);
    assert_eq!(refusal["reason"], "MIGRATION_FAILED", "{refusal:#}");
    let message = refusal["message"].as_str().unwrap();
    assert!(message.contains("the connection was cut"), "{message}");
    given(&stage, "0-1", "0-1");
    settled(&mut stage, A, &[0, 1], State::Failed);
    assert!(!stage.guests(B).contains_key("a"));
    // Nothing of it is in the way of the next try.
    stage.cluster.happens(A, "let transfer");
    stage.cluster.run(&["vm", "migrate", "a", "--host", B]);
    settled(&mut stage, B, &[2, 3], State::Completed);
}

/// Scenario 5: while a move is taken back, comparisons, just before and just after the claim on the
/// destination is given back, find every guest on its own CPUs. Nova shows others there, until the
/// next one.
///
/// Method: the destination is held in the middle of its clean-up; every revision of the claims is
/// replayed, and what both hypervisors have is looked at all the while.
#[test]
fn pins_are_right_at_every_moment_of_a_rollback() {
    let mut stage = Stage::start();
    let history = History::of(&stage.cluster);
    stage.cluster.happens(A, "hold transfer");
    stage.cluster.happens(B, "hold cancel");
    let files = [A, B].map(|host| stage.cluster.guests_file(host));
    let is_over = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut seen = BTreeSet::new();
            while !is_over.load(Ordering::Relaxed) {
                for (host, file) in [A, B].into_iter().zip(&files) {
                    for (vm, guest) in guests(file) {
                        seen.insert((host, vm, guest.phase, guest.cpus.to_string()));
                    }
                }
            }
            seen
        });
        // Whatever goes wrong, the look-out ends.
        let done =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| rolled_back(&mut stage)));
        is_over.store(true, Ordering::Relaxed);
        let seen = looking.join().expect("only whole files are seen");
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        seen
    });
    let expected = [
        (A, "a", "Running", "0-1"),
        (A, "a", "Sending", "0-1"),
        (B, "a", "Prepared", "2-3"),
        (B, "a", "Receiving", "2-3"),
        (B, "b", "Running", "0-1"),
    ];
    let expected = expected
        .map(|(host, vm, phase, cpus)| (host, vm.to_owned(), phase.to_owned(), cpus.to_owned()));
    let expected: BTreeSet<_> = expected.into();
    assert!(
        seen.is_subset(&expected),
        "what the hypervisors had: {seen:?}"
    );
    // That of the held clean-up lasts for seconds.
    let prepared = seen.iter().any(|(_, _, phase, _)| phase == "Prepared");
    assert!(prepared, "{seen:?}");

    let failed = |line: &Value| line["kind"] == "migration" && line["record"]["state"] == "Failed";
    let moments = history.until("claim", failed);
    let moments = moments.iter().map(|records| {
        let claims: Vec<Claim> = records.values().map(parse).collect();
        [A, B].map(|host| {
            let on: Vec<Claim> = claims
                .iter()
                .filter(|c| c.host.as_str() == host)
                .cloned()
                .collect();
            all_cpus(&on)
        })
    });
    let mut moments: Vec<[CpuSet; 2]> = moments.collect();
    moments.retain(|[a, b]| !a.is_empty() || !b.is_empty());
    moments.dedup();
    let expected = ["0-1", "0-3", "0-1"].map(|b| [cpus("0-1"), cpus(b)]);
    assert_eq!(moments, expected, "what was claimed");
}

/// Breaks a transfer, holds the rollback in its middle, and lets it go on.
fn rolled_back(stage: &mut Stage) {
    let (operation, _) = stage.begin("a", &["--host", B]);
    stage.is_seen(B, "a", "Receiving");
    stage.cluster.happens(A, "break a");
    // It has failed, and both sides know.
    assert!(stage.is_seen(A, "a", "Running").error.is_some());
    stage.is_seen(B, "a", "Prepared");
    for _ in 0..2 {
        nothing_changes(stage);
        given(stage, "0-1", "0-3");
    }
    let migration = stage.last_migration("a").unwrap();
    assert!(!migration.state.is_ended(), "{migration:?}");
    // Until the destination has said that it is clean, nobody gets what the guest would have had.
    let create = berth_tests::processes::Cluster::create("c", "pair");
    let refused = stage.cluster.berth(&[&create[..], &["--host", B]].concat());
    let _ = refused
        .refused(1)
        .saying(&["NO_VALID_HOST", "0 free dedicated CPUs"]);
    stage.cluster.happens(B, "let cancel");
    stage.fails(&operation);
    given(stage, "0-1", "0-1");
    settled(stage, A, &[0, 1], State::Failed);
    assert!(!stage.guests(B).contains_key("a"));
}
