//! `berth host drain` and `berth host evacuate`: the plan, then each move as it ends.

use berth_domain::host::Host;
use berth_domain::operation::{self, DrainedVm, Operation, Progress};
use berth_domain::refusal::{Code, Refusal};
use berth_proto::conductor::v1::DrainHostRequest;
use berth_proto::conductor::v1::drain_host_response::{Cordoned, Ended, Event, Plan};
use berth_proto::host::v1::GetHostRequest;
use berth_proto::host::v1::host_service_client::HostServiceClient;
use berth_proto::operation::v1::operation_service_client::OperationServiceClient;
use berth_proto::operation::v1::{GetOperationRequest, ListOperationsRequest};
use berth_proto::scheduler::v1::migration::Kind;
use berth_proto::scheduler::v1::{PlannedMove, StuckVm};
use serde_json::json;

use crate::arguments::{DrainOptions, HostMoves};
use crate::session::{Session, conduct, not_begun, read_all, request_id, resource, short};
use crate::{all_pages, drained, migration, output, progress, read};

/// Runs the command.
pub(super) async fn run(session: &Session, verb: HostMoves) -> anyhow::Result<()> {
    match verb {
        HostMoves::Drain {
            host,
            cold,
            options,
        } => {
            let how = MoveOptions {
                evacuate: false,
                cold,
            };
            drain(session, &host, how, &options).await
        }
        HostMoves::Evacuate { host, options } => {
            let how = MoveOptions {
                evacuate: true,
                cold: false,
            };
            drain(session, &host, how, &options).await
        }
    }
}

/// Returns the drain of a host that runs, or that has cordoned it, as a field.
pub(super) async fn of_host(
    session: &Session,
    host: &Host,
) -> anyhow::Result<Option<(&'static str, String)>> {
    if let Some(running) = running(session, host).await? {
        return Ok(Some(running));
    }
    let Some(id) = host.cordoned_by else {
        return Ok(None);
    };
    let request = GetOperationRequest {
        name: resource("operations", &id.to_string()),
        ..GetOperationRequest::default()
    };
    let lift = format!("`berth host uncordon {}` lifts it", host.name);
    let known = read!(session, OperationServiceClient, get_operation, request);
    let operation: Operation = match known {
        Ok(response) => response.operation.unwrap_or_default().try_into()?,
        // Operations that have ended long ago are forgotten.
        Err(refusal) if refusal.code == Code::NotFound => {
            return Ok(Some(("cordoned by", format!("drain {id}; {lift}"))));
        }
        Err(refusal) => return Err(refusal.into()),
    };
    let Some(drain) = operation.drain().filter(|_| operation.is_done()) else {
        return Ok(drained_by(&operation));
    };
    let (by, since) = (&drain.by, migration::time(operation.created_at));
    let text = format!("drain {id}, for {by} since {since}; {lift}");
    Ok(Some(("cordoned by", text)))
}

/// Returns the running drain of a host.
async fn running(session: &Session, host: &Host) -> anyhow::Result<Option<(&'static str, String)>> {
    if !host.cordoned {
        return Ok(None);
    }
    let request = ListOperationsRequest {
        running_only: true,
        ..ListOperationsRequest::default()
    };
    let all = all_pages!(
        session,
        OperationServiceClient,
        list_operations,
        request,
        operations
    );
    let all: Vec<Operation> = read_all(all)?;
    let drains = |operation: &&Operation| operation.drain().is_some_and(|d| d.host == host.name);
    Ok(all.iter().find(drains).and_then(drained_by))
}

fn drained_by(operation: &Operation) -> Option<(&'static str, String)> {
    let drain = operation.drain()?;
    let (id, tally, vms) = (operation.id, drain.tally(), drain.vms.len());
    let (moved, by) = (tally.moved + tally.gone, &drain.by);
    let since = migration::time(operation.created_at);
    let text = format!("operation {id}, {moved} of {vms} VMs moved, for {by} since {since}");
    Some(("drained by", text))
}

/// How the VMs of a host are moved.
#[derive(Clone, Copy)]
struct MoveOptions {
    evacuate: bool,
    cold: bool,
}

/// The reason of a VM with functions that forbid to move it while it runs.
const NOT_LIVE_MIGRATABLE: &str = "PCI_NOT_LIVE_MIGRATABLE";

/// The outcome of a drain.
#[derive(Default)]
struct Outcome {
    plan: Plan,
    /// Whether the host was cordoned.
    cordoned: bool,
    /// The drain, if it is an operation.
    operation: Option<String>,
    /// Why it ended, if it was cancelled.
    cancelled: Option<Refusal>,
    moved: Vec<(String, String)>,
    stayed: Vec<(String, Refusal)>,
}

