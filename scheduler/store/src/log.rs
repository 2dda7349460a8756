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
//!
//! Group 1 also holds the [`Extent`] that the log has with each batch. Its copy goes to the
//! [witness] when the batch is durable, before `sync` returns; [`recover`](crate::recover()) compares the
//! two, and [`LogStore::begin`] brings them together before the member acts on the log.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread;

use protobuf::Message as _;
use raft::eraftpb::{Entry, HardState};
use raft_engine::{Command, Config, Engine, MessageExt, ReadableSize, RecoveryMode};

use crate::extent::{Extent, Tracker};
use crate::log_header;
use crate::log_tail::Tail;
use crate::witness::{self, Witness};

const META_GROUP: u64 = 1;
const FIRST_GENERATION: u64 = 2;
const HARD_STATE_KEY: &[u8] = b"hard-state";
const GENERATION_KEY: &[u8] = b"generation";
const EXTENT_KEY: &[u8] = b"extent";

/// The usual size of a file of the log.
pub const FILE_BYTES: u64 = 32 << 20;

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
    /// What the log says it holds; with sequence 0 if it was never written, or by a program that
    /// kept no extent.
    pub extent: Extent,
    /// What the witness says was synchronised; with sequence 0 if it has no record.
    pub witness: Extent,
    /// How many records of the witness are torn or damaged.
    pub witness_damaged: usize,
    /// How many bytes at the end were no complete write and were cut off at opening.
    pub torn_bytes: u64,
}

