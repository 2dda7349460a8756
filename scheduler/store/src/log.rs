//! The Raft log and the hard state, durable.
//!
//! Writes are buffered by [`LogStore::append`] and made durable together by [`LogStore::sync`]:
//! one synchronisation for everything that was ready. Reading happens once, at start; while the
//! member runs, the replica keeps the entries it may still send in memory.
//!
//! Invariant: when `sync` has returned, every batch appended before it survives a power cut, each
//! whole, in order. An error from any call is final: the caller must stop and acknowledge nothing
//! that was not synchronised before.
//!
//! raft-engine addresses entries by group. Group 1 holds the hard state and the number of the
//! current generation, the entries of generation `n` lie in group `n`. Forgetting the whole log
//! (when a snapshot replaces it) is then a step to the next generation in the same atomic batch,
//! and no entry of the old log can reappear behind the snapshot.

use std::io;
use std::path::Path;

use protobuf::Message as _;
use raft::eraftpb::{Entry, HardState};
use raft_engine::{Command, Config, Engine, MessageExt, ReadableSize, RecoveryMode};

const META_GROUP: u64 = 1;
const FIRST_GENERATION: u64 = 2;
const HARD_STATE_KEY: &[u8] = b"hard-state";
const GENERATION_KEY: &[u8] = b"generation";

/// What must become durable together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogBatch {
    /// Forget every entry there is before adding these: a snapshot has replaced the log.
    pub reset: bool,
    /// Entries to add. They replace what the log has from the first one's index on.
    pub entries: Vec<Entry>,
    /// The new hard state.
    pub hard_state: Option<HardState>,
}

impl LogBatch {
    /// Says whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        !self.reset && self.entries.is_empty() && self.hard_state.is_none()
    }
}

/// Everything the log holds, read at start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogContents {
    /// Term, vote and commit index, if any was ever written.
    pub hard_state: Option<HardState>,
    /// Entries without gaps.
    pub entries: Vec<Entry>,
}

/// Why the log could not be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk is full.
    #[error("the disk is full while writing the Raft log")]
    Full,
    /// The engine reported anything else.
    #[error("the Raft log failed while {doing}")]
    Engine {
        /// What was attempted.
        doing: &'static str,
        /// What the engine said.
        #[source]
        source: raft_engine::Error,
    },
    /// A stored value has no meaning.
    #[error("the Raft log holds a damaged {0}")]
    Damaged(&'static str),
}

/// A durable Raft log.
pub trait LogStore: Send + 'static {
    /// Reads all of it.
    fn load(&mut self) -> Result<LogContents, Error>;
    /// Takes a batch for the next [`sync`](Self::sync).
    fn append(&mut self, batch: LogBatch) -> Result<(), Error>;
    /// Makes durable what was appended, with one synchronisation.
    fn sync(&mut self) -> Result<(), Error>;
    /// Forgets the entries before `first_kept`.
    fn compact(&mut self, first_kept: u64) -> Result<(), Error>;
}

/// Tells raft-engine where an entry's index is.
struct EntryKind;

impl MessageExt for EntryKind {
    type Entry = Entry;

    fn index(entry: &Entry) -> u64 {
        entry.index
    }
}

/// The log on raft-engine.
pub struct EngineLog {
    engine: Engine,
    generation: u64,
    pending: raft_engine::LogBatch,
}

impl EngineLog {
    /// Opens the log in this folder, or creates it.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let config = Config {
            dir: folder.to_string_lossy().into_owned(),
            // What was not synchronised may be torn by a power cut: only the end may be.
            recovery_mode: RecoveryMode::TolerateTailCorruption,
            recovery_threads: 1,
            // The log is bound by synchronisation, not by bytes; compressing would cost the
            // processor that serves requests.
            batch_compression_threshold: ReadableSize(0),
            target_file_size: ReadableSize::mb(32),
            purge_threshold: ReadableSize::mb(128),
            ..Config::default()
        };
        let engine = Engine::open(config).map_err(|source| engine_error("opening", source))?;
        let generation = match engine.get(META_GROUP, GENERATION_KEY) {
            None => FIRST_GENERATION,
            Some(bytes) => u64::from_le_bytes(
                bytes
                    .try_into()
                    .map_err(|_| Error::Damaged("generation number"))?,
            ),
        };
        Ok(Self {
            engine,
            generation,
            pending: raft_engine::LogBatch::default(),
        })
    }

    fn reset(&mut self) -> Result<(), Error> {
        self.pending.add_command(self.generation, Command::Clean);
        self.generation += 1;
        self.pending
            .put(
                META_GROUP,
                GENERATION_KEY.to_vec(),
                self.generation.to_le_bytes().to_vec(),
            )
            .map_err(|source| engine_error("resetting", source))
    }
}

