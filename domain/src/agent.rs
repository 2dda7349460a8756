//! The calls of the conductor to agents, and their responses.
//!
//! Not the wire: see the `berth.agent.v1` package. The conductor's sagas, the agents and the
//! simulator all speak these types.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::claim::Claim;
use crate::cpu_set::CpuSet;
use crate::first_boot::FirstBoot;
use crate::id::{ClaimId, Epoch, Incarnation, MigrationId, OperationId, VmUid};
use crate::instance::VcpuId;
use crate::migration::MigrateData;
use crate::migration_tls::TlsReport;
use crate::name::{HostName, VmName};
use crate::network::BridgeMapping;
use crate::numa::Assignment;
use crate::refusal::Refusal;
use crate::transfer::TransferProgress;
use crate::vm::VmSpec;

/// Keeps calls of conductors that lost their lease, and calls meant for an earlier run of the
/// agent, from having effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fence {
    /// The VM that the call is about.
    pub vm: VmUid,
    /// The operation.
    pub operation: OperationId,
    /// The lease under which it is made; an agent refuses less than the greatest it has seen.
    pub epoch: Epoch,
    /// The run of the agent that it is meant for.
    pub incarnation: Incarnation,
    /// How many hosts the operation has given up before; 0 also from conductors that do not count.
    #[serde(default)]
    pub attempt: u32,
}

/// A call of the conductor to an agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Call {
    /// Starts the guest on its claim. Idempotent: a repeated call has no effect and the same
    /// response.
    SpawnVm {
        /// The VM's name.
        vm: VmName,
        /// The user's specification of the VM.
        spec: VmSpec,
        /// The claim it runs on.
        claim: Claim,
        /// What it is given for its first boot, if its specification has a seed.
        #[serde(skip)]
        first_boot: Option<Arc<FirstBoot>>,
    },
    /// Stops the guest and takes it away with its disks. Idempotent: succeeds without effect when
    /// repeated or unknown.
    DestroyVm,
    /// Queries where the guest is.
    GetDomain,
    /// Checks whether the destination can take part in a live migration.
    CheckCanLiveMigrateDestination {
        /// The attempt.
        migration: MigrationId,
        /// The VM's name.
        vm: VmName,
        /// The user's specification of the VM.
        spec: VmSpec,
    },
    /// Checks the source and returns its `migrate_data`.
    CheckCanLiveMigrateSource {
        /// The attempt.
        migration: MigrationId,
        /// The check of the destination.
        destination: DestinationCheck,
    },
    /// Has the destination fit the guest's topology against its held claim.
    FitLiveMigration {
        /// The attempt.
        migration: MigrationId,
        /// From the source, with the held claim filled in.
        migrate_data: MigrateData,
    },
    /// Makes the destination ready to receive.
    PreLiveMigration {
        /// The attempt.
        migration: MigrationId,
        /// From the destination.
        migrate_data: MigrateData,
    },
    /// Has the source send the guest; answered when the transfer has begun.
    LiveMigration {
        /// The attempt.
        migration: MigrationId,
        /// From the destination, with its new topology.
        migrate_data: MigrateData,
    },
    /// Undoes [`Call::PreLiveMigration`] on the destination. Repeated or unknown: success.
    RollbackLiveMigrationAtDestination {
        /// The attempt.
        migration: MigrationId,
        /// Whether disks that were copied stay: the guest is lost, and may have run here last.
        keep_disks: bool,
    },
    /// Drops what the source kept of a guest that has arrived elsewhere. Repeated: success.
    PostLiveMigrationAtSource {
        /// The attempt.
        migration: MigrationId,
    },
    /// Requests the guest to power off, and powers it off if it has not after the timeout. Nothing
    /// stays but its disks and its console log. Absent, or on another claim: no effect, success.
    /// One without a claim is on this one.
    StopVm {
        /// The claim that it runs on.
        claim: ClaimId,
        /// How long the guest may take to power off by itself; 0: it is powered off at once.
        timeout_ms: u64,
        /// Whether the claim is given back afterwards: it never starts on it again.
        last: bool,
    },
    /// Starts the guest on its claim with the disks that it has. One that has crashed is started
    /// it is restarted. Idempotent: a repeated call has no effect and the same response.
    StartVm {
        /// The VM's name.
        vm: VmName,
        /// The user's specification of the VM.
        spec: VmSpec,
        /// The claim it runs on.
        claim: Claim,
    },
    /// Ends what the operation may still have under way here, and answers where the guest is then.
    /// No earlier call of the operation takes effect afterwards.
    SettleVm,
    /// Has the source stop the transfer, if it still can be. Repeated or none under way: success.
    AbortLiveMigration {
        /// The attempt.
        migration: MigrationId,
    },
    /// Has the source end the transfer soon. Repeated or none under way: success.
    ForceCompleteLiveMigration {
        /// The attempt.
        migration: MigrationId,
        /// By post-copy; else the guest stands still until all is sent.
        post_copy: bool,
    },
    /// Recreates the disks of a stopped guest from their images. Repeated: recreated again.
    MakeDisks {
        /// The VM's name.
        vm: VmName,
        /// The specification of the VM, with the new images.
        spec: VmSpec,
        /// The claim that it starts on.
        claim: Claim,
    },
    /// Copies a disk of the guest, which may run, to a draft of an image. Repeated: copied again.
    CopyDisk {
        /// The VM's name.
        vm: VmName,
        /// The user's specification of the VM.
        spec: VmSpec,
        /// The index of the disk, from 0.
        disk: u32,
        /// The file name that the image is to have; one that is taken is refused.
        image: String,
    },
    /// Gives the operation's draft its name. Idempotent: a repeated call has no effect and
    /// succeeds.
    PublishImage {
        /// The file name of the image.
        image: String,
    },
    /// Removes the operation's draft, and answers whether it had been published. Nothing that the
    /// operation requested before is done afterwards.
    DropImage {
        /// The file name of the image.
        image: String,
    },
    /// Has the destination fetch the disks of a guest that is off from the agent of its source;
    /// answered when all of them are there and on stable storage. Repeated: no effect once they
    /// are, else restarted.
    FetchDisks(Box<FetchDisks>),
    /// Deletes the disks of a guest that is not here. A fetch that goes on is stopped, and nothing
    /// that the operation requested before is done afterwards. Repeated or unknown: success.
    DropDisks {
        /// The attempt.
        migration: MigrationId,
        /// Which disks.
        side: Side,
        /// The claim here: the guest never starts on it again.
        claim: ClaimId,
    },
}

