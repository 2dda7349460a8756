//! File systems and devices at paths.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use berth_csi::{Local, Mount, Space};
use rustix::fs::{FallocateFlags, fallocate};

/// Why something is not at a path.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The volume has another file system.
    #[error("volume {volume} has file system {is}, not {requested}")]
    OtherFileSystem {
        /// The volume.
        volume: String,
        /// What it has.
        is: String,
        /// The requested file system.
        requested: String,
    },
    /// An earlier user of the volume's device may have left data on it.
    #[error(
        "volume {volume} has no file system, and its device was handed out as it is, or that is \
         unknown: it is not formatted, since what looks empty may be data; use it as a block device, \
         make a file system on it there, or delete it and create another one"
    )]
    MayHoldData {
        /// The volume.
        volume: String,
    },
    /// Another file or mount is in the way.
    #[error("{path} {why}")]
    InTheWay {
        /// Where.
        path: String,
        /// What.
        why: String,
    },
    /// Something of the operating system failed.
    #[error("cannot {what} {path}: {why}")]
    Failed {
        /// What was attempted.
        what: &'static str,
        /// Where.
        path: String,
        /// Why not.
        why: String,
    },
}

/// Shows volumes at paths. All calls block; see [`berth_csi::Host`] for what they do.
pub(crate) trait Mounts: Send + Sync {
    fn mount(&self, volume: &Local, at: &Path, how: &Mount) -> Result<(), Error>;
    fn bind(&self, volume: &Local, from: &Path, at: &Path, readonly: bool) -> Result<(), Error>;
    fn bind_device(&self, volume: &Local, at: &Path, readonly: bool) -> Result<(), Error>;
    fn unmount(&self, volume: &Local, at: &Path) -> Result<(), Error>;
    fn is_mounted(&self, at: &Path) -> Result<bool, Error>;
    fn shows(&self, volume: &Local, at: &Path) -> Result<bool, Error>;
    fn space(&self, at: &Path) -> Result<(Space, Space), Error>;

    /// Returns whether a volume has no file system yet.
    fn is_empty(&self, volume: &Local) -> Result<bool, Error>;

    /// Returns what a program opens to have a volume's device.
    fn device(&self, volume: &Local) -> Result<PathBuf, Error>;

    /// Makes a file of that size with all its space allocated: a guest to which it is memory gets
    /// no error when there is none left. It exists or not, never in part.
    fn allocate(&self, file: &Path, size_bytes: u64) -> Result<(), Error> {
        let new = file.with_extension("new");
        let allocate = || -> io::Result<()> {
            let made = File::create(&new)?;
            fallocate(&made, FallocateFlags::empty(), 0, size_bytes)?;
            made.sync_all()?;
            fs::rename(&new, file)
        };
        allocate().map_err(|error| Error::Failed {
            what: "make",
            path: file.display().to_string(),
            why: error.to_string(),
        })
    }
}