/// Why the log could not be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk is full.
    #[error("the disk is full while writing the Raft log")]
    Full,
    /// The witness beside the log cannot be used.
    #[error(transparent)]
    Witness(#[from] witness::Error),
    /// The engine panicked on what is on the disk.
    #[error("the Raft log is damaged: raft-engine gave up while {0}")]
    Panicked(&'static str),
    /// What is on the disk is damaged.
    #[error("the Raft log is damaged, noticed while {doing}")]
    Corrupted {
        /// What was attempted.
        doing: &'static str,
        /// What the engine said.
        #[source]
        source: raft_engine::Error,
    },
    /// The header of a file is damaged.
    #[error("the Raft log is damaged: the header of {path} is not one that this program writes")]
    Header {
        /// The file.
        path: PathBuf,
    },
    /// The files could not be read.
    #[error("the files of the Raft log could not be read")]
    Io(#[source] io::Error),
    /// The disk returned an error.
    #[error("the Raft log failed while {doing}")]
    Failed {
        /// What was attempted.
        doing: &'static str,
        /// The error of the operating system, as far as raft-engine passes it on.
        #[source]
        source: io::Error,
    },
    /// The engine panicked while it wrote, as it does when a synchronisation fails: what is durable
    /// is unknown then.
    #[error("raft-engine gave up while {doing}: {what}")]
    GaveUp {
        /// What was attempted.
        doing: &'static str,
        /// The message of the panic.
        what: String,
    },
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
    /// Makes what was read durable, in log and witness, before the member acts on it: a process
    /// that was killed may have left whole batches that no synchronisation has reached. Only for a
    /// log that was [loaded](Self::load) and found to be whole.
    fn begin(&mut self) -> Result<(), Error>;
    /// Takes a batch for the next [`sync`](Self::sync).
    fn append(&mut self, batch: LogBatch) -> Result<(), Error>;
    /// Makes durable what was appended, with one synchronisation.
    fn sync(&mut self) -> Result<(), Error>;
    /// Forgets the entries before `first_kept`.
    fn compact(&mut self, first_kept: u64) -> Result<(), Error>;
}

/// Returns an entry's index to raft-engine.
struct EntryKind;

impl MessageExt for EntryKind {
    type Entry = Entry;

    fn index(entry: &Entry) -> u64 {
        entry.index
    }
}

/// The log on raft-engine.
pub struct EngineLog {
    /// `None` only while it is dropped.
    engine: Option<Engine>,
    /// Whether a write has failed, so that what is durable is unknown.
    failed: bool,
    generation: u64,
    pending: raft_engine::LogBatch,
    /// What the log is with everything that is pending.
    tracker: Tracker,
    witness: Witness,
    /// What opening read, until it is collected.
    contents: Option<LogContents>,
    /// What opening cut off.
    torn_bytes: u64,
}

impl EngineLog {
    /// Opens the log in this folder, or creates it, with files of about this size.
    pub fn open(folder: &Path, witness: Witness, file_bytes: u64) -> Result<Self, Error> {
        let config = Config {
            dir: folder.to_string_lossy().into_owned(),
            // What was not synchronised may be torn by a power cut: only the end may be. Whether
            // more than that is missing, the witness shows.
            recovery_mode: RecoveryMode::TolerateTailCorruption,
            recovery_threads: 1,
            // The log is bound by synchronisation, not by bytes; compressing would cost the
            // processor that serves requests.
            batch_compression_threshold: ReadableSize(0),
            target_file_size: ReadableSize(file_bytes),
            purge_threshold: ReadableSize(file_bytes * 4),
            ..Config::default()
        };
        if let Some(path) = log_header::damaged(folder).map_err(Error::Io)? {
            return Err(Error::Header { path });
        }
        let tail = Tail::of(folder).map_err(Error::Io)?;
        let engine = guarded("opening", || Engine::open(config))?;
        let torn_bytes = match tail {
            Some(tail) => tail.cut_off().map_err(Error::Io)?,
            None => 0,
        };
        let generation = match engine.get(META_GROUP, GENERATION_KEY) {
            None => FIRST_GENERATION,
            Some(bytes) => u64::from_le_bytes(
                bytes
                    .try_into()
                    .map_err(|_| Error::Damaged("generation number"))?,
            ),
        };
        let mut log = Self {
            engine: Some(engine),
            failed: false,
            generation,
            pending: raft_engine::LogBatch::default(),
            tracker: Tracker::default(),
            witness,
            contents: None,
            torn_bytes,
        };
        let contents = log.read()?;
        log.tracker = Tracker::new(contents.extent.sequence, &contents.entries);
        log.contents = Some(contents);
        Ok(log)
    }

    fn engine(&self) -> &Engine {
        self.engine
            .as_ref()
            .expect("it is open until it is dropped")
    }

    fn read(&self) -> Result<LogContents, Error> {
        let hard_state = match self.engine().get(META_GROUP, HARD_STATE_KEY) {
            None => None,
            Some(bytes) => Some(
                HardState::parse_from_bytes(&bytes).map_err(|_| Error::Damaged("hard state"))?,
            ),
        };
        let mut entries = Vec::new();
        if let (Some(first), Some(last)) = (
            self.engine().first_index(self.generation),
            self.engine().last_index(self.generation),
        ) {
            let (engine, group) = (self.engine(), self.generation);
            let read = &mut entries;
            guarded("reading entries", || {
                engine.fetch_entries_to::<EntryKind>(group, first, last + 1, None, read)
            })?;
        }
        let extent = self.extent()?;
        // Entries that were cut off may come back when the engine has not purged their file.
        let is_empty = extent.sequence > 0 && extent.last_index == 0;
        entries.retain(|entry: &Entry| entry.index >= extent.first_index && !is_empty);
        Ok(LogContents {
            hard_state,
            entries,
            extent,
            witness: self.witness.newest(),
            witness_damaged: self.witness.damaged(),
            torn_bytes: self.torn_bytes,
        })
    }

    fn extent(&self) -> Result<Extent, Error> {
        match self.engine().get(META_GROUP, EXTENT_KEY) {
            None => Ok(Extent::default()),
            Some(bytes) => Extent::from_bytes(&bytes).ok_or(Error::Damaged("extent")),
        }
    }

    /// Writes what is pending, and whatever earlier writes the operating system still holds.
    fn write(&mut self) -> Result<(), Error> {
        let written = self.write_pending();
        self.record_failure(&written);
        written
    }

    fn write_pending(&mut self) -> Result<(), Error> {
        let extent = self.tracker.count_write();
        self.pending
            .put(META_GROUP, EXTENT_KEY.to_vec(), extent.to_bytes().to_vec())
            .map_err(|source| engine_error("adding the extent", source))?;
        let engine = self
            .engine
            .as_ref()
            .expect("it is open until it is dropped");
        let pending = &mut self.pending;
        writing("writing", || engine.write(pending, true))?;
        self.witness.record(extent)?;
        Ok(())
    }

    /// A disk that is full synchronises what it has; after any other error that is in doubt.
    fn record_failure<T>(&mut self, done: &Result<T, Error>) {
        self.failed |= !matches!(done, Ok(_) | Err(Error::Full));
    }

    fn reset(&mut self) -> Result<(), Error> {
        self.tracker.reset();
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

impl Drop for EngineLog {
    /// raft-engine synchronises its files when it is dropped, and panics if that fails, which
    /// aborts the process without a reason when it comes on top of another panic. So it is left as
    /// it is, its lock included, once a write has failed; the process is about to end.
    fn drop(&mut self) {
        let engine = self.engine.take();
        if self.failed || thread::panicking() {
            std::mem::forget(engine);
        }
    }
}

impl LogStore for EngineLog {
    fn load(&mut self) -> Result<LogContents, Error> {
        match self.contents.take() {
            Some(contents) => Ok(contents),
            None => self.read(),
        }
    }

    fn begin(&mut self) -> Result<(), Error> {
        self.write()?;
        self.witness.settle()?;
        Ok(())
    }

    fn append(&mut self, batch: LogBatch) -> Result<(), Error> {
        self.contents = None;
        if batch.reset {
            // Entries of the old generation that wait in the same batch would be written after
            // the command that forgets them.
            self.sync()?;
            self.reset()?;
        }
        self.tracker.append(&batch.entries);
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
        match self.pending.is_empty() {
            true => Ok(()),
            false => self.write(),
        }
    }

    fn compact(&mut self, first_kept: u64) -> Result<(), Error> {
        self.contents = None;
        self.tracker.compact(first_kept);
        self.pending
            .add_command(self.generation, Command::Compact { index: first_kept });
        self.sync()?;
        let removed = writing("removing old files", || self.engine().purge_expired_files());
        self.record_failure(&removed);
        removed?;
        Ok(())
    }
}

/// Calls the engine, which asserts on some damaged files instead of reporting them.
fn guarded<T>(
    doing: &'static str,
    call: impl FnOnce() -> Result<T, raft_engine::Error>,
) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(call))
        .map_err(|_| Error::Panicked(doing))?
        .map_err(|source| engine_error(doing, source))
}

/// Calls the engine to write.
fn writing<T>(
    doing: &'static str,
    call: impl FnOnce() -> Result<T, raft_engine::Error>,
) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(call))
        .map_err(|payload| {
            let text = payload.downcast_ref::<&str>().map(ToString::to_string);
            let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
            let what = text.unwrap_or_else(|| "a panic without a message".to_owned());
            Error::GaveUp { doing, what }
        })?
        .map_err(|source| engine_error(doing, source))
}