async fn drain(
    session: &Session,
    host: &str,
    how: MoveOptions,
    options: &DrainOptions,
) -> anyhow::Result<()> {
    let request = DrainHostRequest {
        host: resource("hosts", host),
        evacuate: how.evacuate,
        cold: how.cold,
        parallel_max: options.parallel,
        validate_only: options.validate_only,
        no_wait: options.run.no_wait,
        request_id: request_id(options.run.request_id),
    };
    let id = request.request_id.clone();
    let mut stream = conduct!(session.conductor().await?, drain_host, request)?;
    let mut outcome = Outcome::default();
    while let Some(message) = stream
        .message()
        .await
        .map_err(|s| not_begun(&s, Some(&id)))?
    {
        match message.event {
            Some(Event::Plan(plan)) => {
                for stuck in &plan.stuck {
                    let refusal = stuck.refusal.clone().unwrap_or_default().try_into()?;
                    outcome.stayed.push((short(&stuck.vm).to_owned(), refusal));
                }
                if !session.for_programs() && !options.run.no_wait {
                    show(host, &plan);
                }
                outcome.plan = plan;
            }
            Some(Event::Cordoned(Cordoned { already, operation })) => {
                outcome.cordoned = true;
                let note = match already {
                    true => "was cordoned already",
                    false => "is cordoned",
                };
                output::message(format!("host {host} {note}: no new VMs are placed there"));
                if !operation.is_empty() {
                    let operation = short(&operation).to_owned();
                    outcome.operation = Some(operation.clone());
                    if options.run.no_wait {
                        return begun(session, host, &operation);
                    }
                    // It goes on without the conductor that began it.
                    drop(stream);
                    follow(session, host, &operation, &mut outcome).await?;
                    break;
                }
            }
            Some(Event::Begun(begun)) => {
                output::message(format!("{} is being moved", short(&begun.vm)));
            }
            Some(Event::Ended(ended)) => record(&mut outcome, ended)?,
            None => {}
        }
    }
    finish(session, host, how, options, &outcome)?;
    if outcome.cordoned {
        warn_of_guests(session, host).await;
    }
    Ok(())
}

/// Names the guests without a VM that were reported of a drained host, which is switched off next.
async fn warn_of_guests(session: &Session, host: &str) {
    let request = GetHostRequest {
        name: resource("hosts", host),
        ..Default::default()
    };
    // The drain is done, whether this is known or not.
    let Ok(response) = read!(session, HostServiceClient, get_host, request) else {
        return;
    };
    let host_or_invalid: Result<Host, _> = response.host.unwrap_or_default().try_into();
    let Ok(shown) = host_or_invalid else { return };
    let guests: Vec<&str> = shown
        .unknown
        .iter()
        .map(|guest| guest.name.as_str())
        .collect();
    if !guests.is_empty() {
        let names = guests.join(", ");
        output::message(format!(
            "warning: the agent of {host} reported guests that are no VMs: {names}; `berth host show {host}` says what \
             each is, look before the host is switched off"
        ));
    }
}

/// Shows a drain that is not waited for.
fn begun(session: &Session, host: &str, operation: &str) -> anyhow::Result<()> {
    if session.for_programs() {
        return output::value(&json!({"operation": operation}));
    }
    output::print(operation);
    output::message(format!("operation {operation} drains host {host}"));
    output::message(how_to_go_on(operation));
    Ok(())
}

fn how_to_go_on(operation: &str) -> String {
    format!(
        "`berth operation wait {operation}` follows it, `berth operation cancel {operation}` cancels it"
    )
}

/// Follows a drain until it has ended.
async fn follow(
    session: &Session,
    host: &str,
    id: &str,
    outcome: &mut Outcome,
) -> anyhow::Result<()> {
    let operation = tokio::select! {
        followed = progress::until_end(session, id) => followed?,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            let message = format!("the drain of host {host} goes on as operation {id}");
            return Err(Refusal::new(Code::Cancelled, "INTERRUPTED", message)
                .with_hint(how_to_go_on(id))
                .with("operation", id)
                .into());
        }
    };
    let Some(drain) = operation.drain() else {
        return Ok(());
    };
    let failed = match &operation.outcome {
        Some(operation::Outcome::Failed(refusal)) => Some(refusal),
        Some(operation::Outcome::Succeeded) | None => None,
    };
    outcome.cancelled = failed.filter(|_| operation.cancelled).cloned();
    outcome.stayed.clear();
    for DrainedVm { vm, progress, .. } in &drain.vms {
        let vm = vm.to_string();
        match progress {
            Progress::Moved { host } => outcome.moved.push((vm, host.to_string())),
            Progress::Gone => outcome.moved.push((vm, String::new())),
            Progress::Stays { refusal } => outcome.stayed.push((vm, refusal.clone())),
            Progress::Waiting | Progress::Moving { .. } => {
                let why = failed.cloned();
                outcome.stayed.extend(why.map(|why| (vm, why)));
            }
        }
    }
    Ok(())
}

