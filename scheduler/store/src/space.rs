//! Free space: whether a member may start on this disk.
//!
//! A full disk is refused at start rather than met in the middle of the first batch: a member
//! that cannot write can neither vote nor acknowledge, and would only disturb the others.

use std::io;
use std::path::{Path, PathBuf};

/// What a start needs at least: a log file, a checkpoint beside the two that are kept, the table.
pub const FREE_MIB_MIN: u64 = 64;

/// Why there is not enough.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Too little is free.
    #[error("the disk of {path} is full: {free_mib} MiB are free, {needed_mib} MiB are needed")]
    Full {
        /// The directory.
        path: PathBuf,
        /// What is free.
        free_mib: u64,
        /// What is needed.
        needed_mib: u64,
    },
    /// It could not be found out.
    #[error("the free space of {path} could not be read")]
    Io {
        /// The directory.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
}

/// Returns the free space in MiB that an ordinary user may take.
pub fn free_mib(path: &Path) -> Result<u64, Error> {
    let stat = rustix::fs::statvfs(path).map_err(|source| Error::Io {
        path: path.into(),
        source: source.into(),
    })?;
    Ok((stat.f_bavail.saturating_mul(stat.f_frsize)) >> 20)
}

/// Refuses a directory on a disk with less than this free.
pub fn check(path: &Path, needed_mib: u64) -> Result<(), Error> {
    let free_mib = free_mib(path)?;
    if free_mib < needed_mib {
        return Err(Error::Full {
            path: path.into(),
            free_mib,
            needed_mib,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_and_what_is_free_are_told() {
        let folder = tempfile::tempdir().expect("temporary folder");
        assert!(check(folder.path(), 0).is_ok());
        assert!(matches!(
            check(folder.path(), u64::MAX),
            Err(Error::Full {
                needed_mib: u64::MAX,
                ..
            })
        ));
    }
}
