//! `berth cluster upgrade`: shows which programs run which version, and finishes an upgrade.
//!
//! The scheduler decides which programs are behind; nothing is decided here.

use std::collections::BTreeMap;

use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::ServiceVersion;
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::cluster::v1::{
    FinalizeUpgradeRequest, GetClusterStatusRequest, GetClusterStatusResponse, Service,
};
use berth_proto::host::v1::host_service_client::HostServiceClient;
use berth_proto::host::v1::{HostSummary, ListHostsRequest};
use berth_proto::types::v1::ReadConsistency;
use serde_json::json;

use super::{cluster_version, leader_status, registered, version_of};
use crate::arguments::Upgrade as Verb;
use crate::session::{Session, request_id, resource, short};
use crate::{all_pages, call, output, read};

/// The maximum number of hosts that are named.
const NAMED_MAX: usize = 8;

/// Runs the command.
///
/// # Errors
///
/// The scheduler's refusal.
pub(crate) async fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Status => status(session).await,
        Verb::Finalize {
            to,
            gone,
            validate_only,
        } => {
            let request = FinalizeUpgradeRequest {
                version: to.unwrap_or(0),
                gone: gone.iter().map(|name| resource("services", name)).collect(),
                validate_only,
                request_id: request_id(None),
            };
            let response = call!(session, ClusterServiceClient, finalize_upgrade, request);
            let response = response.map_err(map_unimplemented)?;
            let verb = if validate_only { "could be" } else { "is" };
            let version = response.cluster_version;
            let result = if validate_only {
                "finalizable"
            } else {
                "finalized"
            };
            let sentence = format!("the cluster version {verb} {version}");
            session.done(&format!("clusterVersions/{version}"), result, sentence)
        }
    }
}

/// A leader without this method is a member that is behind.
fn map_unimplemented(refusal: Refusal) -> Refusal {
    if refusal.code != Code::Unimplemented {
        return refusal;
    }
    Refusal::new(
        Code::FailedPrecondition,
        "UPGRADE_INCOMPLETE",
        "the leader does not support cluster versions",
    )
    .with_hint("upgrade every scheduler first")
}

/// The versions of all programs.
struct Versions {
    cluster: ServiceVersion,
    members: Vec<(u64, Option<ServiceVersion>)>,
    conductors: Vec<(String, ServiceVersion)>,
    hosts: Vec<(String, ServiceVersion)>,
}

impl Versions {
    fn new(
        status: &GetClusterStatusResponse,
        conductors: &[Service],
        hosts: &[HostSummary],
    ) -> Self {
        let conductors = conductors.iter();
        let hosts = hosts.iter().filter_map(|summary| {
            let host = summary.host.as_ref()?;
            let version = ServiceVersion::from_wire(host.report.as_ref()?.service_version);
            Some((short(&host.name).to_owned(), version))
        });
        Self {
            cluster: cluster_version(status),
            members: status
                .members
                .iter()
                .map(|m| (m.id, version_of(m)))
                .collect(),
            conductors: conductors
                .map(|s| {
                    (
                        short(&s.name).to_owned(),
                        ServiceVersion::from_wire(s.service_version),
                    )
                })
                .collect(),
            hosts: hosts.collect(),
        }
    }

    /// Returns the newest version that any program runs.
    fn newest(&self) -> ServiceVersion {
        let members = self.members.iter().filter_map(|(_, version)| *version);
        let others = self.conductors.iter().chain(&self.hosts);
        let all = members.chain(others.map(|(_, version)| *version));
        all.max().unwrap_or(self.cluster)
    }

    /// Returns the programs that keep the cluster version from being raised to the newest.
    fn behind(&self) -> Vec<String> {
        let newest = self.newest();
        let members = self
            .members
            .iter()
            .filter_map(|(id, version)| match version {
                None => Some(format!("member {id} (unreachable)")),
                Some(own) if *own < newest => Some(format!("member {id} ({own})")),
                Some(_) => None,
            });
        let conductors = self.conductors.iter().filter(|(_, own)| *own < newest);
        let conductors = conductors.map(|(name, own)| format!("conductor {name} ({own})"));
        members.chain(conductors).collect()
    }

    fn next_step(&self) -> String {
        let (newest, behind) = (self.newest(), self.behind());
        // Before this version there is nothing to raise it with.
        if self.cluster >= newest || newest < ServiceVersion::FINALIZE_UPGRADE {
            return "there is nothing to do".to_owned();
        }
        if behind.is_empty() {
            return format!("raise it to {newest}: berth cluster upgrade finalize");
        }
        format!("upgrade {}", behind.join(", "))
    }
}

