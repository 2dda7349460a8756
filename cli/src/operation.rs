//! `berth operation`: looks at long operations, waits for them, cancels them.

use berth_domain::operation::{Drain, Operation, Outcome, Subject};
use berth_domain::refusal::{Code, Refusal};
use berth_proto::operation::v1::operation_service_client::OperationServiceClient;
use berth_proto::operation::v1::{
    CancelOperationRequest, GetOperationRequest, ListOperationsRequest, Operation as Wire,
};

use crate::arguments::{Operation as Verb, Selection};
use crate::migration::time;
use crate::output::Columns;
use crate::selection::{Selector, keep_latest};
use crate::session::{Session, creator, read_all, request_id, resource, short};
use crate::{all_pages, beginning, call, drained, output, progress, read};

/// The columns of the list.
pub(crate) const COLUMNS: Columns<6, 4> = Columns {
    usual: [
        "operation",
        "kind",
        "vm or host",
        "state",
        "last step",
        "requested",
    ],
    wide: ["ended", "conductor", "project", "creator"],
};

/// Runs the command.
///
/// # Errors
///
/// The scheduler's refusal, or the failure of the operation.
pub async fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::List { running, selection } => list(session, running, &selection).await,
        Verb::Show { operation } => show(session, &get(session, &operation).await?),
        Verb::Wait { operation } => {
            let operation = named(session, &operation).await?;
            let operation = progress::follow(session, &operation).await?;
            // Its steps have been printed as they happened.
            summary(session, &operation)
        }
        Verb::Cancel { operation } => {
            let operation = named(session, &operation).await?;
            let before = get(session, &operation).await?;
            if before.is_done() {
                show(session, &before)?;
                return Err(ended_before(&before).into());
            }
            let request = CancelOperationRequest {
                name: resource("operations", &operation),
                request_id: request_id(None),
            };
            let response = call!(session, OperationServiceClient, cancel_operation, request)?;
            let operation: Operation = response.operation.unwrap_or_default().try_into()?;
            show(session, &operation)?;
            match operation.is_done() && !operation.cancelled {
                true => Err(ended_before(&operation).into()),
                false => Ok(()),
            }
        }
    }
}

/// Returns the name of an operation, which may be given by the beginning of its id.
async fn named(session: &Session, operation: &str) -> anyhow::Result<String> {
    let id = short(operation);
    if !beginning::is_beginning(id) {
        return Ok(resource("operations", operation));
    }
    let ids = all(session, false, &Selection::default()).await?;
    let ids = ids.into_iter().map(|o| o.id.0);
    let id = beginning::only("operation", id, ids)?;
    Ok(resource("operations", &id.to_string()))
}

async fn get(session: &Session, operation: &str) -> anyhow::Result<Operation> {
    let request = GetOperationRequest {
        name: named(session, operation).await?,
        ..Default::default()
    };
    let response = read!(session, OperationServiceClient, get_operation, request)?;
    Ok(response.operation.unwrap_or_default().try_into()?)
}

/// The refusal of a cancellation that came too late.
fn ended_before(operation: &Operation) -> Refusal {
    let id = operation.id;
    let message = format!("operation {id} had ended already as {}", state(operation));
    Refusal::new(Code::FailedPrecondition, "OPERATION_DONE", message).with("operation", id)
}

/// Returns the operations that are selected, the latest last.
async fn all(
    session: &Session,
    running: bool,
    selection: &Selection,
) -> anyhow::Result<Vec<Operation>> {
    let selector = Selector::of_latest::<Wire>(selection)?;
    let request = ListOperationsRequest {
        running_only: running,
        ..Default::default()
    };
    let all = all_pages!(
        session,
        OperationServiceClient,
        list_operations,
        request,
        operations,
        &selector
    );
    let mut all: Vec<Operation> = read_all(all)?;
    all.sort_by_key(|o| (o.created_at, o.id));
    keep_latest(&mut all, selection);
    Ok(all)
}

async fn list(session: &Session, running: bool, selection: &Selection) -> anyhow::Result<()> {
    let all = all(session, running, selection).await?;
    if session.for_programs() {
        return output::value(&all);
    }
    let rows = all
        .iter()
        .map(|o| {
            let step = o.log.last().map_or("-", |e| e.step.title());
            let usual = [
                o.id.to_string(),
                o.kind.plan().title.to_owned(),
                o.subject_name().to_owned(),
                state(o),
                o.drain().map_or_else(|| step.to_owned(), counted),
                time(o.created_at),
            ];
            let wide = [
                output::or_dash(o.ended_at.map(time)),
                output::or_dash(o.lease.as_ref().map(|lease| &lease.conductor)),
                o.ownership.project_name().to_owned(),
                creator(&o.ownership),
            ];
            (usual, wide)
        })
        .collect();
    output::list(&COLUMNS, rows, selection.none("there is no operation"))
}

fn show(session: &Session, operation: &Operation) -> anyhow::Result<()> {
    summary(session, operation)?;
    if session.for_programs() {
        return Ok(());
    }
    for entry in &operation.log {
        output::print(progress::line(entry));
    }
    for line in progress::ahead(operation) {
        output::print(line);
    }
    for drained in operation.drain().iter().flat_map(|drain| &drain.vms) {
        output::print(format!("  {}", drained::line(drained)));
    }
    if let Some(Outcome::Failed(refusal)) = &operation.outcome {
        output::message(output::refusal(refusal));
    }
    Ok(())
}

/// Shows an operation without its steps, which JSON always has.
fn summary(session: &Session, operation: &Operation) -> anyhow::Result<()> {
    if session.for_programs() {
        return output::value(operation);
    }
    output::fields(&[
        ("operation", operation.id.to_string()),
        ("kind", operation.kind.plan().title.to_owned()),
        (
            match operation.subject {
                Subject::Vm(_) => "vm",
                Subject::Drain(_) => "host",
            },
            operation.subject_name().to_owned(),
        ),
        ("state", state(operation)),
        ("requested", time(operation.created_at)),
        ("ended", operation.ended_at.map_or("-".to_owned(), time)),
        (
            "conductor",
            operation.lease.as_ref().map_or("-".to_owned(), |l| {
                format!("{} under epoch {}", l.conductor, l.epoch)
            }),
        ),
        ("project", operation.ownership.project_name().to_owned()),
        ("creator", creator(&operation.ownership)),
    ]);
    Ok(())
}

/// Returns how far a drain is, in a few words.
fn counted(drain: &Drain) -> String {
    let tally = drain.tally();
    format!("{} of {} moved", tally.moved + tally.gone, drain.vms.len())
}

pub(crate) fn state(operation: &Operation) -> String {
    match (&operation.outcome, operation.cancelled) {
        (Some(Outcome::Succeeded), _) => "SUCCEEDED".to_owned(),
        (Some(Outcome::Failed(refusal)), _) => format!("FAILED {}", refusal.reason),
        (None, true) => "CANCELLING".to_owned(),
        (None, false) => "RUNNING".to_owned(),
    }
}