impl LogStore for EngineLog {
    fn load(&mut self) -> Result<LogContents, Error> {
        let hard_state = match self.engine.get(META_GROUP, HARD_STATE_KEY) {
            None => None,
            Some(bytes) => Some(
                HardState::parse_from_bytes(&bytes).map_err(|_| Error::Damaged("hard state"))?,
            ),
        };
        let mut entries = Vec::new();
        if let (Some(first), Some(last)) = (
            self.engine.first_index(self.generation),
            self.engine.last_index(self.generation),
        ) {
            self.engine
                .fetch_entries_to::<EntryKind>(self.generation, first, last + 1, None, &mut entries)
                .map_err(|source| engine_error("reading entries", source))?;
        }
        Ok(LogContents {
            hard_state,
            entries,
        })
    }

    fn append(&mut self, batch: LogBatch) -> Result<(), Error> {
        if batch.reset {
            // Entries of the old generation that wait in the same batch would be written after
            // the command that forgets them.
            self.sync()?;
            self.reset()?;
        }
        self.pending
            .add_entries::<EntryKind>(self.generation, &batch.entries)
            .map_err(|source| engine_error("adding entries", source))?;
        if let Some(hard_state) = batch.hard_state {
            let bytes = hard_state
                .write_to_bytes()
                .map_err(|_| Error::Damaged("hard state"))?;
            self.pending
                .put(META_GROUP, HARD_STATE_KEY.to_vec(), bytes)
                .map_err(|source| engine_error("adding the hard state", source))?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Error> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.engine
            .write(&mut self.pending, true)
            .map_err(|source| engine_error("writing", source))?;
        Ok(())
    }

    fn compact(&mut self, first_kept: u64) -> Result<(), Error> {
        self.pending
            .add_command(self.generation, Command::Compact { index: first_kept });
        self.sync()?;
        self.engine
            .purge_expired_files()
            .map_err(|source| engine_error("removing old files", source))?;
        Ok(())
    }
}

fn engine_error(doing: &'static str, source: raft_engine::Error) -> Error {
    let full = match &source {
        raft_engine::Error::Io(error) => error.kind() == io::ErrorKind::StorageFull,
        // After a failed write the engine moves to a fresh file and asks to be called again; it
        // does so for a full disk only.
        raft_engine::Error::TryAgain(_) => true,
        raft_engine::Error::InvalidArgument(_)
        | raft_engine::Error::Corruption(_)
        | raft_engine::Error::Codec(_)
        | raft_engine::Error::Protobuf(_)
        | raft_engine::Error::EntryCompacted
        | raft_engine::Error::EntryNotFound
        | raft_engine::Error::Full
        | raft_engine::Error::Other(_) => false,
    };
    if full {
        Error::Full
    } else {
        Error::Engine { doing, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(range: std::ops::RangeInclusive<u64>, term: u64) -> Vec<Entry> {
        range
            .map(|index| Entry {
                index,
                term,
                data: format!("entry {index}").into(),
                ..Entry::default()
            })
            .collect()
    }

    fn write(log: &mut EngineLog, batch: LogBatch) {
        log.append(batch).expect("append");
        log.sync().expect("sync");
    }

    #[test]
    fn reopening_gives_back_what_was_synchronised() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let mut log = EngineLog::open(folder.path()).expect("open");
        assert_eq!(log.load().expect("load"), LogContents::default());
        let hard_state = HardState {
            term: 3,
            vote: 1,
            commit: 4,
            ..HardState::default()
        };
        write(
            &mut log,
            LogBatch {
                entries: entries(2..=6, 1),
                hard_state: Some(hard_state.clone()),
                ..LogBatch::default()
            },
        );
        // A conflicting suffix replaces what was there.
        write(
            &mut log,
            LogBatch {
                entries: entries(5..=7, 3),
                ..LogBatch::default()
            },
        );
        log.compact(4).expect("compact");
        drop(log);

        let mut log = EngineLog::open(folder.path()).expect("open");
        let contents = log.load().expect("load");
        assert_eq!(contents.hard_state, Some(hard_state));
        let mut expected = entries(4..=4, 1);
        expected.extend(entries(5..=7, 3));
        assert_eq!(contents.entries, expected);
    }

    #[test]
    fn a_reset_forgets_entries_behind_the_snapshot_too() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let mut log = EngineLog::open(folder.path()).expect("open");
        write(
            &mut log,
            LogBatch {
                entries: entries(2..=20, 1),
                ..LogBatch::default()
            },
        );
        write(
            &mut log,
            LogBatch {
                reset: true,
                ..LogBatch::default()
            },
        );
        drop(log);
        let mut log = EngineLog::open(folder.path()).expect("open");
        assert_eq!(log.load().expect("load").entries, vec![]);
        write(
            &mut log,
            LogBatch {
                entries: entries(11..=12, 2),
                ..LogBatch::default()
            },
        );
        drop(log);
        let mut log = EngineLog::open(folder.path()).expect("open");
        assert_eq!(log.load().expect("load").entries, entries(11..=12, 2));
    }
}
