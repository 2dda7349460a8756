//! Proposals: deciding on the speculative state, and what becomes of it.
//!
//! A proposal is applied to the speculative copy at once and at the index it will get. Entries
//! are handed to Raft in batches, before anything else may append to the log, so the index is
//! certain as long as this replica leads.

use raft::eraftpb::{Entry, Message, MessageType};

use super::Replica;
use crate::effects::Ticket;
use crate::envelope::{self, HashRecord};
use crate::error::Refused;
use crate::machine::Machine;

/// A command on its way to being committed.
pub(super) struct Pending<M: Machine> {
    pub(super) index: u64,
    pub(super) ticket: Ticket,
    /// Kept so that applying it needs no decoding.
    pub(super) command: M::Command,
    /// What the speculative state said.
    pub(super) outcome: M::Outcome,
}

impl<M: Machine> Replica<M> {
    /// Proposes a command and returns the outcome it will have if it commits. The answer comes
    /// as an effect; when leadership is lost first, the ticket comes back as lost.
    pub fn propose(&mut self, ticket: Ticket, command: M::Command) -> Result<&M::Outcome, Refused> {
        self.may_propose()?;
        let index = self.last_index() + 1;
        let Some(speculative) = self.speculative.as_mut() else {
            return Err(Refused::NotReady);
        };
        let outcome = speculative.speculate(index, &command);
        let data = M::encode(&command);
        assert!(!data.is_empty(), "an encoded command is never empty");
        self.queued.push(envelope::command(data));
        self.pending.push_back(Pending {
            index,
            ticket,
            command,
            outcome,
        });
        let position = self.pending.len() - 1;
        Ok(&self.pending[position].outcome)
    }

    /// Says whether a proposal would be taken.
    pub fn may_propose(&self) -> Result<(), Refused> {
        self.must_lead()?;
        if let Some(to) = self.node.raft.lead_transferee {
            return Err(Refused::Transferring { to });
        }
        match self.speculative {
            Some(_) => Ok(()),
            None => Err(Refused::NotReady),
        }
    }

    pub(super) fn must_lead(&self) -> Result<(), Refused> {
        match self.leads() {
            true => Ok(()),
            false => Err(Refused::NotLeader {
                leader: self.role.leader,
            }),
        }
    }

    /// Hands queued entries to Raft. Everything that may append to the log, or change the role,
    /// calls this first.
    pub(super) fn flush_proposals(&mut self) {
        if self.queued.is_empty() {
            return;
        }
        let entries = std::mem::take(&mut self.queued);
        let first = self.node.raft.raft_log.last_index() + 1;
        self.log_bytes += entries.iter().map(crate::window::entry_bytes).sum::<u64>();
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = self.config.id;
        message.set_entries(entries.into());
        if self.node.step(message).is_err() {
            self.drop_pending_from(first);
        }
        self.observe();
    }

    /// Takes back proposals that Raft did not accept. It accepts all that `may_propose` lets
    /// through, according to its source; this keeps the copy honest if it does not.
    fn drop_pending_from(&mut self, first: u64) {
        let kept = self.pending.partition_point(|p| p.index < first);
        let dropped = self.pending.split_off(kept);
        self.out.lost.extend(dropped.iter().map(|p| p.ticket));
        let Some(machine) = &self.machine else { return };
        let mut speculative = machine.clone();
        for pending in &self.pending {
            speculative.speculate(pending.index, &pending.command);
        }
        self.speculative = Some(speculative);
    }

    /// Begins to decide once an entry of the own term is applied.
    pub(super) fn start_deciding(&mut self) {
        let ready =
            self.leads() && self.speculative.is_none() && self.position.term == self.node.raft.term;
        if !ready {
            return;
        }
        assert!(
            self.pending.is_empty(),
            "proposals of an earlier leadership are still pending"
        );
        self.speculative = self.machine.clone();
        self.role.deciding = true;
        self.out.role = Some(self.role);
        self.reads.restart_rounds();
    }

    /// Leadership is lost: the copy goes, and what was in flight has an unknown fate.
    pub(super) fn stop_deciding(&mut self) {
        self.speculative = None;
        self.queued.clear();
        self.out
            .lost
            .extend(self.pending.drain(..).map(|pending| pending.ticket));
        if let Some((_, ticket)) = self.change.take() {
            self.out.lost.push(ticket);
        }
        self.fail_decision_reads();
    }

    /// Has all members compare their state with this one's.
    pub(super) fn record_hash(&mut self) {
        if self.unchecked_commands == 0 || self.may_propose().is_err() {
            return;
        }
        self.unchecked_commands = 0;
        self.queued.push(envelope::hash_record(HashRecord {
            index: self.position.index,
            hash: self.position.hash,
        }));
    }

    /// When nothing is in flight the last commands would otherwise wait for the next ones to be
    /// compared.
    pub(super) fn record_hash_when_idle(&mut self) {
        if self.pending.is_empty() && self.ticks.is_multiple_of(self.config.election_ticks as u64) {
            self.record_hash();
        }
    }

    /// Takes the pending proposal that this committed entry is, if it is one of them.
    pub(super) fn take_pending(&mut self, entry: &Entry) -> Option<Pending<M>> {
        let front = self.pending.front()?;
        assert!(
            front.index >= entry.index,
            "the proposal at index {} was passed over",
            front.index
        );
        if front.index != entry.index {
            return None;
        }
        self.pending.pop_front()
    }
}
