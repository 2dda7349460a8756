//! What the watch does not send, read now and then: the members of the schedulers' group, the aggregates,
//! and, on request, what the failure of each host would mean.
//!
//! Invariant: each reading is one call at a time, and a failure of it is passed on as such.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use berth_domain::aggregate::Aggregate;
use berth_domain::refusal::Refusal;
use berth_proto::cluster::v1::GetClusterStatusRequest;
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::planner::v1::planner_service_client::PlannerServiceClient;
use berth_proto::planner::v1::{FailureDomain, Verdict, VerifyClusterRequest};
use berth_proto::policy::v1::ListAggregatesRequest;
use berth_proto::policy::v1::aggregate_service_client::AggregateServiceClient;
use tokio::sync::mpsc::{Receiver, Sender};

use super::hosts::Aggregates;
use super::overview::{Member, Status, Verdicts};
use super::update::Update;
use crate::planner::verify;
use crate::session::{Session, read_all, short};
use crate::{all_pages, cluster, read};

/// How often the members are read.
const STATUS_PERIOD: Duration = Duration::from_secs(2);
/// How often the aggregates are, in readings of the members.
const AGGREGATES_EVERY: u32 = 15;

/// Reads for ever.
///
/// # Errors
///
/// What it reads is not received any more.
pub async fn follow(session: &Session, updates: Sender<Update>) -> anyhow::Result<Infallible> {
    let mut round: u32 = 0;
    loop {
        let status = status(session).await.map_err(|refusal| refusal.message);
        updates.send(Update::Status(status)).await?;
        // Without them the table has no aggregates, and the next attempt follows.
        if round.is_multiple_of(AGGREGATES_EVERY)
            && let Ok(aggregates) = aggregates(session).await
        {
            updates.send(Update::Aggregates(aggregates)).await?;
        }
        round = round.wrapping_add(1);
        tokio::time::sleep(STATUS_PERIOD).await;
    }
}

/// Verifies the cluster whenever that is requested.
///
/// # Errors
///
/// What it reads is not received any more.
pub async fn verify(
    session: &Session,
    mut requests: Receiver<()>,
    updates: Sender<Update>,
) -> anyhow::Result<Infallible> {
    loop {
        if requests.recv().await.is_none() {
            // Nothing is requested any more: the program ends.
            std::future::pending::<()>().await;
        }
        let verdicts = verdicts(session).await;
        let verdicts = verdicts.map_err(|refusal| refusal.message);
        updates.send(Update::Verdicts(verdicts)).await?;
    }
}

async fn status(session: &Session) -> Result<Status, Refusal> {
    let request = GetClusterStatusRequest {};
    let status = read!(session, ClusterServiceClient, get_cluster_status, request)?;
    let leader = cluster::leader_status(session, &status).await;
    let last = leader.as_ref().map(|leader| leader.commit_index);
    let members = cluster::members_with_progress(&status, leader.as_ref());
    let members = members.into_iter().map(|(member, progress)| Member {
        id: member.id,
        address: member.address.clone(),
        role: match member.leader {
            true => "leader".to_owned(),
            false => cluster::role(member.role()).to_owned(),
        },
        lag: last
            .zip(progress.as_ref())
            .map(|(last, p)| last.saturating_sub(p.matched)),
        is_active: progress.as_ref().is_some_and(|p| p.active),
        active: progress.map_or("-".to_owned(), |p| cluster::active_line(&p)),
        version: cluster::version_of(member).map_or("-".to_owned(), |v| v.to_string()),
    });
    let recovery = status.recovery.as_ref();
    let recovers = recovery.filter(|recovery| recovery.end_time.is_none());
    Ok(Status {
        id: status.cluster_id.clone(),
        leader: cluster::leader_line(&status),
        has_leader: status.leader_id != 0,
        tolerates: cluster::tolerance_line(leader.as_ref()),
        version: cluster::cluster_version(&status).to_string(),
        recovery: recovers.map(|recovery| cluster::recovery_line(Some(recovery))),
        members: members.collect(),
    })
}

async fn aggregates(session: &Session) -> anyhow::Result<Aggregates> {
    let request = ListAggregatesRequest::default();
    let all = all_pages!(
        session,
        AggregateServiceClient,
        list_aggregates,
        request,
        aggregates
    );
    let all: Vec<Aggregate> = read_all(all)?;
    let mut of_hosts: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for aggregate in &all {
        for host in &aggregate.hosts {
            let names = of_hosts.entry(host.clone()).or_default();
            names.push(aggregate.name.to_string());
        }
    }
    let joined = of_hosts.into_iter();
    Ok(joined
        .map(|(host, names)| (host, names.join(" ")))
        .collect())
}

async fn verdicts(session: &Session) -> Result<Verdicts, Refusal> {
    let request = VerifyClusterRequest {
        domain: FailureDomain::Host.into(),
        ..Default::default()
    };
    let response = read!(session, PlannerServiceClient, verify_cluster, request)?;
    let mut verdicts = Verdicts {
        revision: response.revision,
        ..Verdicts::default()
    };
    for domain in &response.domains {
        match domain.verdict() {
            Verdict::Proven => verdicts.proven += 1,
            Verdict::Refuted => {
                let why = domain.reason.as_ref();
                let why = why.map_or(String::new(), |reason| reason.message.clone());
                verdicts.refuted.push((short(&domain.name).to_owned(), why));
            }
            Verdict::Unknown | Verdict::Unspecified => verdicts.unknown += 1,
        }
    }
    for host in &response.hosts {
        let memory = host.memory.clone().unwrap_or_default();
        let how = verify::beyond(&memory);
        if how != "none" {
            let how = format!("{how}, {}", memory.explanation);
            verdicts.beyond.push((short(&host.host).to_owned(), how));
        }
    }
    Ok(verdicts)
}
