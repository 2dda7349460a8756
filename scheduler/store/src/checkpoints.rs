//! The folder of checkpoints: which there are, and how a new one gets there.
//!
//! A checkpoint is written to a temporary file, synchronised, renamed and the folder
//! synchronised. It therefore either exists whole or not at all; a file with a checkpoint's name
//! that does not verify was damaged later, by the disk.
//!
//! Invariant: after a commit at most two remain, the new one and the one before it.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use berth_files::SteadyFile;

use crate::checkpoint::{Header, Writer};
use crate::row::Row;

const PREFIX: &str = "checkpoint-";
const PART: &str = ".part";

/// Why a checkpoint could not be stored.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk is full.
    #[error("the disk is full while writing a checkpoint")]
    Full,
    /// The folder does not exist, although it was made with the directory.
    #[error("{path} is missing, and the checkpoints with it")]
    Missing {
        /// The folder.
        path: PathBuf,
    },
    /// Anything else the operating system said.
    #[error("the checkpoints could not be used while {doing}")]
    Io {
        /// What was attempted.
        doing: &'static str,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// Wraps what the operating system said.
    pub fn io(doing: &'static str, source: io::Error) -> Self {
        match source.kind() == io::ErrorKind::StorageFull {
            true => Self::Full,
            false => Self::Io { doing, source },
        }
    }
}

/// A checkpoint on its way to the disk; it counts for nothing until committed.
pub trait CheckpointSink: Write + Send {
    /// Makes the bytes durable under a temporary name.
    fn seal(&mut self) -> Result<(), Error>;
    /// Reads back what was sealed.
    fn reopen(&mut self) -> Result<Box<dyn Read + Send>, Error>;
    /// Gives the sealed bytes their name, durably, and removes all but `keep` checkpoints.
    fn commit(self: Box<Self>, index: u64, keep: usize) -> Result<(), Error>;
}

/// Where checkpoints are kept.
pub trait CheckpointStore: Send + Sync + 'static {
    /// Returns the indexes of the checkpoints there are, newest first.
    fn list(&self) -> Result<Vec<u64>, Error>;
    /// Opens one for reading.
    fn open(&self, index: u64) -> Result<Box<dyn Read + Send>, Error>;
    /// Begins a new one.
    fn create(&self) -> Result<Box<dyn CheckpointSink>, Error>;
    /// Removes one that is of no use.
    fn remove(&self, index: u64) -> Result<(), Error>;
}

/// Writes a checkpoint durably and returns its size in bytes. The one before it is kept.
pub fn save(
    store: &dyn CheckpointStore,
    header: Header,
    rows: impl Iterator<Item = Row>,
) -> Result<u64, Error> {
    let index = header.index;
    let mut sink = store.create()?;
    let write = |sink: &mut dyn Write| -> io::Result<u64> {
        let mut writer = Writer::new(sink, header)?;
        for row in rows {
            writer.row(&row)?;
        }
        writer.finish()
    };
    let bytes = write(&mut sink).map_err(|e| Error::io("writing", e))?;
    sink.seal()?;
    sink.commit(index, 2)?;
    Ok(bytes)
}

/// Checkpoints as files in a folder.
pub struct CheckpointFolder {
    folder: PathBuf,
}

impl CheckpointFolder {
    /// Uses this folder and removes what an interrupted write left behind.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let this = Self {
            folder: folder.to_owned(),
        };
        let entries = fs::read_dir(folder).map_err(|error| {
            match error.kind() == io::ErrorKind::NotFound {
                true => Error::Missing {
                    path: folder.to_owned(),
                },
                false => Error::io("listing", error),
            }
        })?;
        for entry in entries {
            let path = entry.map_err(|e| Error::io("listing", e))?.path();
            if path.to_string_lossy().ends_with(PART) {
                fs::remove_file(&path).map_err(|e| Error::io("removing a leftover", e))?;
            }
        }
        Ok(this)
    }

    fn path(&self, index: u64) -> PathBuf {
        self.folder.join(format!("{PREFIX}{index:020}"))
    }
}

