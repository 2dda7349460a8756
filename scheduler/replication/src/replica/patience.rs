//! Patience: a state whose next command may take longer than an election timeout.
//!
//! A member does nothing else while it applies a command: the others hear nothing of it, and it counts no time
//! itself. A leader that predicts a long command would be replaced before the command is sent, and each of its
//! successors too; one whose followers apply it would find no quorum, and step down.
//!
//! ```text
//!   a follower of a leader   counts one tick of so many as patience is
//!   a leader                 does not step down as no quorum answers, until a quorum has applied the command
//!                            that ended such a state
//! ```
//!
//! What it costs: a leader that is lost in such a state is replaced so much later, and one that is cut off goes on
//! until it hears of another. It commits and reads nothing without a quorum.
//!
//! Invariant: a member that knows no leader calls elections as usual.

use std::collections::HashSet;

use super::Replica;
use crate::machine::Machine;

impl<M: Machine> Replica<M> {
    /// Returns whether time passes for Raft with this tick.
    pub(super) fn passes(&mut self) -> bool {
        let patience = self.machine.as_ref().map_or(1, Machine::patience).max(1);
        let waits = patience > 1 || !self.has_quorum_applied(self.patient_until);
        self.node.raft.set_check_quorum(!(waits && self.leads()));
        let follows = !self.leads() && self.node.raft.leader_id != 0;
        !follows || self.ticks.is_multiple_of(patience)
    }

    /// Returns whether a quorum is known to have applied the entry at an index: a member applies what is
    /// committed, and durable there, before it answers.
    fn has_quorum_applied(&self, index: u64) -> bool {
        let members = self.node.raft.prs();
        let applied = members.iter().filter(|(id, progress)| {
            let is_self = **id == self.config.id;
            match is_self {
                true => self.position.index >= index,
                false => progress.matched.min(progress.committed_index) >= index,
            }
        });
        let applied: HashSet<u64, _> = applied.map(|(id, _)| *id).collect();
        members.has_quorum(&applied)
    }
}
