//! A member's disk as a whole: identity, log, checkpoints and table.
//!
//! [`FileDisk`] is the real one. The simulator supplies [`MemoryDisk`](crate::MemoryDisk), which
//! loses what was not synchronised. The parts come apart because different threads own them: the
//! log is written by one that does nothing else, the table by another.

use std::path::{Path, PathBuf};

use crate::checkpoints::{CheckpointFolder, CheckpointStore};
use crate::identity::{self, Claimed, Identity};
use crate::log::{self, EngineLog, LogStore};
use crate::space;
use crate::table::{SledTable, TableStore};
use crate::witness::Witness;

/// Why a member's directory could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The marker says no.
    #[error(transparent)]
    Identity(#[from] identity::Error),
    /// A folder of the directory is a file.
    #[error("{path} is a file, where a folder of the data directory belongs")]
    NotAFolder {
        /// The file.
        path: PathBuf,
    },
    /// Something that is neither a file nor a folder: to open a FIFO would wait for ever.
    #[error("{path} is neither a file nor a folder")]
    NotAFile {
        /// What has the name.
        path: PathBuf,
    },
    /// There is no room.
    #[error(transparent)]
    Space(#[from] space::Error),
    /// The layout could not be brought up to date.
    #[error(transparent)]
    Migration(#[from] berth_migrations::Error),
    /// The log cannot be used.
    #[error(transparent)]
    Log(#[from] crate::log::Error),
    /// The checkpoints cannot be used.
    #[error(transparent)]
    Checkpoints(#[from] crate::checkpoints::Error),
    /// The table cannot be used.
    #[error(transparent)]
    Table(#[from] crate::table::Error),
}

/// All that a member keeps.
pub trait Disk: Send + 'static {
    /// The Raft log.
    type Log: LogStore;
    /// The checkpoints.
    type Checkpoints: CheckpointStore;
    /// The materialised state.
    type Table: TableStore;

    /// Takes the disk apart.
    fn split(self) -> Parts<Self>
    where
        Self: Sized;
}

/// The parts of a disk, for those who own them from now on.
pub struct Parts<D: Disk> {
    /// The member that owns the disk.
    pub identity: Identity,
    /// The Raft log.
    pub log: D::Log,
    /// The checkpoints.
    pub checkpoints: D::Checkpoints,
    /// The materialised state.
    pub table: D::Table,
    /// What opening had to repair, in sentences.
    pub repairs: Vec<String>,
    /// Keeps other processes away while it lives.
    pub guard: Box<dyn Send>,
}

/// A member's directory.
pub struct FileDisk {
    path: PathBuf,
    claimed: Claimed,
    log: EngineLog,
    checkpoints: CheckpointFolder,
    table: SledTable,
}

impl FileDisk {
    /// Opens the directory of an existing member.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::open_with_log_files(path, log::FILE_BYTES)
    }

    /// As [`Self::open`], with log files of this size: several of them would else be long.
    pub fn open_with_log_files(path: &Path, log_file_bytes: u64) -> Result<Self, Error> {
        expect_files(path)?;
        Self::with(path, identity::open(path)?, log_file_bytes)
    }

    /// Opens the directory of an existing member of this cluster.
    pub fn open_in_cluster(path: &Path, cluster_id: &str) -> Result<Self, Error> {
        expect_files(path)?;
        let claimed = identity::open(path)?;
        identity::expect_cluster(path, &claimed.identity, cluster_id)?;
        Self::with(path, claimed, log::FILE_BYTES)
    }

    /// Makes the directory of a new member.
    pub fn create(path: &Path, identity: Identity) -> Result<Self, Error> {
        Self::with(path, identity::create(path, identity)?, log::FILE_BYTES)
    }

    fn with(path: &Path, claimed: Claimed, log_file_bytes: u64) -> Result<Self, Error> {
        expect_folders(path)?;
        space::check(path, space::FREE_MIB_MIN)?;
        berth_migrations::run(path)?;
        let witness = path.join(berth_migrations::WITNESS);
        let witness = Witness::open(&witness, &claimed.identity).map_err(log::Error::from)?;
        let log = EngineLog::open(&path.join(berth_migrations::LOG), witness, log_file_bytes)?;
        Ok(Self {
            path: path.to_owned(),
            claimed,
            log,
            checkpoints: CheckpointFolder::open(&path.join(berth_migrations::CHECKPOINTS))?,
            table: SledTable::open(&path.join(berth_migrations::TABLE))?,
        })
    }

    /// Returns the member that owns the directory.
    pub fn identity(&self) -> &Identity {
        &self.claimed.identity
    }

    /// Returns the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Refuses a directory with a FIFO, a socket or a device in it. What cannot be listed is reported by the
/// part that it belongs to.
///
/// # Errors
///
/// What has the name of a file.
pub fn expect_files(path: &Path) -> Result<(), Error> {
    use berth_migrations::{CHECKPOINTS, LOG, TABLE};
    let folders = [
        path.to_owned(),
        path.join(LOG),
        path.join(CHECKPOINTS),
        path.join(TABLE),
    ];
    for folder in folders {
        for entry in folder.read_dir().into_iter().flatten().flatten() {
            let path = entry.path();
            // Of what a link points to.
            let kind = path.metadata().map(|metadata| metadata.file_type());
            if kind.is_ok_and(|kind| !kind.is_file() && !kind.is_dir()) {
                return Err(Error::NotAFile { path });
            }
        }
    }
    Ok(())
}

/// Refuses a directory in which a file has the name of a folder: the libraries below would name
/// neither, or delete it.
fn expect_folders(path: &Path) -> Result<(), Error> {
    use berth_migrations::{CHECKPOINTS, LOG, TABLE};
    for name in [LOG, CHECKPOINTS, TABLE] {
        let path = path.join(name);
        if path.exists() && !path.is_dir() {
            return Err(Error::NotAFolder { path });
        }
    }
    Ok(())
}

impl Disk for FileDisk {
    type Log = EngineLog;
    type Checkpoints = CheckpointFolder;
    type Table = SledTable;

    fn split(self) -> Parts<Self> {
        let repairs = self
            .table
            .deleted_for()
            .map(|reason| format!("the table could not be opened and was deleted: {reason}"))
            .into_iter()
            .collect();
        Parts {
            identity: self.claimed.identity.clone(),
            log: self.log,
            checkpoints: self.checkpoints,
            table: self.table,
            repairs,
            guard: Box::new(self.claimed),
        }
    }
}
