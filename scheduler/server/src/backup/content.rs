//! What a backup is made of, and how it is written.
//!
//! A state is a clone of persistent maps and entries share their bytes with the log in memory, so that
//! taking either costs the replica next to nothing; encoding them is the caller's, on a thread of its
//! own. No leader is needed: what a member has applied is committed.
//!
//! A full backup is the state alone, at the index that this member has applied. Entries behind it are
//! the next increment's: a file that had both would need two ends.
//!
//! Not here: where the bytes go (a client, or a file of the schedule), and the format
//! ([`berth_backup`]).

use std::io::Write;

use berth_backup::{Header, Kind, Place, WriteError, Writer};
use berth_replication::effects::Replaced;
use berth_replication::runtime::{Handle, ReadError};
use berth_replication::{HistoryError, Machine as _};
use raft::eraftpb::Entry;

use crate::machine::Machine;

/// What is written into a backup.
pub(crate) struct Backup {
    header: Header,
    content: Content,
}

enum Content {
    State(Box<Machine>),
    Log(Vec<Entry>),
}

/// Why there is nothing to write.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackupError {
    /// The member has no state, or is stopping.
    #[error(transparent)]
    State(#[from] ReadError),
    /// Its log does not give what is to follow.
    #[error(transparent)]
    Log(#[from] HistoryError),
}

/// Which member makes backups.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// The cluster.
    pub(crate) cluster_id: String,
    /// The member.
    pub(crate) member_id: u64,
}

impl Origin {
    /// Takes a full backup: the applied state.
    pub(crate) async fn full(
        &self,
        handle: &Handle<Machine>,
        created_ms: u64,
    ) -> Result<Backup, BackupError> {
        let state = handle.snapshot().await?;
        Ok(Backup {
            header: self.header(&state, created_ms, Kind::Full, None),
            content: Content::State(Box::new(state.machine)),
        })
    }

    /// Takes an increment: the applied entries behind the end of another backup.
    pub(crate) async fn increment(
        &self,
        handle: &Handle<Machine>,
        created_ms: u64,
        after: Place,
    ) -> Result<Backup, BackupError> {
        let state = handle.snapshot().await?;
        let last = state.position.index;
        let entries = handle.log_between(after.reached(), last).await?;
        Ok(Backup {
            header: self.header(&state, created_ms, Kind::Increment, Some(after)),
            content: Content::Log(entries),
        })
    }

    fn header(
        &self,
        state: &Replaced<Machine>,
        created_ms: u64,
        kind: Kind,
        after: Option<Place>,
    ) -> Header {
        let header = state.machine.state().header();
        Header {
            cluster_id: self.cluster_id.clone(),
            cluster_version: header.cluster_version.0,
            member_id: self.member_id,
            created_ms,
            kind: kind.into(),
            after,
            end: state.position.into(),
            revision: header.revision,
            membership: (*state.membership).clone(),
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
            redacted: false,
        }
    }
}

impl Backup {
    /// Returns what it states about itself.
    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    /// Writes it, and returns how many bytes it has. This takes seconds for a large state, and blocks.
    pub(crate) fn write(self, out: impl Write) -> Result<u64, WriteError> {
        let mut writer = Writer::new(out, self.header)?;
        match self.content {
            Content::State(machine) => {
                for row in machine.rows() {
                    writer.row(&row)?;
                }
            }
            Content::Log(entries) => {
                for entry in &entries {
                    writer.entry(entry)?;
                }
            }
        }
        writer.finish()
    }
}
