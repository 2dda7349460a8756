//! A long operation: what it is about, who carries it out, and the log of its steps.
//!
//! The log is replicated. Another conductor that takes the lease over reads it and carries on;
//! the lease's epoch fences the one before it, in the state and at the agents.
//!
//! Invariant: entries are appended under the epoch of the current lease only; a done operation
//! has no lease and takes no more entries.

use serde::{Deserialize, Serialize};

use crate::claim::Claim;
use crate::id::{ClaimId, Epoch, MigrationId, OperationId, TimeMs};
use crate::name::{HostName, ServiceName, VmName};
use crate::numa::Assignment;
use crate::refusal::Refusal;
use crate::{migration, vm};

/// The longest that a guest may be given to power off by itself: an hour.
pub const STOP_TIMEOUT_MS_MAX: u64 = 3_600_000;
/// How long a guest may take to power off by itself, where nobody says.
pub const STOP_TIMEOUT_MS: u64 = 60_000;

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
    /// Starts a shelved VM on a host that is chosen anew.
    Unshelve,
    /// Stops the guest; its claim and its disks stay.
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
    /// Takes the guest away, makes its disks anew and starts it again if it ran.
    Rebuild {
        /// The images of its disks from now on, in order, an empty one for a disk without; none
        /// at all: those that it has.
        images: Vec<String>,
    },
    /// Copies a disk into the host's image directory.
    Snapshot {
        /// Which disk, from 0.
        disk: u32,
        /// The file name of the new image.
        image: String,
    },
    /// Deletes the disks that a cold migration left on the source: what it brought is kept.
    ConfirmResize {
        /// What is confirmed.
        migration: MigrationId,
    },
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
            | Self::Snapshot { .. } => None,
        }
    }

    /// Returns the migration whose claim on a destination it holds, if it holds one: a revert is
    /// about a migration, but holds nothing for it.
    #[must_use]
    pub fn claiming(&self) -> Option<MigrationId> {
        match self {
            Self::LiveMigrate { migration }
            | Self::ColdMigrate { migration }
            | Self::Evacuate { migration } => Some(*migration),
            Self::RevertResize { .. }
            | Self::ConfirmResize { .. }
            | Self::Boot
            | Self::Delete
            | Self::Shelve
            | Self::Unshelve
            | Self::Stop { .. }
            | Self::Start
            | Self::Reboot { .. }
            | Self::Rebuild { .. }
            | Self::Snapshot { .. } => None,
        }
    }

    /// Returns what is being done to the VM, where its state does not tell: the wire's `Vm.task`.
    #[must_use]
    pub fn task(&self) -> Option<&'static str> {
        match self {
            Self::Boot | Self::Delete | Self::LiveMigrate { .. } => None,
            Self::ColdMigrate { .. } => Some("MOVING"),
            Self::RevertResize { .. } => Some("REVERTING"),
            Self::Evacuate { .. } => Some("EVACUATING"),
            Self::Shelve => Some("SHELVING"),
            Self::Unshelve => Some("UNSHELVING"),
            Self::Stop { .. } => Some("STOPPING"),
            Self::Start => Some("STARTING"),
            Self::Reboot { .. } => Some("REBOOTING"),
            Self::Rebuild { .. } => Some("REBUILDING"),
            Self::Snapshot { .. } => Some("SNAPSHOTTING"),
            Self::ConfirmResize { .. } => Some("CONFIRMING"),
        }
    }

    /// Returns whether it may be at work on a VM in this state, which stays as it is meanwhile.
    #[must_use]
    pub fn works_in(&self, state: vm::State) -> bool {
        use vm::State::{Active, Building, Deleting, Error, Migrating, Resized, Shelved, Stopped};
        match self {
            Self::Boot => state == Building,
            Self::Delete => state == Deleting,
            Self::LiveMigrate { .. } => state == Migrating,
            Self::ColdMigrate { .. } | Self::Evacuate { .. } | Self::Shelve => {
                matches!(state, Active | Stopped)
            }
            Self::RevertResize { .. } | Self::ConfirmResize { .. } => state == Resized,
            Self::Unshelve => state == Shelved,
            Self::Stop { .. } | Self::Reboot { .. } => state == Active,
            // The guest of an ACTIVE one may have powered off by itself.
            Self::Start | Self::Snapshot { .. } => matches!(state, Active | Stopped),
            // One whose rebuild failed half-way is rebuilt.
            Self::Rebuild { .. } => matches!(state, Active | Stopped | Error),
        }
    }

    /// Returns whether it is done to the guest on the VM's own host, on the claim that it has.
    #[must_use]
    pub fn is_power(&self) -> bool {
        match self {
            Self::Stop { .. }
            | Self::Start
            | Self::Reboot { .. }
            | Self::Rebuild { .. }
            | Self::Snapshot { .. } => true,
            Self::Boot
            | Self::Delete
            | Self::LiveMigrate { .. }
            | Self::ColdMigrate { .. }
            | Self::RevertResize { .. }
            | Self::ConfirmResize { .. }
            | Self::Evacuate { .. }
            | Self::Shelve
            | Self::Unshelve => false,
        }
    }
}

