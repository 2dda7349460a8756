//! Why a driver did not carry a request out.
//!
//! Invariant: [`Error::is_unknown`] distinguishes what left nothing behind from what may have had
//! its effect, now or later. Everything but "unreachable" and "timed out" left nothing behind.

use std::path::PathBuf;

use berth_domain::agent::DomainState;
use berth_domain::id::{ClaimId, VmUid};
use berth_domain::name::{HostName, VolumeId};

/// Why a driver did not carry a request out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The guest is not here.
    #[error("guest {vm} is not on this hypervisor")]
    Absent {
        /// The guest.
        vm: VmUid,
    },
    /// The guest is here already, on another claim.
    #[error("guest {vm} is on this hypervisor already{}", .claim.map_or(String::new(), |c| format!(", on claim {c}")))]
    Exists {
        /// The guest.
        vm: VmUid,
        /// The claim that it runs on, if its metadata has it.
        claim: Option<ClaimId>,
    },
    /// The guest is in a state in which this cannot be done.
    #[error("cannot {attempted} guest {vm} while it is {}", .state.as_str())]
    WrongState {
        /// The guest.
        vm: VmUid,
        /// Where it is.
        state: DomainState,
        /// What was to be done, as `send`.
        attempted: &'static str,
    },
    /// The hypervisor tried, or checked, and refused; what it had begun is undone.
    #[error("{message}")]
    Refused {
        /// Its message.
        message: String,
    },
    /// The transfer was stopped on request; the guest runs on where it was.
    #[error("the transfer of guest {vm} was stopped on request")]
    Aborted {
        /// The guest.
        vm: VmUid,
    },
    /// A guest was to be started with the disks that it has, and one of them is not there.
    #[error("disk {index} of guest {vm} is not there: {}", .path.display())]
    DiskMissing {
        /// The guest.
        vm: VmUid,
        /// Which of its disks, from 0.
        index: usize,
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The seed of a guest is needed, and is not there.
    #[error("the seed of guest {vm} is not there: {}", .path.display())]
    SeedMissing {
        /// The guest.
        vm: VmUid,
        /// Where it was looked for.
        path: PathBuf,
    },
    /// An image was to be made under a name that another has.
    #[error("there is an image {image:?} already")]
    ImageExists {
        /// The name.
        image: String,
    },
    /// A file is not the image or the disk that it is declared to be. Nothing but its first bytes was
    /// read.
    #[error("{} is refused: {why}", .path.display())]
    ImageRefused {
        /// The file.
        path: PathBuf,
        /// In what it differs.
        why: String,
        /// What to do, in the imperative.
        hint: String,
    },
    /// Disks were to be fetched, and there is not enough space for them.
    #[error("the disks need {} MiB, and {} has {} MiB free", .needed.div_ceil(1 << 20), .directory.display(), .free >> 20)]
    NoSpace {
        /// How many bytes they need.
        needed: u64,
        /// The free space.
        free: u64,
        /// Where.
        directory: PathBuf,
    },
    /// Disks were to be fetched to where they are: the two hosts share the directory.
    #[error("{} is on both hosts: they share it", .directory.display())]
    StorageShared {
        /// Where they are.
        directory: PathBuf,
    },
    /// Disks were being fetched, and the host that has them broke off. Nothing is here; it can be tried
    /// again.
    #[error("the disks cannot be read from host {host}: {message}")]
    SourceGone {
        /// The host.
        host: HostName,
        /// What was seen.
        message: String,
    },
    /// Disks were being fetched, and that took too long. Nothing is here.
    #[error("the disks were not fetched within {limit_ms} ms")]
    Overdue {
        /// The time limit.
        limit_ms: u64,
    },
    /// A guest was to be started with a volume that has another user on this host.
    #[error("volume {volume} is in use: {}", .users.join(", "))]
    VolumeInUse {
        /// The volume.
        volume: VolumeId,
        /// The user.
        users: Vec<String>,
    },
    /// A guest was to be started with a volume that it cannot have here.
    #[error("volume {volume} cannot be used: {why}")]
    VolumeUnusable {
        /// The volume.
        volume: VolumeId,
        /// Why not.
        why: String,
    },
    /// The hypervisor did not reply: the call may have its effect.
    #[error("the hypervisor cannot be reached: {message}")]
    Unreachable {
        /// What was seen.
        message: String,
    },
    /// The hypervisor took too long: the call may have its effect.
    #[error("the hypervisor did not {attempted} in time")]
    TimedOut {
        /// What was to be done, as `create the guest`.
        attempted: &'static str,
    },
}

impl Error {
    /// Returns a refusal with the hypervisor's words.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::Refused {
            message: message.into(),
        }
    }

    /// Returns whether the call may have had its effect, or may have it yet.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::TimedOut { .. } | Self::SourceGone { .. } => true,
            Self::Absent { .. }
            | Self::Exists { .. }
            | Self::WrongState { .. }
            | Self::Refused { .. }
            | Self::Aborted { .. }
            | Self::DiskMissing { .. }
            | Self::SeedMissing { .. }
            | Self::ImageExists { .. }
            | Self::ImageRefused { .. }
            | Self::NoSpace { .. }
            | Self::StorageShared { .. }
            | Self::Overdue { .. }
            | Self::VolumeInUse { .. }
            | Self::VolumeUnusable { .. } => false,
        }
    }
}
