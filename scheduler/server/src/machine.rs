//! The state as what is replicated: commands and rows as bytes.
//!
//! It adds nothing to what a command does; see [`berth_state`]. Beside the state it keeps the
//! table of hosts from which hosts are chosen. That table only makes choosing faster: it is
//! brought up to the state whenever one is chosen, and is not copied with the state.

use std::sync::{Mutex, PoisonError};

use berth_domain::id::TimeMs;
use berth_domain::refusal::Refusal;
use berth_replication::{Applied, Row as StoredRow};
use berth_selection::{Choice, Index, NoHost};
use berth_state::command::Envelope;
use berth_state::{RebuildError, Reply, State};
use berth_store::codec::{self, CodecError};
use bytes::Bytes;

use crate::core::{Ask, Chooser, Decision, decide_with};

/// The state as what is replicated.
#[derive(Debug, Default)]
pub struct Machine {
    state: State,
    /// Locked for the length of one choice; nobody waits, since one task decides.
    index: Mutex<Index>,
}

impl Clone for Machine {
    fn clone(&self) -> Self {
        Self::new(self.state.clone())
    }
}

impl Machine {
    /// Returns the machine of a state.
    #[must_use]
    pub fn new(state: State) -> Self {
        Self {
            state,
            index: Mutex::default(),
        }
    }

    /// Returns the state.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Decides on a request; see [`crate::core`].
    #[must_use]
    pub fn decide(&self, at: TimeMs, ask: &Ask) -> Decision {
        decide_with(&self.state, &mut Table(&self.index), at, ask)
    }
}

/// Why bytes are no command, or rows no state.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// They cannot be read.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// They contradict each other.
    #[error(transparent)]
    Rebuild(#[from] RebuildError),
}

/// Chooses from the table of hosts.
struct Table<'m>(&'m Mutex<Index>);

impl Chooser for Table<'_> {
    fn choose(
        &mut self,
        state: &State,
        request: &berth_selection::Request,
    ) -> Result<Choice, NoHost> {
        // A choice that panicked may have left the table half way; it is made anew then.
        let mut index = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        index.sync(state.hosts());
        index.select(request)
    }
}

impl berth_replication::Machine for Machine {
    type Command = Envelope;
    type Outcome = Result<Reply, Refusal>;
    type Error = Error;

    fn encode(command: &Envelope) -> Bytes {
        codec::encode_command(command)
    }

    fn decode(bytes: &[u8]) -> Result<Envelope, Error> {
        Ok(codec::decode_command(bytes)?)
    }

    fn apply(&mut self, index: u64, command: &Envelope) -> Applied<Self::Outcome> {
        let applied = self.state.apply(index, command);
        Applied {
            outcome: applied.outcome,
            changes: applied.changes.iter().map(codec::encode_change).collect(),
        }
    }

    fn speculate(&mut self, index: u64, command: &Envelope) -> Self::Outcome {
        self.state.speculate(index, command)
    }

    fn rows(&self) -> impl Iterator<Item = StoredRow> {
        self.state.rows().map(|row| codec::encode_row(&row))
    }

    fn from_rows(rows: impl Iterator<Item = StoredRow>, _applied: u64) -> Result<Self, Error> {
        let rows = rows.map(|row| codec::decode_row(&row));
        let rows = rows.collect::<Result<Vec<_>, _>>()?;
        Ok(Self::new(State::from_rows(rows)?))
    }

    fn check(&self) -> Result<(), String> {
        self.state
            .check()
            .map_err(|violation| violation.to_string())
    }
}