async fn status(session: &Session) -> anyhow::Result<()> {
    let request = GetClusterStatusRequest {};
    let status = read!(session, ClusterServiceClient, get_cluster_status, request)?;
    // Only the leader receives the versions of all members.
    let status = leader_status(session, &status).await.unwrap_or(status);
    let conductors = registered(session).await?;
    let request = ListHostsRequest {
        consistency: ReadConsistency::Stale.into(),
        ..Default::default()
    };
    let hosts = all_pages!(session, HostServiceClient, list_hosts, request, hosts);
    let versions = Versions::new(&status, &conductors, &hosts);
    if session.for_programs() {
        return output::value(&as_json(&versions));
    }
    output::fields(&[
        ("cluster version", versions.cluster.to_string()),
        ("newest program", versions.newest().to_string()),
        ("next", versions.next_step()),
    ]);
    output::table(
        ["version", "programs"],
        rows(&versions),
        "no program has registered",
    );
    Ok(())
}

/// Returns the programs of each version, a line for each version.
fn rows(versions: &Versions) -> Vec<[String; 2]> {
    let mut at: BTreeMap<ServiceVersion, (Vec<String>, Vec<String>)> = BTreeMap::new();
    for (id, version) in &versions.members {
        let entry = at.entry(version.unwrap_or_default()).or_default();
        entry.0.push(format!("member {id}"));
    }
    for (name, version) in &versions.conductors {
        at.entry(*version)
            .or_default()
            .0
            .push(format!("conductor {name}"));
    }
    for (name, version) in &versions.hosts {
        at.entry(*version).or_default().1.push(name.clone());
    }
    let row = |(version, (mut programs, hosts)): (ServiceVersion, (Vec<String>, Vec<String>))| {
        let named = hosts.iter().take(NAMED_MAX);
        programs.extend(named.map(|name| format!("host {name}")));
        if hosts.len() > NAMED_MAX {
            programs.push(format!("and {} more hosts", hosts.len() - NAMED_MAX));
        }
        let version = match version {
            ServiceVersion(0) => "-".to_owned(),
            version => version.to_string(),
        };
        [version, programs.join(", ")]
    };
    at.into_iter().map(row).collect()
}

fn as_json(versions: &Versions) -> serde_json::Value {
    json!({
        "cluster_version": versions.cluster,
        "newest": versions.newest(),
        "behind": versions.behind(),
        "next": versions.next_step(),
        "members": versions.members.iter().map(|(id, version)| json!({"id": id, "service_version": version})).collect::<Vec<_>>(),
        "conductors": versions_json(&versions.conductors),
        "hosts": versions_json(&versions.hosts),
    })
}

fn versions_json(programs: &[(String, ServiceVersion)]) -> Vec<serde_json::Value> {
    let one = |(name, version): &(String, ServiceVersion)| json!({"name": name, "service_version": version});
    programs.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(cluster: u32, members: &[Option<u32>], conductors: &[u32]) -> Versions {
        let numbered = (1..).zip(members);
        Versions {
            cluster: ServiceVersion(cluster),
            members: numbered
                .map(|(id, v)| (id, v.map(ServiceVersion)))
                .collect(),
            conductors: (1..)
                .zip(conductors)
                .map(|(n, v): (u32, _)| (format!("c{n}"), ServiceVersion(*v)))
                .collect(),
            hosts: vec![("h1".to_owned(), ServiceVersion(1))],
        }
    }

    /// Goal: the next step names the programs that are behind, or the command, or says that there is none; hosts
    /// hold nothing up.
    #[test]
    fn the_next_step_is_shown() {
        let next_step = |cluster, members: &[_], conductors: &[_]| {
            versions(cluster, members, conductors).next_step()
        };
        assert_eq!(next_step(3, &[Some(3)], &[3]), "there is nothing to do");
        assert_eq!(
            next_step(1, &[Some(3), Some(3)], &[3]),
            "raise it to 3: berth cluster upgrade finalize"
        );
        assert_eq!(
            next_step(1, &[Some(3), Some(2), None], &[3, 1]),
            "upgrade member 2 (2), member 3 (unreachable), conductor c2 (1)"
        );
        // Version 2 cannot be raised to.
        assert_eq!(
            next_step(1, &[Some(2), Some(2)], &[2]),
            "there is nothing to do"
        );
    }
}
