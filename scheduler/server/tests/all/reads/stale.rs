//! Every read is answered by each member alone, from its own state.
//!
//! Goal: with the members in step, a stale answer is the linearizable one, and states the member, the
//! revision, the age and the leader; without a leader it is the same, and states that; what is not a read
//! is refused. Method: every method of every service of a scheduler, enumerated from the descriptors, at
//! each of three members, then at the only one that is left.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_proto::client::SchedulerChannel;
use berth_proto::cluster::v1::GetClusterStatusResponse;
use berth_proto::consistency::Staleness;
use berth_proto::event::v1::WatchRequest;
use berth_proto::for_cluster::ForCluster;
use berth_proto::host::v1::ListMemorySignalsResponse;
use berth_proto::operation::v1::{GetOperationRequest, GetOperationResponse};
use berth_proto::planner::v1::{GetScoreRequest, GetScoreResponse};
use berth_proto::scheduler::v1::ListVmsRequest;
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_proto::status::from_status;
use berth_proto::types::v1::ReadConsistency;
use prost::Message as _;
use tonic::Code;

use super::case::{self, Kind};
use super::raw::{self, Answer};
use super::world::World;
use crate::common::eventually;

/// What looks up a request to fence before the command runs, and what an agent compares: parts of writes.
const PARTS_OF_WRITES: [&str; 2] = [
    "/berth.host.v1.HostService/VerifyFence",
    "/berth.host.v1.HostService/ExpectDomains",
];

/// A list that only the leader has, and whose absence could not be seen.
pub(super) const OF_LEADER: &str = "/berth.audit.v1.AuditService/ListRefusals";

/// A wait whose answer is not of the replicated state.
const WAIT_LEADER: &str = "/berth.cluster.v1.ClusterService/WaitLeader";

const STATUS: &str = "/berth.cluster.v1.ClusterService/GetClusterStatus";
const GET_OPERATION: &str = "/berth.operation.v1.OperationService/GetOperation";
const LIST_SIGNALS: &str = "/berth.host.v1.HostService/ListMemorySignals";
const GET_SCORE: &str = "/berth.planner.v1.PlannerService/GetScore";

/// The reads that any member may answer from its own state.
pub(super) fn readable() -> Vec<String> {
    let methods = case::methods().into_iter();
    let readable = methods.filter(|path| {
        matches!(case::kind(path), Kind::Read)
            && !PARTS_OF_WRITES.contains(&&**path)
            && path != OF_LEADER
    });
    readable.collect()
}

pub(super) fn request(path: &str, world: &World) -> Vec<u8> {
    case::request(path, world).unwrap_or_else(|| panic!("{path} is a read without a case"))
}

/// Removes what is not given out of a stale state: a grant for the holder of a lease.
fn without_grant(path: &str, mut answer: Answer) -> Answer {
    if path == GET_OPERATION {
        for message in &mut answer.0 {
            let mut response = GetOperationResponse::decode(&**message).expect("an operation");
            response.grant = None;
            *message = response.encode_to_vec();
        }
    }
    answer
}

#[track_caller]
pub(super) fn assert_same(path: &str, stale: Answer, linearizable: &Answer) {
    let expected = without_grant(path, linearizable.clone());
    assert!(
        raw::are_equal(&stale, &expected),
        "{path}: {stale:?} is not {expected:?}"
    );
}

