//! The materialised state: all rows in one sled tree.
//!
//! The table saves a member from replaying the log since the last checkpoint. It is a cache: it
//! is written behind the acknowledgements, in coalesced atomic batches that carry the index and
//! the state hash they lead to, and it is deleted and rebuilt whenever it does not verify.
//!
//! sled's own flush on Linux ends in `sync_file_range`, which survives a crash of the process but
//! not a loss of power. So each flush here is followed by `fdatasync` through a second handle on
//! sled's file.
//!
//! sled 0.34 may also wait for ever, in a flush or when it is dropped, once a write of its own has
//! failed. So nothing is written unless there is ample room, and after any fault the database is
//! left as it is, unflushed and undropped, until the process ends.
//!
//! sled hands the nodes that a write replaced to `crossbeam-epoch`, which frees at most 512 of them
//! in every 128th operation. A batch is one operation and replaces thousands, so that without more
//! the process grew by 6 KB per row written, for as long as it ran, and returned nothing when idle.
//! So each write here is followed by `free_replaced`.
//!
//! Key prefixes within the tree: `m` for the description, `r` for rows.

use std::fs::{self, File};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;

use crate::hash::StateHash;
use crate::membership::Membership;
use crate::row::Row;
use crate::space;

const META_KEY: &[u8] = b"m";
const ROW_PREFIX: u8 = b'r';
/// What must be free before anything is written.
const FREE_MIB_MIN: u64 = 16;
/// How many nodes one row that is written replaces at most; usually two or three.
const REPLACED_PER_ROW: usize = 16;
/// How many of them one collection of `crossbeam-epoch` frees.
const FREED_AT_ONCE: usize = 512;

/// How often a table is tried that is locked, and how long each of these waits.
const LOCKED_TRIES: u32 = 40;
const LOCKED_WAIT: Duration = Duration::from_millis(50);
/// How sled's error begins when the lock on its file is held.
const LOCKED: &str = "could not acquire lock";

/// What the table says about its content.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TableMeta {
    /// The last applied index.
    #[prost(uint64, tag = "1")]
    pub index: u64,
    /// The term of the entry at that index.
    #[prost(uint64, tag = "2")]
    pub term: u64,
    /// The hash of all rows.
    #[prost(bytes = "vec", tag = "3")]
    pub state_hash: Vec<u8>,
    /// How many rows there are.
    #[prost(uint64, tag = "4")]
    pub rows: u64,
    /// The membership at that index.
    #[prost(message, required, tag = "5")]
    pub membership: Membership,
    /// The cluster that this state belongs to.
    #[prost(string, tag = "6")]
    pub cluster_id: String,
}

impl TableMeta {
    /// Returns the hash of all rows.
    pub fn hash(&self) -> Option<StateHash> {
        StateHash::from_bytes(&self.state_hash)
    }
}

/// Rows to write together; a key without value is removed.
pub type TableBatch = Vec<(Bytes, Option<Bytes>)>;

/// Why the table could not be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk is full.
    #[error("the disk is full while writing the table")]
    Full,
    /// sled reported anything else.
    #[error("the table failed while {doing}")]
    Sled {
        /// What was attempted.
        doing: &'static str,
        /// What sled said.
        #[source]
        source: sled::Error,
    },
    /// The operating system refused.
    #[error("the table failed while {doing}")]
    Io {
        /// What was attempted.
        doing: &'static str,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// Another handle holds the lock on its file.
    #[error("the table is in use by another process: its file is locked")]
    InUse,
    /// A stored value has no meaning.
    #[error("the table holds a damaged {0}")]
    Damaged(&'static str),
}

/// A table of rows with a description.
pub trait TableStore: Send + 'static {
    /// Returns what the table says about itself; `None` for an empty or unfinished table.
    fn meta(&self) -> Result<Option<TableMeta>, Error>;
    /// Reads all rows, in the order of keys.
    fn rows(&self) -> Box<dyn Iterator<Item = Result<Row, Error>> + '_>;
    /// Writes rows and, if given, the description that they lead to, atomically.
    fn write(&mut self, batch: TableBatch, meta: Option<&TableMeta>) -> Result<(), Error>;
    /// Makes everything written so far durable.
    fn flush(&mut self) -> Result<(), Error>;
    /// Deletes everything.
    fn clear(&mut self) -> Result<(), Error>;
}

/// The table in sled.
pub struct SledTable {
    folder: PathBuf,
    /// `None` after a fault.
    open: Option<Open>,
    /// What was wrong with the table that was found, if it had to be deleted to open one.
    deleted_for: Option<String>,
}