impl Call {
    /// Returns the name of its method, as `DestroyVm`.
    #[must_use]
    pub fn method(&self) -> &'static str {
        match self {
            Self::SpawnVm { .. } => "SpawnVm",
            Self::DestroyVm => "DestroyVm",
            Self::GetDomain => "GetDomain",
            Self::CheckCanLiveMigrateDestination { .. } => "CheckCanLiveMigrateDestination",
            Self::CheckCanLiveMigrateSource { .. } => "CheckCanLiveMigrateSource",
            Self::FitLiveMigration { .. } => "FitLiveMigration",
            Self::PreLiveMigration { .. } => "PreLiveMigration",
            Self::LiveMigration { .. } => "LiveMigration",
            Self::RollbackLiveMigrationAtDestination { .. } => "RollbackLiveMigrationAtDestination",
            Self::PostLiveMigrationAtSource { .. } => "PostLiveMigrationAtSource",
            Self::StopVm { .. } => "StopVm",
            Self::StartVm { .. } => "StartVm",
            Self::SettleVm => "SettleVm",
            Self::AbortLiveMigration { .. } => "AbortLiveMigration",
            Self::ForceCompleteLiveMigration { .. } => "ForceCompleteLiveMigration",
            Self::MakeDisks { .. } => "MakeDisks",
            Self::CopyDisk { .. } => "CopyDisk",
            Self::PublishImage { .. } => "PublishImage",
            Self::DropImage { .. } => "DropImage",
            Self::FetchDisks(_) => "FetchDisks",
            Self::DropDisks { .. } => "DropDisks",
        }
    }
}

/// Disks that are to be fetched.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FetchDisks {
    /// The attempt.
    pub migration: MigrationId,
    /// The VM's name.
    pub vm: VmName,
    /// The user's specification of the VM.
    pub spec: VmSpec,
    /// The claim that it is to be started on.
    pub claim: Claim,
    /// Who has them.
    pub source: DiskSource,
    /// The most that it may take of the network, in MiB/s; absent: no limit.
    pub bandwidth_mib_per_s_max: Option<u32>,
    /// How long it may take; absent: as the agent is set up.
    pub timeout_ms: Option<u64>,
}

