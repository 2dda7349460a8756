//! The removal of members that do not answer, by the policy `member.dead_timeout_s`.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use berth_proto::cluster::v1::{GetClusterStatusResponse, member};
use berth_proto::policy::v1::UpdateSchedulingPolicyRequest;
use berth_proto::policy::v1::policy_service_client::PolicyServiceClient;
use uuid::Uuid;

use crate::common::{Cluster, eventually};

const TIMEOUT_S: u64 = 10;

async fn set_timeout(cluster: &Cluster) {
    let channel = cluster.channel().await;
    let timeout = ("member.dead_timeout_s".to_owned(), TIMEOUT_S.to_string());
    let request = UpdateSchedulingPolicyRequest {
        settings: [timeout].into(),
        request_id: Uuid::now_v7().to_string(),
        ..UpdateSchedulingPolicyRequest::default()
    };
    let mut client = PolicyServiceClient::new(channel);
    let set = client.update_scheduling_policy(request).await;
    set.expect("it is set");
}

async fn status(cluster: &Cluster) -> GetClusterStatusResponse {
    let leader = cluster.leader().await;
    cluster.members[leader].status().await
}

fn voters(status: &GetClusterStatusResponse) -> BTreeSet<u64> {
    let voters = status.members.iter();
    let voters = voters.filter(|m| m.role() == member::Role::Voter);
    voters.map(|m| m.id).collect()
}

/// Goal: a dead member of three stays, since two alone tolerate no failure either; when a replacement
/// votes, it is removed, and one failure is tolerated again. What is stated about it is right all along.
/// Method: a follower of three is killed, stays for longer than the policy sets, and a fourth joins.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_member_is_removed_when_it_is_replaced() {
    let mut cluster = Cluster::start(3).await;
    set_timeout(&cluster).await;
    assert_eq!(status(&cluster).await.failures_tolerated, Some(1));
    let leader = cluster.leader().await;
    let dead = cluster.members.remove((leader + 1) % 3);
    let id = dead.status().await.member_id;
    dead.kill().await;
    let killed = Instant::now();
    eventually("the silence of the member", || async {
        let seen = status(&cluster).await;
        let dead = seen.members.iter().find(|m| m.id == id)?;
        let silent = dead.silent_time.as_ref()?.seconds;
        (silent > TIMEOUT_S as i64 + 2).then_some(())
    })
    .await;
    assert!(killed.elapsed() > Duration::from_secs(TIMEOUT_S));
    let seen = status(&cluster).await;
    assert!(voters(&seen).contains(&id), "it may come back");
    assert_eq!(seen.failures_tolerated, Some(0));

    cluster.join(3).await;
    eventually("the removal", || async {
        let seen = status(&cluster).await;
        let is_removed = seen.members.iter().all(|m| m.id != id);
        (is_removed && voters(&seen).len() == 3).then_some(())
    })
    .await;
    assert_eq!(status(&cluster).await.failures_tolerated, Some(1));
    cluster.voters(3).await;
}