/// Returns the linearizable answer, and the stale one of each member with what it is worth, at one
/// revision.
async fn answers(world: &World, path: &str) -> (Answer, Vec<(Answer, Staleness)>) {
    let request = request(path, world);
    let leader = world.trio.leader().await;
    eventually(&format!("one revision around {path}"), || async {
        let before = world.revision().await?;
        let linearizable = raw::call(&world.trio.grpc[leader], path, &request).await;
        let mut stale = Vec::new();
        for address in &world.trio.grpc {
            let (answer, staleness) = raw::call_stale(address, path, &request).await;
            let staleness = staleness.unwrap_or_else(|| panic!("{path}: {answer:?}"));
            // A member that has just started may not have been confirmed yet.
            staleness.age?;
            stale.push((answer, staleness));
        }
        (world.revision().await? == before).then_some((linearizable, stale))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_answer_of_members_in_step_is_the_linearizable_one() {
    let world = World::start().await;
    let leader = world.trio.leader().await;
    for path in readable() {
        let (linearizable, stale) = answers(&world, &path).await;
        let revision = stale[leader].1.revision;
        let ids: Vec<u64> = stale.iter().map(|(_, known)| known.member).collect();
        for (number, (answer, known)) in stale.into_iter().enumerate() {
            assert_same(&path, answer, &linearizable);
            assert_eq!(known.revision, revision, "{path} at {number}");
            assert_eq!(known.leader, Some(ids[leader]), "{path} at {number}");
        }
    }
    refusals_are_of_the_leader(&world, leader).await;
    writes_are_refused(&world).await;
    other_clusters_are_refused(&world).await;
    unknown_at_followers(&world).await;
    grants_are_of_the_leases_that_hold(&world, leader).await;
}

/// A grant is not made of a state that may be behind, whichever way that was requested.
async fn grants_are_of_the_leases_that_hold(world: &World, leader: usize) {
    let address = &world.trio.grpc[leader];
    for consistency in [ReadConsistency::Unspecified, ReadConsistency::Stale] {
        let request = GetOperationRequest {
            name: world.operation.clone(),
            consistency: consistency.into(),
        };
        let request = request.encode_to_vec();
        let has_grant = |answer: Answer| {
            let response = GetOperationResponse::decode(&*answer.0[0]).expect("an operation");
            response.grant.is_some()
        };
        let plain = raw::call(address, GET_OPERATION, &request).await;
        assert_eq!(has_grant(plain), consistency != ReadConsistency::Stale);
        let (stale, _) = raw::call_stale(address, GET_OPERATION, &request).await;
        assert!(!has_grant(stale));
    }
}

/// The list of refusals goes to the leader as ever: an empty one would state that there was none.
async fn refusals_are_of_the_leader(world: &World, leader: usize) {
    let request = request(OF_LEADER, world);
    for (number, address) in world.trio.grpc.iter().enumerate() {
        let ((_, end), staleness) = raw::call_stale(address, OF_LEADER, &request).await;
        assert!(staleness.is_some());
        match end {
            Ok(()) => assert_eq!(number, leader),
            Err(status) => {
                assert_ne!(number, leader);
                assert_eq!(from_status(&status).reason, "NOT_LEADER");
            }
        }
    }
}

async fn writes_are_refused(world: &World) {
    let mut refused = 0;
    for path in case::methods() {
        let is_part = PARTS_OF_WRITES.contains(&&*path);
        match case::kind(&path) {
            Kind::Write => {}
            Kind::Read if is_part => {}
            Kind::Read | Kind::Own => continue,
            Kind::Unknown => panic!("{path} has no class"),
        }
        refused += 1;
        let ((messages, end), staleness) = raw::call_stale(&world.trio.grpc[0], &path, &[]).await;
        let status = end.expect_err(&path);
        assert_eq!(
            (messages.len(), staleness, status.code()),
            (0, None, Code::InvalidArgument),
            "{path}: {status:?}"
        );
        assert_eq!(from_status(&status).reason, "STALE_NOT_A_READ", "{path}");
    }
    println!("{refused} methods refuse a stale call");
    assert!(refused > 60, "{refused}");
}

/// Goal: no method of any service is carried out for a request that is for another cluster. Method: empty
/// requests, with the id of another cluster and of this one.
async fn other_clusters_are_refused(world: &World) {
    let address = &world.trio.grpc[0];
    let (messages, _) = raw::call(address, STATUS, &[]).await;
    let status = GetClusterStatusResponse::decode(&*messages[0]).expect("a status");
    let other = ForCluster::of("5c4f5ba0-73a4-4a5b-9b6e-8d7a61f0be3c");
    for path in case::methods() {
        let (messages, end) = raw::call_for(address, &path, &[], &other).await;
        let refused = end.expect_err(&path);
        assert_eq!(messages.len(), 0, "{path}");
        assert_eq!(
            from_status(&refused).reason,
            "OTHER_CLUSTER",
            "{path}: {refused:?}"
        );
        for id in [&*status.cluster_id, "5c4f5ba0"] {
            assert!(refused.message().contains(id), "{path}: {refused:?}");
        }
    }
    let own = ForCluster::of(&status.cluster_id);
    let (_, end) = raw::call_for(address, STATUS, &[], &own).await;
    end.expect("a status");
}

/// Goal: what agents report to the leader is known there, and unknown, not 0, elsewhere.
async fn unknown_at_followers(world: &World) {
    world.report().await;
    let leader = world.trio.leader().await;
    let request = request(LIST_SIGNALS, world);
    let score = GetScoreRequest::default().encode_to_vec();
    for (number, address) in world.trio.grpc.iter().enumerate() {
        let ((messages, end), _) = raw::call_stale(address, LIST_SIGNALS, &request).await;
        end.expect("signals");
        let hosts = ListMemorySignalsResponse::decode(&*messages[0]).expect("signals");
        let known = hosts.hosts.iter().filter(|host| host.signals.is_some());
        assert_eq!(known.count() > 0, number == leader, "{number}");
        let ((messages, end), _) = raw::call_stale(address, GET_SCORE, &score).await;
        end.expect("a score");
        let score = GetScoreResponse::decode(&*messages[0]).expect("a score");
        assert_eq!(
            score.unreported_hosts.is_empty(),
            number == leader,
            "{number}"
        );
    }
}

/// Returns the linearizable answer to every read, all at one revision.
pub(super) async fn all_answers(world: &World) -> (Vec<(String, Answer)>, u64) {
    loop {
        let mut all = Vec::new();
        let mut revisions = BTreeSet::new();
        for path in readable() {
            let (answer, stale) = answers(world, &path).await;
            revisions.extend(stale.iter().map(|(_, known)| known.revision));
            all.push((path, answer));
        }
        let (first, last) = (revisions.first(), revisions.last());
        if first == last {
            return (all, *first.expect("a read"));
        }
        // Something was written meanwhile: the members' own duties, which end.
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_member_answers_every_read_without_a_leader() {
    let mut world = World::start().await;
    let leader = world.trio.leader().await;
    let last = (leader + 1) % 3;
    let (before, revision) = all_answers(&world).await;
    for number in (0..3).filter(|number| *number != last) {
        world.trio.kill(number);
    }
    let address = world.trio.grpc[last].clone();
    let list = "/berth.scheduler.v1.SchedulerService/ListVms";
    let known = || async {
        let (_, known) = raw::call_stale(&address, list, &[]).await;
        known
    };
    eventually("a member without a leader", || async {
        known().await?.leader.is_none().then_some(())
    })
    .await;
    let mut age = Duration::ZERO;
    for (path, linearizable) in &before {
        let (answer, known) = raw::call_stale(&address, path, &request(path, &world)).await;
        assert_same(path, answer, linearizable);
        let known = known.expect("what it is worth");
        assert_eq!((known.leader, known.revision), (None, revision), "{path}");
        let now = known.age.expect("a leader has confirmed it");
        assert!(
            now > Duration::ZERO && now >= age,
            "{path}: {now:?} {age:?}"
        );
        age = now;
    }
    let (waited, known_to_wait) = raw::call_stale(&address, WAIT_LEADER, &[]).await;
    assert_eq!(
        known_to_wait.map(|known| known.leader),
        Some(None),
        "{waited:?}"
    );
    reads_on_by_itself(&address).await;
    refuses_a_later_revision(&address, revision).await;
    let (_, end) = raw::call(&address, list, &[]).await;
    let refused = from_status(&end.expect_err("there is no majority"));
    assert_eq!(refused.reason, "READ_NOT_CONFIRMED");

    for number in (0..3).filter(|number| *number != last) {
        world.trio.restart(number);
    }
    eventually("a member with a leader", || async {
        known().await?.leader.map(drop)
    })
    .await;
}

/// Goal: the client's own way: the first member that answers, though the first endpoint is dead.
async fn reads_on_by_itself(address: &str) {
    let endpoints = ["http://127.0.0.1:1".to_owned(), format!("http://{address}")];
    let scheduler = SchedulerChannel::new(endpoints.clone()).expect("addresses");
    let read = || {
        scheduler.read_own(|channel| async move {
            let request = ListVmsRequest::default();
            SchedulerServiceClient::new(channel).list_vms(request).await
        })
    };
    let own = read().await.expect("the member answers");
    assert_eq!(own.address, endpoints[1]);
    let known = own.staleness.expect("what it is worth");
    let vms = own.answer.expect("VMs");
    assert_eq!((known.leader, known.revision), (None, vms.revision));
    assert_eq!(
        scheduler.current(),
        endpoints[1],
        "it is read first from now on"
    );
}

/// Goal: a watch after a revision that this member has not seen states so, not that there is none.
async fn refuses_a_later_revision(address: &str, revision: u64) {
    let path = "/berth.event.v1.EventService/Watch";
    let request = WatchRequest {
        after_revision: revision + 1,
        ..Default::default()
    };
    let ((_, end), known) = raw::call_stale(address, path, &request.encode_to_vec()).await;
    let refused = from_status(&end.expect_err("a later revision"));
    assert_eq!(refused.reason, "MEMBER_BEHIND", "{refused:?}");
    assert_eq!(known.map(|known| known.revision), Some(revision));
}
