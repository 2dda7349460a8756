//! `berth cluster`: looks at the schedulers and changes who belongs to them.

use berth_domain::version::ServiceVersion;
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::cluster::v1::{
    GetClusterStatusRequest, GetClusterStatusResponse, ListServicesRequest, Member,
    RemoveMemberRequest, Service, TransferLeadershipRequest, UnregisterServiceRequest, member,
};
use berth_proto::types::v1::ReadConsistency;
use serde_json::json;

use crate::arguments::Cluster as Verb;
use crate::session::{Session, request_id, resource, short};
use crate::{all_pages, ask, output, upgrade};

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
        Verb::Services => services(session).await,
        Verb::RemoveConductor { conductor } => {
            let request = UnregisterServiceRequest {
                name: resource("services", &conductor),
                request_id: request_id(None),
            };
            ask!(session, ClusterServiceClient, unregister_service, request)?;
            output::tell(&format!("conductor {conductor} is forgotten"));
            Ok(())
        }
        Verb::Upgrade(verb) => upgrade::run(session, verb).await,
    }
}

/// Returns the conductors. A status is asked for when something is wrong: it must not need a
/// majority.
pub(crate) async fn registered(session: &Session) -> anyhow::Result<Vec<Service>> {
    let request = ListServicesRequest {
        consistency: ReadConsistency::Stale.into(),
        ..Default::default()
    };
    Ok(all_pages!(
        session,
        ClusterServiceClient,
        list_services,
        request,
        services
    ))
}

async fn services(session: &Session) -> anyhow::Result<()> {
    let services = registered(session).await?;
    if session.json() {
        return output::json(&services.iter().map(service_json).collect::<Vec<_>>());
    }
    conductors_table(&services);
    Ok(())
}

fn conductors_table(services: &[Service]) {
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
}

fn service_json(service: &Service) -> serde_json::Value {
    json!({"name": short(&service.name), "address": service.address,
           "service_version": service.service_version})
}

async fn status(session: &Session) -> anyhow::Result<()> {
    let request = GetClusterStatusRequest {};
    let status = ask!(session, ClusterServiceClient, get_cluster_status, request)?;
    let services = registered(session).await?;
    let leader = ask_leader(session, &status).await;
    let members = known_members(&status, leader.as_ref());
    if session.json() {
        return output::json(&as_json(&status, &members, &services));
    }
    output::fields(&[
        ("cluster", status.cluster_id.clone()),
        ("leader", leader_line(&status)),
        ("answered by", format!("member {}", status.member_id)),
        (
            "applied",
            format!("{} of {}", status.applied_index, status.commit_index),
        ),
        ("state hash", status.state_hash.clone()),
        ("cluster version", cluster_version(&status).to_string()),
    ]);
    let rows = members
        .iter()
        .map(|(m, known)| {
            let unknown = || "-".to_owned();
            let active = |known: &Known| if known.active { "yes" } else { "no" }.to_owned();
            [
                m.id.to_string(),
                m.address.clone(),
                role(m.role()).to_owned(),
                if m.leader { "leader" } else { "" }.to_owned(),
                known
                    .as_ref()
                    .map_or_else(unknown, |k| k.matched.to_string()),
                known.as_ref().map_or_else(unknown, active),
                version_of(m).map_or_else(unknown, |version| version.to_string()),
            ]
        })
        .collect();
    output::table(
        [
            "member", "address", "role", "", "matched", "active", "version",
        ],
        rows,
        "no members",
    );
    if leader.is_none() {
        output::tell(&format!(
            "member {} does not lead, and no leader answers: how far the others are is not known",
            status.member_id
        ));
    }
    conductors_table(&services);
    Ok(())
}

/// Returns the cluster version; a member that does not say is older than any that was raised.
pub(crate) fn cluster_version(status: &GetClusterStatusResponse) -> ServiceVersion {
    ServiceVersion::told(status.cluster_version)
}

/// Returns what a member can do, if whoever was asked knows.
pub(crate) fn version_of(member: &Member) -> Option<ServiceVersion> {
    (member.service_version > 0).then_some(ServiceVersion(member.service_version))
}

