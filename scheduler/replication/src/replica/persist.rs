//! What goes to the disk, and what may happen only when it is there.
//!
//! raft-rs's asynchronous form is used: several batches may be on their way to the disk while the
//! replica goes on. A leader's appends leave at once, so that followers synchronise while the
//! leader does; everything that is a promise (votes, acknowledgements) waits in [`Outstanding`], and
//! so does what says that a member has lost its vote.

use std::sync::Arc;

use berth_store::{Header, LogBatch};
use raft::eraftpb::{ConfChangeType, Entry, Message, MessageType};

use super::{Replica, mark_of};
use crate::effects::{Effects, Persist, Position, Replaced, SendSnapshot, Ticket};
use crate::envelope::{self, Content};
use crate::error::Fatal;
use crate::machine::Machine;

/// Something that waits for the disk.
pub(super) struct Outstanding<M: Machine> {
    number: u64,
    /// Whether the disk has work with it, or it only waits its turn behind what has.
    needs_disk: bool,
    messages: Vec<Message>,
    /// Changes of the membership of which the commit is on its way to the disk.
    changed: Vec<Ticket>,
    /// The state that replaces the present one when its checkpoint has its name.
    pub(super) install: Option<(Header, M)>,
}

impl<M: Machine> Replica<M> {
    /// Returns what there is to do, if anything. Call until it returns `None`.
    pub fn ready(&mut self) -> Result<Option<Effects<M>>, Fatal> {
        if let Some(fatal) = self.stopped.take() {
            return Err(fatal);
        }
        self.flush_proposals();
        self.start_read_round();
        if self.node.has_ready() {
            self.take_ready()?;
        }
        if self.node.store().take_checkpoint_request() {
            self.request_checkpoint();
        }
        if self.out.is_empty() {
            return Ok(None);
        }
        Ok(Some(std::mem::take(&mut self.out)))
    }

    /// Reports that everything up to this number is durable.
    pub fn persisted(&mut self, number: u64) -> Result<(), Fatal> {
        self.flush_proposals();
        let mut last = None;
        while self
            .outstanding
            .front()
            .is_some_and(|o| o.number <= number || !o.needs_disk)
        {
            let Some(front) = self.outstanding.pop_front() else {
                break;
            };
            last = Some(front.number);
            self.send(front.messages);
            self.out.changed.extend(front.changed);
            if let Some((header, machine)) = front.install {
                self.node.on_persist_ready(front.number);
                self.install(header, machine);
                last = None;
            }
        }
        if let Some(last) = last {
            self.node.on_persist_ready(last);
        }
        let owes_more = self.outstanding.iter().any(|o| o.needs_disk);
        self.log_disk.answered(self.ticks, owes_more);
        self.observe();
        Ok(())
    }

    fn take_ready(&mut self) -> Result<(), Fatal> {
        let mut ready = self.node.ready();
        let number = ready.number();
        let mut at_once = ready.take_messages();
        let mut after = ready.take_persisted_messages();
        let committed = ready.take_committed_entries();
        let takes_a_vote = committed.iter().any(|entry| self.takes_a_vote(entry));
        let needs_disk = ready.must_sync() || takes_a_vote;
        if takes_a_vote {
            // A removed member goes as soon as it learns that it is. The one that remains of two would
            // need its vote for ever if it lost power without knowing the same.
            at_once.append(&mut after);
            after = std::mem::take(&mut at_once);
        }
        let read_states = ready.take_read_states();
        let entries = ready.take_entries();

        let mut install = None;
        if !ready.snapshot().is_empty() {
            let metadata = ready.snapshot().get_metadata();
            let incoming = self.incoming.take();
            assert_eq!(
                incoming.as_ref().map(|(header, _)| header.index),
                Some(metadata.index),
                "Raft accepted a snapshot that was not received"
            );
            self.node.mut_store().reset((metadata.index, metadata.term));
            install = incoming;
        }
        self.node.mut_store().append(&entries);
        if !self.leads() {
            self.log_bytes += entries.iter().map(crate::window::entry_bytes).sum::<u64>();
        }
        self.node.advance_append_async(ready);

        self.send(at_once);
        if needs_disk {
            self.log_disk.handed_over(self.ticks);
            self.out.persist = Some(Persist {
                number,
                install: install.as_ref().map(|(header, _)| header.index),
                batch: LogBatch {
                    reset: install.is_some(),
                    entries,
                    // The commit index alone is worth a synchronisation only if it takes a
                    // vote away: what is applied proves a commit after a restart.
                    // It rides along.
                    hard_state: Some(self.node.raft.hard_state()),
                },
            });
        }
        if needs_disk || !self.outstanding.is_empty() {
            self.outstanding.push_back(Outstanding {
                number,
                needs_disk,
                messages: after,
                changed: Vec::new(),
                install,
            });
        } else {
            self.node.on_persist_ready(number);
            self.send(after);
        }
        self.confirm_reads(read_states);
        self.apply(committed)?;
        if takes_a_vote && let Some(last) = self.outstanding.back_mut() {
            last.changed.append(&mut self.out.changed);
        }
        Ok(())
    }

    fn send(&mut self, messages: Vec<Message>) {
        for mut message in messages {
            self.attach_hashes(&mut message);
            if message.get_msg_type() == MessageType::MsgSnapshot {
                self.out.snapshots.push(SendSnapshot {
                    to: message.to,
                    index: message.get_snapshot().get_metadata().index,
                    message,
                });
            } else {
                self.out.messages.push(message);
            }
        }
    }

    /// Replaces the state by that of a snapshot, which is durable by now.
    fn install(&mut self, header: Header, machine: M) {
        self.node.mut_store().set_checkpoint(mark_of(&header));
        self.position = Position {
            index: header.index,
            term: header.term,
            hash: header.hash().unwrap_or_default(),
            rows: header.rows,
        };
        self.membership = Arc::new(header.membership);
        self.hashes.clear();
        self.hashes.push_back(self.position.hash);
        self.log_bytes = 0;
        self.node.advance_apply_to(header.index);
        self.out.membership = Some(self.membership.clone());
        // Rows of commands before it are in the snapshot.
        self.out.applied = None;
        self.out.replaced = Some(Replaced {
            machine: machine.clone(),
            position: self.position,
            membership: self.membership.clone(),
        });
        self.machine = Some(machine);
        self.serve_reads();
    }

    /// Returns whether an entry takes a vote away on which the quorum depends. One of an odd number does
    /// not matter: the quorum without it is as large. One that gives a vote does not either: the
    /// members before it elect without the new one.
    fn takes_a_vote(&self, entry: &Entry) -> bool {
        let is_even = self.membership.voters.len().is_multiple_of(2);
        match envelope::content(entry) {
            Content::Change(change, _) => {
                let mut parts = change.get_changes().iter();
                let taken = parts.any(|part| match part.get_change_type() {
                    ConfChangeType::AddNode => false,
                    ConfChangeType::RemoveNode | ConfChangeType::AddLearnerNode => {
                        self.membership.is_voter(part.node_id)
                    }
                });
                taken && is_even
            }
            Content::Empty | Content::Command(_) | Content::Hash(_) | Content::Unknown => false,
        }
    }
}