/// The host that has the disks of a guest that is moved.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DiskSource {
    /// The host.
    pub host: HostName,
    /// Where its agent listens, as the scheduler knows.
    pub address: String,
    /// The run of that agent.
    pub incarnation: Incarnation,
}

/// Which end of a migration an agent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Side {
    /// The host that the VM leaves: its disks are those from which was copied.
    Source,
    /// The host that the VM comes to: its disks are those that were fetched.
    Destination,
}

/// A destination's description of itself before a live migration.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DestinationCheck {
    /// Where guest memory is sent to.
    pub migration_uri: String,
    /// Identifies the storage of its guest disks.
    pub storage_id: String,
    /// The hypervisor driver.
    pub driver: String,
    /// Its shared CPUs; goes into `migrate_data`.
    pub shared_cpus: CpuSet,
    /// Whether it receives guests encrypted; absent from agents that are too old to report it.
    #[serde(default)]
    pub tls: Option<TlsReport>,
    /// With which bridges it reaches physical networks; goes into `migrate_data`.
    #[serde(default)]
    pub bridges: Vec<BridgeMapping>,
}

/// What a destination's agent decided about its held claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FitVerdict {
    /// The claim is good as it is.
    Confirm,
    /// The claim no longer matches the host; this assignment does.
    Swap(Assignment),
}

/// What an agent answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reply {
    /// It was done.
    Done,
    /// To [`Call::GetDomain`] and [`Call::SettleVm`].
    Domain(DomainStatus),
    /// To [`Call::CheckCanLiveMigrateDestination`].
    Destination(DestinationCheck),
    /// To [`Call::CheckCanLiveMigrateSource`].
    MigrateData(MigrateData),
    /// To [`Call::FitLiveMigration`].
    Fit {
        /// What was decided.
        verdict: FitVerdict,
        /// With the new topology and where to send the guest.
        migrate_data: MigrateData,
    },
    /// To [`Call::DropImage`].
    Image {
        /// Whether the draft had got its name before.
        published: bool,
    },
}

/// Why an agent's answer is not there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Failure {
    /// The agent refused: nothing was changed by this call, or it was undone.
    Refused(Refusal),
    /// No answer came: the call may have had its effects, now or later.
    Unreachable {
        /// What was seen, as text for people.
        message: String,
    },
}

/// Where a guest is, as one hypervisor knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DomainState {
    /// The hypervisor does not know it.
    Absent,
    /// It is being started.
    Starting,
    /// It runs here and nothing moves it.
    Running,
    /// It is here, paused, and nothing moves it.
    Paused,
    /// It runs here while its memory is being sent away.
    MigratingOut,
    /// Its memory is being received; it does not run here yet.
    MigratingIn,
    /// Things are ready to receive it, but nothing comes yet.
    Prepared,
    /// It is known, but does not run (it crashed or was shut down).
    Stopped,
    /// Part of it is here and part on the other host of a migration, and the two have lost each
    /// other: neither can go on alone.
    PostCopyBroken,
}

impl DomainState {
    /// Returns the word for it, as tables and messages show it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "ABSENT",
            Self::Starting => "STARTING",
            Self::Running => "RUNNING",
            Self::Paused => "PAUSED",
            Self::MigratingOut => "MIGRATING_OUT",
            Self::MigratingIn => "MIGRATING_IN",
            Self::Prepared => "PREPARED",
            Self::Stopped => "STOPPED",
            Self::PostCopyBroken => "POST_COPY_BROKEN",
        }
    }
}

/// What a hypervisor knows of one guest.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DomainStatus {
    /// Where it is.
    pub state: DomainState,
    /// The claim in its metadata.
    pub claim: Option<ClaimId>,
    /// The epoch in its metadata.
    pub epoch: Option<Epoch>,
    /// The CPUs that each vCPU may run on, as the hypervisor reports; empty when absent.
    pub vcpu_cpus: Vec<(VcpuId, CpuSet)>,
    /// Why the last attempt to send it away failed, if it did.
    pub migration_error: Option<String>,
    /// The progress of its outgoing transfer. Absent without one, or when it is not reported.
    #[serde(default)]
    pub progress: Option<TransferProgress>,
}

impl DomainStatus {
    /// Returns the status of a guest that is not known.
    #[must_use]
    pub fn absent() -> Self {
        Self {
            state: DomainState::Absent,
            claim: None,
            epoch: None,
            vcpu_cpus: Vec::new(),
            migration_error: None,
            progress: None,
        }
    }
}