fn engine_error(doing: &'static str, source: raft_engine::Error) -> Error {
    match source {
        raft_engine::Error::Io(error) if error.kind() == io::ErrorKind::StorageFull => Error::Full,
        // A block that lies beyond the end of its file, or has to be cut off in a file that is
        // complete and therefore opened for reading only.
        raft_engine::Error::Io(error)
            if matches!(
                error.kind(),
                io::ErrorKind::UnexpectedEof
                    | io::ErrorKind::InvalidInput
                    | io::ErrorKind::InvalidData
            ) =>
        {
            let source = raft_engine::Error::Io(error);
            Error::Corrupted { doing, source }
        }
        raft_engine::Error::Io(source) => Error::Failed { doing, source },
        // After a failed write the engine moves to a fresh file and asks to be called again; it
        // does so for a full disk only.
        raft_engine::Error::TryAgain(_) => Error::Full,
        raft_engine::Error::Corruption(_)
        | raft_engine::Error::Codec(_)
        | raft_engine::Error::Protobuf(_)
        | raft_engine::Error::EntryCompacted
        | raft_engine::Error::EntryNotFound
        // Among others a block that cannot be decompressed: nothing here is compressed.
        | raft_engine::Error::Other(_) => Error::Corrupted { doing, source },
        raft_engine::Error::InvalidArgument(_) | raft_engine::Error::Full => Error::Engine { doing, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a file of the log that was made and never got its header, as on a full disk or when the
    /// process is killed in between, is no damage, neither at the next start nor later.
    #[test]
    fn a_file_without_a_header_is_used() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let batch = |index| LogBatch {
            entries: entries(index..=index, 1),
            ..LogBatch::default()
        };
        write(&mut open(folder.path()), batch(2));
        let file = folder.path().join("log/0000000000000002.raftlog");
        std::fs::write(&file, "").expect("a file");
        for index in 3..=5 {
            let mut log = open(folder.path());
            assert_eq!(log.load().expect("load").entries, entries(2..=index - 1, 1));
            write(&mut log, batch(index));
        }
        let written = std::fs::metadata(file).expect("a file").len();
        assert!(written > 0, "it is the file that is written");
    }

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

    fn identity() -> crate::Identity {
        crate::Identity {
            cluster_id: "c".into(),
            member_id: 1,
            disk_id: "d".into(),
        }
    }

    fn open(folder: &Path) -> EngineLog {
        let path = folder.join("WITNESS");
        if !path.exists() {
            std::fs::write(&path, vec![0; berth_migrations::WITNESS_BYTES]).expect("write");
        }
        let witness = Witness::open(&path, &identity()).expect("open");
        EngineLog::open(&folder.join("log"), witness, FILE_BYTES).expect("open")
    }

    fn write(log: &mut EngineLog, batch: LogBatch) {
        log.append(batch).expect("append");
        log.sync().expect("sync");
    }

    #[test]
    fn reopening_gives_back_what_was_synchronised() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let mut log = open(folder.path());
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

        let mut log = open(folder.path());
        let contents = log.load().expect("load");
        assert_eq!(contents.hard_state, Some(hard_state));
        let mut expected = entries(4..=4, 1);
        expected.extend(entries(5..=7, 3));
        assert_eq!(contents.entries, expected);
    }

    #[test]
    fn a_reset_forgets_entries_behind_the_snapshot_too() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let mut log = open(folder.path());
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
        let mut log = open(folder.path());
        assert_eq!(log.load().expect("load").entries, vec![]);
        write(
            &mut log,
            LogBatch {
                entries: entries(11..=12, 2),
                ..LogBatch::default()
            },
        );
        drop(log);
        let mut log = open(folder.path());
        assert_eq!(log.load().expect("load").entries, entries(11..=12, 2));
    }

    /// Goal: an error of the engine about damage names the remedy, whatever kind the engine makes
    /// of it. Method: the lowest bit of every byte of a log of three batches; among them is the one that
    /// names the compression of a batch.
    #[test]
    fn every_flipped_byte_that_is_an_error_is_named_as_damage() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let mut log = open(folder.path());
        for index in 2..=4 {
            let batch = LogBatch {
                entries: entries(index..=index, 1),
                ..LogBatch::default()
            };
            write(&mut log, batch);
        }
        drop(log);
        let file = folder.path().join("log/0000000000000001.raftlog");
        let sound = std::fs::read(&file).expect("read");
        let mut errors = 0;
        for at in 0..sound.len() {
            let mut bytes = sound.clone();
            bytes[at] ^= 1;
            std::fs::write(&file, bytes).expect("write");
            let witness = Witness::open(&folder.path().join("WITNESS"), &identity());
            let witness = witness.expect("open");
            if let Err(error) = EngineLog::open(&folder.path().join("log"), witness, FILE_BYTES) {
                let is_damage = matches!(
                    error,
                    Error::Panicked(_)
                        | Error::Corrupted { .. }
                        | Error::Header { .. }
                        | Error::Damaged(_)
                );
                assert!(is_damage, "{at}: {error}");
                errors += 1;
            }
            std::fs::write(&file, &sound).expect("write");
        }
        assert!(errors > 0);
    }
}
