//! `berth cluster`: looks at the schedulers and changes who belongs to them.

use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::cluster::v1::{
    GetClusterStatusRequest, ListServicesRequest, RemoveMemberRequest, TransferLeadershipRequest,
    member,
};
use serde_json::json;

use crate::arguments::Cluster as Verb;
use crate::session::{Session, short};
use crate::{all_pages, ask, output};

/// Does what was typed.
///
/// # Errors
///
/// What the scheduler refused.
pub async fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Status => status(session).await,
        Verb::RemoveMember { member } => {
            let request = RemoveMemberRequest { member_id: member };
            let answer = ask!(session, ClusterServiceClient, remove_member, request)?;
            output::tell(&format!(
                "member {member} is out; {} remain",
                answer.members.len()
            ));
            Ok(())
        }
        Verb::TransferLeader { member } => {
            let request = TransferLeadershipRequest { member_id: member };
            let answer = ask!(session, ClusterServiceClient, transfer_leadership, request)?;
            output::tell(&format!("member {} leads", answer.leader_id));
            Ok(())
        }
    }
}

async fn status(session: &Session) -> anyhow::Result<()> {
    let request = GetClusterStatusRequest {};
    let status = ask!(session, ClusterServiceClient, get_cluster_status, request)?;
    let request = ListServicesRequest::default();
    let services = all_pages!(
        session,
        ClusterServiceClient,
        list_services,
        request,
        services
    );
    if session.json() {
        let members: Vec<_> = status
            .members
            .iter()
            .map(|m| {
                json!({"id": m.id, "address": m.address, "role": role(m.role()), "leader": m.leader,
                       "matched_index": m.matched_index, "recently_active": m.recently_active})
            })
            .collect();
        let services: Vec<_> = services
            .iter()
            .map(|s| json!({"name": short(&s.name), "address": s.address, "service_version": s.service_version}))
            .collect();
        return output::json(&json!({
            "cluster_id": status.cluster_id, "term": status.term, "leader_id": status.leader_id,
            "commit_index": status.commit_index, "applied_index": status.applied_index,
            "state_hash": status.state_hash, "members": members, "conductors": services,
        }));
    }
    output::fields(&[
        ("cluster", status.cluster_id.clone()),
        (
            "leader",
            format!("member {} in term {}", status.leader_id, status.term),
        ),
        (
            "applied",
            format!("{} of {}", status.applied_index, status.commit_index),
        ),
        ("state hash", status.state_hash.clone()),
    ]);
    let rows = status
        .members
        .iter()
        .map(|m| {
            [
                m.id.to_string(),
                m.address.clone(),
                role(m.role()).to_owned(),
                if m.leader { "leader" } else { "" }.to_owned(),
                m.matched_index.to_string(),
                if m.recently_active || m.leader {
                    "yes"
                } else {
                    "no"
                }
                .to_owned(),
            ]
        })
        .collect();
    output::table(
        ["member", "address", "role", "", "matched", "active"],
        rows,
        "no members",
    );
    let rows = services
        .iter()
        .map(|s| {
            [
                short(&s.name).to_owned(),
                s.address.clone(),
                s.service_version.to_string(),
            ]
        })
        .collect();
    output::table(
        ["conductor", "address", "version"],
        rows,
        "no conductor has registered",
    );
    Ok(())
}

fn role(role: member::Role) -> &'static str {
    match role {
        member::Role::Voter => "voter",
        member::Role::Learner => "learner",
        member::Role::Unspecified => "unknown",
    }
}
