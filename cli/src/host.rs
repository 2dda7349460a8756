//! `berth host`: looks at hosts and keeps guests off them.

mod drain;

use berth_domain::claim::Claim;
use berth_domain::host::{Host, Liveness, traits_of};
use berth_proto::host::v1::host_service_client::HostServiceClient;
use berth_proto::host::v1::{
    CordonHostRequest, GetHostRequest, HostSummary, ListHostsRequest, RemoveHostRequest,
    UncordonHostRequest,
};
use serde_json::json;

use crate::arguments::Host as Verb;
use crate::session::{Session, read_all, request_id, resource};
use crate::{all_pages, ask, draw, output};

/// Does what was typed.
///
/// # Errors
///
/// What the scheduler refused.
pub async fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Moves(verb) => drain::run(session, verb).await,
        Verb::List => list(session).await,
        Verb::Show { host } => show(session, &host).await,
        Verb::Cordon { host } => {
            let request = CordonHostRequest {
                name: resource("hosts", &host),
                request_id: request_id(None),
            };
            ask!(session, HostServiceClient, cordon_host, request)?;
            output::tell(&format!("nothing new is placed on {host}"));
            Ok(())
        }
        Verb::Uncordon { host } => {
            let request = UncordonHostRequest {
                name: resource("hosts", &host),
                request_id: request_id(None),
            };
            ask!(session, HostServiceClient, uncordon_host, request)?;
            output::tell(&format!("guests are placed on {host} again"));
            Ok(())
        }
        Verb::Remove { host } => {
            let request = RemoveHostRequest {
                name: resource("hosts", &host),
                request_id: request_id(None),
            };
            ask!(session, HostServiceClient, remove_host, request)?;
            output::tell(&format!("{host} is forgotten"));
            Ok(())
        }
    }
}

async fn list(session: &Session) -> anyhow::Result<()> {
    let request = ListHostsRequest::default();
    let summaries = all_pages!(session, HostServiceClient, list_hosts, request, hosts);
    let mut hosts = Vec::new();
    for summary in summaries {
        let host: Host = summary.host.clone().unwrap_or_default().try_into()?;
        hosts.push((host, summary));
    }
    if session.json() {
        let values: Vec<_> = hosts
            .iter()
            .map(|(host, s)| json!({"host": host, "used": s.used, "capacity": s.capacity, "claims": s.claims}))
            .collect();
        return output::json(&values);
    }
    let rows = hosts
        .iter()
        .map(|(host, summary)| {
            [
                host.name.to_string(),
                state(host).to_owned(),
                host.report.topology.sockets().to_string(),
                host.report.topology.cells().len().to_string(),
                free(summary, "PCPU"),
                free(summary, "VCPU"),
                free(summary, "MEMORY_MB"),
                summary.claims.to_string(),
                host.report.driver.clone(),
                host.report.service_version.to_string(),
            ]
        })
        .collect();
    let head = [
        "host",
        "state",
        "sockets",
        "cells",
        "pcpu free",
        "vcpu free",
        "mib free",
        "claims",
        "driver",
        "version",
    ];
    output::table(head, rows, "no host has registered");
    Ok(())
}

/// Returns `free of capacity` of one class.
fn free(summary: &HostSummary, class: &str) -> String {
    match summary.capacity.get(class) {
        Some(capacity) => {
            let used = summary.used.get(class).copied().unwrap_or(0);
            format!("{} of {capacity}", capacity.saturating_sub(used))
        }
        None => "-".to_owned(),
    }
}

/// Returns the word for what a host is good for.
pub(crate) fn state(host: &Host) -> &'static str {
    match (host.liveness, host.cordoned, &host.shape_refused) {
        (Liveness::Down, _, _) => "DOWN",
        (Liveness::Up, true, _) => "CORDONED",
        (Liveness::Up, false, Some(_)) => "SHAPE_REFUSED",
        (Liveness::Up, false, None) => "UP",
    }
}

async fn show(session: &Session, name: &str) -> anyhow::Result<()> {
    let request = GetHostRequest {
        name: resource("hosts", name),
        ..Default::default()
    };
    let answer = ask!(session, HostServiceClient, get_host, request)?;
    let host: Host = answer.host.unwrap_or_default().try_into()?;
    let claims: Vec<Claim> = read_all(answer.claims)?;
    if session.json() {
        return output::json(&json!({"host": host, "claims": claims}));
    }
    output::print(&draw::host(&host.name, &host.report, &claims));
    let mut fields = vec![("state", state(&host).to_owned())];
    fields.extend(host.shape_refused.clone().map(|why| ("shape refused", why)));
    let traits = traits_of(&host.report);
    let traits: Vec<String> = traits.iter().map(ToString::to_string).collect();
    fields.extend([
        ("driver", host.report.driver.clone()),
        (
            "agent",
            format!(
                "{} (service version {})",
                host.report.agent_address, host.report.service_version
            ),
        ),
        ("provider", host.provider.to_string()),
        ("traits", traits.join(" ")),
    ]);
    output::fields(&fields);
    Ok(())
}
