//! Why backups are refused, for programs, and what helps, for people: one table for everything that reads
//! and writes them.
//!
//! Not here: the messages, which are those of the errors.

use std::io;

use crate::{ReadError, VerifyError};

/// What a file was to be opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It is read.
    Read,
    /// It is made.
    Write,
}

/// A reason that keeps its name, and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// The name, as listed in `docs/backup.md`.
    pub reason: &'static str,
    /// What to do, in the imperative.
    pub hint: &'static str,
}

impl Remedy {
    /// The files do not have the moment whose state is requested.
    pub const OUT_OF_RANGE: Self = Self::new(
        "BACKUP_OUT_OF_RANGE",
        "name a moment between the full backup and the end of the last increment",
    );

    /// It is the state of a support bundle.
    pub const REDACTED: Self = Self::new(
        "BACKUP_REDACTED",
        "name a file that berth cluster backup made",
    );

    /// A directory stands where a file is named.
    pub const DIRECTORY: Self = Self::new(
        Self::UNUSABLE,
        "name the files in it, each full backup before its increments",
    );

    /// The operating system has no such file or directory.
    pub const NOT_FOUND: &'static str = "FILE_NOT_FOUND";
    /// There is such a file already.
    pub const EXISTS: &'static str = "FILE_EXISTS";
    /// The operating system does not give the file.
    pub const UNUSABLE: &'static str = "FILE_UNUSABLE";

    /// Returns what helps where the operating system does not give a file.
    #[must_use]
    pub fn of_file(access: Access, error: &io::Error) -> Self {
        let is = |kind| error.kind() == kind;
        let is_written = access == Access::Write;
        if is(io::ErrorKind::NotFound) {
            let hint = match access {
                Access::Read => "check the path; for standard input, name /dev/stdin",
                Access::Write => "make its directory first, or name a file in another one",
            };
            Self::new(Self::NOT_FOUND, hint)
        } else if is(io::ErrorKind::AlreadyExists) && is_written {
            Self::new(Self::EXISTS, "name another file, or remove this one")
        } else if is(io::ErrorKind::IsADirectory) && !is_written {
            Self::DIRECTORY
        } else {
            Self::new(Self::UNUSABLE, hint_of(access, error))
        }
    }

    const fn new(reason: &'static str, hint: &'static str) -> Self {
        Self { reason, hint }
    }
}

/// Returns what helps where a file is there, and cannot be used.
fn hint_of(access: Access, error: &io::Error) -> &'static str {
    let is = |kind| error.kind() == kind;
    if is(io::ErrorKind::PermissionDenied) {
        "run the command as the user to whom the file belongs"
    } else if is(io::ErrorKind::StorageFull) {
        "make space on its disk, or name a file on another one"
    } else if is(io::ErrorKind::InvalidInput) {
        "name a regular file, or one that is not there yet"
    } else {
        match access {
            Access::Read => "name a file that can be opened and read",
            Access::Write => "name a file that can be made and written",
        }
    }
}

const OTHER_COPY: &str = "use another copy of the file, or another backup";
const NEWER_PROGRAM: &str = "use the program of the version that made it, or a newer one";
const FULL_FIRST: &str = "name a full backup first, and then each increment in order";
const FAULT: &str =
    "keep the file, and make a full backup at another member; this is a fault in Berth";

impl ReadError {
    /// Returns what helps.
    #[must_use]
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Io(error) if error.kind() == io::ErrorKind::IsADirectory => Remedy::DIRECTORY,
            Self::Io(_) => Remedy::new(Remedy::UNUSABLE, OTHER_COPY),
            Self::Foreign => {
                Remedy::new("NOT_A_BACKUP", "name a file that berth cluster backup made")
            }
            Self::Truncated(_) => Remedy::new("BACKUP_CUT_SHORT", OTHER_COPY),
            Self::Damaged(_) => Remedy::new("BACKUP_DAMAGED", OTHER_COPY),
            Self::Newer { .. } => Remedy::new("BACKUP_NEWER", NEWER_PROGRAM),
        }
    }
}

impl VerifyError {
    /// Returns what helps.
    #[must_use]
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Read(error) => error.remedy(),
            Self::NoFull { .. } | Self::Nothing => Remedy::new("BACKUP_WITHOUT_FULL", FULL_FIRST),
            Self::SecondFull => Remedy::new(
                "BACKUP_SECOND_FULL",
                "name one full backup, and its own increments",
            ),
            Self::OtherCluster { .. } => Remedy::new(
                "BACKUP_OF_OTHER_CLUSTER",
                "name the backups of one cluster only",
            ),
            Self::Gap { .. } => Remedy::new(
                "BACKUP_GAP",
                "name the increment that holds them between the two",
            ),
            Self::Overlap { .. } => Remedy::new(
                "BACKUP_OVERLAP",
                "name the increments that follow each other, in order",
            ),
            Self::OtherHistory { .. } => Remedy::new(
                "BACKUP_OF_OTHER_HISTORY",
                "name the backup that this increment was made after",
            ),
            Self::State(_) | Self::Replay(_) => Remedy::new("BACKUP_UNREADABLE", NEWER_PROGRAM),
            Self::Later { .. } | Self::NotReached { .. } => Remedy::OUT_OF_RANGE,
            Self::Hash { .. } | Self::Rows { .. } => Remedy::new("BACKUP_DIVERGED", FAULT),
            Self::Invariant { .. } => Remedy::new("BACKUP_UNSOUND", FAULT),
        }
    }
}
