//! Three members: they agree, lose nothing when the leader goes, and change at run time.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_proto::client::{Policy, SchedulerChannel};
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::cluster::v1::{
    AddMemberRequest, GetClusterStatusRequest, PromoteMemberRequest, RemoveMemberRequest,
};
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_proto::scheduler::v1::{GetVmRequest, ScheduleVmResponse};
use berth_proto::status::from_status;
use uuid::Uuid;

use crate::common::world::{flavor, register, schedule, vm_request};
use crate::common::{self, Cluster, eventually, schedulers};

/// Checks every invariant of every member's state, and that they agree.
async fn check(cluster: &Cluster) {
    let hashes = eventually("the members' equality", || async {
        let mut seen = Vec::new();
        for member in &cluster.members {
            let status = member.status().await;
            seen.push((status.applied_index, status.state_hash));
        }
        let equal = seen.iter().all(|s| *s == seen[0]);
        equal.then_some(seen)
    });
    hashes.await;
    for member in &cluster.members {
        let state = member.handle.read_stale(|machine| machine.state().clone());
        let state = state.await.expect("a state");
        state.check().expect("every invariant holds");
    }
}

/// Returns which claim has which CPU of which host.
fn pins(answers: &[ScheduleVmResponse]) -> BTreeMap<(String, u32), String> {
    let mut pins = BTreeMap::new();
    for claim in answers.iter().filter_map(|answer| answer.claim.as_ref()) {
        let cells = claim.assignment.iter().flat_map(|a| &a.cells);
        for cpu in cells.flat_map(|cell| cell.pins.values()) {
            let before = pins.insert((claim.host.clone(), *cpu), claim.name.clone());
            assert_eq!(before, None, "CPU {cpu} of {} twice", claim.host);
        }
    }
    pins
}

/// Goal: many clients at once never get one CPU twice, and together get every CPU. Method: 8
/// clients ask for 3 x 16 CPUs, two by two; a refusal comes once nothing is left.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_clients_share_without_overlap() {
    let cluster = Cluster::start(3).await;
    let channel = cluster.channel().await;
    for host in ["h1", "h2", "h3"] {
        register(&channel, host, 4, 4).await;
    }
    flavor(&channel, "pair", 2).await;
    let mut clients = Vec::new();
    for client in 0..8 {
        let channel = channel.clone();
        clients.push(tokio::spawn(async move {
            let mut answers = Vec::new();
            for number in 0.. {
                let vm = format!("vm-{client}-{number}");
                match schedule(&channel, vm_request(&vm, "pair")).await {
                    Ok(answer) => answers.push(answer),
                    Err(status) => {
                        let refusal = from_status(&status);
                        assert_eq!(refusal.reason, "NO_VALID_HOST", "{refusal:?}");
                        break;
                    }
                }
            }
            answers
        }));
    }
    let mut answers = Vec::new();
    for client in clients {
        answers.extend(client.await.expect("no panic"));
    }
    assert_eq!(answers.len(), 24);
    assert_eq!(pins(&answers).len(), 48);
    check(&cluster).await;
}

/// Goal: the leader's death loses no acknowledged claim, and a retry gets its first answer.
/// Method: schedule, kill the leader, repeat the same requests at the new one.
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_after_the_leaders_death_gets_the_first_answer() {
    let mut cluster = Cluster::start(3).await;
    let channel = cluster.channel().await;
    register(&channel, "h1", 2, 8).await;
    flavor(&channel, "pair", 2).await;
    let mut first = Vec::new();
    for number in 0..4 {
        let mut request = vm_request(&format!("vm-{number}"), "pair");
        request.request_id = Uuid::now_v7().to_string();
        let answer = schedule(&channel, request.clone()).await.expect("room");
        first.push((request, answer));
    }
    let leader = cluster.leader().await;
    cluster.members.remove(leader).kill().await;

    let urls: Vec<String> = cluster.members.iter().map(common::Member::url).collect();
    let scheduler = SchedulerChannel::new(urls).expect("addresses");
    for (request, answer) in &first {
        let again = scheduler
            .call(|channel| {
                let request = request.clone();
                async move {
                    SchedulerServiceClient::new(channel)
                        .schedule_vm(request)
                        .await
                }
            })
            .await
            .expect("the first answer");
        assert_eq!(again.operation, answer.operation);
        assert_eq!(again.claim, answer.claim);
    }
    let channel = cluster.channel().await;
    let mut reused = first[0].0.clone();
    reused.vm = "vms/other".into();
    let status = schedule(&channel, reused)
        .await
        .expect_err("another payload");
    assert_eq!(from_status(&status).reason, "REQUEST_ID_REUSED");
    check(&cluster).await;
}

/// Goal: a follower says who leads, and serves reads that contain what was acknowledged before.
#[tokio::test(flavor = "multi_thread")]
async fn followers_point_to_the_leader_and_serve_reads() {
    let cluster = Cluster::start(3).await;
    let channel = cluster.channel().await;
    register(&channel, "h1", 1, 4).await;
    flavor(&channel, "pair", 2).await;
    schedule(&channel, vm_request("a", "pair"))
        .await
        .expect("room");
    let leader = cluster.leader().await;
    for (number, member) in cluster.members.iter().enumerate() {
        let channel = member.channel().await;
        let request = GetVmRequest {
            name: "vms/a".into(),
            consistency: 0,
        };
        let read = schedulers(&channel).get_vm(request).await.expect("the vm");
        assert_eq!(read.into_inner().claims.len(), 1);
        if number != leader {
            let status = schedule(&channel, vm_request("b", "pair")).await;
            let refusal = from_status(&status.expect_err("not the leader"));
            assert_eq!(refusal.reason, "NOT_LEADER");
            assert_eq!(
                refusal.metadata.get("leader"),
                Some(&cluster.members[leader].url())
            );
        }
    }
}

