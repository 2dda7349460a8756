//! Why backups are refused, for programs, and what helps, for people: one table for everything that reads
//! them.
//!
//! Not here: the messages, which are those of the errors; and files that do not open.

use crate::{ReadError, VerifyError};

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

    const fn new(reason: &'static str, hint: &'static str) -> Self {
        Self { reason, hint }
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
            Self::Io(_) => Remedy::new("FILE_UNUSABLE", OTHER_COPY),
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
