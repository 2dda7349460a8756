//! `berth host`: looks at hosts and keeps guests off them.

pub mod check;
mod drain;
mod signals;

use berth_domain::claim::Claim;
use berth_domain::fence::Fenced;
use berth_domain::host::{Host, traits_of};
use berth_domain::network::{BridgeMapping, HostNetwork};
use berth_domain::reality::Unknown;
use berth_proto::conductor::v1 as conductor;
use berth_proto::host::v1::host_service_client::HostServiceClient;
use berth_proto::host::v1::{
    CordonHostRequest, FenceHostRequest, GetHostRequest, HostSummary, ListHostsRequest,
    RemoveHostRequest, UncordonHostRequest, WriteOffPmemRequest, fence,
};
use berth_proto::status::OUTCOME_UNKNOWN;
use serde_json::json;

use crate::arguments::{Host as Verb, HostPmem, Selection};
use crate::output::Columns;
use crate::selection::Selector;
use crate::session::{Session, conduct, read_all, request_id, resource};
use crate::sides::Sides;
use crate::{all_pages, call, cpu, draw, history, memory, output, read, records};

/// The columns of the list.
pub(crate) const COLUMNS: Columns<11, 3> = Columns {
    usual: [
        "host",
        "state",
        "sockets",
        "numa nodes",
        "pcpu free",
        "vcpu free",
        "mib free",
        "memory violation",
        "claims",
        "driver",
        "version",
    ],
    wide: ["cpu model", "agent", "provider"],
};

/// The columns of the list of measured memory.
pub(crate) use self::signals::COLUMNS as SIGNALS;

/// Runs the command.
///
/// # Errors
///
/// The scheduler's refusal.
pub async fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Moves(verb) => drain::run(session, verb).await,
        Verb::List {
            memory: false,
            selection,
        } => list(session, &selection).await,
        Verb::List { memory: true, .. } => signals::list(session).await,
        Verb::Show { host } => show(session, &host).await,
        Verb::History { host, part } => history::show(session, "hosts", &host, &part).await,
        Verb::Check(arguments) => check::run(session, arguments).await,
        Verb::Cordon { host } => {
            let request = CordonHostRequest {
                name: resource("hosts", &host),
                request_id: request_id(None),
            };
            call!(session, HostServiceClient, cordon_host, request)?;
            let sentence = format!("host {host} is cordoned: no new VMs are placed there");
            session.done(&resource("hosts", &host), "cordoned", sentence)
        }
        Verb::Uncordon { host } => {
            let request = UncordonHostRequest {
                name: resource("hosts", &host),
                request_id: request_id(None),
            };
            call!(session, HostServiceClient, uncordon_host, request)?;
            let sentence = format!("host {host} is uncordoned: VMs are placed there again");
            session.done(&resource("hosts", &host), "uncordoned", sentence)
        }
        Verb::Fence {
            host,
            confirm_off,
            request_id,
        } => fence(session, &host, confirm_off, request_id).await,
        Verb::Remove { host } => {
            let request = RemoveHostRequest {
                name: resource("hosts", &host),
                request_id: request_id(None),
            };
            call!(session, HostServiceClient, remove_host, request)?;
            let sentence = format!("host {host} is removed");
            session.done(&resource("hosts", &host), "removed", sentence)
        }
        Verb::Pmem(HostPmem::WriteOff { host, namespace }) => {
            let request = WriteOffPmemRequest {
                name: resource("hosts", &host),
                namespace: namespace.clone(),
                request_id: request_id(None),
            };
            call!(session, HostServiceClient, write_off_pmem, request)?;
            let sentence = format!(
                "pmem namespace {namespace} of {host} is written off: take it out of pmem_namespaces of \
                 its agent"
            );
            let name = format!("{}/pmem/{namespace}", resource("hosts", &host));
            session.done(&name, "written_off", sentence)
        }
    }
}

