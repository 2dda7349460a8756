//! Detects that this member was removed from its cluster while it was partitioned or down.
//!
//! A leader stops sending to a member as soon as its removal takes effect, often before that
//! member has received it. The member then only sees that there is no leader. So a member without a
//! leader periodically queries the others for the membership.
//!
//! Invariant: only the response of another member of the same cluster counts, and only if that one
//! knows at least as much of the cluster's history as this one.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_proto::client::Dialer;
use berth_proto::cluster::v1::GetClusterStatusResponse;
use berth_replication::runtime::{Handle, Status};
use berth_replication::transport::Addresses;

use crate::join;
use crate::machine::Machine;
use crate::membership::Knowledge;

/// Becomes ready when this member was removed; `timeout` is how long it may be without a leader
/// before it queries the others.
pub(crate) async fn wait(
    handle: Handle<Machine>,
    others: Others,
    cluster_id: String,
    timeout: Duration,
) {
    let mut leader = handle.watch_leader();
    loop {
        let led = leader.wait_for(|l| l.role.leader.is_some());
        if tokio::time::timeout(timeout, led).await.is_err() {
            let Some(own) = handle.status().await else {
                return std::future::pending().await;
            };
            if is_expelled(&own, &others, &cluster_id).await {
                return;
            }
            continue;
        }
        let alone = leader.wait_for(|l| l.role.leader.is_none()).await.is_err();
        if alone {
            // The replica has stopped; its owner reports why.
            return std::future::pending().await;
        }
    }
}

/// How the other members are queried.
pub(crate) struct Others {
    pub(crate) addresses: Addresses,
    /// Addresses at which there may be members, from --join: the membership that this member has may be
    /// older than they are.
    pub(crate) introductions: Vec<String>,
    pub(crate) dialer: Dialer,
}

async fn is_expelled(own: &Status, others: &Others, cluster_id: &str) -> bool {
    let members = own.membership.members.iter();
    let members = members.filter(|member| member.id != own.id);
    let known = members.flat_map(|member| others.addresses.candidates(member));
    let known: BTreeSet<String> = known.chain(others.introductions.iter().cloned()).collect();
    for address in known {
        if let Some(theirs) = join::status_of(&address, &others.dialer).await
            && theirs.cluster_id == cluster_id
            && knowledge(own).is_removed_by(&their_knowledge(&theirs))
        {
            tracing::warn!(
                "member {} reports that this member was removed",
                theirs.member_id
            );
            return true;
        }
    }
    false
}

fn knowledge(own: &Status) -> Knowledge {
    Knowledge {
        id: own.id,
        applied: own.position.index,
        members: own.membership.members.iter().map(|m| m.id).collect(),
    }
}

fn their_knowledge(theirs: &GetClusterStatusResponse) -> Knowledge {
    Knowledge {
        id: theirs.member_id,
        applied: theirs.applied_index,
        members: theirs.members.iter().map(|m| m.id).collect(),
    }
}
