//! libvirt's report of a job on a domain: a migration that runs, or has ended.
//!
//! What it is not: a promise. The figures are the hypervisor's, taken at one moment.

use std::collections::BTreeMap;

/// How a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobKind {
    /// No job.
    None,
    /// It runs, and knows how much there is to do.
    Bounded,
    /// It runs, and cannot know when it ends: a live migration of a guest that writes.
    Unbounded,
    /// It has ended well.
    Completed,
    /// It has failed.
    Failed,
    /// It was aborted.
    Cancelled,
}

impl From<i32> for JobKind {
    fn from(number: i32) -> Self {
        match number {
            1 => Self::Bounded,
            2 => Self::Unbounded,
            3 => Self::Completed,
            4 => Self::Failed,
            5 => Self::Cancelled,
            _ => Self::None,
        }
    }
}

/// The figures of a job. A figure that libvirt does not give is zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobStats {
    /// How it stands.
    pub kind: JobKind,
    /// Time since it began.
    pub elapsed_ms: u64,
    /// How long the guest was paused, once that is known.
    pub downtime_ms: u64,
    /// What there is to transfer, memory and disks.
    pub total_bytes: u64,
    /// What has been transferred.
    pub processed_bytes: u64,
    /// What is left, as of now.
    pub remaining_bytes: u64,
    /// Every number as libvirt names it, for what is not broken out above.
    pub all: BTreeMap<String, u64>,
}

impl JobStats {
    pub(super) fn new(kind: JobKind, all: BTreeMap<String, u64>) -> Self {
        let figure = |name: &str| all.get(name).copied().unwrap_or(0);
        Self {
            kind,
            elapsed_ms: figure("time_elapsed"),
            downtime_ms: figure("downtime"),
            total_bytes: figure("data_total"),
            processed_bytes: figure("data_processed"),
            remaining_bytes: figure("data_remaining"),
            all,
        }
    }

    /// Returns whether a job is under way.
    pub fn is_running(&self) -> bool {
        matches!(self.kind, JobKind::Bounded | JobKind::Unbounded)
    }
}
