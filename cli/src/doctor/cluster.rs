//! Conductors, hosts and VMs, as the schedulers know them.
//!
//! Not here: what an agent checks on its host; that is `berth host check`.

use berth_domain::refusal::Refusal;
use berth_proto::cluster::v1::Service;
use berth_proto::host::v1::host::Liveness;
use berth_proto::host::v1::host_service_client::HostServiceClient;
use berth_proto::host::v1::{Host, ListHostsRequest};
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_proto::scheduler::v1::vm::State;
use berth_proto::scheduler::v1::{ListVmsRequest, Vm};

use super::finding::{Finding, count};
use crate::all_pages;
use crate::cluster::registered;
use crate::output::some;
use crate::session::{Session, short};

const CONDUCTOR: &str = "conductor";
const HOSTS: &str = "hosts";
const VMS: &str = "vms";

/// Checks what the schedulers know, if one is reached.
pub(super) async fn check(session: &Session, is_reached: bool, findings: &mut Vec<Finding>) {
    if !is_reached {
        for check in [CONDUCTOR, HOSTS, VMS] {
            findings.push(Finding::unknown(check, "no scheduler answers"));
        }
        return;
    }
    match registered(session).await {
        Ok(services) => conductors(session, &services, findings).await,
        Err(error) => findings.push(unknown(CONDUCTOR, &error)),
    }
    match listed_hosts(session).await {
        Ok(listed) => findings.extend(hosts(&listed, session.knows_liveness())),
        Err(error) => findings.push(unknown(HOSTS, &error)),
    }
    match failed_vms(session).await {
        Ok(failed) => findings.push(vms(&failed)),
        Err(error) => findings.push(unknown(VMS, &error)),
    }
}

fn unknown(check: &'static str, error: &anyhow::Error) -> Finding {
    match error.downcast_ref::<Refusal>() {
        Some(refusal) => Finding::refused(check, refusal),
        None => Finding::unknown(check, format!("{error:#}")),
    }
}

async fn conductors(session: &Session, services: &[Service], findings: &mut Vec<Finding>) {
    if services.is_empty() {
        findings.push(Finding::failed(
            CONDUCTOR,
            "none has registered: VMs are neither booted nor moved",
            "start one: berth-conductor --scheduler ADDRESS",
        ));
    }
    for service in services {
        let name = short(&service.name);
        let finding = match session.check_conductor(service).await {
            Ok(()) => Finding::ok(CONDUCTOR, format!("it answers at {}", service.address)),
            Err(why) => Finding::failed(
                CONDUCTOR,
                format!("{}: {why}", service.address),
                format!(
                    "start it; one that is gone for good: `berth cluster remove-conductor {name}`"
                ),
            ),
        };
        findings.push(finding.of(name));
    }
}

async fn listed_hosts(session: &Session) -> anyhow::Result<Vec<Host>> {
    let request = ListHostsRequest::default();
    let summaries = all_pages!(session, HostServiceClient, list_hosts, request, hosts);
    Ok(summaries.into_iter().filter_map(|s| s.host).collect())
}

/// Judges all hosts; whether they are up is known by a leader only.
pub(super) fn hosts(hosts: &[Host], knows_liveness: bool) -> Vec<Finding> {
    if hosts.is_empty() {
        let hint = "start an agent on each: docs/agents.md";
        return vec![Finding::warning(HOSTS, "none has registered", hint)];
    }
    let named_if = |is_so: &dyn Fn(&Host) -> bool| -> Vec<String> {
        let hosts = hosts.iter().filter(|host| is_so(host));
        hosts.map(|host| short(&host.name).to_owned()).collect()
    };
    let down = named_if(&|host| knows_liveness && host.liveness() == Liveness::Down);
    let refused = named_if(&|host| !host.shape_refused.is_empty());
    let unreported = named_if(&|host| host.unreported);
    let unknown = named_if(&|host| host.unknown_domains.iter().any(|d| d.made_by_berth));
    let mut findings = Vec::new();
    let mut add = |names: &[String], finding: fn(String) -> Finding| {
        if !names.is_empty() {
            findings.push(finding(some(names)));
        }
    };
    add(&down, |names| {
        Finding::failed(
            HOSTS,
            format!("no report from {names}"),
            "start the agent, or `berth host evacuate` after the host is off: docs/agents.md",
        )
    });
    add(&refused, |names| {
        Finding::failed(
            HOSTS,
            format!("VMs do not fit the shape that these hosts report: {names}"),
            "`berth host show` states which VMs: move them, or restore the shape",
        )
    });
    add(&unreported, |names| {
        Finding::warning(
            HOSTS,
            format!("not heard of since the cluster recovered: {names}"),
            "start the agent: no new guest is placed there until it reports",
        )
    });
    add(&unknown, |names| {
        Finding::warning(
            HOSTS,
            format!("guests that no claim is for run on {names}"),
            "`berth host show` lists them: docs/agents.md",
        )
    });
    let cordoned = named_if(&|host| host.cordoned).len();
    let mut message = match knows_liveness {
        true => format!("{} of {} UP", hosts.len() - down.len(), hosts.len()),
        false => format!(
            "{}; without a leader it is not known which are up",
            count(hosts.len(), "host")
        ),
    };
    if cordoned > 0 {
        message.push_str(&format!(", {cordoned} cordoned"));
    }
    match (findings.is_empty(), knows_liveness) {
        (true, true) => findings.push(Finding::ok(HOSTS, message)),
        (true, false) => findings.push(Finding::unknown(HOSTS, message)),
        (false, _) => {}
    }
    findings
}

/// The VMs with which something is wrong.
const FILTER: &str = "state = ERROR OR guest_trouble:*";

async fn failed_vms(session: &Session) -> anyhow::Result<Vec<Vm>> {
    let request = ListVmsRequest {
        filter: FILTER.to_owned(),
        ..Default::default()
    };
    let vms = all_pages!(session, SchedulerServiceClient, list_vms, request, vms);
    // A scheduler that does not know filters returns every VM.
    let is_failed = |vm: &Vm| vm.state() == State::Error || vm.guest_trouble.is_some();
    Ok(vms.into_iter().filter(is_failed).collect())
}

/// Judges the VMs with which something is wrong.
pub(super) fn vms(failed: &[Vm]) -> Finding {
    if failed.is_empty() {
        return Finding::ok(VMS, "none is in ERROR, and no guest is reported as faulty");
    }
    let names: Vec<String> = failed.iter().map(|vm| short(&vm.name).to_owned()).collect();
    let (names, first) = (some(&names), names[0].clone());
    Finding::warning(
        VMS,
        format!(
            "{} in ERROR or with a faulty guest: {names}",
            count(failed.len(), "VM")
        ),
        format!("`berth vm show {first}` states why"),
    )
}
