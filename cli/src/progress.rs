//! The progress of a running operation: its steps as they are logged.

use berth_domain::operation::{Due, Entry, Kind, Mark, Operation, Outcome, Step};
use berth_domain::refusal::Refusal;
use berth_domain::transfer::TransferProgress;
use berth_proto::conductor::v1::WatchMigrationResponse;
use berth_proto::operation::v1::WaitOperationRequest;
use berth_proto::operation::v1::operation_service_client::OperationServiceClient;

use tonic::Streaming;

use crate::bar::Bar;
use crate::failure::failed;
use crate::session::{Session, resource, short, unknown_end};
use crate::{drained, migration, output, read};

/// How long one call waits for an update; then it is repeated.
const WAIT_SECONDS: i64 = 1;

/// Waits for the end of an operation, printing its steps on standard error as they happen, and how far
/// its transfer is, if it has one.
///
/// # Errors
///
/// Why the operation failed, or why its status can no longer be read.
pub async fn follow(session: &Session, name: &str) -> anyhow::Result<Operation> {
    let operation = until_end(session, name).await?;
    match &operation.outcome {
        Some(Outcome::Failed(refusal)) => Err(failed(refusal.clone())),
        Some(Outcome::Succeeded) | None => Ok(operation),
    }
}

/// As [`follow`], and returns the operation also if it has failed.
///
/// # Errors
///
/// Why its status can no longer be read.
pub async fn until_end(session: &Session, name: &str) -> anyhow::Result<Operation> {
    let mut shown = 0;
    let mut drained = drained::Shown::default();
    let mut bar = Bar::new();
    let mut watch = None;
    let mut is_watched = session.for_programs();
    let mut update = Box::pin(wait_for_update(session, name.to_owned()));
    loop {
        let operation = tokio::select! {
            biased;
            received = &mut update => received?,
            next = next_progress(&mut watch) => {
                match next {
                    Some((progress, left)) => bar.show(&progress, left),
                    None => bar.clear(),
                }
                continue;
            }
        };
        for entry in operation.log.iter().skip(shown) {
            if !session.for_programs() {
                bar.clear();
                output::message(line(entry));
            }
        }
        shown = shown.max(operation.log.len());
        if let Some(drain) = operation.drain()
            && !session.for_programs()
        {
            for line in drained.lines(drain) {
                output::message(&line);
            }
        }
        if operation.is_done() {
            return Ok(operation);
        }
        if let Kind::LiveMigrate { migration } = operation.kind
            && !is_watched
        {
            is_watched = true;
            // Without a conductor that supports it there is no bar.
            watch = migration::watch(session, migration).await.ok();
        }
        update.set(wait_for_update(session, name.to_owned()));
    }
}

/// Returns an operation, after waiting a while for its end.
async fn wait_for_update(session: &Session, operation: String) -> anyhow::Result<Operation> {
    let request = WaitOperationRequest {
        name: resource("operations", &operation),
        timeout: Some(prost_types::Duration {
            seconds: WAIT_SECONDS,
            nanos: 0,
        }),
    };
    let response = read!(session, OperationServiceClient, wait_operation, request);
    let response = response.map_err(|lost| {
        let id = short(&operation);
        let (what, command) = (
            format!("operation {id}"),
            format!("berth operation wait {id}"),
        );
        unknown_end(&what, lost, &command).with("operation", id)
    })?;
    Ok(response.operation.unwrap_or_default().try_into()?)
}

/// Waits for the next progress of a transfer; forever without a watch.
async fn next_progress(
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
        Mark::Succeeded => entry.step.succeeded().to_owned(),
        Mark::Failed(refusal) => format!("failed: {refusal}"),
        Mark::UndoStarted => "is being undone".to_owned(),
        Mark::Undone => "undone".to_owned(),
    };
    format!("  {:<20} {mark}{host}", entry.step.title())
}