async fn fence(
    session: &Session,
    name: &str,
    confirm_off: bool,
    id: Option<uuid::Uuid>,
) -> anyhow::Result<()> {
    let resource = resource("hosts", name);
    let id = request_id(id);
    let fenced_host = if confirm_off {
        let request = FenceHostRequest {
            name: resource,
            method: fence::Method::Operator.into(),
            request_id: id.clone(),
            ..Default::default()
        };
        call!(session, HostServiceClient, fence_host, request).map(|response| response.host)
    } else {
        let request = conductor::FenceHostRequest {
            name: resource,
            request_id: id.clone(),
        };
        conduct!(session.conductor().await?, fence_host, request).map(|response| response.host)
    };
    let repeated = match confirm_off {
        true => "is carried out once, however often it is repeated",
        false => "does not run the fence command again once its success is recorded",
    };
    let host = fenced_host.map_err(|refusal| match &*refusal.reason {
        OUTCOME_UNKNOWN => refusal.with_hint(format!(
            "`berth host show {name}` says whether it is fenced; the same command with \
             --request-id {id} {repeated}"
        )),
        _ => refusal,
    })?;
    let host: Host = host.unwrap_or_default().try_into()?;
    if session.for_programs() {
        return output::value(&json!({"host": host}));
    }
    let fence = host.fenced.as_ref().map(fenced).unwrap_or_default();
    output::message(format!("{name} is fenced: {fence}"));
    Ok(())
}

/// Returns how, and for which principal, a host was declared dead.
fn fenced(fenced: &Fenced) -> String {
    let since = if fenced.reported_since {
        "; a heartbeat arrived since"
    } else {
        ""
    };
    format!("{} (for {}){since}", fenced.method, fenced.by)
}

fn network(reached: &HostNetwork) -> (&'static str, String) {
    let BridgeMapping {
        physical_network,
        bridge,
        bridge_type,
    } = &reached.mapping;
    let tags = if reached.can_tag { "" } else { ", no VLANs" };
    let line = format!(
        "{physical_network} over bridge {bridge} ({bridge_type}), MTU {}{tags}",
        reached.mtu
    );
    ("physical network", line)
}

/// Returns the driver of a host, and a note if it runs no VMs.
fn driver(host: &Host) -> String {
    let name = &host.report.driver;
    match host.report.runs_guests() {
        true => name.clone(),
        false => format!("{name}: runs no VMs, for volumes only"),
    }
}

async fn list(session: &Session, selection: &Selection) -> anyhow::Result<()> {
    let selector = Selector::new::<HostSummary>(selection)?;
    let request = ListHostsRequest::default();
    let summaries = all_pages!(
        session,
        HostServiceClient,
        list_hosts,
        request,
        hosts,
        &selector
    );
    let mut hosts = Vec::new();
    for summary in summaries {
        let host: Host = summary.host.clone().unwrap_or_default().try_into()?;
        hosts.push((host, summary));
    }
    if session.for_programs() {
        let values = hosts.iter().map(|(host, s)| {
            let memory = s.memory.as_ref().map(memory::value).transpose()?;
            let cpu = s.cpu.as_ref().map(cpu::value).transpose()?;
            Ok(json!({
                "host": value(session, host)?,
                "used": s.used,
                "capacity": s.capacity,
                "claims": s.claims,
                "memory": memory,
                "cpu": cpu,
                "cpu_model": s.cpu_model.as_ref().map(|cpu| &cpu.model),
            }))
        });
        return output::value(&values.collect::<anyhow::Result<Vec<_>>>()?);
    }
    let rows = hosts
        .iter()
        .map(|(host, summary)| {
            let usual = [
                host.name.to_string(),
                state_of(session, host).to_owned(),
                host.report.topology.sockets().to_string(),
                host.report.topology.cells().len().to_string(),
                free(summary, "PCPU"),
                free(summary, "VCPU"),
                free(summary, "MEMORY_MB"),
                summary
                    .memory
                    .as_ref()
                    .map_or("-", memory::violation)
                    .to_owned(),
                summary.claims.to_string(),
                host.report.driver.clone(),
                host.report.service_version.to_string(),
            ];
            let cpu = summary.cpu_model.as_ref().map(|cpu| cpu.model.clone());
            let wide = [
                output::or_dash(cpu),
                host.report.agent_address.clone(),
                host.provider.to_string(),
            ];
            (usual, wide)
        })
        .collect();
    output::list(&COLUMNS, rows, selection.none("no host has registered"))
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

/// Describes a domain without a claim, and what to do about it.
fn unknown(domain: &Unknown, is_orphan: bool) -> String {
    let (name, uuid) = (&domain.name, domain.uuid);
    if !domain.is_ours {
        return format!(
            "{name} ({uuid}), not made by Berth: it uses resources that claims may count on"
        );
    }
    let cpus = domain.held.taken();
    let held = if cpus.is_empty() {
        String::new()
    } else {
        format!(", keeps CPUs {cpus}")
    };
    let advice = match is_orphan {
        true => "may be the only copy of its guest: save what is needed, then remove it with virsh",
        false => "stop it on the host if it is not needed",
    };
    format!("{name} ({uuid}), made by Berth, has no claim{held}: {advice}")
}

/// Returns the state of a host as a word, as far as it is known: whether a host is up is a judgement of
/// the leader, and that it was fenced is a record.
fn state_of(session: &Session, host: &Host) -> &'static str {
    match host.fenced.is_some() || session.knows_liveness() {
        true => records::host_state(host),
        false => "UNKNOWN",
    }
}

