//! Whether this member was taken out of its cluster while it was not looking.
//!
//! A leader stops talking to a member as soon as its removal is in force, often before that
//! member has heard of it. All it sees then is that nobody leads. So a member without a leader
//! asks the others now and then whether it still belongs to them.
//!
//! Invariant: only the word of another member of the same cluster counts, and only if that one
//! knows at least as much of the cluster's history as this one.

use std::time::Duration;

use berth_proto::client::Dialer;
use berth_proto::cluster::v1::GetClusterStatusResponse;
use berth_replication::runtime::{Handle, Status};

use crate::join;
use crate::machine::Machine;

/// Becomes ready when this member was removed; `patience` is how long it may be without a leader
/// before it asks.
pub(crate) async fn wait(
    handle: Handle<Machine>,
    dialer: Dialer,
    cluster_id: String,
    patience: Duration,
) {
    let mut leader = handle.watch_leader();
    loop {
        let led = leader.wait_for(|l| l.role.leader.is_some());
        if tokio::time::timeout(patience, led).await.is_err() {
            let Some(own) = handle.status().await else {
                return std::future::pending().await;
            };
            if is_expelled(&own, &dialer, &cluster_id).await {
                return;
            }
            continue;
        }
        let alone = leader.wait_for(|l| l.role.leader.is_none()).await.is_err();
        if alone {
            // The replica is gone; whoever ended it knows why.
            return std::future::pending().await;
        }
    }
}

async fn is_expelled(own: &Status, dialer: &Dialer, cluster_id: &str) -> bool {
    for member in &own.membership.members {
        if member.id == own.id {
            continue;
        }
        if let Some(theirs) = join::status_of(&member.address, dialer).await
            && theirs.cluster_id == cluster_id
            && says_so(own, &theirs)
        {
            tracing::warn!(
                "member {} says that this member was removed",
                theirs.member_id
            );
            return true;
        }
    }
    false
}

fn says_so(own: &Status, theirs: &GetClusterStatusResponse) -> bool {
    theirs.applied_index > own.position.index
        && theirs.members.iter().all(|member| member.id != own.id)
}