/// Returns the steps to which a running operation has not come, as lines; none once it is being undone.
#[must_use]
pub fn ahead(operation: &Operation) -> Vec<String> {
    let plan = operation.kind.plan();
    // What was tried on hosts before is history: the latest claim begins an attempt.
    let is_claim = |e: &Entry| e.step == Step::Claim && e.mark == Mark::Succeeded;
    let begin = operation.log.iter().rposition(is_claim).unwrap_or(0);
    let attempt = operation.log.iter().skip(begin);
    let turned_back = |e: &Entry| match e.mark {
        Mark::Failed(_) | Mark::UndoStarted | Mark::Undone => true,
        Mark::Started | Mark::Succeeded => false,
    };
    if operation.is_done() || plan.on_failure.undoes() && attempt.clone().any(turned_back) {
        return Vec::new();
    }
    let place = |step| plan.steps.iter().position(|row| row.step == step);
    let reached = attempt.filter_map(|entry| place(entry.step)).max();
    let ahead = plan.steps.iter().skip(reached.map_or(0, |at| at + 1));
    ahead
        .map(|row| {
            let condition = match row.due {
                Due::Always => "",
                Due::DisksFetched => ", if its disks are fetched",
                Due::DisksFetchedForGood => ", if its disks are fetched and it is not verified",
            };
            format!("  {:<20} ahead{condition}", row.step.title())
        })
        .collect()
}

/// Returns the message and reason of an expected refusal, for the demonstration.
#[must_use]
pub fn sentence(refusal: &Refusal) -> String {
    format!("{} ({})", refusal.message, refusal.reason)
}

#[cfg(test)]
mod tests {
    use berth_domain::id::{MigrationId, OperationId, TimeMs};
    use berth_domain::name::VmName;
    use berth_domain::operation::Subject;
    use berth_domain::refusal::Code;

    use super::*;
    use berth_domain::ownership::Ownership;

    fn operation(log: &[(Step, Mark)]) -> Operation {
        let entry = |(step, mark): &(Step, Mark)| Entry {
            step: *step,
            mark: mark.clone(),
            host: None,
            at: TimeMs(0),
        };
        let migration = MigrationId(uuid::Uuid::nil());
        Operation {
            id: OperationId(uuid::Uuid::nil()),
            kind: Kind::ColdMigrate { migration },
            subject: Subject::Vm(VmName::new("a").unwrap()),
            requested_host: None,
            excluded: Vec::new(),
            claim: None,
            lease: None,
            cancelled: false,
            log: log.iter().map(entry).collect(),
            outcome: None,
            created_at: TimeMs(0),
            ended_at: None,
            force_complete: false,
            ownership: Ownership::default(),
        }
    }

    /// Goal: users see what a running operation has still to do, and never a step that it will not
    /// take. Method: a cold migration whose first host refused, at each turn.
    #[test]
    fn what_is_ahead_follows_the_attempt_and_ends_with_a_failure() {
        let refusal = Refusal::new(Code::Aborted, "DRAWN", "drawn");
        let mut log = vec![
            (Step::Claim, Mark::Succeeded),
            (Step::StopSource, Mark::Succeeded),
            (Step::StartDestination, Mark::Failed(refusal)),
        ];
        assert!(ahead(&operation(&log)).is_empty());
        log.push((Step::Claim, Mark::Undone));
        assert!(ahead(&operation(&log)).is_empty());
        log.push((Step::Claim, Mark::Succeeded));
        log.push((Step::StopSource, Mark::Started));
        let expected = [
            "  fetch the disks      ahead, if its disks are fetched",
            "  start destination    ahead",
            "  delete on source     ahead, if its disks are fetched and it is not verified",
        ];
        assert_eq!(ahead(&operation(&log)), expected);
        let mut done = operation(&log);
        done.outcome = Some(Outcome::Succeeded);
        assert!(ahead(&done).is_empty());
    }
}
