//! Applying committed entries: the only place where the state changes.

use berth_store::RowChange;
use raft::StateRole;
use raft::eraftpb::Entry;

use super::{HASHES_KEPT, Replica};
use crate::effects::{Answer, AppliedBatch, AppliedCommand};
use crate::envelope::{self, Content, HashRecord};
use crate::error::Fatal;
use crate::machine::Machine;

impl<M: Machine> Replica<M> {
    /// Applies entries that are committed and durable here.
    pub(super) fn apply(&mut self, entries: Vec<Entry>) -> Result<(), Fatal> {
        if entries.is_empty() {
            return Ok(());
        }
        let mut commands = Vec::with_capacity(entries.len());
        for entry in entries {
            self.apply_entry(&entry, &mut commands)?;
        }
        self.check_invariants()?;
        // Leaving a joint configuration appends to the log, so what is queued goes first.
        self.flush_proposals();
        self.node.advance_apply_to(self.position.index);
        self.record_applied(commands);
        self.start_deciding();
        self.serve_reads();
        self.observe();
        if self.unchecked_commands >= self.config.hash_commands {
            self.record_hash();
        }
        self.checkpoint_when_due();
        Ok(())
    }

    fn apply_entry(
        &mut self,
        entry: &Entry,
        commands: &mut Vec<AppliedCommand<M>>,
    ) -> Result<(), Fatal> {
        assert_eq!(
            entry.index,
            self.position.index + 1,
            "committed entries come in order, once each"
        );
        match envelope::content(entry) {
            Content::Empty => {}
            Content::Command(data) => commands.push(self.apply_command(entry, data)?),
            Content::Hash(record) => self.compare(record)?,
            Content::Change(change, note) => self.apply_change(entry.index, &change, &note),
            Content::Unknown => return Err(Fatal::Entry { index: entry.index }),
        }
        self.position.index = entry.index;
        self.position.term = entry.term;
        self.hashes.push_back(self.position.hash);
        if self.hashes.len() > HASHES_KEPT {
            self.hashes.pop_front();
        }
        Ok(())
    }

    fn apply_command(&mut self, entry: &Entry, data: &[u8]) -> Result<AppliedCommand<M>, Fatal> {
        let pending = self.take_pending(entry);
        let machine = self
            .machine
            .as_mut()
            .expect("a member without a state receives a snapshot before any entry");
        let decoded;
        let command = match &pending {
            Some(pending) => &pending.command,
            None => {
                decoded = machine.decode(data).map_err(|source| Fatal::Command {
                    index: entry.index,
                    source: Box::new(source),
                })?;
                &decoded
            }
        };
        if machine.patience() > 1 {
            self.patient_until = entry.index;
        }
        let applied = machine.apply(entry.index, command);
        self.follow_rows(&applied.changes);
        self.unchecked_commands += 1;
        if let Some(pending) = pending {
            if pending.outcome != applied.outcome {
                return Err(Fatal::Prediction {
                    index: entry.index,
                    predicted: format!("{:?}", pending.outcome),
                    actual: format!("{:?}", applied.outcome),
                });
            }
            self.out.answers.push(Answer {
                ticket: pending.ticket,
                index: entry.index,
                outcome: pending.outcome,
            });
        }
        Ok(AppliedCommand {
            index: entry.index,
            outcome: applied.outcome,
            changes: applied.changes,
        })
    }

    fn follow_rows(&mut self, changes: &[RowChange]) {
        for change in changes {
            self.position.hash.change(change);
            self.position.rows += u64::from(change.new.is_some());
            self.position.rows -= u64::from(change.old.is_some());
        }
    }

    /// Compares this member's state with the leader's at the same index.
    fn compare(&mut self, record: HashRecord) -> Result<(), Fatal> {
        self.unchecked_commands = 0;
        let back = self.position.index.checked_sub(record.index);
        let kept = back
            .and_then(|back| self.hashes.len().checked_sub(1 + back as usize))
            .and_then(|at| self.hashes.get(at));
        match kept {
            // From before this replica's start, or too long ago.
            None => Ok(()),
            Some(ours) if *ours == record.hash => Ok(()),
            Some(ours) => Err(Fatal::Diverged {
                index: record.index,
                ours: *ours,
                leaders: record.hash,
            }),
        }
    }

    fn check_invariants(&self) -> Result<(), Fatal> {
        let Some(machine) = self
            .machine
            .as_ref()
            .filter(|_| self.config.check_invariants)
        else {
            return Ok(());
        };
        machine.check().map_err(|what| Fatal::Invariant {
            index: self.position.index,
            what,
        })
    }

    fn record_applied(&mut self, mut commands: Vec<AppliedCommand<M>>) {
        if let Some(earlier) = self.out.applied.take() {
            let later = std::mem::replace(&mut commands, earlier.commands);
            commands.extend(later);
        }
        self.out.applied = Some(AppliedBatch {
            commands,
            position: self.position,
            membership: self.membership.clone(),
        });
    }

    fn checkpoint_when_due(&mut self) {
        let index = self.node.store().checkpoint().map_or(0, |mark| mark.index);
        let bytes_due = self.config.checkpoint_bytes.max(self.checkpoint_bytes);
        let due = self.log_bytes >= bytes_due
            || self.position.index - index >= self.config.checkpoint_entries;
        // A follower that replays a long log after a start would otherwise write one at once.
        if due && self.raft_role != StateRole::Candidate {
            self.request_checkpoint();
        }
    }
}
