//! The way in: messages and snapshots from other members.

use std::io::Write as _;
use std::sync::Arc;

use berth_store::recover::{SnapshotError, read_snapshot};
use berth_store::{CheckpointSink, CheckpointStore, Identity, Membership, checkpoints};
use raft::eraftpb::Message;
use tokio::sync::{mpsc, oneshot, watch};

use super::build;
use super::owner::{Internal, ReceivedSnapshot};
use crate::machine::Machine;

/// Why a received snapshot was not used.
#[derive(Debug, thiserror::Error)]
pub enum InboxError {
    /// It could not be stored.
    #[error(transparent)]
    Store(#[from] checkpoints::Error),
    /// It did not verify.
    #[error(transparent)]
    Content(#[from] SnapshotError),
    /// The replica has no use for it any more.
    #[error("the snapshot is not needed any more")]
    NotNeeded,
    /// The member is stopping.
    #[error("this member is stopping")]
    Stopped,
}

/// The way in for other members.
pub struct Inbox<M: Machine> {
    identity: Arc<Identity>,
    messages: mpsc::Sender<Vec<Message>>,
    internal: mpsc::UnboundedSender<Internal<M>>,
    checkpoints: Arc<dyn CheckpointStore>,
    membership: Arc<watch::Sender<Arc<Membership>>>,
    /// What this member can read of a snapshot.
    level: M::Level,
}

impl<M: Machine> Clone for Inbox<M> {
    fn clone(&self) -> Self {
        Self {
            identity: self.identity.clone(),
            messages: self.messages.clone(),
            internal: self.internal.clone(),
            checkpoints: self.checkpoints.clone(),
            membership: self.membership.clone(),
            level: self.level,
        }
    }
}

impl<M: Machine> Inbox<M> {
    pub(super) fn new(
        identity: Identity,
        messages: mpsc::Sender<Vec<Message>>,
        internal: mpsc::UnboundedSender<Internal<M>>,
        checkpoints: Arc<dyn CheckpointStore>,
        membership: watch::Sender<Arc<Membership>>,
        level: M::Level,
    ) -> Self {
        Self {
            identity: Arc::new(identity),
            messages,
            internal,
            checkpoints,
            membership: Arc::new(membership),
            level,
        }
    }

    /// Returns who this member is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the membership at the applied index; empty before the first snapshot.
    pub fn membership(&self) -> Arc<Membership> {
        self.membership.borrow().clone()
    }

    pub(super) fn membership_sender(&self) -> Arc<watch::Sender<Arc<Membership>>> {
        self.membership.clone()
    }

    /// Takes messages from another member, waiting while the owner is busy. Says whether this
    /// member is still there to read them.
    pub async fn deliver(&self, messages: Vec<Message>) -> bool {
        self.messages.send(messages).await.is_ok()
    }

    /// Reports that messages to another member were lost.
    pub fn unreachable(&self, to: u64) {
        // A member that has stopped needs no report.
        let _ = self.internal.send(Internal::Unreachable(to));
    }

    /// Returns when this member has stopped.
    pub async fn closed(&self) {
        self.messages.closed().await;
    }

    /// Begins to receive a snapshot.
    pub fn begin_snapshot(&self) -> Result<IncomingSnapshot, InboxError> {
        Ok(IncomingSnapshot {
            sink: self.checkpoints.create()?,
        })
    }

    /// Verifies a snapshot that was received whole and hands it to the replica.
    pub async fn finish_snapshot(
        &self,
        message: Message,
        incoming: IncomingSnapshot,
    ) -> Result<(), InboxError> {
        let cluster_id = self.identity.cluster_id.clone();
        let level = self.level;
        let verified = tokio::task::spawn_blocking(move || {
            let mut sink = incoming.sink;
            sink.seal()?;
            let (header, machine) = read_snapshot(sink.reopen()?, &cluster_id, &|rows, i| {
                build::<M>(level, rows, i)
            })?;
            Ok::<_, InboxError>((header, machine, sink))
        });
        let (header, machine, sink) = verified.await.map_err(|_| InboxError::Stopped)??;
        let (taken, used) = oneshot::channel();
        self.internal
            .send(Internal::Snapshot(Box::new(ReceivedSnapshot {
                message,
                header,
                machine,
                sink,
                taken,
            })))
            .map_err(|_| InboxError::Stopped)?;
        match used.await {
            Ok(true) => Ok(()),
            Ok(false) => Err(InboxError::NotNeeded),
            Err(_) => Err(InboxError::Stopped),
        }
    }
}

/// A snapshot that is being received.
pub struct IncomingSnapshot {
    sink: Box<dyn CheckpointSink>,
}

impl IncomingSnapshot {
    /// Adds the next bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), InboxError> {
        self.sink
            .write_all(bytes)
            .map_err(|e| InboxError::Store(checkpoints::Error::io("receiving a snapshot", e)))
    }
}

/// Reports to the replica how sending a snapshot ended. Dropping it counts as a failure, so that the
/// replica never waits for a report that does not come.
pub struct SnapshotReport {
    pub(super) report: Option<Box<dyn FnOnce(bool) + Send>>,
}

impl SnapshotReport {
    /// Reports whether it arrived.
    pub fn finished(mut self, arrived: bool) {
        if let Some(report) = self.report.take() {
            report(arrived);
        }
    }
}

impl Drop for SnapshotReport {
    fn drop(&mut self) {
        if let Some(report) = self.report.take() {
            report(false);
        }
    }
}
