//! Earlier states of a member: a checkpoint on its disk, and the entries of its log that follow it.
//!
//! ```text
//!   older checkpoint        newer checkpoint                applied
//!   ───────┼───────────────────────┼────────────────────────────┤
//!          └── state, log entries ─┴──▶ replayed as far as requested
//! ```
//!
//! Nothing is kept in memory for it: a request reads a whole state from the disk. Not here: applying
//! the entries ([`Replay`]), and what is made of the states on the way.
//!
//! Invariant: a checkpoint is verified whole before its state is used, and the entries are those that
//! follow it in this member's log.

use std::sync::Arc;

use berth_store::recover::{SnapshotError, read_snapshot};
use berth_store::{CheckpointStore, Header, Membership, StateHash, checkpoints};
use raft::eraftpb::Entry;
use tokio::task::spawn_blocking;

use super::background::in_background;
use super::build;
use super::handle::Handle;
use crate::effects::Position;
use crate::history::{HistoryError, Reached};
use crate::machine::Machine;
use crate::replay::Replay;

/// How often it is begun again where checkpoints were replaced meanwhile.
const ATTEMPTS: usize = 3;

/// Why there is no earlier state.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The first state that can be made is a later one.
    #[error("the log of this member begins behind index {first}")]
    Forgotten {
        /// The index of the first state.
        first: u64,
    },
    /// This member has no checkpoint that its log continues.
    #[error("this member has no checkpoint that its log continues")]
    Nothing,
    /// The checkpoints cannot be read.
    #[error(transparent)]
    Checkpoints(#[from] checkpoints::Error),
    /// A checkpoint does not verify.
    #[error("checkpoint {index} cannot be used")]
    Checkpoint {
        /// Which one.
        index: u64,
        /// Why.
        #[source]
        source: SnapshotError,
    },
    /// The log does not give the entries.
    #[error(transparent)]
    Log(#[from] HistoryError),
}

/// An earlier state, and what follows it.
pub struct Past<M: Machine> {
    /// The state of a checkpoint.
    pub replay: Replay<M>,
    /// The membership there.
    pub membership: Membership,
    /// The committed entries behind it, in order; they share their bytes with the log.
    pub entries: Vec<Entry>,
}

/// Makes earlier states of a member.
pub struct Archive<M: Machine> {
    handle: Handle<M>,
    checkpoints: Arc<dyn CheckpointStore>,
    cluster_id: Arc<str>,
    level: M::Level,
}

impl<M: Machine> Clone for Archive<M> {
    fn clone(&self) -> Self {
        Self {
            handle: self.handle.clone(),
            checkpoints: self.checkpoints.clone(),
            cluster_id: self.cluster_id.clone(),
            level: self.level,
        }
    }
}

impl<M: Machine> Archive<M> {
    pub(super) fn new(
        handle: Handle<M>,
        checkpoints: Arc<dyn CheckpointStore>,
        cluster_id: &str,
        level: M::Level,
    ) -> Self {
        Self {
            handle,
            checkpoints,
            cluster_id: cluster_id.into(),
            level,
        }
    }

    /// Returns the earliest state that this member can make, with all entries up to the index `last`.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub async fn earliest(&self, last: u64) -> Result<Past<M>, ArchiveError> {
        self.past(last, |indexes| indexes.to_vec()).await
    }

    /// Returns the state of the latest checkpoint that is not behind the index `at` and can be used, with
    /// the entries from there up to `at`, which has to be applied.
    ///
    /// # Errors
    ///
    /// Why there is none; [`ArchiveError::Forgotten`] where all states of this member are later ones.
    pub async fn before(&self, at: u64) -> Result<Past<M>, ArchiveError> {
        let fit = move |indexes: &[u64]| {
            let fit = indexes.iter().rev().filter(|index| **index <= at);
            fit.copied().collect()
        };
        self.past(at, fit).await
    }

    /// Tries the checkpoints that `choose` returns of their indexes, in that order.
    async fn past(
        &self,
        last: u64,
        choose: impl Fn(&[u64]) -> Vec<u64>,
    ) -> Result<Past<M>, ArchiveError> {
        let mut error = ArchiveError::Nothing;
        for _ in 0..ATTEMPTS {
            let store = self.checkpoints.clone();
            let listed = blocking(move || Ok(store.list()?)).await?;
            let mut indexes = listed;
            indexes.sort_unstable();
            let chosen = choose(&indexes);
            if let (true, Some(first)) = (chosen.is_empty(), indexes.first()) {
                return Err(ArchiveError::Forgotten { first: *first });
            }
            for index in chosen {
                match self.from(index, last).await {
                    Ok(past) => return Ok(past),
                    // It was replaced, and the log cut, while it was read; or it is damaged.
                    Err(
                        failed @ (ArchiveError::Log(HistoryError::Forgotten { .. })
                        | ArchiveError::Checkpoints(_)
                        | ArchiveError::Checkpoint { .. }),
                    ) => error = failed,
                    Err(failed) => return Err(failed),
                }
            }
        }
        Err(error)
    }

    async fn from(&self, index: u64, last: u64) -> Result<Past<M>, ArchiveError> {
        let (header, machine) = self.read(index).await?;
        let position = Position {
            index: header.index,
            term: header.term,
            hash: header.hash().unwrap_or(StateHash::EMPTY),
            rows: header.rows,
        };
        let reached = Reached::from(position);
        let entries = self.handle.log_between(reached, last).await?;
        Ok(Past {
            replay: Replay::new(machine, position),
            membership: header.membership,
            entries,
        })
    }

    async fn read(&self, index: u64) -> Result<(Header, M), ArchiveError> {
        let (store, cluster, level) = (
            self.checkpoints.clone(),
            self.cluster_id.clone(),
            self.level,
        );
        blocking(move || {
            let content = store.open(index)?;
            let read = read_snapshot(content, &cluster, &|rows, index| {
                build::<M>(level, rows, index)
            });
            read.map_err(|source| ArchiveError::Checkpoint { index, source })
        })
        .await
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ArchiveError> + Send + 'static,
) -> Result<T, ArchiveError> {
    match spawn_blocking(|| in_background(work)).await {
        Ok(done) => done,
        Err(end) if end.is_panic() => std::panic::resume_unwind(end.into_panic()),
        // The runtime is shutting down.
        Err(_) => Err(HistoryError::Stopped.into()),
    }
}
