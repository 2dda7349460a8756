//! A place in the history of the state, and why the log does not give what follows one.
//!
//! Not here: what is read (the replica reads its own window of the log), and what is made of it (a
//! backup).

use berth_store::StateHash;

use crate::effects::Position;

/// How far a reader of the log has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The index of the last entry that it has.
    pub index: u64,
    /// The term of that entry.
    pub term: u64,
    /// The hash of the state there; absent if it was not computed.
    pub hash: Option<StateHash>,
}

impl From<Position> for Reached {
    fn from(position: Position) -> Self {
        Self {
            index: position.index,
            term: position.term,
            hash: Some(position.hash),
        }
    }
}

/// Why the entries after a place cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// This member has not applied the log as far.
    #[error("this member has applied the log up to {applied}, which is before {index}")]
    NotReached {
        /// Where the reader is.
        index: u64,
        /// Where this member is.
        applied: u64,
    },
    /// The log begins later.
    #[error("the log of this member begins with entry {first}, which is after {index}")]
    Forgotten {
        /// Where the reader is.
        index: u64,
        /// The first entry that the log has.
        first: u64,
    },
    /// The log has another entry at that index.
    #[error("entry {index} has term {own} in the log of this member, not {term}")]
    OtherTerm {
        /// Where the reader is.
        index: u64,
        /// The term that it named.
        term: u64,
        /// The term in this member's log.
        own: u64,
    },
    /// The state was another one at that index.
    #[error("the state at index {index} had hash {own} at this member, not {hash}")]
    OtherState {
        /// Where the reader is.
        index: u64,
        /// The hash that it named.
        hash: StateHash,
        /// The hash of this member's state.
        own: StateHash,
    },
    /// The member is shutting down, or stopped.
    #[error("this member is stopping")]
    Stopped,
}
