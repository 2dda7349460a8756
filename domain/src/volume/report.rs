//! An agent's reports of the volumes of its host.

use super::Extent;
use crate::name::VolumeId;

/// The most volumes in one report.
pub const REPORTS_MAX: usize = 1000;

/// An agent's report of one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Which.
    pub volume: VolumeId,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of a volume on its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was made.
    Created {
        /// How much of it can be used, in bytes.
        size_bytes: u64,
        /// Where it lies; in mode direct.
        extent: Option<Extent>,
    },
    /// It cannot be made: nothing of it is there.
    Failed {
        /// Why.
        why: String,
    },
    /// It is being erased.
    Erasing {
        /// How much is, in bytes.
        erased_bytes: u64,
    },
    /// It could not be made or removed yet, and is tried again.
    Delayed {
        /// Why.
        why: String,
    },
    /// It is removed, and erased if that was requested.
    Deleted,
}