/// Goal: members come and go at run time, and one that is removed ends. Method: 3 members, a
/// fourth joins, one follower is removed, scheduling goes on throughout.
#[tokio::test(flavor = "multi_thread")]
async fn members_join_and_leave_at_run_time() {
    let mut cluster = Cluster::start(3).await;
    let channel = cluster.channel().await;
    register(&channel, "h1", 2, 8).await;
    flavor(&channel, "one", 1).await;
    schedule(&channel, vm_request("before", "one"))
        .await
        .expect("room");
    cluster.join(3).await;
    cluster.voters(4).await;
    check(&cluster).await;

    let leader = cluster.leader().await;
    let channel = cluster.channel().await;
    let follower = (0..4).find(|n| *n != leader).expect("a follower");
    let removed = cluster.members.remove(follower);
    let member_id = removed.status().await.member_id;
    ClusterServiceClient::new(channel.clone())
        .remove_member(RemoveMemberRequest { member_id })
        .await
        .expect("the member is removed");
    let error = removed.ended().await.expect_err("it ends by itself");
    assert!(matches!(error, berth_scheduler::Error::Removed), "{error}");
    cluster.voters(3).await;
    schedule(&channel, vm_request("after", "one"))
        .await
        .expect("room");
    check(&cluster).await;
}

/// Goal: a wrong number does not end the cluster, and the hint helps. Method: one follower is down, the
/// other one is to be removed; then the one that is down is removed, and then the other one.
#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_would_cost_the_quorum_is_refused() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let channel = cluster.members[leader].channel().await;
    register(&channel, "h1", 2, 8).await;
    flavor(&channel, "one", 1).await;
    let mut followers = Vec::new();
    for number in (0..3).filter(|number| *number != leader) {
        followers.push((number, cluster.members[number].status().await.member_id));
    }
    let [(down, lost), (_, healthy)] = followers[..] else {
        panic!("two followers: {followers:?}");
    };
    cluster.members.remove(down).kill().await;
    let remove = async |member_id| {
        ClusterServiceClient::new(channel.clone())
            .remove_member(RemoveMemberRequest { member_id })
            .await
    };
    // Raft counts a member as active until its next look, an election timeout later.
    common::eventually("the refusal", || async {
        let status = ClusterServiceClient::new(channel.clone())
            .get_cluster_status(GetClusterStatusRequest {})
            .await;
        let status = status.expect("a status").into_inner();
        let is_lost = |m: &berth_proto::cluster::v1::Member| m.id == lost && !m.recently_active;
        status.members.iter().any(is_lost).then_some(())
    })
    .await;
    let refused = remove(healthy).await.expect_err("no quorum would be left");
    assert!(
        refused
            .message()
            .contains(&format!("not answering: {lost}")),
        "{refused}"
    );
    schedule(&channel, vm_request("before", "one"))
        .await
        .expect("room");
    remove(lost).await.expect("it is lost");
    schedule(&channel, vm_request("between", "one"))
        .await
        .expect("room");
    remove(healthy).await.expect("the leader remains");
    schedule(&channel, vm_request("after", "one"))
        .await
        .expect("room");
}

/// Goal: a member that was announced and never started does not cost the quorum by its promotion.
/// Method: one member, to which a second is added that has no program.
#[tokio::test(flavor = "multi_thread")]
async fn a_learner_without_a_program_gets_no_vote() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    let mut client = ClusterServiceClient::new(channel.clone());
    let request = AddMemberRequest {
        address: "127.0.0.1:1".to_owned(),
        ..AddMemberRequest::default()
    };
    let added = client.add_member(request).await.expect("it is added");
    let member_id = added.into_inner().member.expect("the member").id;
    let promoted = client
        .promote_member(PromoteMemberRequest { member_id })
        .await;
    let refused = promoted.expect_err("it has not caught up");
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    assert!(refused.message().contains("caught up"), "{refused}");
    flavor(&channel, "one", 1).await;
}

/// Goal: a client hears of the new leader by itself, and does not find it by asking again and again.
/// Method: after one round of attempts a client would wait for an hour.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_told_of_the_new_leader() {
    let mut cluster = Cluster::start(3).await;
    let channel = cluster.channel().await;
    register(&channel, "h1", 2, 8).await;
    flavor(&channel, "pair", 2).await;
    let leader = cluster.leader().await;
    let mut urls: Vec<String> = cluster.members.iter().map(common::Member::url).collect();
    urls.rotate_left(leader);
    let hour = Duration::from_secs(3600);
    let policy = Policy {
        deadline: 3 * hour,
        wait_min: hour,
        wait_max: hour,
        ..Policy::default()
    };
    let scheduler = SchedulerChannel::new(urls).expect("addresses");
    let scheduler = scheduler.with_policy(policy);
    cluster.members.remove(leader).kill().await;
    let mut request = vm_request("a", "pair");
    request.request_id = Uuid::now_v7().to_string();
    let claim = scheduler.call(|channel| {
        let request = request.clone();
        async move {
            SchedulerServiceClient::new(channel)
                .schedule_vm(request)
                .await
        }
    });
    let claimed = tokio::time::timeout(hour / 60, claim).await;
    claimed.expect("it does not wait").expect("a claim");
    check(&cluster).await;
}
