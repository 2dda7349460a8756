//! What is shown while an operation runs: its steps as they are logged.

use std::time::Duration;

use berth_domain::operation::{Entry, Kind, Mark, Operation, Outcome, Step};
use berth_domain::refusal::Refusal;
use berth_domain::transfer::TransferProgress;
use berth_proto::conductor::v1::WatchMigrationResponse;
use berth_proto::operation::v1::WaitOperationRequest;
use berth_proto::operation::v1::operation_service_client::OperationServiceClient;

use tonic::Streaming;

use crate::bar::Bar;
use crate::session::{Session, resource};
use crate::{ask, migration, output};

/// How long one question for news may take; then it is asked again.
const PATIENCE_SECONDS: i64 = 1;

/// Waits for the end of an operation, telling its steps on standard error as they happen, and how far
/// its transfer is, if it has one.
///
/// # Errors
///
/// Why the operation failed, or why it can no longer be asked for.
pub async fn follow(session: &Session, name: &str) -> anyhow::Result<Operation> {
    let mut told = 0;
    let mut bar = Bar::new();
    let mut watch = None;
    let mut asked_to_watch = session.json();
    let mut news = Box::pin(news(session, name.to_owned()));
    loop {
        let operation = tokio::select! {
            biased;
            came = &mut news => came?,
            seen = seen(&mut watch) => {
                match seen {
                    Some((progress, left)) => bar.show(&progress, left),
                    None => bar.clear(),
                }
                continue;
            }
        };
        for entry in operation.log.iter().skip(told) {
            if !session.json() {
                bar.clear();
                output::tell(&line(entry));
            }
        }
        told = told.max(operation.log.len());
        match &operation.outcome {
            Some(Outcome::Succeeded) => return Ok(operation),
            Some(Outcome::Failed(refusal)) => return Err(refusal.clone().into()),
            None => {}
        }
        if let Kind::LiveMigrate { migration } = operation.kind
            && !asked_to_watch
        {
            asked_to_watch = true;
            // A conductor that does not know how, or none: then there is no bar.
            watch = migration::watch(session, migration).await.ok();
        }
        news.set(self::news(session, name.to_owned()));
    }
}

/// Asks for an operation, and waits a while for its end.
async fn news(session: &Session, operation: String) -> anyhow::Result<Operation> {
    let request = WaitOperationRequest {
        name: resource("operations", &operation),
        timeout: Some(prost_types::Duration {
            seconds: PATIENCE_SECONDS,
            nanos: 0,
        }),
    };
    let answer = ask!(session, OperationServiceClient, wait_operation, request)?;
    Ok(answer.operation.unwrap_or_default().try_into()?)
}

/// Waits for the next word on a transfer; for ever where there is none to come.
async fn seen(
    watch: &mut Option<Streaming<WatchMigrationResponse>>,
) -> Option<(TransferProgress, Option<u64>)> {
    let Some(stream) = watch else {
        return std::future::pending().await;
    };
    let Ok(Some(message)) = stream.message().await else {
        *watch = None;
        return None;
    };
    let progress = message.progress?.try_into().ok()?;
    Some((progress, message.remaining_ms))
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
        Step::Stop => "stop the guest",
        Step::MakeDisks => "make the disks",
        Step::Start => "start the guest",
        Step::CopyDisk => "copy the disk",
        Step::PublishImage => "name the image",
        Step::FetchDisks => "fetch the disks",
        Step::DropSource => "delete on source",
        Step::DropDestination => "delete copies",
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
