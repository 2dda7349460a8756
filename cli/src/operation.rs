//! `berth operation`: looks at long operations, waits for them, cancels them.

use berth_domain::operation::{Kind, Operation, Outcome};
use berth_proto::operation::v1::operation_service_client::OperationServiceClient;
use berth_proto::operation::v1::{
    CancelOperationRequest, GetOperationRequest, ListOperationsRequest,
};

use crate::arguments::Operation as Verb;
use crate::session::{Session, read_all, request_id, resource};
use crate::{all_pages, ask, output, progress};

/// Does what was typed.
///
/// # Errors
///
/// What the scheduler refused, or why the operation failed that was waited for.
pub async fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::List { running } => list(session, running).await,
        Verb::Show { operation } => {
            let request = GetOperationRequest {
                name: resource("operations", &operation),
                ..Default::default()
            };
            let answer = ask!(session, OperationServiceClient, get_operation, request)?;
            show(session, &answer.operation.unwrap_or_default().try_into()?)
        }
        Verb::Wait { operation } => {
            let operation = progress::follow(session, &operation).await?;
            // Its steps have been told as they happened.
            summary(session, &operation)
        }
        Verb::Cancel { operation } => {
            let request = CancelOperationRequest {
                name: resource("operations", &operation),
                request_id: request_id(None),
            };
            let answer = ask!(session, OperationServiceClient, cancel_operation, request)?;
            show(session, &answer.operation.unwrap_or_default().try_into()?)
        }
    }
}

async fn list(session: &Session, running: bool) -> anyhow::Result<()> {
    let request = ListOperationsRequest {
        running_only: running,
        ..Default::default()
    };
    let all = all_pages!(
        session,
        OperationServiceClient,
        list_operations,
        request,
        operations
    );
    let mut all: Vec<Operation> = read_all(all)?;
    all.sort_by_key(|o| (o.created_at, o.id));
    if session.json() {
        return output::json(&all);
    }
    let rows = all
        .iter()
        .map(|o| {
            let step = o.log.last().map_or("-", |e| progress::step(e.step));
            [
                o.id.to_string(),
                kind(&o.kind).to_owned(),
                o.vm.to_string(),
                state(o),
                step.to_owned(),
            ]
        })
        .collect();
    output::table(
        ["operation", "kind", "vm", "state", "last step"],
        rows,
        "there is no operation",
    );
    Ok(())
}

fn show(session: &Session, operation: &Operation) -> anyhow::Result<()> {
    summary(session, operation)?;
    if session.json() {
        return Ok(());
    }
    for entry in &operation.log {
        output::print(&format!("{}\n", progress::line(entry)));
    }
    if let Some(Outcome::Failed(refusal)) = &operation.outcome {
        output::tell(&output::refusal(refusal));
    }
    Ok(())
}

/// Shows an operation without its steps, which JSON always has.
fn summary(session: &Session, operation: &Operation) -> anyhow::Result<()> {
    if session.json() {
        return output::json(operation);
    }
    output::fields(&[
        ("operation", operation.id.to_string()),
        ("kind", kind(&operation.kind).to_owned()),
        ("vm", operation.vm.to_string()),
        ("state", state(operation)),
        (
            "conductor",
            operation.lease.as_ref().map_or("-".to_owned(), |l| {
                format!("{} under epoch {}", l.conductor, l.epoch)
            }),
        ),
    ]);
    Ok(())
}

pub(crate) fn kind(kind: &Kind) -> &'static str {
    match kind {
        Kind::Boot => "boot",
        Kind::Delete => "delete",
        Kind::LiveMigrate { .. } => "live migration",
        Kind::ColdMigrate { .. } => "cold migration",
        Kind::RevertResize { .. } => "revert of a resize",
        Kind::ConfirmResize { .. } => "confirmation of a resize",
        Kind::Evacuate { .. } => "evacuation",
        Kind::Shelve => "shelving",
        Kind::Unshelve => "unshelving",
        Kind::Stop { .. } => "stop",
        Kind::Start => "start",
        Kind::Reboot { .. } => "reboot",
        Kind::Rebuild { .. } => "rebuild",
        Kind::Snapshot { .. } => "snapshot",
    }
}

pub(crate) fn state(operation: &Operation) -> String {
    match (&operation.outcome, operation.cancelled) {
        (Some(Outcome::Succeeded), _) => "SUCCEEDED".to_owned(),
        (Some(Outcome::Failed(refusal)), _) => format!("FAILED {}", refusal.reason),
        (None, true) => "CANCELLING".to_owned(),
        (None, false) => "RUNNING".to_owned(),
    }
}
