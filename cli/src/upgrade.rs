//! `berth cluster upgrade`: shows who runs which version, and finishes an upgrade.
//!
//! Who is behind is said as the scheduler says it; nothing is decided here.

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

use crate::arguments::Upgrade as Verb;
use crate::cluster::{ask_leader, cluster_version, registered, version_of};
use crate::session::{Session, request_id, resource, short};
use crate::{all_pages, ask, output};

/// How many hosts are named.
const NAMED_MAX: usize = 8;

/// Does what was typed.
///
/// # Errors
///
/// What the scheduler refused.
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
            let answer = ask!(session, ClusterServiceClient, finalize_upgrade, request);
            let answer = answer.map_err(of_an_older_leader)?;
            let verb = if validate_only { "could be" } else { "is" };
            output::tell(&format!(
                "the cluster version {verb} {}",
                answer.cluster_version
            ));
            Ok(())
        }
    }
}

/// A leader that does not know the question is a member that is behind.
fn of_an_older_leader(refusal: Refusal) -> Refusal {
    if refusal.code != Code::Unimplemented {
        return refusal;
    }
    Refusal::new(
        Code::FailedPrecondition,
        "UPGRADE_INCOMPLETE",
        "the member that leads is older than cluster versions are",
    )
    .with_hint("upgrade every scheduler first")
}

/// Everybody's version.
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
            let version = ServiceVersion::told(host.report.as_ref()?.service_version);
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
                        ServiceVersion::told(s.service_version),
                    )
                })
                .collect(),
            hosts: hosts.collect(),
        }
    }

    /// Returns the newest version that anybody runs.
    fn newest(&self) -> ServiceVersion {
        let members = self.members.iter().filter_map(|(_, version)| *version);
        let others = self.conductors.iter().chain(&self.hosts);
        let all = members.chain(others.map(|(_, version)| *version));
        all.max().unwrap_or(self.cluster)
    }

    /// Returns who keeps the cluster version from being raised to the newest.
    fn behind(&self) -> Vec<String> {
        let newest = self.newest();
        let members = self
            .members
            .iter()
            .filter_map(|(id, version)| match version {
                None => Some(format!("member {id} (not heard of)")),
                Some(own) if *own < newest => Some(format!("member {id} ({own})")),
                Some(_) => None,
            });
        let conductors = self.conductors.iter().filter(|(_, own)| *own < newest);
        let conductors = conductors.map(|(name, own)| format!("conductor {name} ({own})"));
        members.chain(conductors).collect()
    }

    fn next_step(&self) -> String {
        let (newest, behind) = (self.newest(), self.behind());
        if self.cluster >= newest {
            return "nothing is to be done".to_owned();
        }
        if behind.is_empty() {
            return format!("raise it to {newest}: berth cluster upgrade finalize");
        }
        format!("upgrade {}", behind.join(", "))
    }
}

async fn status(session: &Session) -> anyhow::Result<()> {
    let request = GetClusterStatusRequest {};
    let status = ask!(session, ClusterServiceClient, get_cluster_status, request)?;
    // Only the leader has heard of all.
    let status = ask_leader(session, &status).await.unwrap_or(status);
    let conductors = registered(session).await?;
    let request = ListHostsRequest {
        consistency: ReadConsistency::Stale.into(),
        ..Default::default()
    };
    let hosts = all_pages!(session, HostServiceClient, list_hosts, request, hosts);
    let versions = Versions::new(&status, &conductors, &hosts);
    if session.json() {
        return output::json(&as_json(&versions));
    }
    output::fields(&[
        ("cluster version", versions.cluster.to_string()),
        ("newest program", versions.newest().to_string()),
        ("next", versions.next_step()),
    ]);
    output::table(["version", "who"], rows(&versions), "nobody");
    Ok(())
}

/// Returns who is at which version, a line for each.
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
    let row = |(version, (mut who, hosts)): (ServiceVersion, (Vec<String>, Vec<String>))| {
        let named = hosts.iter().take(NAMED_MAX);
        who.extend(named.map(|name| format!("host {name}")));
        if hosts.len() > NAMED_MAX {
            who.push(format!("and {} more hosts", hosts.len() - NAMED_MAX));
        }
        let version = match version {
            ServiceVersion(0) => "-".to_owned(),
            version => version.to_string(),
        };
        [version, who.join(", ")]
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
        "conductors": named(&versions.conductors),
        "hosts": named(&versions.hosts),
    })
}

fn named(who: &[(String, ServiceVersion)]) -> Vec<serde_json::Value> {
    let one = |(name, version): &(String, ServiceVersion)| json!({"name": name, "service_version": version});
    who.iter().map(one).collect()
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

    /// Goal: the next step names who is behind, or the command, or says that there is none; hosts
    /// hold nothing up.
    #[test]
    fn the_next_step_is_told() {
        let told = |cluster, members: &[_], conductors: &[_]| {
            versions(cluster, members, conductors).next_step()
        };
        assert_eq!(told(3, &[Some(3)], &[3]), "nothing is to be done");
        assert_eq!(
            told(1, &[Some(3), Some(3)], &[3]),
            "raise it to 3: berth cluster upgrade finalize"
        );
        assert_eq!(
            told(1, &[Some(3), Some(2), None], &[3, 1]),
            "upgrade member 2 (2), member 3 (not heard of), conductor c2 (1)"
        );
    }
}
