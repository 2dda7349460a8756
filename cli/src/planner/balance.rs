//! `berth balance`: a plan of live migrations, and carrying it out.
//!
//! A plan is executed set by set. Each VM has to be where the plan has it, with no operation at work on
//! it, and its destination has to take it: where reality differs from the plan, the rest of the plan
//! is dropped, and nothing more is started. The score is no measure for that: live signals lag behind moves.

use std::collections::BTreeMap;

use berth_domain::operation::Operation;
use berth_domain::refusal::{Code, Refusal};
use berth_process::error_chain;
use berth_proto::conductor::v1::MigrateVmRequest;
use berth_proto::planner::v1::planner_service_client::PlannerServiceClient;
use berth_proto::planner::v1::{
    BalanceMove, GetScoreRequest, PlanBalanceRequest, PlanBalanceResponse,
};
use berth_proto::scheduler::v1::GetVmRequest;
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use serde_json::json;

use super::{SCALE, number, text};
use crate::arguments::Balance;
use crate::session::{Session, not_begun, request_id, resource, short};
use crate::{confirmation, output, progress, read};

/// Runs the command.
///
/// # Errors
///
/// The scheduler's refusal, or why the execution ended early.
pub async fn run(session: &Session, args: Balance) -> anyhow::Result<()> {
    if args.text.text.is_some() {
        return text::balance(session, &args);
    }
    let request = PlanBalanceRequest {
        gain_min: args.gain_min,
        threshold: args.threshold,
        usage_threshold: args.usage.unwrap_or_default(),
        moves_max: args.moves_max,
        fit_flavor: match &args.space_for {
            Some(flavor) => resource("flavors", flavor),
            None => String::new(),
        },
        fit_count: args.count,
        ..Default::default()
    };
    let plan = read!(session, PlannerServiceClient, plan_balance, request)?;
    if !session.for_programs() {
        show(&plan);
    }
    let mut done = Vec::new();
    let mut stopped = None;
    if args.execute && !plan.moves.is_empty() {
        confirm(&args, &plan)?;
        stopped = execute(session, &plan, &mut done).await.err();
    }
    if session.for_programs() {
        let mut value = to_json(&plan);
        if args.execute {
            value["done"] = json!(done);
        }
        output::value(&value)?;
    }
    match stopped {
        None => Ok(()),
        Some(error) => Err(error),
    }
}

fn show(plan: &PlanBalanceResponse) {
    let rows = plan.moves.iter().map(|planned| {
        [
            planned.set.to_string(),
            short(&planned.vm).to_owned(),
            short(&planned.source).to_owned(),
            short(&planned.destination).to_owned(),
            planned.memory_mib.to_string(),
            number(planned.score_after),
            planned.reason.clone(),
        ]
    });
    let head = [
        "set",
        "vm",
        "from",
        "to",
        "memory mib",
        "score after",
        "why",
    ];
    output::table(head, rows.collect(), "no move is planned");
    let total = |score: &Option<berth_proto::planner::v1::Score>| {
        score.as_ref().map_or(0.0, |score| score.total)
    };
    output::print(format!(
        "score {} -> {} with {} moves ({SCALE}); {}",
        number(total(&plan.before)),
        number(total(&plan.after)),
        plan.moves.len(),
        plan.ended
    ));
    if let Some(missing) = super::score::missing(&plan.unreported_hosts) {
        output::message(missing);
    }
}

fn to_json(plan: &PlanBalanceResponse) -> serde_json::Value {
    let moves = plan.moves.iter().map(|planned| {
        json!({
            "set": planned.set,
            "vm": short(&planned.vm),
            "from": short(&planned.source),
            "to": short(&planned.destination),
            "memory_mib": planned.memory_mib,
            "score_after": planned.score_after,
            "reason": planned.reason,
        })
    });
    let total = |score: &Option<berth_proto::planner::v1::Score>| {
        score.as_ref().map_or(0.0, |score| score.total)
    };
    let mut value = json!({
        "score_before": total(&plan.before),
        "score_after": total(&plan.after),
        "moves": moves.collect::<Vec<_>>(),
        "ended": plan.ended,
        "revision": plan.revision,
    });
    if !plan.unreported_hosts.is_empty() {
        let hosts: Vec<&str> = plan.unreported_hosts.iter().map(|h| short(h)).collect();
        value["unreported_hosts"] = json!(hosts);
    }
    value
}

