//! `berth cluster`: looks at the schedulers and changes their membership.

mod backup;
mod recovery;
mod upgrade;

use berth_domain::version::ServiceVersion;
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::cluster::v1::{
    GetClusterStatusRequest, GetClusterStatusResponse, ListServicesRequest, Member,
    RemoveMemberRequest, RetainedData, RotateGrantKeyRequest, ScheduledBackups, Service,
    TransferLeadershipRequest, UnregisterServiceRequest, UpdateMemberRequest, member,
};
use berth_proto::convert::field;
use berth_proto::types::v1::ReadConsistency;
use serde_json::json;

use crate::arguments::Cluster as Verb;
use crate::other_clusters::Other;
use crate::output::Columns;
use crate::session::{Session, request_id, resource, short};
use crate::{all_pages, call, migration, output, read, revocation};

pub(crate) use recovery::line as recovery_line;

/// A cluster without a leader. What is known of it is printed.
#[derive(Debug, thiserror::Error)]
#[error("no leader answers")]
pub struct WithoutLeader;

/// The columns of the list of conductors.
pub(crate) const SERVICES: Columns<3, 0> = Columns {
    usual: ["conductor", "address", "version"],
    wide: [],
};

/// Runs the command.
///
/// # Errors
///
/// The scheduler's refusal; of `cluster status`, [`WithoutLeader`] too.
pub async fn run(session: &mut Session, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Status => status(session).await,
        Verb::Memory => memory(session).await,
        Verb::Backup(args) => backup::run(session, args).await,
        Verb::Recovery(verb) => recovery::run(session, verb).await,
        Verb::RemoveMember { member } => {
            let request = RemoveMemberRequest { member_id: member };
            let response = call!(session, ClusterServiceClient, remove_member, request)?;
            let remain = response.members.len();
            let sentence = format!("member {member} is removed; {remain} remain");
            session.done(&format!("members/{member}"), "removed", sentence)
        }
        Verb::UpdateMember { member, address } => {
            let request = UpdateMemberRequest {
                member_id: member,
                address: address.clone(),
                reported: false,
            };
            call!(session, ClusterServiceClient, update_member, request)?;
            let sentence = format!("member {member} is recorded at {address}");
            session.done(&format!("members/{member}"), "recorded", sentence)
        }
        Verb::TransferLeader { member } => {
            let request = TransferLeadershipRequest { member_id: member };
            let response = call!(session, ClusterServiceClient, transfer_leadership, request)?;
            let leader = response.leader_id;
            let sentence = format!("member {leader} is the leader");
            session.done(&format!("members/{leader}"), "leader", sentence)
        }
        Verb::Services => services(session).await,
        Verb::RemoveConductor { conductor } => {
            let request = UnregisterServiceRequest {
                name: resource("services", &conductor),
                request_id: request_id(None),
            };
            call!(session, ClusterServiceClient, unregister_service, request)?;
            let sentence = format!("conductor {conductor} is removed");
            session.done(&resource("services", &conductor), "removed", sentence)
        }
        Verb::RotateGrantKey => {
            let request = RotateGrantKeyRequest {
                request_id: request_id(None),
            };
            let response = call!(session, ClusterServiceClient, rotate_grant_key, request)?;
            if session.for_programs() {
                return output::value(&json!({"key": response.key}));
            }
            output::message(format!("grants are signed with key {}", response.key));
            Ok(())
        }
        Verb::RevokeCertificate {
            certificate,
            reason,
        } => revocation::revoke(session, &certificate, reason).await,
        Verb::ReinstateCertificate { certificate } => {
            revocation::reinstate(session, &certificate).await
        }
        Verb::RevokedCertificates => revocation::list(session).await,
        Verb::Upgrade(verb) => upgrade::run(session, verb).await,
    }
}

/// Returns the conductors. A status is requested when something is wrong: it must not need a
/// majority.
pub(crate) async fn registered(session: &Session) -> anyhow::Result<Vec<Service>> {
    listed(session, ReadConsistency::Stale).await
}

