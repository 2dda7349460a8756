//! The state machine as replication sees it: a function from commands to outcomes and rows.
//!
//! Replication does not know what a command means. It requires three things: that applying is a
//! pure function of the state and the command (no clock, no randomness, no hashing order), that a
//! clone is cheap (persistent maps), and that every change of a row is reported, since the table
//! and the state hash are maintained from these reports alone.

use std::fmt;

use bytes::Bytes;

pub use berth_store::{Row, RowChange};

/// What applying a command did.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied<O> {
    /// What the proposer receives.
    pub outcome: O,
    /// Every row that is different now. A row appears at most once.
    pub changes: Vec<RowChange>,
}

/// A deterministic, replicated state machine.
///
/// Invariant expected of every implementation: `apply` and `speculate` do the same to the state
/// and give the same outcome, and `from_rows(rows())` gives an equal state.
pub trait Machine: Clone + Send + Sync + 'static {
    /// What is replicated.
    type Command: Clone + Send + Sync + 'static;
    /// What a proposer receives. The leader compares the outcome it predicted with the one that
    /// the committed command had.
    type Outcome: Clone + PartialEq + fmt::Debug + Send + Sync + 'static;
    /// How much of the format this member is able to read, or is configured to read.
    type Level: Copy + Default + fmt::Debug + Send + Sync + 'static;
    /// Why bytes are no command or rows are no state.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Returns the replicated form of a command.
    fn encode(command: &Self::Command) -> Bytes;
    /// Reads the replicated form. A command that is unknown at this machine's level is an error,
    /// and stops the replica.
    fn decode(&self, bytes: &[u8]) -> Result<Self::Command, Self::Error>;
    /// Applies a committed command.
    fn apply(&mut self, index: u64, command: &Self::Command) -> Applied<Self::Outcome>;
    /// Does what `apply` does without reporting rows.
    fn speculate(&mut self, index: u64, command: &Self::Command) -> Self::Outcome;
    /// Returns all rows of the state, in any order.
    fn rows(&self) -> impl Iterator<Item = Row>;
    /// Makes a state of rows; no rows at all make the state of a new cluster. Rows that are unknown
    /// at this level are an error.
    fn from_rows(
        level: Self::Level,
        rows: impl Iterator<Item = Row>,
        applied: u64,
    ) -> Result<Self, Self::Error>;
    /// Checks every invariant of the state; of a large one on all processors.
    fn check(&self) -> Result<(), String>;
    /// Returns how many election timeouts the next command may take to apply, at least 1. Members in this
    /// state wait so much longer for each other.
    fn patience(&self) -> u64 {
        1
    }
}
