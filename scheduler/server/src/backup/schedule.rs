//! The task that makes backups at intervals, if the configuration has a directory for them.
//!
//! What is there is read from the directory each time, so that a restart goes on where the member
//! stopped. A backup is verified where it lies before an earlier one is deleted, and before the next
//! increment follows it.
//!
//! Invariant: nothing that happens here ends the member, or delays it: the state is taken in one turn of
//! the replica's task, and written by a thread of its own.

use std::time::{Duration, SystemTime};

use berth_backup::Place;
use berth_process::{error_chain, wall_clock_ms};
use berth_replication::HistoryError;
use berth_replication::runtime::{Handle, ReadError, in_background};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::content::{Backup, BackupError};
use super::status::SharedStatus;
use super::store::{BackupStore, Made, StoreError};
use crate::machine::Machine;

/// The longest wait after a backup that failed.
const RETRY_MAX: Duration = Duration::from_secs(300);
/// The wait of a member that has no state yet.
const NO_STATE_YET: Duration = Duration::from_secs(1);

/// Makes backups at intervals.
pub(crate) struct Schedule {
    /// The time between two backups.
    pub(crate) interval: Duration,
    /// The directory.
    pub(crate) store: BackupStore,
    /// What is backed up.
    pub(crate) handle: Handle<Machine>,
    /// Where the result is recorded.
    pub(crate) status: SharedStatus,
}

/// Why a scheduled backup was not made.
#[derive(Debug, thiserror::Error)]
enum ScheduleError {
    /// There is nothing to write.
    #[error(transparent)]
    Content(#[from] BackupError),
    /// It cannot be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What writes the file panicked, or the member is stopping.
    #[error("the backup was interrupted")]
    Interrupted,
}

/// Makes backups until `stopping`.
pub(crate) async fn run(schedule: Schedule, stopping: CancellationToken) {
    let mut wait = schedule.first_wait().await;
    loop {
        tokio::select! {
            () = stopping.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        wait = schedule.attempt().await;
    }
}

impl Schedule {
    /// Returns the time until the interval since the newest file has gone by.
    async fn first_wait(&self) -> Duration {
        let age = self.blocking(|store| {
            let newest = store.newest()?.metadata().ok()?.modified().ok()?;
            SystemTime::now().duration_since(newest).ok()
        });
        match age.await {
            Ok(Some(age)) => self.interval.saturating_sub(age),
            Ok(None) | Err(_) => Duration::ZERO,
        }
    }

    /// Makes a backup, and returns the wait until the next.
    async fn attempt(&self) -> Duration {
        match self.make().await {
            Ok(made) => {
                let now = wall_clock_ms();
                let (index, failed) = match &made {
                    Some(made) => {
                        log(made);
                        (made.index, self.status.record_success(now, made.index))
                    }
                    // Nothing has changed since the last one.
                    None => {
                        let index = self.status.get().last_index;
                        (index, self.status.record_success(now, index))
                    }
                };
                if failed.is_some() {
                    tracing::info!(index, "scheduled backups are made again");
                }
                self.interval
            }
            Err(ScheduleError::Content(BackupError::State(ReadError::NoState))) => NO_STATE_YET,
            Err(error) => {
                let why = error_chain(&error);
                // Once for each reason: a disk that is full stays so for a while.
                if self.status.record_failure(&why) {
                    tracing::warn!(why, "scheduled backup failed");
                }
                self.interval.min(RETRY_MAX)
            }
        }
    }

    /// Makes a backup; none if nothing has changed since the last one.
    async fn make(&self) -> Result<Option<Made>, ScheduleError> {
        let earlier = self.blocking(BackupStore::earlier).await??;
        let now = wall_clock_ms();
        let backup = match earlier {
            None => self.store.origin.full(&self.handle, now).await?,
            Some(after) => match self.increment(now, after).await? {
                Some(backup) => backup,
                None => return Ok(None),
            },
        };
        let made = self.blocking(move |store| store.write(backup)).await??;
        Ok(Some(made))
    }

    /// Takes an increment, or a full backup where the log does not give one; nothing if it would be
    /// empty.
    async fn increment(&self, now: u64, after: Place) -> Result<Option<Backup>, BackupError> {
        let from = after.index;
        match self.store.origin.increment(&self.handle, now, after).await {
            Ok(backup) => Ok(Some(backup).filter(|backup| backup.header().end.index > from)),
            Err(BackupError::Log(
                why @ (HistoryError::NotReached { .. }
                | HistoryError::Forgotten { .. }
                | HistoryError::OtherTerm { .. }
                | HistoryError::OtherState { .. }),
            )) => {
                tracing::info!(why = %why, "a full backup is made instead of an increment");
                self.store.origin.full(&self.handle, now).await.map(Some)
            }
            Err(error @ (BackupError::Log(HistoryError::Stopped) | BackupError::State(_))) => {
                Err(error)
            }
        }
    }

    /// Runs work on files on a thread that may block.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&BackupStore) -> T + Send + 'static,
    ) -> Result<T, ScheduleError> {
        let store = self.store.clone();
        let done = spawn_blocking(move || in_background(|| work(&store))).await;
        done.map_err(|_| ScheduleError::Interrupted)
    }
}

fn log(made: &Made) {
    tracing::info!(
        path = %made.path.display(),
        index = made.index,
        bytes = made.bytes,
        deleted = made.deleted,
        "backup written"
    );
}