struct Open {
    db: sled::Db,
    file: File,
}

impl SledTable {
    /// Opens the table in this folder, creating it; one that cannot be opened is deleted first, unless
    /// it is in use.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let (open, deleted_for) = match open_unlocked(folder) {
            Ok(open) => (open, None),
            Err(error @ (Error::Full | Error::InUse)) => return Err(error),
            Err(error) => {
                let reason = match std::error::Error::source(&error) {
                    Some(source) => format!("{error}: {source}"),
                    None => error.to_string(),
                };
                remove_folder(folder)?;
                (open_db(folder)?, Some(reason))
            }
        };
        Ok(Self {
            folder: folder.to_owned(),
            open: Some(open),
            deleted_for,
        })
    }

    /// Returns why the table that was found was deleted at opening, if it was.
    pub fn deleted_for(&self) -> Option<&str> {
        self.deleted_for.as_deref()
    }

    /// Does something with the database that writes to the disk.
    fn writing(&mut self, write: impl FnOnce(&Open) -> Result<(), Error>) -> Result<(), Error> {
        let done = match space::free_mib(&self.folder) {
            Ok(free) if free < FREE_MIB_MIN => Err(Error::Full),
            Ok(_) => write(self.db()?),
            Err(space::Error::Io { source, .. }) => Err(io_error("looking for free space", source)),
            Err(space::Error::Full { .. }) => Err(Error::Full),
        };
        if done.is_err() {
            std::mem::forget(self.open.take());
        }
        done
    }

    fn db(&self) -> Result<&Open, Error> {
        self.open
            .as_ref()
            .ok_or(Error::Damaged("state: an earlier fault closed it"))
    }
}

impl TableStore for SledTable {
    fn meta(&self) -> Result<Option<TableMeta>, Error> {
        let found = self
            .db()?
            .db
            .get(META_KEY)
            .map_err(|e| sled_error("reading its description", e))?;
        match found {
            None => Ok(None),
            Some(bytes) => match TableMeta::decode(bytes.as_ref()) {
                Ok(meta) if meta.hash().is_some() => Ok(Some(meta)),
                Ok(_) | Err(_) => Err(Error::Damaged("description")),
            },
        }
    }

    fn rows(&self) -> Box<dyn Iterator<Item = Result<Row, Error>> + '_> {
        let open = match self.db() {
            Ok(open) => open,
            Err(error) => return Box::new(std::iter::once(Err(error))),
        };
        Box::new(open.db.scan_prefix([ROW_PREFIX]).map(|found| {
            let (key, value) = found.map_err(|e| sled_error("reading rows", e))?;
            Ok(Row {
                key: Bytes::copy_from_slice(&key[1..]),
                value: Bytes::copy_from_slice(&value),
            })
        }))
    }

    fn write(&mut self, batch: TableBatch, meta: Option<&TableMeta>) -> Result<(), Error> {
        let mut sled_batch = sled::Batch::default();
        let mut prefixed = Vec::new();
        for (key, value) in &batch {
            prefixed.clear();
            prefixed.push(ROW_PREFIX);
            prefixed.extend_from_slice(key);
            match value {
                Some(value) => sled_batch.insert(prefixed.as_slice(), value.as_ref()),
                None => sled_batch.remove(prefixed.as_slice()),
            }
        }
        if let Some(meta) = meta {
            sled_batch.insert(META_KEY, meta.encode_to_vec());
        }
        self.writing(|open| {
            open.db
                .apply_batch(sled_batch)
                .map_err(|e| sled_error("writing rows", e))
        })?;
        free_replaced(batch.len());
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.writing(|open| {
            open.db.flush().map_err(|e| sled_error("flushing", e))?;
            open.file
                .sync_data()
                .map_err(|e| io_error("synchronising", e))
        })
    }

    fn clear(&mut self) -> Result<(), Error> {
        // Dropping the handle first: sled locks its file.
        self.open = None;
        remove_folder(&self.folder)?;
        self.open = Some(open_db(&self.folder)?);
        Ok(())
    }
}

/// Opens the database once no other handle has it. A child that this process has forked holds the
/// lock of a database that was just closed until it executes its program.
fn open_unlocked(folder: &Path) -> Result<Open, Error> {
    for _ in 1..LOCKED_TRIES {
        match open_db(folder) {
            Err(Error::InUse) => thread::sleep(LOCKED_WAIT),
            opened => return opened,
        }
    }
    open_db(folder)
}

