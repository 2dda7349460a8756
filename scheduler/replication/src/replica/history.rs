//! Reading applied entries from the log: what a backup adds to the one before it.
//!
//! Invariant: an entry is returned only if it is applied here, so no later leader can replace it.

use raft::eraftpb::Entry;
use raft::{GetEntriesContext, Storage as _};

use super::Replica;
use crate::history::{HistoryError, Reached};
use crate::machine::Machine;

impl<M: Machine> Replica<M> {
    /// Returns the applied entries that follow a place, in order: of so many bytes in all, but at
    /// least one. None are returned if the place is the applied index.
    ///
    /// Equal terms at one index mean equal logs up to there, in one cluster. The hash is compared as
    /// well while this replica remembers its own there, which it does not from before its start.
    ///
    /// # Errors
    ///
    /// Why the log does not give them.
    pub fn applied_after(
        &self,
        reached: &Reached,
        bytes_max: u64,
    ) -> Result<Vec<Entry>, HistoryError> {
        let &Reached { index, term, hash } = reached;
        let applied = self.position.index;
        if index > applied {
            return Err(HistoryError::NotReached { index, applied });
        }
        let log = self.node.store();
        let first = log.start() + 1;
        let Ok(own) = self.term_at(index) else {
            return Err(HistoryError::Forgotten { index, first });
        };
        if own != term {
            return Err(HistoryError::OtherTerm { index, term, own });
        }
        if let (Some(hash), Some(own)) = (hash, self.hash_at(index))
            && hash != own
        {
            return Err(HistoryError::OtherState { index, hash, own });
        }
        if index == applied {
            return Ok(Vec::new());
        }
        let context = GetEntriesContext::empty(false);
        let entries = log.entries(index + 1, applied + 1, bytes_max, context);
        entries.map_err(|_| HistoryError::Forgotten { index, first })
    }

    /// Returns the term of an applied entry. That of the applied index is known without the log, which
    /// may begin behind it.
    fn term_at(&self, index: u64) -> raft::Result<u64> {
        match index == self.position.index {
            true => Ok(self.position.term),
            false => self.node.store().term(index),
        }
    }

    /// Returns the hash of the state at an applied index, if it is remembered.
    fn hash_at(&self, index: u64) -> Option<berth_store::StateHash> {
        let back = usize::try_from(self.position.index.checked_sub(index)?).ok()?;
        let at = self.hashes.len().checked_sub(back.checked_add(1)?)?;
        self.hashes.get(at).copied()
    }
}
