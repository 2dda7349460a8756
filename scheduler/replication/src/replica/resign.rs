//! Resigning: a leader that cannot make progress lets another lead.
//!
//! A leader whose disk does not answer commits nothing, but its heartbeats need no disk, so that
//! the others would follow it for as long as the disk hangs. A leader that no quorum answers steps
//! down by itself (raft-rs), but the others may hear it until then.
//!
//! ```text
//!   disk silent for an election timeout, ─▶ steps down in its own term ─▶ requests an election
//!     and the others are a quorum                                        at the furthest voter
//!   no quorum heard (raft-rs)            ─▶ as above                  ─▶ as above
//! ```
//!
//! Stepping down changes neither term nor vote nor log, so it needs no disk. The request to the
//! furthest voter saves the others their timeout; when it is lost, they elect without it.
//! A command that was in flight is in doubt: it may be in the logs of the others.
//!
//! A single late answer is as long as a hang, so for some time after one the member calls elections
//! later than the others: a disk that hangs again and again does not get leadership while a
//! healthy member can have it. It still leads if no other can.
//!
//! What it is not: a check of the disk. Without a write under way, nothing is known of it; and the
//! table and the checkpoints do not count, since no acknowledgement waits for them.
//!
//! Invariant: a member never resigns for its disk while the other voters that are heard are no
//! quorum: none of them could lead then, and its own disk may yet answer.

use raft::eraftpb::{Message, MessageType};

use super::Replica;
use crate::machine::Machine;

/// For how many election timeouts after its disk was silent a member calls elections late.
const RELUCTANT_TIMEOUTS: u64 = 60;

/// What is known of the disk of the log.
#[derive(Debug, Default)]
pub(super) struct LogDisk {
    /// The tick of the first write, or of the last answer, since which the disk owes one.
    waiting_since: Option<u64>,
    /// Until this tick the member calls elections late.
    reluctant_until: u64,
}

impl LogDisk {
    /// Records that the disk was given something to write.
    pub(super) fn handed_over(&mut self, now: u64) {
        self.waiting_since.get_or_insert(now);
    }

    /// Records that the disk answered, and whether it has more to write.
    pub(super) fn answered(&mut self, now: u64, owes_more: bool) {
        self.waiting_since = owes_more.then_some(now);
    }

    fn silent_ticks(&self, now: u64) -> u64 {
        self.waiting_since.map_or(0, |since| now - since)
    }
}

impl<M: Machine> Replica<M> {
    /// Returns for how many ticks the disk has owed an answer; 0 when nothing waits for it.
    pub fn disk_silent_ticks(&self) -> u64 {
        self.log_disk.silent_ticks(self.ticks)
    }

    /// Returns whether the disk has not answered for an election timeout.
    pub(super) fn is_disk_stalled(&self) -> bool {
        self.disk_silent_ticks() >= self.config.election_ticks as u64
    }

    /// Returns whether this member leaves elections to the others for now.
    pub(super) fn is_reluctant(&self) -> bool {
        self.ticks < self.log_disk.reluctant_until
    }

    /// Looks at the disk, once a tick.
    pub(super) fn check_disk(&mut self) {
        if !self.is_disk_stalled() {
            return;
        }
        let was_reluctant = self.is_reluctant();
        let period = RELUCTANT_TIMEOUTS * self.config.election_ticks as u64;
        self.log_disk.reluctant_until = self.ticks + period;
        if !was_reluctant {
            self.draw_election_timeout();
        }
        if self.leads() && self.others_can_elect() {
            let successor = self.furthest_voter();
            let term = self.node.raft.term;
            tracing::warn!(
                term,
                ?successor,
                "resigning leadership: disk does not answer"
            );
            self.node.raft.become_follower(term, 0);
            self.observe();
            self.request_election(successor, term);
        }
    }

    /// Lets Raft's time pass. A leader that no quorum answers steps down in there.
    pub(super) fn tick_raft(&mut self) {
        let term = self.node.raft.term;
        let successor = self.leads().then(|| self.furthest_voter()).flatten();
        self.node.tick();
        self.observe();
        if !self.leads() && self.node.raft.term == term {
            self.request_election(successor, term);
        }
    }

    /// Has the member call an election at once. It leaves without waiting for the disk, since it
    /// promises nothing; a member that is in a later term ignores it.
    fn request_election(&mut self, to: Option<u64>, term: u64) {
        let Some(to) = to else { return };
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgTimeoutNow);
        message.from = self.config.id;
        message.to = to;
        message.term = term;
        self.out.messages.push(message);
    }

    /// Returns the other voter with the longest log, if possible one that sent a message lately.
    /// Right after the leader has counted its quorum none of them has. `None` unless this member leads.
    pub fn furthest_voter(&self) -> Option<u64> {
        self.progress()
            .into_iter()
            .filter(|m| m.id != self.config.id && self.membership.voters.contains(&m.id))
            .max_by_key(|m| (m.active, m.matched))
            .map(|m| m.id)
    }

    /// Returns whether the other voters that were heard lately can elect one of them.
    fn others_can_elect(&self) -> bool {
        let heard: Vec<u64> = self
            .progress()
            .into_iter()
            .filter(|m| m.active && m.id != self.config.id)
            .map(|m| m.id)
            .collect();
        let is_quorum = |voters: &[u64]| {
            let present = voters.iter().filter(|id| heard.contains(id)).count();
            voters.is_empty() || present * 2 > voters.len()
        };
        is_quorum(&self.membership.voters) && is_quorum(&self.membership.voters_outgoing)
    }
}
