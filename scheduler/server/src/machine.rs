//! The state as what is replicated: commands and rows as bytes.
//!
//! It adds nothing to what a command does; see [`berth_state`]. Beside the state it keeps the
//! table of hosts from which hosts are chosen. That table only makes choosing faster: it is
//! brought up to the state whenever one is chosen, and is not copied with the state; nor are the rows
//! that were written last, which save encoding them again.

use berth_codec::{self as codec, CodecError, RecentRows};
use berth_decide::{Decision, DecisionRequest, HostTable, decide_with};
use berth_domain::id::TimeMs;
use berth_domain::refusal::Refusal;
use berth_domain::version::ServiceVersion;
use berth_proto::format::{self, Fault, Stored};
use berth_replication::{Applied, Row as StoredRow};
use berth_state::command::{Command, Envelope};
use berth_state::{RebuildError, Reply, State};
use bytes::Bytes;

use crate::parallel_check;

/// How many VMs a member settles for certain in an election timeout, at the end of a recovery.
const VMS_SETTLED: u64 = 5_000;

/// The newest cluster version that a member can apply, or is configured to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level(pub ServiceVersion);

impl Default for Level {
    fn default() -> Self {
        Self(ServiceVersion::CURRENT)
    }
}

/// The state as what is replicated.
#[derive(Debug, Default)]
pub struct Machine {
    state: State,
    /// What newer members write is not read: this one does not know what it means.
    level: Level,
    hosts: HostTable,
    recent: RecentRows,
}

impl Clone for Machine {
    fn clone(&self) -> Self {
        Self::at_level(self.level, self.state.clone())
    }
}

impl Machine {
    /// Returns the machine of a state.
    #[must_use]
    pub fn new(state: State) -> Self {
        Self::at_level(Level::default(), state)
    }

    fn at_level(level: Level, state: State) -> Self {
        Self {
            state,
            level,
            hosts: HostTable::default(),
            recent: RecentRows::default(),
        }
    }

    /// Returns the state.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Decides on a request; see [`berth_decide`].
    #[must_use]
    pub fn decide(&self, at: TimeMs, request: &DecisionRequest) -> Decision {
        decide_with(&self.state, &mut &self.hosts, codec::admit, at, request)
    }
}

#[cfg(debug_assertions)]
impl Machine {
    /// Asserts in tests that no row holds what the cluster version does not support: an older member
    /// would not write it, and differ.
    fn expect_old_rows(&self, changes: &[berth_replication::RowChange]) {
        let cluster = self.state.header().cluster_version;
        if cluster >= ServiceVersion::CURRENT {
            return;
        }
        for row in changes.iter().filter_map(|change| change.new.as_ref()) {
            let newest = format::replicated().newest(Stored::Row, row);
            let newest = newest.expect("a row that was just written can be read");
            assert!(
                newest.version <= cluster,
                "a row holds {}, which requires version {}, at cluster version {cluster}",
                newest.what,
                newest.version
            );
        }
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
    /// They hold what no version up to this build's knows.
    // No `from`: the fault would be the source as well, and be printed twice.
    #[error("a newer program wrote this: {0}")]
    Unknown(Fault),
    /// They hold what this member's level does not know.
    #[error(
        "{what} requires cluster version {needed}, and this member is at service version {level}"
    )]
    TooNew {
        /// The newer field or value.
        what: String,
        /// The version that it requires.
        needed: ServiceVersion,
        /// This member's service version.
        level: ServiceVersion,
    },
    /// The cluster has gone beyond this member's level.
    #[error("the cluster version is {cluster}, and this member is at service version {level}")]
    Outdated {
        /// The cluster version.
        cluster: ServiceVersion,
        /// This member's service version.
        level: ServiceVersion,
    },
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Self::Unknown(fault)
    }
}

impl Level {
    /// Refuses stored bytes that this level does not know.
    fn admit(self, stored: Stored, bytes: &[u8]) -> Result<(), Error> {
        let newest = format::replicated().newest(stored, bytes)?;
        if newest.version <= self.0 {
            return Ok(());
        }
        Err(Error::TooNew {
            what: newest.what,
            needed: newest.version,
            level: self.0,
        })
    }

    /// Refuses a cluster version that is newer.
    fn follow(self, cluster: ServiceVersion) -> Result<(), Error> {
        let level = self.0;
        if cluster <= level {
            return Ok(());
        }
        Err(Error::Outdated { cluster, level })
    }
}

impl berth_replication::Machine for Machine {
    type Command = Envelope;
    type Outcome = Result<Reply, Refusal>;
    type Level = Level;
    type Error = Error;

    fn encode(command: &Envelope) -> Bytes {
        codec::encode_command(command)
    }

    fn decode(&self, bytes: &[u8]) -> Result<Envelope, Error> {
        self.level.admit(Stored::Command, bytes)?;
        let envelope = codec::decode_command(bytes)?;
        if let Command::FinalizeUpgrade { version, .. } = &envelope.command {
            self.level.follow(*version)?;
        }
        Ok(envelope)
    }

    fn apply(&mut self, index: u64, command: &Envelope) -> Applied<Self::Outcome> {
        let applied = self.state.apply(index, command);
        let recent = &mut self.recent;
        let changes = applied.changes.iter();
        let changes: Vec<_> = changes.map(|change| recent.encode_change(change)).collect();
        #[cfg(debug_assertions)]
        self.expect_old_rows(&changes);
        Applied {
            outcome: applied.outcome,
            changes,
        }
    }

    fn speculate(&mut self, index: u64, command: &Envelope) -> Self::Outcome {
        self.state.speculate(index, command)
    }

    fn rows(&self) -> impl Iterator<Item = StoredRow> {
        self.state.rows().map(|row| codec::encode_row(&row))
    }

    fn from_rows(
        level: Level,
        rows: impl Iterator<Item = StoredRow>,
        _applied: u64,
    ) -> Result<Self, Error> {
        let rows = rows.map(|row| {
            level.admit(Stored::Row, &row.value)?;
            Ok(codec::decode_row(&row)?)
        });
        let rows = rows.collect::<Result<Vec<_>, Error>>()?;
        let state = State::from_rows(rows)?;
        level.follow(state.header().cluster_version)?;
        Ok(Self::at_level(level, state))
    }

    fn patience(&self) -> u64 {
        // The end of a recovery settles all VMs at once.
        match self.state.is_about_to_settle() {
            true => 1 + self.state.vms().len() as u64 / VMS_SETTLED,
            false => 1,
        }
    }

    fn check(&self) -> Result<(), String> {
        let checked = parallel_check::check(&self.state);
        checked.map_err(|violation| violation.to_string())
    }
}
