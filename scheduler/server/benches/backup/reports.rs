//! What the agents of all hosts report to a group that recovers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_domain::name::HostName;
use berth_proto::cluster::v1::GetRecoveryRequest;
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::convert::ResourceName as _;
use berth_proto::host::v1::host_service_client::HostServiceClient;
use berth_proto::host::v1::{ExpectDomainsRequest, RegisterHostRequest, ReportGuestsRequest};
use berth_state::State;
use berth_testkit::state::scale;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use crate::fault::{Outcome, fault};
use crate::group::Group;

/// How many hosts report at once.
const AT_ONCE: usize = 32;
/// How often a host tries at most.
const ATTEMPTS: u32 = 10;
/// The time between two attempts.
const PAUSE: Duration = Duration::from_secs(1);
/// When waiting for the end is given up.
const PATIENCE: Duration = Duration::from_secs(900);

/// How long the parts of a recovery took.
pub(crate) struct Recovered {
    pub(crate) registered: Duration,
    pub(crate) first_reports: Duration,
    pub(crate) second_reports: Duration,
    /// Of `berth cluster recovery status`, when each host has reported once.
    pub(crate) status: Duration,
    /// From the last report on.
    pub(crate) ended: Duration,
}

/// Has all hosts of a state register and report its guests, and waits for the end of the recovery.
pub(crate) async fn recover(group: &Group, state: &State) -> Outcome<Recovered> {
    let channel = group.connect(group.leader().await?).await?;
    let state = Arc::new(state.clone());
    let registered = each(&channel, &state, register).await?;
    let first_reports = each(&channel, &state, report).await?;
    let begun = Instant::now();
    is_ended(&channel).await?;
    let status = begun.elapsed();
    let second_reports = each(&channel, &state, report).await?;
    let begun = Instant::now();
    // While the leader settles a large state it may answer nothing for longer than a request waits.
    while !is_ended(&channel).await.unwrap_or(false) {
        if begun.elapsed() > PATIENCE {
            return Err(fault("the recovery did not end"));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(Recovered {
        registered,
        first_reports,
        second_reports,
        status,
        ended: begun.elapsed(),
    })
}

async fn is_ended(channel: &Channel) -> Outcome<bool> {
    let mut client = ClusterServiceClient::new(channel.clone());
    let recovery = client.get_recovery(GetRecoveryRequest::default()).await?;
    let recovery = recovery.into_inner().recovery;
    let recovery = recovery.ok_or_else(|| fault("the cluster did not recover"))?;
    Ok(recovery.end_time.is_some())
}

/// Does the same for all hosts, and returns how long that took.
async fn each<F>(
    channel: &Channel,
    state: &Arc<State>,
    work: impl Fn(Channel, Arc<State>, HostName) -> F + Clone + Send + 'static,
) -> Outcome<Duration>
where
    F: Future<Output = Outcome<()>> + Send + 'static,
{
    let begun = Instant::now();
    let mut working = JoinSet::new();
    for host in state.hosts().keys() {
        if working.len() >= AT_ONCE
            && let Some(done) = working.join_next().await
        {
            done??;
        }
        let (channel, state, host) = (channel.clone(), state.clone(), host.clone());
        let work = work.clone();
        let attempt = move || work(channel.clone(), state.clone(), host.clone());
        working.spawn(repeated(attempt));
    }
    while let Some(done) = working.join_next().await {
        done??;
    }
    Ok(begun.elapsed())
}

/// Repeats what fails, as agents do.
async fn repeated<F>(attempt: impl Fn() -> F) -> Outcome<()>
where
    F: Future<Output = Outcome<()>>,
{
    for _ in 1..ATTEMPTS {
        if attempt().await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
    attempt().await
}

async fn register(channel: Channel, state: Arc<State>, host: HostName) -> Outcome<()> {
    let view = &state.hosts()[&host];
    let request = RegisterHostRequest {
        name: host.resource_name(),
        report: Some((&view.host.report).into()),
        request_id: String::new(),
    };
    HostServiceClient::new(channel)
        .register_host(request)
        .await?;
    Ok(())
}

async fn report(channel: Channel, state: Arc<State>, host: HostName) -> Outcome<()> {
    let view = &state.hosts()[&host];
    let name = host.resource_name();
    let mut client = HostServiceClient::new(channel);
    let expected = ExpectDomainsRequest { name: name.clone() };
    let expected = client.expect_domains(expected).await?.into_inner();
    let guests = scale::guests(&state, &host);
    let request = ReportGuestsRequest {
        name,
        incarnation: view.host.report.incarnation.to_string(),
        basis_revision: expected.revision,
        guests: guests.map(|guest| (&guest).into()).collect(),
    };
    client.report_guests(request).await?;
    Ok(())
}