fn as_json(
    status: &GetClusterStatusResponse,
    members: &[(&Member, Option<Known>)],
    services: &[Service],
) -> serde_json::Value {
    let members: Vec<_> = members
        .iter()
        .map(|(m, known)| {
            json!({"id": m.id, "address": m.address, "role": role(m.role()), "leader": m.leader,
                   "matched_index": known.as_ref().map(|k| k.matched),
                   "recently_active": known.as_ref().map(|k| k.active),
                   "service_version": version_of(m)})
        })
        .collect();
    let services: Vec<_> = services.iter().map(service_json).collect();
    json!({
        "cluster_id": status.cluster_id, "member_id": status.member_id, "term": status.term,
        "leader_id": status.leader_id, "commit_index": status.commit_index,
        "applied_index": status.applied_index, "state_hash": status.state_hash,
        "members": members, "conductors": services,
        "cluster_version": cluster_version(status), "service_version": status.service_version,
    })
}

/// What only the leader knows of a member, and a member of itself.
#[derive(Debug, PartialEq, Eq)]
struct Known {
    matched: u64,
    active: bool,
}

/// Returns the members with what is known of them: by the leader if it answered, else by the
/// member that did.
fn known_members<'a>(
    status: &'a GetClusterStatusResponse,
    leader: Option<&'a GetClusterStatusResponse>,
) -> Vec<(&'a Member, Option<Known>)> {
    let known = |member: &Member| match leader {
        Some(_) => Some(Known {
            matched: member.matched_index,
            active: member.recently_active || member.leader,
        }),
        None if member.id == status.member_id => Some(Known {
            matched: status.applied_index,
            active: true,
        }),
        None => None,
    };
    let members = &leader.unwrap_or(status).members;
    members.iter().map(|m| (m, known(m))).collect()
}

/// Returns what the leader says, be it the one that was asked first; nothing if there is none.
pub(crate) async fn ask_leader(
    session: &Session,
    status: &GetClusterStatusResponse,
) -> Option<GetClusterStatusResponse> {
    if status.leader_id == status.member_id {
        return Some(status.clone());
    }
    let ask = |channel| async move {
        let request = GetClusterStatusRequest {};
        ClusterServiceClient::new(channel)
            .get_cluster_status(request)
            .await
    };
    let answer = session.only(&status.leader_address, ask).await?;
    // It may have lost leadership meanwhile, and then knows as little.
    (answer.leader_id == answer.member_id).then_some(answer)
}

fn leader_line(status: &GetClusterStatusResponse) -> String {
    match status.leader_id {
        0 => format!("none is known in term {}", status.term),
        leader => format!("member {leader} in term {}", status.term),
    }
}

fn role(role: member::Role) -> &'static str {
    match role {
        member::Role::Voter => "voter",
        member::Role::Learner => "learner",
        member::Role::Unspecified => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(member_id: u64, matched: [u64; 2]) -> GetClusterStatusResponse {
        let member = |(index, matched_index)| Member {
            id: index as u64 + 1,
            leader: index == 0,
            matched_index,
            recently_active: index as u64 + 1 == member_id,
            ..Member::default()
        };
        GetClusterStatusResponse {
            member_id,
            leader_id: 1,
            applied_index: 7,
            members: matched.into_iter().enumerate().map(member).collect(),
            ..GetClusterStatusResponse::default()
        }
    }

    /// Goal: a follower's ignorance is not shown as a member that is far behind and silent.
    #[test]
    fn a_follower_does_not_speak_for_the_others() {
        let follower = status(2, [0, 0]);
        let alone = known_members(&follower, None);
        assert_eq!(alone[0].1, None);
        let own = Known {
            matched: 7,
            active: true,
        };
        assert_eq!(alone[1].1, Some(own));

        let leader = status(1, [9, 8]);
        let led = known_members(&follower, Some(&leader));
        let matched: Vec<_> = led.iter().flat_map(|(_, k)| k).map(|k| k.matched).collect();
        assert_eq!(matched, [9, 8]);
    }
}