/// Returns a host for programs.
fn value(session: &Session, host: &Host) -> anyhow::Result<serde_json::Value> {
    let mut value = serde_json::to_value(host)?;
    if !session.knows_liveness() {
        value["liveness"] = json!("Unknown");
    }
    Ok(value)
}

async fn show(session: &Session, name: &str) -> anyhow::Result<()> {
    let request = GetHostRequest {
        name: resource("hosts", name),
        ..Default::default()
    };
    let response = read!(session, HostServiceClient, get_host, request)?;
    let host: Host = response.host.unwrap_or_default().try_into()?;
    let claims: Vec<Claim> = read_all(response.claims)?;
    let measured = signals::of(session, &host.name).await;
    let volumes = crate::volume::of_host(session, host.name.as_str()).await?;
    if session.for_programs() {
        let measured = measured.ok().flatten();
        let memory = response.memory.as_ref().map(memory::value).transpose()?;
        let cpu = response.cpu.as_ref().map(cpu::value).transpose()?;
        return output::value(&json!({
            "host": value(session, &host)?,
            "claims": claims,
            "memory": memory,
            "cpu": cpu,
            "memory_signals": measured,
            "volume_capacity": volumes.as_ref().map(|(capacity, _)| {
                crate::volume::capacity_value(capacity)
            }),
        }));
    }
    let sides = Sides::of(session, &claims).await?;
    output::print(draw::host(&host.name, &host.report, &claims, &sides));
    if let Some((capacity, volumes)) = volumes {
        output::print(crate::volume::drawn(&capacity, &volumes)?);
    }
    let mut fields = vec![("state", state_of(session, &host).to_owned())];
    fields.extend(host.shape_refused.clone().map(|why| ("shape refused", why)));
    fields.extend(host.fenced.as_ref().map(|f| ("fenced by", fenced(f))));
    fields.extend(drain::of_host(session, &host).await?);
    for hit in &response.hits {
        let vm = hit.vm.trim_start_matches("vms/");
        fields.push(("hit", format!("vm {vm}: {}", hit.reason)));
    }
    for domain in &host.unknown {
        let is_orphan = host.orphans.contains(&domain.uuid);
        let label = if is_orphan { "orphan" } else { "unknown guest" };
        fields.push((label, unknown(domain, is_orphan)));
    }
    for failed in &host.failed_volumes {
        let (name, why) = (&failed.display_name, &failed.why);
        fields.push((
            "volume not made",
            format!("{name} ({}): {why}", failed.volume),
        ));
    }
    if let Some(memory) = &response.memory {
        fields.extend(memory::lines(memory)?);
    }
    if let Some(cpu) = &response.cpu {
        fields.extend(cpu::lines(cpu)?);
    }
    fields.extend(host.report.networks.iter().map(network));
    let traits = traits_of(&host.report);
    let traits: Vec<String> = traits.iter().map(ToString::to_string).collect();
    fields.extend((host.report.cpu.as_deref()).map(|cpu| ("cpu", cpu.host_model.to_string())));
    fields.extend([
        ("driver", driver(&host)),
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
    fields.extend(signals::fields(measured));
    output::fields(&fields);
    Ok(())
}
