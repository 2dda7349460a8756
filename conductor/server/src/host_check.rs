//! Checks of hosts, for operators: selects the hosts, calls their agents, and compares the answers.
//!
//! Not here: what is compared ([`berth_domain::host_check`]), and what an agent checks.
//!
//! Invariant: bounded in hosts, in checks at a time and in time, and it changes nothing. A host that does
//! not answer holds up no other one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use berth_domain::agent::Failure;
use berth_domain::host::{Host, Liveness};
use berth_domain::host_check::{CheckReply, CheckedHost, HOSTS_MAX, HostCheck, findings};
use berth_domain::id::TimeMs;
use berth_domain::name::HostName;
use berth_domain::refusal::{Code, Refusal};
use berth_process::wall_clock_ms;
use berth_proto::agent::v1::compute_agent_service_client::ComputeAgentServiceClient;
use berth_proto::agent::v1::{CheckHostRequest, HypervisorPeer};
use berth_proto::client;
use berth_proto::conductor::v1::{CheckHostsRequest, CheckHostsResponse};
use berth_proto::convert::ResourceName as _;
use berth_proto::convert::field::{self, Invalid};
use berth_proto::status::to_status;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tonic::Status;

use crate::driver::Tools;
use crate::scheduler::is_without_method;

/// How many checks may be under way.
const CHECKS_MAX: usize = 4;

/// The bounds of the time that a check may take, and its default.
const TIMEOUT_MS_MIN: u64 = 1_000;
const TIMEOUT_MS_MAX: u64 = 60_000;

/// The checks of this conductor. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Checks(Arc<Semaphore>);

impl Checks {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(CHECKS_MAX)))
    }

    /// Checks hosts and their peers.
    pub(crate) async fn check(
        &self,
        tools: &Tools,
        request: CheckHostsRequest,
    ) -> Result<CheckHostsResponse, Status> {
        let scope = Scope::read(request)?;
        let _permit = self.0.try_acquire().map_err(|_| to_status(&busy()))?;
        let time = scope.timeout;
        let selected = tokio::time::timeout(time, select(tools, &scope)).await;
        let selected = selected.map_err(|_| Status::deadline_exceeded("no scheduler answers"))?;
        let hosts = selected.map_err(|refusal| to_status(&refusal))?;
        let checked = call_all(tools, hosts, time).await;
        Ok(CheckHostsResponse {
            findings: findings(&checked).iter().map(Into::into).collect(),
        })
    }
}

/// What is to be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Scope {
    /// Empty: all.
    hosts: Vec<HostName>,
    /// Empty: all.
    peers: Vec<HostName>,
    timeout: Duration,
}

impl Scope {
    fn read(request: CheckHostsRequest) -> Result<Self, Status> {
        let names = |names: Vec<String>, what: &str| {
            let names = names.iter().map(|name| field::name(name, what));
            names.collect::<Result<Vec<HostName>, Invalid>>()
        };
        let named = request.hosts.len().max(request.peers.len());
        if named > HOSTS_MAX {
            return Err(to_status(&too_many()));
        }
        let timeout_ms = field::optional_duration_ms(request.timeout, "timeout")?;
        let timeout_ms = timeout_ms.unwrap_or(TIMEOUT_MS_MAX);
        if !(TIMEOUT_MS_MIN..=TIMEOUT_MS_MAX).contains(&timeout_ms) {
            return Err(Invalid::new("timeout", "must be from 1 s to 60 s").into());
        }
        Ok(Self {
            hosts: names(request.hosts, "hosts")?,
            peers: names(request.peers, "peers")?,
            timeout: Duration::from_millis(timeout_ms),
        })
    }
}

fn too_many() -> Refusal {
    let message =
        format!("a check is of at most {HOSTS_MAX} hosts, as each connects to each other one");
    Refusal::new(Code::InvalidArgument, "TOO_MANY_HOSTS", message)
        .with_hint("name some: berth host check HOST --peer HOST")
}

fn busy() -> Refusal {
    let message = format!("this conductor carries out {CHECKS_MAX} checks of hosts already");
    Refusal::new(Code::Unavailable, "CONDUCTOR_BUSY", message).with_hint("repeat it a moment later")
}

