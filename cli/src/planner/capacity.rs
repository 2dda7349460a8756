//! `berth capacity`: how many more VMs of a flavor fit.

use berth_proto::planner::v1::planner_service_client::PlannerServiceClient;
use berth_proto::planner::v1::{CapacityAtRatio, GetCapacityRequest};
use serde_json::json;

use super::{ratio, text};
use crate::arguments::Capacity;
use crate::session::{Session, resource, short};
use crate::{output, read};

/// Runs the command.
///
/// # Errors
///
/// The scheduler's refusal.
pub async fn run(session: &Session, args: Capacity) -> anyhow::Result<()> {
    if args.text.text.is_some() {
        return text::capacity(session, &args);
    }
    let milli = |ratio: &f64| (ratio * 1000.0).round() as u64;
    let request = GetCapacityRequest {
        flavor: resource("flavors", args.flavor.as_deref().unwrap_or_default()),
        ratios_milli: args.ratio.iter().map(milli).collect(),
        without_failure: args.no_n1,
        tiered: args.tiered,
        ..Default::default()
    };
    let response = read!(session, PlannerServiceClient, get_capacity, request)?;
    if session.for_programs() {
        let ratios: Vec<_> = response.ratios.iter().map(to_json).collect();
        return output::value(&json!({"ratios": ratios, "revision": response.revision}));
    }
    let rows = response.ratios.iter().map(|at| {
        [
            ratio_of(at),
            at.vms.to_string(),
            none_or(&at.limiting),
            at.vms_after_failure
                .map_or("-".to_owned(), |vms| vms.to_string()),
            none_or(short(&at.worst_host)),
            none_or(&at.limiting_after_failure),
        ]
    });
    let head = [
        "memory ratio",
        "fit now",
        "limited by",
        "after a failure",
        "of",
        "limited by",
    ];
    output::table(head, rows.collect(), "no ratio was evaluated");
    for at in response.ratios.iter().filter(|at| !at.tiers.is_empty()) {
        output::print("");
        output::print(format!("at memory ratio {}:", ratio_of(at)));
        let rows = at.tiers.iter().map(|tier| {
            [
                tier.vms.to_string(),
                tier.memory_mib.to_string(),
                tier.vcpus.to_string(),
                tier.disk_gib.to_string(),
            ]
        });
        output::table(
            ["vms", "memory mib", "vcpus", "disk gib"],
            rows.collect(),
            "",
        );
    }
    Ok(())
}

fn ratio_of(at: &CapacityAtRatio) -> String {
    match at.ratio_milli {
        0 => "as set".to_owned(),
        milli => ratio(milli),
    }
}

fn none_or(text: &str) -> String {
    if text.is_empty() { "-" } else { text }.to_owned()
}

fn to_json(at: &CapacityAtRatio) -> serde_json::Value {
    let tiers = at.tiers.iter();
    let tiers: Vec<_> = tiers
        .map(|t| {
            json!({
                "vms": t.vms,
                "memory_mib": t.memory_mib,
                "vcpus": t.vcpus,
                "disk_gib": t.disk_gib,
            })
        })
        .collect();
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    json!({
        "ratio": (at.ratio_milli > 0).then(|| at.ratio_milli as f64 / 1000.0),
        "vms": at.vms,
        "limiting": some(&at.limiting),
        "vms_after_failure": at.vms_after_failure,
        "worst_host": some(short(&at.worst_host)),
        "limiting_after_failure": some(&at.limiting_after_failure),
        "tiers": tiers,
    })
}
