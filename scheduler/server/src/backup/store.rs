//! The directory of the schedule: writes a backup, verifies it where it lies, and deletes what it
//! replaces.
//!
//! Not here: which file is next and which are replaced ([`directory`](super::directory)), and when
//! ([`schedule`](super::schedule)).
//!
//! Invariant: a file has its name only when it is whole and on the disk, and nothing is deleted before
//! the new file was read back.

use std::fs::DirBuilder;
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use berth_backup::{Kind, Place, ReadError, WriteError};
use berth_files::{DIRECTORY_MODE, Draft};

use super::content::{Backup, Origin};
use super::directory;

/// The size of the buffer in front of a file.
const BUFFER_BYTES: usize = 256 << 10;

/// The backups of one member in one directory.
#[derive(Clone, Debug)]
pub(crate) struct BackupStore {
    /// The directory.
    pub(crate) directory: PathBuf,
    /// The member.
    pub(crate) origin: Origin,
    /// Every so many backups one is full.
    pub(crate) full_every: u64,
    /// How many full backups are kept.
    pub(crate) keep: u64,
}

/// Why a backup was not stored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// The directory cannot be used.
    #[error("the directory {path} cannot be used")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// The file cannot be made or named.
    #[error("{path} cannot be written")]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// The backup cannot be written into the file.
    #[error("{path} cannot be written")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: WriteError,
    },
    /// The file is not what was written into it.
    #[error("{path} was written and does not verify")]
    Verify {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: ReadError,
    },
}

/// A backup that was stored.
#[derive(Debug)]
pub(crate) struct Made {
    /// The file.
    pub(crate) path: PathBuf,
    /// Where it ends.
    pub(crate) index: u64,
    /// Its size.
    pub(crate) bytes: u64,
    /// How many earlier files were deleted.
    pub(crate) deleted: usize,
}

impl BackupStore {
    /// Returns the newest file, if there is one.
    pub(crate) fn newest(&self) -> Option<PathBuf> {
        let files = directory::list(&self.origin, &self.directory).ok()?;
        Some(files.last()?.path.clone())
    }

    /// Returns the end of the backup that the next one follows; nothing if it has to be full. An
    /// increment of a damaged file would be of no use.
    pub(crate) fn earlier(&self) -> Result<Option<Place>, StoreError> {
        self.make_directory()?;
        let files = self.list()?;
        let Some(last) = directory::next_after(&files, self.full_every) else {
            return Ok(None);
        };
        match directory::read(&last.path) {
            Ok(summary) if summary.header.cluster_id == self.origin.cluster_id => {
                Ok(Some(summary.header.end))
            }
            Ok(_) => Ok(None),
            Err(why) => {
                let path = last.path.display();
                tracing::warn!(%path, %why, "backup does not verify, a full one is made");
                Ok(None)
            }
        }
    }

    /// Writes a backup, reads it back, and deletes what it replaces.
    pub(crate) fn write(&self, backup: Backup) -> Result<Made, StoreError> {
        self.make_space()?;
        let header = backup.header();
        let (index, is_full) = (header.end.index, header.kind() == Kind::Full);
        let path = self.directory.join(directory::name(&self.origin, header));
        let of_file = |source| StoreError::File {
            path: path.clone(),
            source,
        };
        let mut out =
            BufWriter::with_capacity(BUFFER_BYTES, Draft::create(&path).map_err(of_file)?);
        let written = backup.write(&mut out);
        let bytes = written.map_err(|source| StoreError::Write {
            path: path.clone(),
            source,
        })?;
        out.flush().map_err(of_file)?;
        let draft = out
            .into_inner()
            .map_err(|error| of_file(error.into_error()))?;
        // A full backup of the same end is there only if it did not verify.
        draft.commit(true).map_err(of_file)?;
        directory::read(&path).map_err(|source| StoreError::Verify {
            path: path.clone(),
            source,
        })?;
        let deleted = match is_full {
            true => self.delete_replaced()?,
            false => 0,
        };
        Ok(Made {
            path,
            index,
            bytes,
            deleted,
        })
    }

    /// Deletes what full backups replace that are there already, as after `keep` was lowered because the
    /// disk is full, if those that stay are whole.
    fn make_space(&self) -> Result<(), StoreError> {
        let files = self.list()?;
        let replaced = directory::replaced(&files, self.keep).len();
        let kept = files[replaced..].iter();
        let mut kept = kept.filter(|own| own.kind == Kind::Full);
        if replaced > 0 && kept.all(|own| directory::read(&own.path).is_ok()) {
            self.delete_replaced()?;
        }
        Ok(())
    }

    fn delete_replaced(&self) -> Result<usize, StoreError> {
        let files = self.list()?;
        let mut deleted = 0;
        for own in directory::replaced(&files, self.keep) {
            let done = directory::delete(&self.origin, own);
            deleted += usize::from(done.map_err(|source| StoreError::File {
                path: own.path.clone(),
                source,
            })?);
        }
        Ok(deleted)
    }

    fn list(&self) -> Result<Vec<directory::Own>, StoreError> {
        directory::list(&self.origin, &self.directory).map_err(|source| self.unusable(source))
    }

    /// Makes the directory where it is missing. Its owner and mode stay as they are.
    fn make_directory(&self) -> Result<(), StoreError> {
        let mut builder = DirBuilder::new();
        let made = builder
            .recursive(true)
            .mode(DIRECTORY_MODE)
            .create(&self.directory);
        made.map_err(|source| self.unusable(source))
    }

    fn unusable(&self, source: io::Error) -> StoreError {
        StoreError::Directory {
            path: self.directory.clone(),
            source,
        }
    }
}
