//! Requests of users to a running migration: to watch it, to cancel it, to force its end.
//!
//! Not here: their effect. A request is recorded with the scheduler, and the conductor that carries
//! the migration out obeys it; so any conductor accepts it.
//!
//! Invariant: bounded. A watcher that does not read slows the polling down and takes no memory here.

use std::time::Duration;

use berth_domain::host::Host;
use berth_domain::id::{MigrationId, VmUid};
use berth_domain::migration::{Migration, State};
use berth_domain::refusal::Refusal;
use berth_domain::transfer::TransferProgress;
use berth_proto::conductor::v1::WatchMigrationResponse;
use berth_proto::{operation, status};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::driver::Tools;

/// How often a watched migration is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// How many messages may be on their way to a watcher.
const AHEAD_MAX: usize = 4;

/// A migration on its way to a watcher.
pub(crate) type Watch = ReceiverStream<Result<WatchMigrationResponse, Status>>;

fn to_status(refusal: Refusal) -> Status {
    status::to_status(&refusal)
}

/// Gives a migration up.
pub(crate) async fn abort(
    tools: &Tools,
    id: MigrationId,
    request_id: String,
) -> Result<operation::v1::Operation, Status> {
    let migration = tools.scheduler.migration(id).await.map_err(to_status)?;
    let cancelled = tools.scheduler.cancel(migration.operation, request_id);
    Ok((&cancelled.await.map_err(to_status)?).into())
}

/// Has a migration end soon.
pub(crate) async fn force_complete(
    tools: &Tools,
    id: MigrationId,
    request_id: String,
) -> Result<operation::v1::Operation, Status> {
    let migration = tools.scheduler.migration(id).await.map_err(to_status)?;
    let forced = tools
        .scheduler
        .force_complete(migration.operation, request_id);
    Ok((&forced.await.map_err(to_status)?).into())
}

/// Watches a migration until it has ended, the client disconnects, or `stopping` is cancelled.
pub(crate) async fn watch(
    tools: &Tools,
    id: MigrationId,
    stopping: CancellationToken,
) -> Result<Watch, Status> {
    // Read once before the stream begins, so that an unknown migration is an error of the call.
    let first = tools.scheduler.migration(id).await.map_err(to_status)?;
    let (sender, receiver) = mpsc::channel(AHEAD_MAX);
    let tools = tools.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = look(&tools, first, &sender) => {}
            () = sender.closed() => {}
            () = stopping.cancelled() => {}
        }
    });
    Ok(ReceiverStream::new(receiver))
}

async fn look(
    tools: &Tools,
    mut migration: Migration,
    watcher: &mpsc::Sender<Result<WatchMigrationResponse, Status>>,
) {
    let mut known = None;
    loop {
        let progress = progress(tools, &migration, &mut known).await;
        let message = WatchMigrationResponse {
            migration: Some((&migration).into()),
            remaining_ms: progress.as_ref().and_then(TransferProgress::remaining_ms),
            progress: progress.as_ref().map(Into::into),
        };
        if watcher.send(Ok(message)).await.is_err() || migration.state.is_ended() {
            return;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
        migration = match tools.scheduler.migration(migration.id).await {
            Ok(migration) => migration,
            Err(refusal) => {
                let _ = watcher.send(Err(to_status(refusal))).await;
                return;
            }
        };
    }
}

/// Queries the agent that knows, which is looked up again after it did not answer: the source's of a guest
/// that runs, the destination's of one whose disks it fetches.
async fn progress(
    tools: &Tools,
    migration: &Migration,
    known: &mut Option<(Host, VmUid)>,
) -> Option<TransferProgress> {
    let queried = match migration.state {
        State::Running | State::Unsettled => &migration.source,
        State::Preparing if migration.fetches_disks => migration.destination.as_ref()?,
        State::Preparing
        | State::Completed
        | State::Failed
        | State::Verifying
        | State::Reverted => return None,
    };
    if known.as_ref().is_none_or(|(host, _)| host.name != *queried) {
        let host = tools.scheduler.host(queried).await.ok()?;
        let (vm, _) = tools.scheduler.vm(&migration.vm).await.ok()?;
        *known = Some((host, vm.uid));
    }
    let (host, vm) = known.as_ref()?;
    let address = &host.report.agent_address;
    let progress = tools.agents.transfer(&host.name, address, *vm).await;
    if progress.is_none() {
        *known = None;
    }
    progress
}