/// A step of an operation. Each kind has its own list of them, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Step {
    /// Chooses a host and claims it in one command (boot, migrate).
    Claim,
    /// Starts the guest on its first host (boot).
    Spawn,
    /// Asks the destination whether it can take part.
    CheckDestination,
    /// Asks the source, which answers with `migrate_data` and the guest's topology.
    CheckSource,
    /// Has the destination fit that topology: it confirms, swaps or refuses the claim.
    FitDestination,
    /// Makes the destination ready to receive.
    PreLiveMigration,
    /// Passes the point of no return, then has the source send the guest.
    LiveMigration,
    /// Asks both hosts until it is known where the guest is.
    Settle,
    /// Stops the guest and takes it away (delete).
    Destroy,
    /// Stops the guest on the host that it is to leave; its disks stay (cold migration, shelve).
    StopSource,
    /// Starts the guest with the disks that it has on the host that was claimed for it.
    StartDestination,
    /// Stops the guest where a cold migration had brought it (revert).
    StopDestination,
    /// Starts the guest where it was before a cold migration (revert).
    StartSource,
    /// Stops the guest; its disks stay (stop, reboot, rebuild).
    Stop,
    /// Makes the disks of a guest that is off anew from their images (rebuild).
    MakeDisks,
    /// Starts the guest with the disks that it has (start, reboot, rebuild).
    Start,
    /// Copies a disk to a draft of an image (snapshot).
    CopyDisk,
    /// Gives the draft its name (snapshot).
    PublishImage,
    /// Has the destination fetch the disks of a guest that is off (cold migration, where the hosts do
    /// not share them).
    FetchDisks,
    /// Deletes the disks that were left on the source (cold migration, confirmation, deletion).
    DropSource,
    /// Deletes the disks that the destination had fetched (revert).
    DropDestination,
}

/// What is known of a guest at the end of an operation on its own host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum GuestPower {
    /// Nothing was done that could have changed it.
    Unchanged,
    /// It runs.
    On,
    /// It does not run; its disks are whole.
    Off,
    /// It does not run, and its disks were being made anew: neither old nor new.
    Broken,
}

/// What is logged of a step.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mark {
    /// It is about to be done: from here on it may have had effects.
    Started,
    /// It was done.
    Succeeded,
    /// It was refused or failed.
    Failed(Refusal),
    /// Its undo is about to be done.
    UndoStarted,
    /// Its undo was done.
    Undone,
}

/// An entry of an operation's log.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Entry {
    /// The step.
    pub step: Step,
    /// What happened to it.
    pub mark: Mark,
    /// The host that it was about, where there was one.
    pub host: Option<HostName>,
    /// When it was logged.
    pub at: TimeMs,
}

