//! What a replica wants done: everything it would do if it could touch the world.
//!
//! A driver (the runtime, or a simulator) carries these out and reports back. The order that
//! matters: `messages` may leave at once, even before `persist` is done; what must not leave
//! before comes out of the core only after [`Replica::persisted`](crate::Replica::persisted) was
//! called with the number. Answers are final: their commands are durable on a quorum.

use std::sync::Arc;

use berth_store::{Header, LogBatch, Membership, RowChange, StateHash};
use raft::eraftpb::Message;

use crate::machine::Machine;

/// Names a request that waits for its effect. Given by the driver; unique for one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Everything a replica wants done.
pub struct Effects<M: Machine> {
    /// Make this durable, then call `persisted`.
    pub persist: Option<Persist>,
    /// Send these; losing some is allowed.
    pub messages: Vec<Message>,
    /// Send these snapshots, then call `snapshot_sent`.
    pub snapshots: Vec<SendSnapshot>,
    /// Outcomes to return to these proposers.
    pub answers: Vec<Answer<M::Outcome>>,
    /// Proposals of unknown outcome: leadership was lost before they were seen to commit.
    pub lost: Vec<Ticket>,
    /// Reads that may be served from the applied state now.
    pub reads: Vec<Ticket>,
    /// Reads that could not be confirmed in time, or not under the leader that received them.
    pub failed_reads: Vec<Ticket>,
    /// Changes of the membership that are in force now. One that makes the quorum smaller is on the disk.
    pub changed: Vec<Ticket>,
    /// What was applied, for the table and for those who watch.
    pub applied: Option<AppliedBatch<M>>,
    /// The state was replaced by a snapshot: whatever was derived from it must be rebuilt.
    pub replaced: Option<Replaced<M>>,
    /// Write this checkpoint, then call `checkpoint_taken`.
    pub checkpoint: Option<CheckpointRequest<M>>,
    /// The log on disk may forget the entries before this index.
    pub compact_log: Option<u64>,
    /// The role or the leader is another one.
    pub role: Option<Role>,
    /// The membership is another one.
    pub membership: Option<Arc<Membership>>,
    /// This member was removed and has nothing more to do.
    pub removed: bool,
}

impl<M: Machine> Default for Effects<M> {
    fn default() -> Self {
        Self {
            persist: None,
            messages: Vec::new(),
            snapshots: Vec::new(),
            answers: Vec::new(),
            lost: Vec::new(),
            reads: Vec::new(),
            failed_reads: Vec::new(),
            changed: Vec::new(),
            applied: None,
            replaced: None,
            checkpoint: None,
            compact_log: None,
            role: None,
            membership: None,
            removed: false,
        }
    }
}

impl<M: Machine> Effects<M> {
    /// Says whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.persist.is_none()
            && self.messages.is_empty()
            && self.snapshots.is_empty()
            && self.answers.is_empty()
            && self.lost.is_empty()
            && self.reads.is_empty()
            && self.failed_reads.is_empty()
            && self.changed.is_empty()
            && self.applied.is_none()
            && self.replaced.is_none()
            && self.checkpoint.is_none()
            && self.compact_log.is_none()
            && self.role.is_none()
            && self.membership.is_none()
            && !self.removed
    }
}

/// Something to make durable.
#[derive(Debug)]
pub struct Persist {
    /// Report this number when it is durable. Numbers grow; reporting one reports all before.
    pub number: u64,
    /// First give the received checkpoint at this index its name, durably.
    pub install: Option<u64>,
    /// Then write this to the log.
    pub batch: LogBatch,
}

/// A snapshot for a member that fell behind.
#[derive(Debug)]
pub struct SendSnapshot {
    /// The member.
    pub to: u64,
    /// The checkpoint to send.
    pub index: u64,
    /// What Raft says with it.
    pub message: Message,
}

/// The answer to a proposal.
#[derive(Debug, PartialEq)]
pub struct Answer<O> {
    /// Which proposal.
    pub ticket: Ticket,
    /// Where the command stands in the log.
    pub index: u64,
    /// What it did.
    pub outcome: O,
}

/// A point in the history of the state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The last applied index.
    pub index: u64,
    /// The term of the entry at that index.
    pub term: u64,
    /// The hash of all rows.
    pub hash: StateHash,
    /// The number of rows.
    pub rows: u64,
}

/// Commands that were applied together.
#[derive(Clone)]
pub struct AppliedBatch<M: Machine> {
    /// The commands, in the order of the log; entries without a command are left out.
    pub commands: Vec<AppliedCommand<M>>,
    /// Where the state is after them.
    pub position: Position,
    /// The membership there.
    pub membership: Arc<Membership>,
}

/// One applied command.
#[derive(Clone)]
pub struct AppliedCommand<M: Machine> {
    /// Where it stands in the log.
    pub index: u64,
    /// What it did.
    pub outcome: M::Outcome,
    /// The rows it changed.
    pub changes: Vec<RowChange>,
}

/// A whole state: one that came as a snapshot, or that a reader requested.
#[derive(Clone)]
pub struct Replaced<M: Machine> {
    /// The state.
    pub machine: M,
    /// Where it is.
    pub position: Position,
    /// The membership there.
    pub membership: Arc<Membership>,
}

/// A checkpoint to write.
#[derive(Clone)]
pub struct CheckpointRequest<M: Machine> {
    /// What it says about itself.
    pub header: Header,
    /// The state.
    pub machine: M,
}

/// What a replica is to its cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Role {
    /// The term.
    pub term: u64,
    /// The leader of that term, if known.
    pub leader: Option<u64>,
    /// Whether this replica leads and decides: an entry of its own term is applied.
    pub deciding: bool,
}