/// Shows the plan as a table.
fn show(host: &str, plan: &Plan) {
    let moves = plan.moves.iter().map(|planned| {
        [
            short(&planned.vm).to_owned(),
            word(planned).to_owned(),
            short(&planned.destination).to_owned(),
            String::new(),
        ]
    });
    let stuck = plan.stuck.iter().map(|stuck| {
        let StuckVm { vm, refusal } = stuck;
        let why = refusal.clone().unwrap_or_default();
        [
            short(vm).to_owned(),
            "stays".to_owned(),
            "-".to_owned(),
            why.message,
        ]
    });
    let none = format!("{host} holds no VM");
    output::table(
        ["VM", "HOW", "TO", "WHY NOT"],
        moves.chain(stuck).collect(),
        &none,
    );
    let hints = plan.stuck.iter().filter_map(|stuck| {
        let hint = stuck.refusal.as_ref()?.hint.as_deref()?;
        Some((short(&stuck.vm), hint))
    });
    for line in drained::hints(hints) {
        output::message(line);
    }
}

fn word(planned: &PlannedMove) -> &'static str {
    match planned.kind() {
        Kind::Live | Kind::Unspecified => "while it runs",
        Kind::Cold => "stopped",
        Kind::Evacuation => "restarted",
    }
}

fn record(outcome: &mut Outcome, ended: Ended) -> anyhow::Result<()> {
    let vm = short(&ended.vm).to_owned();
    match ended.refusal {
        None => {
            let host = short(&ended.host).to_owned();
            output::message(format!("{vm} moved to {host}"));
            outcome.moved.push((vm, host));
        }
        Some(refusal) => {
            let refusal: Refusal = refusal.try_into()?;
            output::message(drained::not_moved(&vm, &refusal));
            outcome.stayed.push((vm, refusal));
        }
    }
    Ok(())
}

/// Reports the outcome; a VM that stays is a failure.
fn finish(
    session: &Session,
    host: &str,
    how: MoveOptions,
    options: &DrainOptions,
    outcome: &Outcome,
) -> anyhow::Result<()> {
    if session.for_programs() {
        let moves = outcome.plan.moves.iter();
        let planned: Vec<_> = moves
            .map(|m| json!({"vm": short(&m.vm), "how": word(m), "to": short(&m.destination)}))
            .collect();
        let moved: Vec<_> = outcome
            .moved
            .iter()
            .map(|(vm, host)| json!({"vm": vm, "host": host}))
            .collect();
        let stayed: Vec<_> = outcome
            .stayed
            .iter()
            .map(|(vm, why)| json!({"vm": vm, "error": why}))
            .collect();
        output::value(&json!({
            "plan": planned,
            "cordoned": outcome.cordoned,
            "operation": outcome.operation,
            "moved": moved,
            "stayed": stayed,
        }))?;
    }
    if let Some(refusal) = &outcome.cancelled {
        return Err(refusal.clone().into());
    }
    let lift = format!("`berth host uncordon {host}` lifts it");
    if outcome.stayed.is_empty() {
        if outcome.cordoned {
            let note = format!("host {host} holds no VM and stays cordoned; {lift}");
            output::message(note);
        }
        return Ok(());
    }
    let what = match options.validate_only {
        true => "cannot be moved",
        false => "were not moved",
    };
    let message = format!(
        "{} of the VMs of {host} {what}; the reasons are listed above",
        outcome.stayed.len()
    );
    let refusal = Refusal::new(Code::FailedPrecondition, "VMS_STAY", message).with("host", host);
    let mut hints = Vec::new();
    let cannot_move_live = |(_, why): &(String, Refusal)| why.reason == NOT_LIVE_MIGRATABLE;
    if outcome.stayed.iter().any(cannot_move_live) && !how.cold {
        hints.push(format!(
            "`berth host drain {host} --cold` stops VMs that cannot move while they run"
        ));
    }
    if outcome.cordoned {
        hints.push(format!("host {host} stays cordoned; {lift}"));
    }
    match hints.is_empty() {
        true => Err(refusal.into()),
        false => Err(refusal.with_hint(hints.join("; ")).into()),
    }
}
