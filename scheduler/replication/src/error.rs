//! What a replica refuses, and what stops it.

use berth_store::StateHash;

/// Why a request is not taken. Nothing happened, repeating it is safe.
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
    /// A leader counts on entries that this member does not have any more.
    #[error(
        "leader {leader} counts on entry {index} here, but this member's Raft log ends at {last}: \
         its disk lost entries that it acknowledged, or an older directory was put back"
    )]
    LogLost {
        /// The leader.
        leader: u64,
        /// The entry.
        index: u64,
        /// The last entry of this member.
        last: u64,
    },
    /// This member leads although another has committed more.
    #[error(
        "member {member} has entry {index}, but the Raft log of this leader ends at {last}: this \
         member's disk lost entries that it acknowledged, or an older directory was put back"
    )]
    LeaderBehind {
        /// The other member.
        member: u64,
        /// The entry.
        index: u64,
        /// The last entry of this member.
        last: u64,
    },
    /// Two members lead in one term.
    #[error(
        "members {one} and {other} both lead in term {term}: a member voted twice, as one does \
         that came back with an older directory"
    )]
    TwoLeaders {
        /// The term.
        term: u64,
        /// The leader that was known.
        one: u64,
        /// The other.
        other: u64,
    },
    /// A member has led twice in one term, and made two entries for one place.
    #[error(
        "leader {leader} has another entry {index} of term {term} than this member: a member led \
         twice in that term, as one does that came back with an older directory"
    )]
    LedTwice {
        /// The leader.
        leader: u64,
        /// The term.
        term: u64,
        /// The entry.
        index: u64,
    },
    /// A leader has other entries than this member, of the same indexes and terms.
    #[error(
        "leader {leader} has other entries between {after} and {index}, where both have one of term \
         {term}, than this member: a member led twice in one term, as one does that came back with \
         an older directory"
    )]
    OtherContent {
        /// The leader.
        leader: u64,
        /// The term of the last entry that was compared.
        term: u64,
        /// The entry before the first that was compared.
        after: u64,
        /// The last entry that was compared.
        index: u64,
    },
    /// A leader has another history than this member.
    #[error(
        "leader {leader} has an entry of term {theirs} at index {index}, where this member has \
         one of term {ours}, which is committed (up to {committed}): a quorum lost entries that \
         it acknowledged and went on without them"
    )]
    OtherHistory {
        /// The leader.
        leader: u64,
        /// Where the histories differ.
        index: u64,
        /// The term of the leader's entry.
        theirs: u64,
        /// The term of this member's entry.
        ours: u64,
        /// How far this member knows its entries to be committed.
        committed: u64,
    },
    /// raft-rs reported something that cannot happen.
    #[error("Raft failed")]
    Raft(#[from] raft::Error),
}
