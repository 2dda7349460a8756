//! The progress of live migrations, as the conductor that carries them out reports it.
//!
//! Invariant: at most [`TRANSFERS_MAX`] are watched at a time, and one that cannot be watched is shown with
//! its step alone.

use std::convert::Infallible;

use berth_domain::id::MigrationId;
use berth_domain::transfer::TransferProgress;
use berth_proto::conductor::v1::WatchMigrationResponse;
use tokio::sync::{mpsc, watch};
use tokio_stream::{StreamExt as _, StreamMap};
use tonic::Streaming;

use super::update::Update;
use crate::migration;
use crate::session::Session;

/// How many transfers are watched at a time.
pub const TRANSFERS_MAX: usize = 8;

/// Follows the transfers of these migrations for ever.
///
/// # Errors
///
/// What it reads is not received any more.
pub async fn follow(
    session: &Session,
    mut running: watch::Receiver<Vec<MigrationId>>,
    updates: mpsc::Sender<Update>,
) -> anyhow::Result<Infallible> {
    let mut streams: StreamMap<MigrationId, Streaming<WatchMigrationResponse>> = StreamMap::new();
    loop {
        tokio::select! {
            changed = running.changed() => {
                changed?;
                let running = running.borrow_and_update().clone();
                follow_only(session, &mut streams, &running).await;
            }
            Some((id, message)) = streams.next(), if !streams.is_empty() => {
                let Ok(message) = message else {
                    streams.remove(&id);
                    continue;
                };
                let progress = message.progress.map(TransferProgress::try_from);
                if let Some(Ok(progress)) = progress {
                    let left = message.remaining_ms;
                    let update = Update::Transfer(id, Box::new(progress), left);
                    updates.send(update).await?;
                }
            }
        }
    }
}

/// Ends the streams of other migrations, and opens those that are missing.
async fn follow_only(
    session: &Session,
    streams: &mut StreamMap<MigrationId, Streaming<WatchMigrationResponse>>,
    running: &[MigrationId],
) {
    let ended: Vec<MigrationId> = streams.keys().copied().collect();
    for id in ended.iter().filter(|id| !running.contains(id)) {
        streams.remove(id);
    }
    for id in running {
        if !streams.contains_key(id)
            && let Ok(stream) = migration::watch(session, *id).await
        {
            streams.insert(*id, stream);
        }
    }
}
