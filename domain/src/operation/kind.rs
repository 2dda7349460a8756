//! What an operation is about.
//!
//! Not here: how it proceeds ([`Kind::plan`], in the [table](super::table)).

use serde::{Deserialize, Serialize};

use super::drain::DrainSpec;
use crate::id::MigrationId;
use crate::vm;

/// What an operation is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Boots the VM.
    Boot,
    /// Deletes the VM.
    Delete,
    /// Moves the VM while it runs.
    LiveMigrate {
        /// The attempt.
        migration: MigrationId,
    },
    /// Moves the VM while it does not run, to another host or to another size.
    ColdMigrate {
        /// The attempt.
        migration: MigrationId,
    },
    /// Takes a cold migration back.
    RevertResize {
        /// What is taken back.
        migration: MigrationId,
    },
    /// Starts the VM elsewhere, since its host is dead.
    Evacuate {
        /// The attempt.
        migration: MigrationId,
    },
    /// Stops the VM and gives its host back.
    Shelve,
    /// Starts a shelved VM on a newly chosen host.
    Unshelve,
    /// Stops the guest; its claim and its disks remain.
    Stop {
        /// How long the guest may take to power off by itself.
        timeout_ms: u64,
    },
    /// Starts the guest on its claim with the disks that it has.
    Start,
    /// Stops the guest and starts it again.
    Reboot {
        /// How long the guest may take to power off by itself; 0 for a hard one.
        timeout_ms: u64,
    },
    /// Removes the guest, recreates its disks and starts it again if it ran.
    Rebuild {
        /// The images of its disks from now on, in order, an empty one for a disk without; none
        /// at all: those that it has.
        images: Vec<String>,
    },
    /// Copies a disk into the host's image directory.
    Snapshot {
        /// The index of the disk, from 0.
        disk: u32,
        /// The file name of the new image.
        image: String,
    },
    /// Deletes the disks that a cold migration left on the source: what it brought is kept.
    ConfirmResize {
        /// What is confirmed.
        migration: MigrationId,
    },
    /// Moves every VM of a host away. The only one that is not about a VM.
    DrainHost(DrainSpec),
}

impl Kind {
    /// Returns the migration that it is about, if it is about one.
    #[must_use]
    pub fn migration(&self) -> Option<MigrationId> {
        match self {
            Self::LiveMigrate { migration }
            | Self::ColdMigrate { migration }
            | Self::RevertResize { migration }
            | Self::ConfirmResize { migration }
            | Self::Evacuate { migration } => Some(*migration),
            Self::Boot
            | Self::Delete
            | Self::Shelve
            | Self::Unshelve
            | Self::Stop { .. }
            | Self::Start
            | Self::Reboot { .. }
            | Self::Rebuild { .. }
            | Self::Snapshot { .. }
            | Self::DrainHost(_) => None,
        }
    }

    /// Returns how a host is drained, for a drain.
    #[must_use]
    pub fn drain(&self) -> Option<&DrainSpec> {
        match self {
            Self::DrainHost(spec) => Some(spec),
            Self::Boot
            | Self::Delete
            | Self::LiveMigrate { .. }
            | Self::ColdMigrate { .. }
            | Self::RevertResize { .. }
            | Self::ConfirmResize { .. }
            | Self::Evacuate { .. }
            | Self::Shelve
            | Self::Unshelve
            | Self::Stop { .. }
            | Self::Start
            | Self::Reboot { .. }
            | Self::Rebuild { .. }
            | Self::Snapshot { .. } => None,
        }
    }

    /// Returns the migration whose claim on a destination it holds, if it holds one: a revert is
    /// about a migration, but holds nothing for it.
    #[must_use]
    pub fn claiming(&self) -> Option<MigrationId> {
        self.migration().filter(|_| self.plan().claims.is_some())
    }

    /// Returns what is being done to the VM, where its state does not show it: the wire's
    /// `Vm.task`.
    #[must_use]
    pub fn task(&self) -> Option<&'static str> {
        self.plan().task
    }

    /// Returns whether it may be at work on a VM in this state, which stays as it is meanwhile.
    #[must_use]
    pub fn works_in(&self, state: vm::State) -> bool {
        self.plan().works_in.contains(&state)
    }

    /// Returns whether it is done to the guest on the VM's own host, on the claim that it has.
    #[must_use]
    pub fn is_power(&self) -> bool {
        self.plan().on_own_host
    }
}
