//! What is shown while an operation runs: its steps as they are logged.

use std::time::Duration;

use berth_domain::operation::{Entry, Mark, Operation, Outcome, Step};
use berth_domain::refusal::Refusal;
use berth_proto::operation::v1::WaitOperationRequest;
use berth_proto::operation::v1::operation_service_client::OperationServiceClient;

use crate::session::{Session, resource};
use crate::{ask, output};

/// How long one question for news may take; then it is asked again.
const PATIENCE_SECONDS: i64 = 1;

/// Waits for the end of an operation, telling its steps on standard error as they happen.
///
/// # Errors
///
/// Why the operation failed, or why it can no longer be asked for.
pub async fn follow(session: &Session, operation: &str) -> anyhow::Result<Operation> {
    let name = resource("operations", operation);
    let mut told = 0;
    loop {
        let request = WaitOperationRequest {
            name: name.clone(),
            timeout: Some(prost_types::Duration {
                seconds: PATIENCE_SECONDS,
                nanos: 0,
            }),
        };
        let answer = ask!(session, OperationServiceClient, wait_operation, request)?;
        let operation: Operation = answer.operation.unwrap_or_default().try_into()?;
        for entry in operation.log.iter().skip(told) {
            if !session.json() {
                output::tell(&line(entry));
            }
        }
        told = told.max(operation.log.len());
        match &operation.outcome {
            Some(Outcome::Succeeded) => return Ok(operation),
            Some(Outcome::Failed(refusal)) => return Err(refusal.clone().into()),
            None => {}
        }
    }
}

/// Returns one step of an operation as a line.
#[must_use]
pub fn line(entry: &Entry) -> String {
    let host = entry
        .host
        .as_ref()
        .map_or(String::new(), |h| format!(" on {h}"));
    let mark = match &entry.mark {
        Mark::Started => "started".to_owned(),
        Mark::Succeeded => "done".to_owned(),
        Mark::Failed(refusal) => format!("failed: {refusal}"),
        Mark::UndoStarted => "is being undone".to_owned(),
        Mark::Undone => "undone".to_owned(),
    };
    format!("  {:<20} {mark}{host}", step(entry.step))
}

/// Returns the word for a step.
#[must_use]
pub fn step(step: Step) -> &'static str {
    match step {
        Step::Claim => "claim",
        Step::Spawn => "spawn",
        Step::CheckDestination => "check destination",
        Step::CheckSource => "check source",
        Step::FitDestination => "fit destination",
        Step::PreLiveMigration => "pre live migration",
        Step::LiveMigration => "live migration",
        Step::Settle => "settle",
        Step::Destroy => "destroy",
        Step::StopSource => "stop source",
        Step::StartDestination => "start destination",
        Step::StopDestination => "stop destination",
        Step::StartSource => "start source",
    }
}

/// Returns the time as people write durations.
#[must_use]
pub fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// Returns the sentence of a refusal that is expected, for stories.
#[must_use]
pub fn sentence(refusal: &Refusal) -> String {
    format!("{} ({})", refusal.message, refusal.reason)
}
