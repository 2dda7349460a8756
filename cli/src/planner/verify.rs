//! `berth verify`: what the failure of each host would mean, and where memory is given away beyond
//! its ratio.

use berth_domain::refusal::Refusal;
use berth_proto::planner::v1::planner_service_client::PlannerServiceClient;
use berth_proto::planner::v1::{
    DomainVerdict, FailureDomain, Verdict, VerifiedHost, VerifyClusterRequest,
    VerifyClusterResponse,
};
use berth_proto::policy::v1::HostMemory;
use berth_proto::policy::v1::host_memory::Violation;
use berth_proto::scheduler::v1::PlannedMove;
use serde_json::json;

use super::{Unhealthy, ratio, text};
use crate::arguments::{Domain, Verify};
use crate::session::{Session, resource, short};
use crate::{output, read};

/// Runs the command.
///
/// # Errors
///
/// The scheduler's refusal; [`Unhealthy`] when the result is negative.
pub async fn run(session: &Session, args: Verify) -> anyhow::Result<()> {
    if args.text.text.is_some() {
        return text::verify(session, &args);
    }
    let domain = match args.domain() {
        Domain::Host => FailureDomain::Host,
        Domain::Zone => FailureDomain::Zone,
        Domain::Aggregate => FailureDomain::Aggregate,
    };
    let named = |name: &String| match domain {
        FailureDomain::Host => resource("hosts", name),
        FailureDomain::Zone | FailureDomain::Aggregate | FailureDomain::Unspecified => name.clone(),
    };
    let request = VerifyClusterRequest {
        domain: domain.into(),
        names: args.names.iter().map(named).collect(),
        budget: args.budget,
        ..Default::default()
    };
    let response = read!(session, PlannerServiceClient, verify_cluster, request)?;
    if session.json() {
        output::json(&to_json(&response)?)?;
    } else {
        show(&response, args.plan)?;
    }
    match is_healthy(&response) {
        true => Ok(()),
        false => Err(Unhealthy.into()),
    }
}

fn is_healthy(response: &VerifyClusterResponse) -> bool {
    let survived = response
        .domains
        .iter()
        .all(|domain| domain.verdict() == Verdict::Proven);
    let within = response
        .hosts
        .iter()
        .all(|host| beyond(&memory(host)) == "none");
    survived && within
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Proven => "proven",
        Verdict::Refuted => "refuted",
        Verdict::Unknown | Verdict::Unspecified => "unknown",
    }
}

fn memory(host: &VerifiedHost) -> HostMemory {
    host.memory.clone().unwrap_or_default()
}

pub(crate) fn beyond(memory: &HostMemory) -> &'static str {
    match memory.violation() {
        Violation::None | Violation::Unspecified => "none",
        Violation::Soft => "soft",
        Violation::Hard => "hard",
    }
}

fn why(domain: &DomainVerdict) -> Result<String, anyhow::Error> {
    let Some(reason) = domain.reason.clone() else {
        return Ok(String::new());
    };
    let reason: Refusal = reason.try_into()?;
    let hint = reason
        .hint
        .map_or(String::new(), |hint| format!("; {hint}"));
    Ok(format!("{}{hint}", reason.message))
}

fn show(response: &VerifyClusterResponse, with_plans: bool) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for domain in &response.domains {
        rows.push([
            short(&domain.name).to_owned(),
            word(domain.verdict()).to_owned(),
            match domain.verdict() {
                Verdict::Proven => domain.plan.len().to_string(),
                Verdict::Refuted | Verdict::Unknown | Verdict::Unspecified => "-".to_owned(),
            },
            why(domain)?,
        ]);
    }
    let head = ["if it fails", "verdict", "vms moved", "why"];
    output::table(head, rows, "there is nothing that could fail together");
    if with_plans {
        show_plans(&response.domains);
    }
    output::print("");
    let rows = response.hosts.iter().map(|host| {
        let memory = memory(host);
        let share = match memory.available_mib {
            0 => "-".to_owned(),
            all => format!("{:.2}", memory.used_mib as f64 / all as f64),
        };
        [
            short(&host.host).to_owned(),
            memory.available_mib.to_string(),
            memory.used_mib.to_string(),
            memory.running_mib.to_string(),
            share,
            ratio(memory.ratio_milli.into()),
            beyond(&memory).to_owned(),
        ]
    });
    let head = [
        "host",
        "memory mib",
        "given mib",
        "running mib",
        "use",
        "ratio",
        "violation",
    ];
    output::table(head, rows.collect(), "there is no host");
    for host in &response.hosts {
        let name = short(&host.host);
        let memory = memory(host);
        if beyond(&memory) != "none" {
            output::message(format!("{name}: {}", memory.explanation));
        }
        for warning in &host.warnings {
            output::message(format!("warning: {name}: {warning}"));
        }
    }
    Ok(())
}

fn show_plans(domains: &[DomainVerdict]) {
    for domain in domains.iter().filter(|domain| !domain.plan.is_empty()) {
        output::print("");
        output::print(format!("if {} fails:", short(&domain.name)));
        let row = |m: &PlannedMove| [short(&m.vm).to_owned(), short(&m.destination).to_owned()];
        output::table(
            ["vm", "starts on"],
            domain.plan.iter().map(row).collect(),
            "",
        );
    }
}

fn to_json(response: &VerifyClusterResponse) -> anyhow::Result<serde_json::Value> {
    let mut domains = Vec::new();
    for domain in &response.domains {
        let plan = domain.plan.iter();
        let plan: Vec<_> = plan
            .map(|m| json!({"vm": short(&m.vm), "host": short(&m.destination)}))
            .collect();
        let reason = domain.reason.clone();
        let reason: Option<Refusal> = reason.map(TryInto::try_into).transpose()?;
        let hosts: Vec<_> = domain.hosts.iter().map(|host| short(host)).collect();
        domains.push(json!({
            "name": short(&domain.name),
            "hosts": hosts,
            "verdict": word(domain.verdict()),
            "plan": plan,
            "reason": reason,
            "tried": domain.tried,
        }));
    }
    let hosts = response.hosts.iter().map(|host| {
        let memory = memory(host);
        json!({
            "host": short(&host.host),
            "ratio": f64::from(memory.ratio_milli) / 1000.0,
            "available_mib": memory.available_mib,
            "used_mib": memory.used_mib,
            "running_mib": memory.running_mib,
            "swap_needed_mib": memory.swap_needed_mib,
            "violation": beyond(&memory),
            "explanation": memory.explanation,
            "warnings": host.warnings,
        })
    });
    Ok(json!({
        "ok": is_healthy(response),
        "domains": domains,
        "hosts": hosts.collect::<Vec<_>>(),
        "revision": response.revision,
    }))
}