/// What a step means for the state; committed together with the step's entry.
///
/// It lives here because conductors name it and the replicated state carries it out.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Effect {
    /// Nothing beyond its entry in the log.
    None,
    /// The next candidate was chosen: its claim is held for the operation.
    HoldClaim(Claim),
    /// The destination's agent found the claim good.
    ConfirmClaim {
        /// Which.
        claim: ClaimId,
    },
    /// The destination's agent fitted otherwise: the old is released and the new held, in one.
    SwapClaim {
        /// Which.
        claim: ClaimId,
        /// The exact CPUs and pages from now on.
        assignment: Assignment,
    },
    /// The operation's claim is given back.
    ReleaseClaim {
        /// Which.
        claim: ClaimId,
        /// Whether its host refused and is not asked again.
        exclude: bool,
    },
    /// The guest runs on its first host: claim and VM become ACTIVE, the operation is done.
    CompleteBoot,
    /// The boot was undone: the VM is in ERROR without a claim, the operation is done.
    FailBoot(Refusal),
    /// The point of no return: the migration is RUNNING.
    BeginTransfer,
    /// The migration was given up before anything moved; its claim is released, the operation done.
    RefuseMigration(Refusal),
    /// What the two hypervisors say of the guest; an end settles claims and ends the operation.
    Settle {
        /// What they say.
        event: migration::Event,
        /// What it waits for, or why it failed.
        refusal: Option<Refusal>,
    },
    /// The guest is gone: claims are released, the VM is forgotten, the operation is done.
    CompleteDelete,
    /// The VM is on its destination: a cold migration or an evacuation is done, or waits to be
    /// verified.
    CompleteMove,
    /// The VM is on its source again: the claim on the destination is released, the operation
    /// done.
    CompleteRevert,
    /// The guest is stopped: the claim is released, the VM is SHELVED, the operation done.
    CompleteShelve,
    /// The guest runs on the host that was chosen anew: claim and VM are ACTIVE, the operation
    /// done.
    CompleteUnshelve,
    /// No host took the guest: it stays SHELVED, the operation is done.
    FailUnshelve(Refusal),
    /// The operation on the VM's own host is done: the VM is what its guest is, its claim stays.
    EndPower {
        /// How the guest is.
        power: GuestPower,
        /// Why it failed, if it did.
        refusal: Option<Refusal>,
    },
    /// From here on the old disks are gone: the VM's images are those of the rebuild.
    BeginRebuild,
    /// What the VM had before its cold migration is gone: its claim there is released, the operation
    /// done.
    CompleteConfirm,
}

/// The right of one conductor to carry an operation out.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lease {
    /// The conductor.
    pub conductor: ServiceName,
    /// Fences the holders before it.
    pub epoch: Epoch,
    /// When another conductor may take over, in replicated time.
    pub expires_at: TimeMs,
}

/// Who wants a lease, and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LeaseRequest {
    /// The conductor.
    pub conductor: ServiceName,
    /// For how long from now.
    pub ttl_ms: u64,
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Outcome {
    /// It did what was asked.
    Succeeded,
    /// It did not, and what it had done was undone.
    Failed(Refusal),
}

/// A long operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Operation {
    /// Who it is.
    pub id: OperationId,
    /// What it is about.
    pub kind: Kind,
    /// The VM that it works on.
    pub vm: VmName,
    /// The host that the user named, if any.
    pub requested_host: Option<HostName>,
    /// Hosts that refused already and are not asked again.
    pub excluded: Vec<HostName>,
    /// The claim that the operation took, as long as it is not settled.
    pub claim: Option<ClaimId>,
    /// Who carries it out; absent once it is done.
    pub lease: Option<Lease>,
    /// Set when somebody asked to cancel it: it is given up before the point of no return, and its
    /// transfer stopped after it.
    pub cancelled: bool,
    /// What has happened.
    pub log: Vec<Entry>,
    /// How it ended; absent while it runs.
    pub outcome: Option<Outcome>,
    /// When it was asked for.
    pub created_at: TimeMs,
    /// When it ended.
    pub ended_at: Option<TimeMs>,
    /// Set when somebody asked to end its transfer soon.
    #[serde(default)]
    pub force_complete: bool,
}

impl Operation {
    /// Returns whether it has ended.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.outcome.is_some()
    }
}
