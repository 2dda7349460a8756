//! Every read gives one answer, whichever member it is sent to.
//!
//! Goal: no member answers from what only another member knows. Method: every read method of every
//! service of a scheduler, enumerated from the descriptors, is sent to each of three members at one
//! revision, as is every read of the REST API; before and after a change of the leader, while the
//! agents' memory signals are known and while they are not. A method without a class fails, a read
//! without a request too.

mod case;
mod offline;
mod pages;
mod past;
mod raw;
mod stale;
mod world;

use std::collections::BTreeSet;

use berth_proto::status::from_status;

use self::case::Kind;
use self::raw::Answer;
use self::world::World;
use crate::common::{eventually, rest};

/// The answers of the three members to one request at one revision.
async fn answers(world: &World, path: &str, request: &[u8]) -> Vec<Answer> {
    eventually(
        &format!("one revision at all members around {path}"),
        || async {
            let before = world.revision().await?;
            let mut answers = Vec::new();
            for address in &world.trio.grpc {
                answers.push(raw::call(address, path, request).await);
            }
            (world.revision().await? == before).then_some(answers)
        },
    )
    .await
}

/// Checks that all members give one answer, or that all but the leader name the leader; returns
/// whether it is the second.
#[track_caller]
fn check(path: &str, leader: usize, address: &str, answers: &[Answer]) -> bool {
    let is_elsewhere = |answer: &Answer| {
        let refusal = answer.1.as_ref().err().map(from_status);
        refusal.is_some_and(|refusal| {
            let named = refusal.metadata.get("leader").map(String::as_str);
            refusal.reason == "NOT_LEADER" && named == Some(&format!("http://{address}"))
        })
    };
    let elsewhere: Vec<bool> = answers.iter().map(is_elsewhere).collect();
    if elsewhere.contains(&true) {
        let expected: Vec<bool> = (0..answers.len()).map(|member| member != leader).collect();
        assert_eq!(
            elsewhere, expected,
            "{path} goes to the leader at some members only"
        );
        return true;
    }
    for answer in &answers[1..] {
        assert!(
            raw::are_equal(answer, &answers[0]),
            "{path} depends on the member: {answers:?}"
        );
    }
    false
}

async fn compare_grpc(world: &World) -> BTreeSet<String> {
    let leader = world.trio.leader().await;
    let mut at_leader = BTreeSet::new();
    let mut reads = 0;
    for path in case::methods() {
        let Kind::Read = case::kind(&path) else {
            continue;
        };
        let request = case::request(&path, world);
        let request = request.unwrap_or_else(|| panic!("{path} is a read without a case"));
        let answers = answers(world, &path, &request).await;
        reads += 1;
        if check(&path, leader, &world.trio.grpc[leader], &answers) {
            at_leader.insert(path);
        }
    }
    println!("{reads} reads at 3 members; at the leader alone: {at_leader:?}");
    at_leader
}

async fn compare_rest(world: &World) {
    for path in case::rest(world) {
        let answers = eventually(
            &format!("one revision at all members around {path}"),
            || async {
                let before = world.revision().await?;
                let mut answers = Vec::new();
                for server in &world.trio.rest {
                    let answer = rest::ask(*server, "GET", &path, None).await?;
                    answers.push((answer.status, answer.body));
                }
                (world.revision().await? == before).then_some(answers)
            },
        )
        .await;
        assert!(answers[0].0 < 500, "{path}: {answers:?}");
        for answer in &answers[1..] {
            assert_eq!(*answer, answers[0], "{path} depends on the member");
        }
    }
}

/// The reads that depend on what only the leader knows.
fn expected_at_leader() -> BTreeSet<String> {
    [
        "/berth.audit.v1.AuditService/ListRefusals",
        "/berth.host.v1.HostService/ListMemorySignals",
        "/berth.planner.v1.PlannerService/GetScore",
        "/berth.planner.v1.PlannerService/PlanBalance",
        "/berth.planner.v1.PlannerService/VerifyCluster",
    ]
    .map(str::to_owned)
    .into()
}

#[test]
fn every_method_has_a_class() {
    let methods = case::methods();
    assert!(methods.len() > 100, "{methods:?}");
    let unknown: Vec<&String> = methods
        .iter()
        .filter(|path| matches!(case::kind(path), Kind::Unknown))
        .collect();
    assert!(unknown.is_empty(), "neither reads nor writes: {unknown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_read_gives_one_answer() {
    let world = World::start().await;
    let first = world.trio.leader().await;
    for leader in [first, (first + 1) % 3] {
        world.trio.lead(leader).await;
        for is_reported in [false, true] {
            if is_reported {
                world.report().await;
            }
            assert_eq!(compare_grpc(&world).await, expected_at_leader());
            compare_rest(&world).await;
            world.compare_status().await;
        }
    }
}

/// Goal: what depends on memory signals is the same before and after a change of the leader, and
/// stated as unknown in between.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_states_unknown_signals() {
    let world = World::start().await;
    let first = world.trio.leader().await;
    world.report().await;
    let before = world.score().await;
    assert!(before.unreported_hosts.is_empty(), "{before:?}");
    assert!(
        world::load(&before).is_some_and(|load| load > 0.0),
        "{before:?}"
    );
    let warned = world.warnings().await;

    world.trio.lead((first + 1) % 3).await;
    let between = world.score().await;
    assert_eq!(between.unreported_hosts, ["hosts/h1", "hosts/h2"]);
    assert_eq!(world::load(&between), None, "unknown is not 0");
    for warnings in world.warnings().await {
        assert!(warnings.contains("unknown"), "{warnings}");
    }

    world.report().await;
    let after = world.score().await;
    assert_eq!(
        (after.score, after.unreported_hosts),
        (before.score, Vec::new())
    );
    assert_eq!(world.warnings().await, warned);
}