impl CheckpointStore for CheckpointFolder {
    fn list(&self) -> Result<Vec<u64>, Error> {
        let mut indexes: Vec<u64> = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(|e| Error::io("listing", e))? {
            let name = entry.map_err(|e| Error::io("listing", e))?.file_name();
            let name = name.to_string_lossy();
            if let Some(index) = name.strip_prefix(PREFIX).and_then(|n| n.parse().ok()) {
                indexes.push(index);
            }
        }
        indexes.sort_unstable_by(|a, b| b.cmp(a));
        Ok(indexes)
    }

    fn open(&self, index: u64) -> Result<Box<dyn Read + Send>, Error> {
        let file = File::open(self.path(index)).map_err(|e| Error::io("opening", e))?;
        Ok(Box::new(io::BufReader::with_capacity(256 << 10, file)))
    }

    fn remove(&self, index: u64) -> Result<(), Error> {
        fs::remove_file(self.path(index)).map_err(|e| Error::io("removing a damaged one", e))?;
        berth_files::sync_directory(&self.folder)
            .map_err(|e| Error::io("synchronising the folder", e))
    }

    fn create(&self) -> Result<Box<dyn CheckpointSink>, Error> {
        // A snapshot may arrive while the member writes a checkpoint of its own.
        let mut number = 0;
        loop {
            let path = self.folder.join(format!("new-{number}{PART}"));
            match File::create_new(&path) {
                Ok(file) => {
                    return Ok(Box::new(FileSink {
                        folder: self.folder.clone(),
                        path,
                        file: BufWriter::with_capacity(256 << 10, SteadyFile::new(file)),
                        committed: false,
                    }));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(Error::io("creating", error)),
            }
        }
    }
}

struct FileSink {
    folder: PathBuf,
    path: PathBuf,
    file: BufWriter<SteadyFile>,
    committed: bool,
}

impl Write for FileSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl CheckpointSink for FileSink {
    fn seal(&mut self) -> Result<(), Error> {
        self.file.flush().map_err(|e| Error::io("writing", e))?;
        self.file
            .get_ref()
            .sync_all()
            .map_err(|e| Error::io("synchronising", e))
    }

    fn reopen(&mut self) -> Result<Box<dyn Read + Send>, Error> {
        let file = File::open(&self.path).map_err(|e| Error::io("reading back", e))?;
        Ok(Box::new(io::BufReader::with_capacity(256 << 10, file)))
    }

    fn commit(mut self: Box<Self>, index: u64, keep: usize) -> Result<(), Error> {
        let store = CheckpointFolder {
            folder: self.folder.clone(),
        };
        fs::rename(&self.path, store.path(index)).map_err(|e| Error::io("renaming", e))?;
        self.committed = true;
        berth_files::sync_directory(&self.folder)
            .map_err(|e| Error::io("synchronising the folder", e))?;
        for old in store
            .list()?
            .into_iter()
            .filter(|i| *i != index)
            .skip(keep - 1)
        {
            fs::remove_file(store.path(old)).map_err(|e| Error::io("removing an old one", e))?;
        }
        // The removal is not synchronised: a checkpoint too many does no harm.
        Ok(())
    }
}

impl Drop for FileSink {
    fn drop(&mut self) {
        if !self.committed {
            // A leftover is removed at the next start too.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(store: &CheckpointFolder, index: u64, bytes: &[u8]) {
        let mut sink = store.create().expect("create");
        sink.write_all(bytes).expect("write");
        sink.seal().expect("seal");
        sink.commit(index, 2).expect("commit");
    }

    #[test]
    fn the_newest_two_are_kept() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let store = CheckpointFolder::open(folder.path()).expect("open");
        for index in [1, 50, 700] {
            put(&store, index, format!("state {index}").as_bytes());
        }
        assert_eq!(store.list().expect("list"), [700, 50]);
        let mut text = String::new();
        store
            .open(50)
            .expect("open")
            .read_to_string(&mut text)
            .expect("read");
        assert_eq!(text, "state 50");
    }

    #[test]
    fn what_was_not_committed_leaves_nothing() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let store = CheckpointFolder::open(folder.path()).expect("open");
        let one = store.create().expect("create");
        let two = store.create().expect("a second one at the same time");
        drop((one, two));
        fs::write(folder.path().join("new-7.part"), b"torn").expect("write");
        let store = CheckpointFolder::open(folder.path()).expect("open");
        assert_eq!(store.list().expect("list"), [0_u64; 0]);
        assert_eq!(fs::read_dir(folder.path()).expect("list").count(), 0);
    }
}
