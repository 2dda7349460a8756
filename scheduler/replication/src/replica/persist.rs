//! What goes to the disk, and what may happen only when it is there.
//!
//! raft-rs's asynchronous form is used: several batches may be on their way to the disk while the
//! replica goes on. A leader's appends leave at once, so that followers synchronise while the
//! leader does; everything that is a promise (votes, acknowledgements) waits in [`Outstanding`].

use std::sync::Arc;

use berth_store::{Header, LogBatch};
use raft::eraftpb::{Message, MessageType};

use super::{Replica, mark_of};
use crate::effects::{Effects, Persist, Position, Replaced, SendSnapshot};
use crate::error::Fatal;
use crate::machine::Machine;

/// Something that waits for the disk.
pub(super) struct Outstanding<M: Machine> {
    number: u64,
    /// Whether the disk has work with it, or it only waits its turn behind what has.
    needs_disk: bool,
    messages: Vec<Message>,
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
        let needs_disk = ready.must_sync();
        let at_once = ready.take_messages();
        let after = ready.take_persisted_messages();
        let committed = ready.take_committed_entries();
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
                    // The commit index alone is never worth a synchronisation: what is applied
                    // proves a commit after a restart. It rides along.
                    hard_state: Some(self.node.raft.hard_state()),
                },
            });
        }
        if needs_disk || !self.outstanding.is_empty() {
            self.outstanding.push_back(Outstanding {
                number,
                needs_disk,
                messages: after,
                install,
            });
        } else {
            self.node.on_persist_ready(number);
            self.send(after);
        }
        self.confirm_reads(read_states);
        self.apply(committed)
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
}