/// Requests a confirmation from the user, unless --yes was given.
fn confirm(args: &Balance, plan: &PlanBalanceResponse) -> anyhow::Result<()> {
    if args.yes {
        return Ok(());
    }
    let what = format!("{} VMs are moved while they run.", plan.moves.len());
    confirmation::request(&what, "nothing was moved")
}

/// Carries a plan out, set by set.
async fn execute(
    session: &Session,
    plan: &PlanBalanceResponse,
    done: &mut Vec<String>,
) -> anyhow::Result<()> {
    let mut sets: BTreeMap<u32, Vec<&BalanceMove>> = BTreeMap::new();
    for planned in &plan.moves {
        sets.entry(planned.set).or_default().push(planned);
    }
    for moves in sets.into_values() {
        for planned in &moves {
            expect_at_source(session, planned).await?;
        }
        let mut begun = Vec::new();
        for planned in &moves {
            begun.push((planned, begin(session, planned).await));
        }
        let mut failed = None;
        for (planned, operation) in begun {
            let ended = match operation {
                Ok(operation) => progress::follow(session, &operation.id.to_string()).await,
                Err(refusal) => Err(refusal.into()),
            };
            let vm = short(&planned.vm);
            match ended {
                Ok(_) => {
                    output::message(format!("{vm} moved to {}", short(&planned.destination)));
                    done.push(vm.to_owned());
                }
                Err(error) => {
                    let why = error_chain(error.as_ref());
                    output::message(format!("{vm} was not moved: {why}"));
                    failed.get_or_insert(vm.to_owned());
                }
            }
        }
        if let Some(vm) = failed {
            return Err(differs(format!("vm {vm} was not moved")).into());
        }
    }
    output::message(format!(
        "score is {} ({SCALE})",
        number(score(session).await?)
    ));
    Ok(())
}

fn differs(what: String) -> Refusal {
    let message = format!("{what}: the rest of the plan was not started");
    Refusal::new(Code::Aborted, "PLAN_VOID", message)
        .with_hint("look at the cluster, and run `berth balance` again: it plans from what is now")
}

async fn score(session: &Session) -> anyhow::Result<f64> {
    let request = GetScoreRequest::default();
    let response = read!(session, PlannerServiceClient, get_score, request)?;
    Ok(response.score.unwrap_or_default().total)
}

async fn expect_at_source(session: &Session, planned: &BalanceMove) -> anyhow::Result<()> {
    let request = GetVmRequest {
        name: planned.vm.clone(),
        ..Default::default()
    };
    let vm = match read!(session, SchedulerServiceClient, get_vm, request) {
        Ok(response) => response.vm.unwrap_or_default(),
        Err(refusal) if refusal.code == Code::NotFound => {
            return Err(differs(format!("vm {} no longer exists", short(&planned.vm))).into());
        }
        Err(refusal) => return Err(refusal.into()),
    };
    if vm.host != planned.source {
        let what = format!(
            "vm {} is on {}, and the plan has it on {}",
            short(&vm.name),
            short(&vm.host),
            short(&planned.source)
        );
        return Err(differs(what).into());
    }
    if !vm.operation.is_empty() {
        let what = format!("an operation is at work on vm {}", short(&vm.name));
        return Err(differs(what).into());
    }
    Ok(())
}

async fn begin(session: &Session, planned: &BalanceMove) -> Result<Operation, Refusal> {
    let request = MigrateVmRequest {
        vm: planned.vm.clone(),
        requested_host: planned.destination.clone(),
        request_id: request_id(None),
        ..Default::default()
    };
    let response = session.conductor().await?.migrate_vm(request).await;
    let response = response
        .map_err(|status| not_begun(&status, None))?
        .into_inner();
    let operation = response.operation.unwrap_or_default().try_into();
    operation.map_err(|error: berth_proto::convert::Invalid| {
        Refusal::new(Code::Internal, "INVALID_ANSWER", error.to_string())
    })
}
