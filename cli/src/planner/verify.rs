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
    if session.for_programs() {
        output::value(&to_json(&response)?)?;
    } else {
        show(&response, &args)?;
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

/// Up to so many rows everything is shown; of more only what is not as it should be.
const ROWS_MAX: usize = 40;

/// Returns what is shown of a table, and how many rows are left out, all of which are good.
fn notable<T>(rows: &[T], with_all: bool, is_good: impl Fn(&T) -> bool) -> (Vec<&T>, usize) {
    if with_all || rows.len() <= ROWS_MAX {
        return (rows.iter().collect(), 0);
    }
    let shown: Vec<&T> = rows.iter().filter(|row| !is_good(row)).collect();
    let left_out = rows.len() - shown.len();
    (shown, left_out)
}

fn show(response: &VerifyClusterResponse, args: &Verify) -> anyhow::Result<()> {
    show_domains(response, args)?;
    if args.plan {
        show_plans(&response.domains);
    }
    output::print("");
    show_memory(response, args);
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

fn show_domains(response: &VerifyClusterResponse, args: &Verify) -> anyhow::Result<()> {
    let is_proven = |domain: &DomainVerdict| domain.verdict() == Verdict::Proven;
    let (shown, proven) = notable(&response.domains, args.all, is_proven);
    let mut rows = Vec::new();
    for domain in shown {
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
    let all = response.domains.len();
    match (proven, rows.is_empty()) {
        (0, _) => output::table(head, rows, "there is nothing that could fail together"),
        (_, true) => output::print(format!(
            "the failure of each of {all} is proven to be survived"
        )),
        (_, false) => {
            output::table(head, rows, "");
            output::print(format!(
                "the failure of the other {proven} of {all} is proven to be survived; --all shows them"
            ));
        }
    }
    Ok(())
}

fn show_memory(response: &VerifyClusterResponse, args: &Verify) {
    let is_within = |host: &VerifiedHost| beyond(&memory(host)) == "none";
    let (shown, within) = notable(&response.hosts, args.all, is_within);
    let rows = shown.into_iter().map(|host| {
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
    let rows: Vec<_> = rows.collect();
    let head = [
        "host",
        "memory mib",
        "given mib",
        "running mib",
        "use",
        "ratio",
        "violation",
    ];
    if within == 0 || !rows.is_empty() {
        output::table(head, rows, "there is no host");
    }
    if within > 0 {
        output::print(format!(
            "memory of {within} of {} hosts is within its ratio; --all shows them",
            response.hosts.len()
        ));
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a long table has what is not as it should be, and the number of all others; a short one has
    /// everything.
    #[test]
    fn a_long_table_leaves_out_what_is_good() {
        let is_good = |row: &usize| *row != 7;
        let rows = |count: usize| (0..count).collect::<Vec<_>>();
        let shown = |count, with_all| {
            let rows = rows(count);
            let (shown, left_out) = notable(&rows, with_all, is_good);
            (shown.len(), left_out)
        };
        assert_eq!(shown(ROWS_MAX, false), (ROWS_MAX, 0));
        assert_eq!(shown(ROWS_MAX + 1, false), (1, ROWS_MAX));
        assert_eq!(shown(1000, true), (1000, 0));
        assert_eq!(shown(0, false), (0, 0));
    }
}
