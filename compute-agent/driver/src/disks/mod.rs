//! The disks of a guest that is off, on their way from one host to another: read piece by piece on the
//! one, put together and made whole on the other.
//!
//! ```text
//!   D/fetching   the migration for which disks are being fetched to here
//!   D/*.part     what has come of them
//!   D/fetched    the migration for which the disks here were fetched, all of them, and whole
//! ```
//!
//! D is the guest's directory. Not here: how pieces come from one host to the other (the agents), and
//! what is in the files (the drivers).
//!
//! Invariant: a disk has its name only once all disks of the guest are whole and on stable storage, and
//! while `fetching` is there the guest is not started. What is deleted on the destination was fetched
//! there for this very migration. The other host is not trusted: no more is written than a disk of the guest
//! can have, than the host announced, and than there is space for.

pub mod read;
pub mod write;

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use berth_domain::agent::Side;
use berth_domain::id::MigrationId;

pub use read::DiskReader;
pub use write::{DiskWriter, Hooks, free_space};

use crate::error::Error;

/// The longest piece of data.
pub const PIECE_MAX: usize = 1024 * 1024;

/// Names the file with the migration for which disks are being fetched to here.
const FETCHING: &str = "fetching";
/// Names the file with the migration for which the disks here were fetched.
const FETCHED: &str = "fetched";
/// What the name of a file ends with that is to become a disk.
const PART: &str = "part";

/// How large the file of a disk is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskSize {
    /// Its length.
    pub length: u64,
    /// What of it is not holes. At most as many bytes of data are sent.
    pub allocated: u64,
}

/// A piece of a disk. They come one disk after the other, and each from its beginning to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes.
    Data {
        /// Which disk, from 0.
        disk: usize,
        /// Where they begin.
        offset: u64,
        /// The bytes, at most [`PIECE_MAX`].
        bytes: Vec<u8>,
    },
    /// Nothing but zeros.
    Hole {
        /// Which disk, from 0.
        disk: usize,
        /// Where it begins.
        offset: u64,
        /// How long it is.
        length: u64,
    },
}

/// Returns the greatest length of a file with a layer for a disk of so many bytes: its data, the tables, and
/// clusters that a crash has left without an owner.
#[must_use]
pub fn layer_length_max(disk_bytes: u64) -> u64 {
    const FIXED: u64 = 64 * 1024 * 1024;
    disk_bytes
        .saturating_add(disk_bytes / 8)
        .saturating_add(FIXED)
}

/// Where the disks of one guest lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The guest's directory.
    pub directory: PathBuf,
    /// Its disks, in order, within.
    pub files: Vec<PathBuf>,
}

/// Returns whether the disks in a guest's directory are still being fetched.
#[must_use]
pub fn is_fetching(directory: &Path) -> bool {
    directory.join(FETCHING).exists()
}

/// Deletes the disks of a guest that is not here: on the destination what was fetched for the migration,
/// on the source the guest's directory. Repeated: no effect.
///
/// # Errors
///
/// When something cannot be deleted.
pub fn drop_disks(directory: &Path, migration: MigrationId, side: Side) -> Result<(), Error> {
    let fetching = says(directory, FETCHING)? == Some(migration);
    let fetched = says(directory, FETCHED)? == Some(migration);
    match (side, fetched, fetching) {
        // What was fetched for it lies here: then this is not what it was fetched from.
        (Side::Source, true, _) | (Side::Source, _, true) => Ok(()),
        (Side::Source, false, false) | (Side::Destination, true, _) => remove_all(directory),
        (Side::Destination, false, true) => {
            remove_parts(directory)?;
            remove(&directory.join(FETCHING))?;
            // Anything else in it is not the fetch's.
            let _ = fs::remove_dir(directory);
            Ok(())
        }
        (Side::Destination, false, false) => Ok(()),
    }
}

/// Returns the migration that a mark names.
fn says(directory: &Path, mark: &str) -> Result<Option<MigrationId>, Error> {
    let file = directory.join(mark);
    match fs::read_to_string(&file) {
        Ok(text) => Ok(text.trim().parse().ok().map(MigrationId)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", &file, &error)),
    }
}

/// Writes a mark, which is there as a whole or not at all, and stays.
fn mark(directory: &Path, mark: &str, migration: MigrationId) -> Result<(), Error> {
    let (file, aside) = (directory.join(mark), directory.join(format!("{mark}.new")));
    let written = File::create(&aside).and_then(|mut new| {
        write!(new, "{}", migration.0)?;
        new.sync_all()
    });
    written.map_err(|error| failed("written", &aside, &error))?;
    fs::rename(&aside, &file).map_err(|error| failed("written", &file, &error))?;
    sync(directory)
}

fn remove_parts(directory: &Path) -> Result<(), Error> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("listed", directory, &error)),
    };
    for entry in entries {
        let path = entry
            .map_err(|error| failed("listed", directory, &error))?
            .path();
        if path.extension().is_some_and(|extension| extension == PART) {
            remove(&path)?;
        }
    }
    Ok(())
}

fn remove_all(directory: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(directory) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("removed", directory, &error)),
    }
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("removed", path, &error)),
    }
}

fn sync(path: &Path) -> Result<(), Error> {
    let synced = File::open(path).and_then(|file| file.sync_all());
    synced.map_err(|error| failed("synced", path, &error))
}

fn failed(what: &str, path: &Path, error: &io::Error) -> Error {
    Error::refused(format!("{} cannot be {what}: {error}", path.display()))
}