/// Returns the hosts that take part, and whether each is checked itself or as a peer only.
async fn select(tools: &Tools, scope: &Scope) -> Result<Vec<(Host, bool)>, Refusal> {
    let mut selected: BTreeMap<HostName, (Host, bool)> = BTreeMap::new();
    if scope.hosts.is_empty() || scope.peers.is_empty() {
        let is_checked = scope.hosts.is_empty();
        let is_up = |host: &Host| host.liveness == Liveness::Up && host.report.runs_guests();
        for host in tools.scheduler.hosts(is_up, HOSTS_MAX + 1).await? {
            selected.insert(host.name.clone(), (host, is_checked));
        }
    }
    let named = scope.hosts.iter().map(|name| (name, true));
    let peers = scope.peers.iter().map(|name| (name, false));
    for (name, is_checked) in named.chain(peers) {
        if let Some((_, checked)) = selected.get_mut(name) {
            *checked |= is_checked;
            continue;
        }
        let host = tools.scheduler.host(name).await?;
        if !host.report.runs_guests() {
            let message = format!("host {name} runs no VMs: its agent is there for volumes");
            return Err(
                Refusal::new(Code::FailedPrecondition, "HOST_RUNS_NO_VMS", message)
                    .with("host", name)
                    .with_hint("leave it out"),
            );
        }
        selected.insert(name.clone(), (host, is_checked));
    }
    match selected.len() <= HOSTS_MAX {
        true => Ok(selected.into_values().collect()),
        false => Err(too_many()),
    }
}

