//! Committed entries applied outside of a group: what a backup holds is replayed with the same code
//! that a member runs.
//!
//! Not here: Raft. The entries are committed, so there is no leader and no vote; changes of the
//! membership are recognized and skipped, since a replayed state belongs to no group.
//!
//! Invariant: entries are applied in order, without a gap; the hashes that the leader put into the log
//! are compared with those of the replayed state.

use std::collections::VecDeque;

use berth_store::StateHash;
use raft::eraftpb::Entry;

use crate::effects::Position;
use crate::envelope::{self, Content, HashRecord};
use crate::machine::{Applied, Machine};

/// How many recent hashes are kept to compare with the leader's.
const HASHES_KEPT: usize = 16_384;

/// Why entries do not lead on from a state.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The entry is not the next one.
    #[error("entry {index} does not follow entry {after} of term {term}")]
    OutOfOrder {
        /// The entry.
        index: u64,
        /// The last one that was applied.
        after: u64,
        /// Its term.
        term: u64,
    },
    /// The entry is of no known kind.
    #[error("entry {index} is of no known kind; a newer program may have written it")]
    Unknown {
        /// The entry.
        index: u64,
    },
    /// The command cannot be read.
    #[error("the command of entry {index} cannot be read")]
    Command {
        /// The entry.
        index: u64,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The leader's state had another hash.
    #[error("the replayed state at index {index} has hash {own}, the leader recorded {recorded}")]
    Diverged {
        /// Where they were compared.
        index: u64,
        /// The hash of the replayed state.
        own: StateHash,
        /// The recorded hash.
        recorded: StateHash,
    },
}

/// Returns the command of an entry; nothing for one without.
pub fn command_of(entry: &Entry) -> Option<&[u8]> {
    match envelope::content(entry) {
        Content::Command(data) => Some(data),
        Content::Empty | Content::Change(..) | Content::Hash(_) | Content::Unknown => None,
    }
}

/// Sees each command of a replay, with the state before it and after it.
pub trait Observer<M: Machine> {
    /// Called before a command is applied, with the state that it is applied to.
    fn before(&mut self, machine: &M, index: u64, command: &M::Command);

    /// Called after it, with its outcome, the rows that it changed, and the state that it led to.
    fn after(
        &mut self,
        machine: &M,
        index: u64,
        command: &M::Command,
        applied: &Applied<M::Outcome>,
    );
}

/// Observes nothing.
pub struct Unobserved;

impl<M: Machine> Observer<M> for Unobserved {
    fn before(&mut self, _: &M, _: u64, _: &M::Command) {}

    fn after(&mut self, _: &M, _: u64, _: &M::Command, _: &Applied<M::Outcome>) {}
}

/// A state that committed entries are applied to.
pub struct Replay<M: Machine> {
    machine: M,
    position: Position,
    /// Hashes after recent indexes; the last belongs to `position.index`.
    hashes: VecDeque<StateHash>,
    commands: u64,
}

impl<M: Machine> Replay<M> {
    /// Begins with this state, which is at this place.
    pub fn new(machine: M, position: Position) -> Self {
        Self {
            machine,
            position,
            hashes: VecDeque::from([position.hash]),
            commands: 0,
        }
    }

    /// Returns the state.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// Returns where it is.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Returns how many commands were applied.
    pub fn commands(&self) -> u64 {
        self.commands
    }

    /// Applies the next entry.
    ///
    /// # Errors
    ///
    /// It is not the next one, cannot be read, or contradicts the state.
    pub fn apply(&mut self, entry: &Entry) -> Result<(), ReplayError> {
        self.apply_observed(entry, &mut Unobserved)
    }

    /// Applies the next entry as [`Self::apply`] does, and shows its command to an observer.
    ///
    /// # Errors
    ///
    /// As those of [`Self::apply`].
    pub fn apply_observed(
        &mut self,
        entry: &Entry,
        observer: &mut dyn Observer<M>,
    ) -> Result<(), ReplayError> {
        let index = entry.index;
        let Position {
            index: after, term, ..
        } = self.position;
        if Some(index) != after.checked_add(1) || entry.term < term {
            return Err(ReplayError::OutOfOrder { index, after, term });
        }
        match envelope::content(entry) {
            Content::Empty | Content::Change(..) => {}
            Content::Command(data) => self.apply_command(index, data, observer)?,
            Content::Hash(record) => self.compare(record)?,
            Content::Unknown => return Err(ReplayError::Unknown { index }),
        }
        self.position.index = index;
        self.position.term = entry.term;
        self.hashes.push_back(self.position.hash);
        if self.hashes.len() > HASHES_KEPT {
            self.hashes.pop_front();
        }
        Ok(())
    }

    /// Returns the command of an entry; nothing where it is none.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn command(&self, entry: &Entry) -> Result<Option<M::Command>, ReplayError> {
        match envelope::content(entry) {
            Content::Command(data) => self.decode(entry.index, data).map(Some),
            Content::Empty | Content::Change(..) | Content::Hash(_) | Content::Unknown => Ok(None),
        }
    }

    fn decode(&self, index: u64, data: &[u8]) -> Result<M::Command, ReplayError> {
        let command = self.machine.decode(data);
        command.map_err(|source| ReplayError::Command {
            index,
            source: Box::new(source),
        })
    }

    fn apply_command(
        &mut self,
        index: u64,
        data: &[u8],
        observer: &mut dyn Observer<M>,
    ) -> Result<(), ReplayError> {
        let command = self.decode(index, data)?;
        observer.before(&self.machine, index, &command);
        let applied = self.machine.apply(index, &command);
        observer.after(&self.machine, index, &command, &applied);
        for change in applied.changes {
            let Position { hash, rows, .. } = &mut self.position;
            hash.change(&change);
            // A count that does not fit the rows shows when the end is compared.
            *rows = rows.wrapping_add(u64::from(change.new.is_some()));
            *rows = rows.wrapping_sub(u64::from(change.old.is_some()));
        }
        self.commands += 1;
        Ok(())
    }

    fn compare(&self, record: HashRecord) -> Result<(), ReplayError> {
        let HashRecord {
            index,
            hash: recorded,
        } = record;
        let back = self.position.index.checked_sub(index);
        let kept = back
            .and_then(|back| {
                self.hashes
                    .len()
                    .checked_sub(usize::try_from(back).ok()? + 1)
            })
            .and_then(|at| self.hashes.get(at));
        match kept {
            // From before the first replayed entry, or too long ago.
            None => Ok(()),
            Some(own) if *own == recorded => Ok(()),
            Some(own) => Err(ReplayError::Diverged {
                index,
                own: *own,
                recorded,
            }),
        }
    }
}