fn open_db(folder: &Path) -> Result<Open, Error> {
    // sled 0.34 asserts on some damaged files instead of reporting them.
    let db = catch_unwind(AssertUnwindSafe(|| {
        sled::Config::new()
            .path(folder)
            // Flushing is ours: sled's background thread would add synchronisations that nothing
            // waits for.
            .flush_every_ms(None)
            .cache_capacity(64 << 20)
            .open()
    }))
    .map_err(|_| Error::Damaged("file: sled gave up while opening it"))?
    .map_err(|error| match is_locked(&error) {
        true => Error::InUse,
        false => sled_error("opening", error),
    })?;
    let file = File::open(folder.join("db")).map_err(|e| io_error("opening its file again", e))?;
    Ok(Open { db, file })
}

fn is_locked(error: &sled::Error) -> bool {
    matches!(error, sled::Error::Io(io) if io.to_string().starts_with(LOCKED))
}

/// Frees the nodes that were replaced by writing so many rows.
///
/// What is retired is freed in order, once every thread that could still read it has gone on: when
/// the mark that is retired here was reached, everything before it is free. Another thread may be in
/// the middle of an operation for long, so the number of attempts is bounded. What is left then is
/// freed after the next write.
fn free_replaced(rows: usize) {
    let is_reached = Arc::new(AtomicBool::new(false));
    let mark = is_reached.clone();
    crossbeam_epoch::pin().defer(move || mark.store(true, Ordering::Relaxed));
    // The epoch advances by one with each, and two lie between retiring and freeing.
    let attempts_max = 4 + rows * REPLACED_PER_ROW / FREED_AT_ONCE;
    for _ in 0..attempts_max {
        if is_reached.load(Ordering::Relaxed) {
            break;
        }
        crossbeam_epoch::pin().flush();
    }
}

fn remove_folder(folder: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(folder) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io_error("deleting it", error)),
    }
}

fn sled_error(doing: &'static str, source: sled::Error) -> Error {
    match source {
        sled::Error::Io(error) => io_error(doing, error),
        sled::Error::CollectionNotFound(_)
        | sled::Error::Unsupported(_)
        | sled::Error::ReportableBug(_)
        | sled::Error::Corruption { .. } => Error::Sled { doing, source },
    }
}

fn io_error(doing: &'static str, source: io::Error) -> Error {
    match source.kind() == io::ErrorKind::StorageFull {
        true => Error::Full,
        false => Error::Io { doing, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(index: u64) -> TableMeta {
        TableMeta {
            index,
            term: 1,
            state_hash: StateHash::EMPTY.to_bytes().into(),
            ..TableMeta::default()
        }
    }

    fn content(table: &SledTable) -> Vec<(Bytes, Bytes)> {
        table
            .rows()
            .map(|row| row.map(|r| (r.key, r.value)).expect("row"))
            .collect()
    }

    #[test]
    fn rows_and_description_come_back() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("table");
        let mut table = SledTable::open(&path).expect("open");
        assert_eq!(table.meta().expect("meta"), None);
        table
            .write(
                vec![
                    ("b".into(), Some("2".into())),
                    ("a".into(), Some("1".into())),
                    ("c".into(), Some("3".into())),
                ],
                Some(&meta(5)),
            )
            .expect("write");
        table
            .write(vec![("c".into(), None)], Some(&meta(6)))
            .expect("write");
        table.flush().expect("flush");
        drop(table);

        let mut table = SledTable::open(&path).expect("open");
        assert_eq!(table.meta().expect("meta"), Some(meta(6)));
        let expected: Vec<(Bytes, Bytes)> =
            vec![("a".into(), "1".into()), ("b".into(), "2".into())];
        assert_eq!(content(&table), expected);
        table.clear().expect("clear");
        assert_eq!(table.meta().expect("meta"), None);
        assert_eq!(content(&table), vec![]);
    }

    #[test]
    fn a_file_that_sled_cannot_open_is_deleted_and_told() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("table");
        let mut table = SledTable::open(&path).expect("open");
        table
            .write(vec![("a".into(), Some("1".into()))], Some(&meta(5)))
            .expect("write");
        table.flush().expect("flush");
        drop(table);
        fs::remove_file(path.join("db")).expect("damage");
        fs::create_dir(path.join("db")).expect("damage");

        let table = SledTable::open(&path).expect("open");
        assert!(table.deleted_for().is_some());
        assert_eq!(table.meta().expect("meta"), None);
    }
}