/// Calls the agents of all hosts at the same time.
async fn call_all(tools: &Tools, hosts: Vec<(Host, bool)>, timeout: Duration) -> Vec<CheckedHost> {
    let mut calls = JoinSet::new();
    for (index, (host, is_checked)) in hosts.iter().enumerate() {
        let request = CheckHostRequest {
            peers: peers_of(host, *is_checked, &hosts),
            // An agent reports what it could not check in time before it is given up.
            timeout: Some(field::duration(millis(timeout) * 3 / 4)),
        };
        let (tools, host) = (tools.clone(), host.clone());
        calls.spawn(async move {
            let answer = tokio::time::timeout(timeout, call(&tools, &host, request)).await;
            (index, answer.unwrap_or_else(|_| silent_for(timeout)))
        });
    }
    let mut answers: Vec<Option<CheckReply>> = vec![None; hosts.len()];
    while let Some(joined) = calls.join_next().await {
        if let Ok((index, answer)) = joined {
            answers[index] = Some(answer);
        }
    }
    let checked = hosts.into_iter().zip(answers);
    checked
        .map(|((host, is_checked), answer)| CheckedHost {
            name: host.name,
            driver: host.report.driver,
            agent_address: host.report.agent_address,
            reply: answer.unwrap_or_else(|| silent("the call failed in the conductor")),
            is_checked,
        })
        .collect()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the peers that a host connects to: of each pair one is checked. Hosts with another driver are
/// none.
fn peers_of(host: &Host, is_checked: bool, hosts: &[(Host, bool)]) -> Vec<HypervisorPeer> {
    let others = hosts.iter().filter(|(other, other_is_checked)| {
        other.name != host.name
            && (is_checked || *other_is_checked)
            && other.report.driver == host.report.driver
            && !other.report.migration_uri.is_empty()
    });
    others
        .map(|(other, _)| HypervisorPeer {
            host: other.name.resource_name(),
            migration_uri: other.report.migration_uri.clone(),
        })
        .collect()
}

/// Calls the agent of one host, once.
async fn call(tools: &Tools, host: &Host, request: CheckHostRequest) -> CheckReply {
    let Ok(_permit) = tools.calls.acquire().await else {
        return silent("the conductor is stopping");
    };
    let (name, address) = (&host.name, &host.report.agent_address);
    let channel = match tools.agents.channel(name, address) {
        Ok(channel) => channel,
        Err(Failure::Unreachable { message }) => return silent(message),
        Err(Failure::Refused(refusal)) => {
            return CheckReply::Refused {
                message: refusal.message,
            };
        }
    };
    let sent = now();
    match ComputeAgentServiceClient::new(channel)
        .check_host(request)
        .await
    {
        Ok(response) => {
            let between = (sent, now());
            match HostCheck::try_from(response.into_inner()) {
                Ok(report) => of_host(name, report, between),
                Err(invalid) => silent(format!("its answer cannot be read: {invalid}")),
            }
        }
        Err(status) if is_without_method(&status) => CheckReply::TooOld,
        Err(status) => match client::agent::failure(&status) {
            Failure::Unreachable { message } => silent(message),
            Failure::Refused(refusal) => CheckReply::Refused {
                message: refusal.message,
            },
        },
    }
}

/// Accepts what an agent reports of its own host, and nothing of others.
fn of_host(host: &HostName, report: HostCheck, between: (TimeMs, TimeMs)) -> CheckReply {
    let of_others = report.findings.iter().any(|finding| finding.host != *host);
    if report.host != *host || report.tls.host != *host || of_others {
        return silent(format!("it answers as the agent of host {}", report.host));
    }
    CheckReply::Report {
        report: Box::new(report),
        between,
    }
}

fn silent(message: impl Into<String>) -> CheckReply {
    CheckReply::Silent {
        message: message.into(),
    }
}

fn silent_for(time: Duration) -> CheckReply {
    silent(format!("no answer within {} s", time.as_secs()))
}

/// Returns this machine's wall clock; that of an agent is compared with it.
fn now() -> TimeMs {
    TimeMs(wall_clock_ms())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(hosts: usize, peers: usize, timeout_ms: Option<u64>) -> CheckHostsRequest {
        let names = |count| (0..count).map(|n| format!("hosts/h{n}")).collect();
        CheckHostsRequest {
            hosts: names(hosts),
            peers: names(peers),
            timeout: timeout_ms.map(field::duration),
        }
    }

    #[test]
    fn requests_are_bounded() {
        let timeout = |ms| Scope::read(request(1, 1, ms)).map(|scope| millis(scope.timeout));
        assert_eq!(timeout(None).unwrap(), TIMEOUT_MS_MAX);
        assert_eq!(timeout(Some(TIMEOUT_MS_MIN)).unwrap(), TIMEOUT_MS_MIN);
        for bad in [0, TIMEOUT_MS_MIN - 1, TIMEOUT_MS_MAX + 1] {
            assert!(timeout(Some(bad)).is_err(), "{bad}");
        }
        for (hosts, peers) in [(HOSTS_MAX, 0), (0, HOSTS_MAX)] {
            assert!(Scope::read(request(hosts, peers, None)).is_ok());
        }
        for (hosts, peers) in [(HOSTS_MAX + 1, 0), (0, HOSTS_MAX + 1)] {
            let status = Scope::read(request(hosts, peers, None)).unwrap_err();
            let refusal = berth_proto::status::from_status(&status);
            assert_eq!(refusal.reason, "TOO_MANY_HOSTS");
        }
        let mut unnamed = request(1, 0, None);
        unnamed.hosts.push("h2".to_owned());
        assert!(Scope::read(unnamed).is_err());
    }

    #[test]
    fn an_agent_reports_its_own_host_only() {
        let [h1, h2] = ["h1", "h2"].map(|name| HostName::new(name).unwrap());
        let report = |host: &HostName, tls: &HostName, of: &HostName| HostCheck {
            host: host.clone(),
            findings: vec![berth_domain::host_check::HostFinding::ok("x", of, "y")],
            hypervisor_version: String::new(),
            tls: berth_domain::migration_tls::TlsReport {
                host: tls.clone(),
                policy: berth_domain::migration_tls::TlsPolicy::Off,
                fault: None,
            },
            wall_clock: TimeMs(0),
        };
        let at = (TimeMs(0), TimeMs(0));
        let is_report = |reply: CheckReply| matches!(reply, CheckReply::Report { .. });
        assert!(is_report(of_host(&h1, report(&h1, &h1, &h1), at)));
        for (host, tls, of) in [(&h2, &h1, &h1), (&h1, &h2, &h1), (&h1, &h1, &h2)] {
            assert!(!is_report(of_host(&h1, report(host, tls, of), at)));
        }
    }
}
