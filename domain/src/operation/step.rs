//! The steps that operations are made of, and what holds of each wherever it stands.
//!
//! Not here: which operations have it, in which order and with which undo ([`table`](super::table)).

use serde::{Deserialize, Serialize};

/// A step of an operation. Each kind has its own list of them, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Step {
    /// Chooses a host and claims it in one command (boot, migrate).
    Claim,
    /// Starts the guest on its first host (boot).
    Spawn,
    /// Checks whether the destination can take part.
    CheckDestination,
    /// Checks the source, which returns `migrate_data` and the guest's topology.
    CheckSource,
    /// Has the destination fit that topology: it confirms, swaps or refuses the claim.
    FitDestination,
    /// Makes the destination ready to receive.
    PreLiveMigration,
    /// Passes the point of no return, then has the source send the guest.
    LiveMigration,
    /// Queries both hosts until it is known where the guest is.
    Settle,
    /// Stops the guest and takes it away (delete).
    Destroy,
    /// Stops the guest on the host that it is to leave; its disks remain (cold migration, shelve).
    StopSource,
    /// Starts the guest with the disks that it has on the host that was claimed for it.
    StartDestination,
    /// Stops the guest where a cold migration had brought it (revert).
    StopDestination,
    /// Starts the guest where it was before a cold migration (revert).
    StartSource,
    /// Stops the guest; its disks remain (stop, reboot, rebuild).
    Stop,
    /// Recreates the disks of a stopped guest from their images (rebuild).
    MakeDisks,
    /// Starts the guest with the disks that it has (start, reboot, rebuild).
    Start,
    /// Copies a disk to a draft of an image (snapshot).
    CopyDisk,
    /// Gives the draft its name (snapshot).
    PublishImage,
    /// Has the destination fetch the disks of a guest that is off (cold migration, where the hosts
    /// do not share them).
    FetchDisks,
    /// Deletes the disks that were left on the source (cold migration, confirmation, deletion).
    DropSource,
    /// Deletes the disks that the destination had fetched (revert).
    DropDestination,
}

/// The host with the agent that a step calls; its entries in the log name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Site {
    /// The host that the VM is on.
    VmHost,
    /// The source of the migration.
    Source,
    /// The host of the claim that the operation took.
    Claimed,
    /// The source and the destination of the migration: entries name none.
    Both,
}

/// What holds of a step wherever it stands.
struct Nature {
    title: &'static str,
    site: Site,
    side_effects: bool,
}

impl Step {
    /// All steps.
    pub const ALL: [Self; 21] = [
        Self::Claim,
        Self::Spawn,
        Self::CheckDestination,
        Self::CheckSource,
        Self::FitDestination,
        Self::PreLiveMigration,
        Self::LiveMigration,
        Self::Settle,
        Self::Destroy,
        Self::StopSource,
        Self::StartDestination,
        Self::StopDestination,
        Self::StartSource,
        Self::Stop,
        Self::MakeDisks,
        Self::Start,
        Self::CopyDisk,
        Self::PublishImage,
        Self::FetchDisks,
        Self::DropSource,
        Self::DropDestination,
    ];

    /// Returns what users read.
    #[must_use]
    pub fn title(self) -> &'static str {
        self.nature().title
    }

    /// Returns whether its success is a begin: the agent has started what a later step waits for.
    #[must_use]
    pub fn only_begins(self) -> bool {
        self == Self::LiveMigration
    }

    /// Returns the word for its success: nothing is done before it is.
    #[must_use]
    pub fn succeeded(self) -> &'static str {
        match self.only_begins() {
            true => "under way",
            false => "done",
        }
    }

    /// Returns the host with the agent that it calls.
    #[must_use]
    pub fn site(self) -> Site {
        self.nature().site
    }

    /// Returns whether it does something in the world that stays. Then it is logged as started before
    /// its call leaves.
    #[must_use]
    pub fn has_side_effects(self) -> bool {
        self.nature().side_effects
    }

    fn nature(self) -> Nature {
        let changes = |title, site| Nature {
            title,
            site,
            side_effects: true,
        };
        let changes_nothing = |title, site| Nature {
            title,
            site,
            side_effects: false,
        };
        match self {
            Self::Claim => changes_nothing("claim", Site::Claimed),
            Self::Spawn => changes("spawn", Site::Claimed),
            Self::CheckDestination => changes_nothing("check destination", Site::Claimed),
            Self::CheckSource => changes_nothing("check source", Site::VmHost),
            Self::FitDestination => changes_nothing("fit destination", Site::Claimed),
            Self::PreLiveMigration => changes("pre live migration", Site::Claimed),
            Self::LiveMigration => changes("live migration", Site::VmHost),
            Self::Settle => changes_nothing("settle", Site::Both),
            Self::Destroy => changes("destroy", Site::VmHost),
            Self::StopSource => changes("stop source", Site::VmHost),
            Self::StartDestination => changes("start destination", Site::Claimed),
            Self::StopDestination => changes("stop destination", Site::VmHost),
            Self::StartSource => changes("start source", Site::Source),
            Self::Stop => changes("stop the guest", Site::VmHost),
            Self::MakeDisks => changes("make the disks", Site::VmHost),
            Self::Start => changes("start the guest", Site::VmHost),
            Self::CopyDisk => changes("copy the disk", Site::VmHost),
            Self::PublishImage => changes("name the image", Site::VmHost),
            Self::FetchDisks => changes("fetch the disks", Site::Claimed),
            Self::DropSource => changes("delete on source", Site::Source),
            Self::DropDestination => changes("delete copies", Site::VmHost),
        }
    }
}
