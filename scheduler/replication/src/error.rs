//! What a replica refuses, and what stops it.

use berth_store::StateHash;

/// Why a request is not taken. Nothing happened, asking again is safe.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Another member leads, or none does.
    #[error("this member does not lead{}", hint_text(.leader))]
    NotLeader {
        /// The leader, if known.
        leader: Option<u64>,
    },
    /// This member leads but has not applied an entry of its term yet.
    #[error("this member was just elected and does not decide yet")]
    NotReady,
    /// Leadership is being handed over.
    #[error("leadership is being handed to member {to}")]
    Transferring {
        /// To whom.
        to: u64,
    },
    /// A change of the membership is under way; they go one by one.
    #[error("another change of the membership is under way")]
    ChangePending,
    /// The change makes no sense for the membership as it is.
    #[error("the membership cannot change like this: {0}")]
    Change(&'static str),
}

fn hint_text(leader: &Option<u64>) -> String {
    match leader {
        Some(id) => format!(", member {id} does"),
        None => String::new(),
    }
}

/// Why a replica stopped. It must not go on: it would diverge, or promise what it cannot keep.
#[derive(Debug, thiserror::Error)]
pub enum Fatal {
    /// A committed command cannot be read.
    #[error("the command at index {index} cannot be read; a newer program may have proposed it")]
    Command {
        /// Where it stands.
        index: u64,
        /// What the machine said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A committed entry is of no known kind.
    #[error("the entry at index {index} is of no known kind; a newer program may have proposed it")]
    Entry {
        /// Where it stands.
        index: u64,
    },
    /// This member's state is not the leader's.
    #[error("the state at index {index} has hash {ours}, the leader's has {leaders}")]
    Diverged {
        /// Where they were compared.
        index: u64,
        /// This member's hash.
        ours: StateHash,
        /// The leader's hash.
        leaders: StateHash,
    },
    /// A command did something else when applied than was predicted.
    #[error("the command at index {index} was predicted as {predicted} and turned out as {actual}")]
    Prediction {
        /// Where it stands.
        index: u64,
        /// The predicted outcome.
        predicted: String,
        /// The actual outcome.
        actual: String,
    },
    /// An invariant of the state does not hold.
    #[error("the state at index {index} breaks an invariant: {what}")]
    Invariant {
        /// Where it was checked.
        index: u64,
        /// Which one.
        what: String,
    },
    /// raft-rs reported something that cannot happen.
    #[error("Raft failed")]
    Raft(#[from] raft::Error),
}