async fn listed(session: &Session, consistency: ReadConsistency) -> anyhow::Result<Vec<Service>> {
    let request = ListServicesRequest {
        consistency: consistency.into(),
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
    let services = listed(session, ReadConsistency::Unspecified).await?;
    if session.for_programs() {
        return output::value(&services.iter().map(service_json).collect::<Vec<_>>());
    }
    conductors_table(&services)
}

fn conductors_table(services: &[Service]) -> anyhow::Result<()> {
    let rows = services
        .iter()
        .map(|s| {
            let row = [
                short(&s.name).to_owned(),
                s.address.clone(),
                s.service_version.to_string(),
            ];
            (row, [])
        })
        .collect();
    output::list(&SERVICES, rows, "no conductor has registered")
}

fn service_json(service: &Service) -> serde_json::Value {
    json!({"name": short(&service.name), "address": service.address,
           "service_version": service.service_version})
}

async fn status(session: &mut Session) -> anyhow::Result<()> {
    // They are part of what is shown.
    let others = session.look_for_clusters().await.others;
    let request = GetClusterStatusRequest {};
    let mut status = read!(session, ClusterServiceClient, get_cluster_status, request)?;
    if status.leader_id == 0 && session.fall_back() {
        // Any member answers this, which does not state how old its answer is.
        status = read!(session, ClusterServiceClient, get_cluster_status, request)?;
    }
    let session = &*session;
    let services = registered(session).await?;
    let leader = leader_status(session, &status).await;
    let members = members_with_progress(&status, leader.as_ref());
    if session.for_programs() {
        let mut value = as_json(&status, leader.as_ref(), &members, &services);
        value["other_clusters"] = others.iter().map(Other::to_json).collect();
        output::value(&value)?;
        return check_leader(session, leader.as_ref());
    }
    session.report_clusters();
    output::fields(&[
        ("cluster", status.cluster_id.clone()),
        ("leader", leader_line(&status)),
        ("answered by", answered_by(session, &status)),
        (
            "applied",
            format!("{} of {}", status.applied_index, status.commit_index),
        ),
        ("state hash", status.state_hash.clone()),
        ("tolerates", tolerance_line(leader.as_ref())),
        ("disk", of_member(session, disk_line(&status))),
        ("cluster version", cluster_version(&status).to_string()),
        ("backups", of_member(session, backups_line(&status))),
        ("recovery", recovery::line(status.recovery.as_ref())),
    ]);
    let rows = members
        .iter()
        .map(|(m, progress)| {
            let unknown = || "-".to_owned();
            [
                m.id.to_string(),
                m.address.clone(),
                role(m.role()).to_owned(),
                if m.leader { "leader" } else { "" }.to_owned(),
                progress
                    .as_ref()
                    .map_or_else(unknown, |k| k.matched.to_string()),
                progress.as_ref().map_or_else(unknown, active_line),
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
    if leader.is_none() && !session.reads_state() {
        output::message(format!(
            "member {} is not the leader, and no leader answers: the progress of the others is unknown",
            status.member_id
        ));
    }
    conductors_table(&services)?;
    check_leader(session, leader.as_ref())
}

/// Has the command end with a status of its own where no leader answers, whatever was shown. Files have
/// no leader that could.
fn check_leader(
    session: &Session,
    leader: Option<&GetClusterStatusResponse>,
) -> anyhow::Result<()> {
    match leader.is_some() || session.is_offline() {
        true => Ok(()),
        false => Err(WithoutLeader.into()),
    }
}

async fn memory(session: &Session) -> anyhow::Result<()> {
    let request = GetClusterStatusRequest {};
    let status = read!(session, ClusterServiceClient, get_cluster_status, request)?;
    if session.for_programs() {
        let retained: Vec<_> = status.retained.iter().map(retained_json).collect();
        return output::value(&json!({"member_id": status.member_id, "retained": retained}));
    }
    output::fields(&[("answered by", format!("member {}", status.member_id))]);
    let rows = status.retained.iter().map(|retained| {
        let (bytes, bytes_max) = match retained.bytes_max {
            0 => ("-".to_owned(), "-".to_owned()),
            max => (mib(retained.bytes), mib(max)),
        };
        [
            retained.name.replace('_', " "),
            retained.count.to_string(),
            retained.count_max.to_string(),
            bytes,
            bytes_max,
        ]
    });
    output::table(
        ["retained", "count", "at most", "MiB", "at most"],
        rows.collect(),
        "the member is older than this list",
    );
    Ok(())
}

fn retained_json(retained: &RetainedData) -> serde_json::Value {
    json!({"name": retained.name, "count": retained.count, "count_max": retained.count_max,
           "bytes": retained.bytes, "bytes_max": retained.bytes_max})
}

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

/// Returns the cluster version; a member that does not report one is older than cluster versions.
pub(crate) fn cluster_version(status: &GetClusterStatusResponse) -> ServiceVersion {
    ServiceVersion::from_wire(status.cluster_version)
}

/// Returns the service version of a member, if the member that answered knows it.
pub(crate) fn version_of(member: &Member) -> Option<ServiceVersion> {
    (member.service_version > 0).then_some(ServiceVersion(member.service_version))
}

/// Returns what has answered: over the state of a file it is no member.
fn answered_by(session: &Session, status: &GetClusterStatusResponse) -> String {
    match session.reads_state() {
        true => "the file".to_owned(),
        false => format!("member {}", status.member_id),
    }
}

/// Returns what a running member states about itself, which no backup has.
fn of_member(session: &Session, line: String) -> String {
    match session.reads_state() {
        true => "-".to_owned(),
        false => line,
    }
}

fn as_json(
    status: &GetClusterStatusResponse,
    leader: Option<&GetClusterStatusResponse>,
    members: &[(&Member, Option<MemberProgress>)],
    services: &[Service],
) -> serde_json::Value {
    let members: Vec<_> = members
        .iter()
        .map(|(m, progress)| {
            json!({"id": m.id, "address": m.address, "role": role(m.role()), "leader": m.leader,
                   "matched_index": progress.as_ref().map(|k| k.matched),
                   "recently_active": progress.as_ref().map(|k| k.active),
                   "silent_s": progress.as_ref().and_then(|k| k.silent_s),
                   "service_version": version_of(m)})
        })
        .collect();
    let services: Vec<_> = services.iter().map(service_json).collect();
    json!({
        "failures_tolerated": leader.and_then(|leader| leader.failures_tolerated),
        "cluster_id": status.cluster_id, "member_id": status.member_id, "term": status.term,
        "leader_id": status.leader_id, "commit_index": status.commit_index,
        "applied_index": status.applied_index, "state_hash": status.state_hash,
        "disk_silent_ms": status.disk_silent_ms, "members": members, "conductors": services,
        "cluster_version": cluster_version(status), "service_version": status.service_version,
        "backups": status.backups.as_ref().map(backups_json),
        "recovery": status.recovery.as_ref().map(recovery::as_json),
    })
}

/// The replication progress of a member, progress to the leader and to the member itself.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MemberProgress {
    pub(crate) matched: u64,
    pub(crate) active: bool,
    /// For how many seconds the leader has heard nothing from it.
    silent_s: Option<u64>,
}

/// Returns the members with what is known of them: by the leader if it answered, else by the
/// member that did.
pub(crate) fn members_with_progress<'a>(
    status: &'a GetClusterStatusResponse,
    leader: Option<&'a GetClusterStatusResponse>,
) -> Vec<(&'a Member, Option<MemberProgress>)> {
    let progress = |member: &Member| match leader {
        Some(_) => Some(MemberProgress {
            matched: member.matched_index,
            active: member.recently_active || member.leader,
            silent_s: member.silent_time.and_then(whole_seconds),
        }),
        None if member.id == status.member_id => Some(MemberProgress {
            matched: status.applied_index,
            active: true,
            silent_s: None,
        }),
        None => None,
    };
    let members = &leader.unwrap_or(status).members;
    members.iter().map(|m| (m, progress(m))).collect()
}

/// Returns the leader's status, or that of the first member if it leads; nothing if there is no leader.
pub(crate) async fn leader_status(
    session: &Session,
    status: &GetClusterStatusResponse,
) -> Option<GetClusterStatusResponse> {
    if status.leader_id == status.member_id {
        return Some(status.clone());
    }
    if session.is_offline() {
        return None;
    }
    let get_status = |channel| async move {
        let request = GetClusterStatusRequest {};
        ClusterServiceClient::new(channel)
            .get_cluster_status(request)
            .await
    };
    let response = session.only(&status.leader_address, get_status).await?;
    // It may have lost leadership meanwhile, and then knows as little.
    (response.leader_id == response.member_id).then_some(response)
}

/// Describes how many more schedulers may fail, as the leader sees it.
pub(crate) fn tolerance_line(leader: Option<&GetClusterStatusResponse>) -> String {
    let Some(leader) = leader else {
        return "not known: no leader answers".to_owned();
    };
    let voters = leader.members.iter();
    let voters = voters.filter(|m| m.role() == member::Role::Voter).count();
    match leader.failures_tolerated {
        None => "not known to the leader".to_owned(),
        Some(0) => format!("no failure of a scheduler; {voters} vote"),
        Some(1) => format!("the failure of 1 scheduler; {voters} vote"),
        Some(count) => format!("the failure of {count} schedulers; {voters} vote"),
    }
}

/// Describes whether a member answers the leader, and how long it has not.
pub(crate) fn active_line(progress: &MemberProgress) -> String {
    match (progress.active, progress.silent_s) {
        (true, _) => "yes".to_owned(),
        (false, None | Some(0)) => "no".to_owned(),
        (false, Some(seconds @ 1..=119)) => format!("no, {seconds} s"),
        (false, Some(seconds @ 120..=7199)) => format!("no, {} min", seconds / 60),
        (false, Some(seconds)) => format!("no, {} h", seconds / 3600),
    }
}

fn whole_seconds(duration: prost_types::Duration) -> Option<u64> {
    u64::try_from(duration.seconds).ok()
}

/// Describes the disk of the member that answered. Below a second it is as slow as disks are.
fn disk_line(status: &GetClusterStatusResponse) -> String {
    match status.disk_silent_ms / 1000 {
        0 => "answers".to_owned(),
        seconds => format!(
            "of member {} has not answered for {seconds} s",
            status.member_id
        ),
    }
}

/// Describes the scheduled backups of the member that answered.
fn backups_line(status: &GetClusterStatusResponse) -> String {
    let Some(backups) = &status.backups else {
        return format!("not scheduled at member {}", status.member_id);
    };
    let last = match last_backup(backups) {
        Some(time) => format!("last at {time}, up to index {}", backups.last_index),
        None => "none was made since the member started".to_owned(),
    };
    match backups.failure.as_str() {
        "" => last,
        failure => format!("FAILED: {failure}; {last}"),
    }
}

pub(crate) fn last_backup(backups: &ScheduledBackups) -> Option<String> {
    let time = field::optional_time(backups.last_time, "last_time");
    time.ok().flatten().map(migration::time)
}

fn backups_json(backups: &ScheduledBackups) -> serde_json::Value {
    let failure = Some(&backups.failure).filter(|failure| !failure.is_empty());
    json!({"last_time": last_backup(backups), "last_index": backups.last_index,
           "failure": failure})
}

pub(crate) fn leader_line(status: &GetClusterStatusResponse) -> String {
    match status.leader_id {
        0 => format!("none is known in term {}", status.term),
        leader => format!("member {leader} in term {}", status.term),
    }
}

pub(crate) fn role(role: member::Role) -> &'static str {
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

    #[test]
    fn a_disk_that_does_not_answer_is_shown() {
        let silent = |disk_silent_ms| GetClusterStatusResponse {
            disk_silent_ms,
            ..status(2, [0, 0])
        };
        assert_eq!(disk_line(&silent(950)), "answers");
        let line = disk_line(&silent(12_400));
        assert_eq!(line, "of member 2 has not answered for 12 s");
    }

    #[test]
    fn the_failures_that_are_tolerated_are_shown() {
        let line = |failures_tolerated| {
            let voter = Member {
                role: member::Role::Voter.into(),
                ..Member::default()
            };
            tolerance_line(Some(&GetClusterStatusResponse {
                failures_tolerated,
                members: vec![voter.clone(), voter.clone(), voter],
                ..GetClusterStatusResponse::default()
            }))
        };
        assert_eq!(line(Some(0)), "no failure of a scheduler; 3 vote");
        assert_eq!(line(Some(1)), "the failure of 1 scheduler; 3 vote");
        assert_eq!(line(Some(2)), "the failure of 2 schedulers; 3 vote");
        assert_eq!(line(None), "not known to the leader");
        assert_eq!(tolerance_line(None), "not known: no leader answers");
    }

    #[test]
    fn the_silence_of_a_member_is_shown() {
        let line = |active, silent_s| {
            active_line(&MemberProgress {
                matched: 7,
                active,
                silent_s,
            })
        };
        assert_eq!(line(true, Some(3)), "yes");
        assert_eq!(line(false, None), "no");
        assert_eq!(line(false, Some(0)), "no");
        assert_eq!(line(false, Some(119)), "no, 119 s");
        assert_eq!(line(false, Some(120)), "no, 2 min");
        assert_eq!(line(false, Some(7199)), "no, 119 min");
        assert_eq!(line(false, Some(7200)), "no, 2 h");
    }

    #[test]
    fn scheduled_backups_are_shown() {
        let line = |backups| {
            backups_line(&GetClusterStatusResponse {
                backups,
                ..status(2, [0, 0])
            })
        };
        assert_eq!(line(None), "not scheduled at member 2");
        let none = ScheduledBackups::default();
        let before = "none was made since the member started";
        assert_eq!(line(Some(none.clone())), before);
        let failed = ScheduledBackups {
            failure: "the disk is full".to_owned(),
            ..none
        };
        let expected = format!("FAILED: the disk is full; {before}");
        assert_eq!(line(Some(failed)), expected);
        let made = ScheduledBackups {
            last_time: Some(field::timestamp(berth_domain::id::TimeMs(
                1_700_000_000_000,
            ))),
            last_index: 812,
            ..ScheduledBackups::default()
        };
        let expected = "last at 2023-11-14T22:13:20Z, up to index 812";
        assert_eq!(line(Some(made)), expected);
    }

    /// Goal: a follower's ignorance is not shown as a member that is far behind and silent.
    #[test]
    fn a_follower_does_not_speak_for_the_others() {
        let follower = status(2, [0, 0]);
        let alone = members_with_progress(&follower, None);
        assert_eq!(alone[0].1, None);
        let own = MemberProgress {
            matched: 7,
            active: true,
            silent_s: None,
        };
        assert_eq!(alone[1].1, Some(own));

        let leader = status(1, [9, 8]);
        let led = members_with_progress(&follower, Some(&leader));
        let matched: Vec<_> = led.iter().flat_map(|(_, k)| k).map(|k| k.matched).collect();
        assert_eq!(matched, [9, 8]);
    }
}
