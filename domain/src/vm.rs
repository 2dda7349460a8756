//! A virtual machine: its specification, where it is, and its state machine.
//!
//! ```text
//!               boot failed
//!   BUILDING ───────────────▶ ERROR ◀──────────── lost ──┐
//!      │ booted                │                         │
//!      ▼        migrate        │ delete                  │
//!   ACTIVE ───────────────▶ MIGRATING ───────────────────┤
//!      │ ◀─────────────────────┘ settled or failed       │
//!      │ delete                                          │
//!      ▼                                                 │
//!   DELETING ──▶ (gone)      ACTIVE ─────────────────────┘
//!
//!   ACTIVE ◀──stop, start──▶ STOPPED
//!   ACTIVE, STOPPED ──rebuild failed half-way──▶ ERROR ──rebuilt──▶ ACTIVE, STOPPED
//!   ACTIVE, STOPPED ──resize──▶ RESIZED ──confirm, revert──▶ ACTIVE, STOPPED
//!   ACTIVE, STOPPED ──shelve──▶ SHELVED ──unshelve──▶ ACTIVE
//!   STOPPED, RESIZED, SHELVED ──delete──▶ DELETING
//! ```
//!
//! A state is what the VM was last known to be. While an operation works on it that is no boot,
//! deletion or live migration, the state stays until the operation ends.
//!
//! Invariant: exactly one host holds the VM ([`Vm::host`], [`Vm::claim`]) in ACTIVE, MIGRATING,
//! STOPPED and RESIZED; in ERROR too where a rebuild failed half-way, since its disks and its place
//! are still its own; one operation at a time works on it ([`Vm::operation`]).

mod console;
mod metadata;
mod restart;
mod rules;
mod trouble;
mod volumes;

pub use metadata::{
    DESCRIPTION_BYTES_MAX, InvalidLabel, LABEL_NAME_LENGTH_MAX, LABEL_PREFIX_LENGTH_MAX,
    LABEL_VALUE_LENGTH_MAX, LABELS_MAX, LabelSelector, Labels, METADATA_FAULTS_MAX, Metadata,
    MetadataChange, check_label_key,
};
pub use restart::{
    Action as RestartAction, Due, PER_HOUR_DEFAULT, PER_HOUR_MAX, PRIORITY_DEFAULT, PRIORITY_MAX,
    RestartPolicy, Restarts,
};
pub use rules::{DISKS_MAX, FILE_NAME_LENGTH_MAX, NICS_MAX, check_image_name};
pub use trouble::{Absence, Trouble};
pub use volumes::{AttachedAs, VOLUMES_MAX, VolumeAttachment, requirements_of};

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::cpu_shape::CpuShape;
use crate::first_boot::FirstBoot;
use crate::flavor::Flavor;
use crate::id::{ClaimId, Generation, OperationId, TimeMs, VmUid};
pub use crate::image::DiskFormat;
use crate::image::ImageProperties;
use crate::instance::InstanceTopology;
use crate::name::{HostName, NetworkName, ServerGroupName, VmName, ZoneName};
use crate::network::NetworkAttachment;
use crate::ownership::Ownership;
use crate::pci::{PciAliases, PciRequest};
use crate::pmem::PmemDemand;
use crate::refusal::Refusal;

/// What the guest starts from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BootSource {
    /// A kernel, with an initial RAM disk or without; both are file names in the hosts' image directory.
    Kernel {
        /// The kernel's file name.
        kernel: String,
        /// The initial RAM disk's file name; empty if the kernel needs none. A text and no option: so it is
        /// stored, and sent, by programs that require one.
        initrd: String,
        /// The kernel's command line.
        cmdline: String,
    },
    /// The first disk.
    Disk,
}

/// A disk of a guest: a copy-on-write layer of the VM's own over an image.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Disk {
    /// The image's file name in the hosts' image directory; absent for an empty disk.
    pub image: Option<String>,
    /// The format of the image.
    pub format: DiskFormat,
    /// The size of the disk in GiB, counted as `DISK_GB`; 0 for a seed.
    pub size_gib: u64,
    /// Whether it is the seed: the disk from which the guest reads what it was given for its first boot.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub seed: bool,
}

/// The size of a seed in bytes.
pub const SEED_BYTES: u64 = 2 << 20;

impl Disk {
    /// The seed. It is a disk of its own, so that it goes wherever the guest's disks go.
    pub const SEED: Self = Self {
        image: None,
        format: DiskFormat::Raw,
        size_gib: 0,
        seed: true,
    };

    /// Returns its size in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        match self.seed {
            true => SEED_BYTES,
            false => self.size_gib.saturating_mul(1 << 30),
        }
    }
}

/// A network interface of a guest.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Nic {
    /// The host's bridge that it is plugged into; empty where it is on a network of the cluster.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub bridge: String,
    /// The network of the cluster that it is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkAttachment>,
    /// Its MAC address, as `52:54:00:12:34:56`, in lower case.
    pub mac: String,
}

/// A network interface that a new guest is to have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NicRequest {
    /// What it is plugged into.
    pub plug: NicPlug,
    /// Its MAC address; empty where one is to be chosen.
    pub mac: String,
}

/// What a requested interface is plugged into.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NicPlug {
    /// A bridge of whichever host it is.
    Bridge(String),
    /// A network of the cluster.
    Network(NetworkName),
}

impl From<&Nic> for NicRequest {
    fn from(nic: &Nic) -> Self {
        Self {
            plug: match &nic.network {
                Some(attachment) => NicPlug::Network(attachment.name.clone()),
                None => NicPlug::Bridge(nic.bridge.clone()),
            },
            mac: nic.mac.clone(),
        }
    }
}

/// The user's specification of the VM. It changes while the VM lives only with the images of a
/// rebuild.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VmSpec {
    /// A copy of the flavor as it was when the VM was made.
    pub flavor: Flavor,
    /// What the guest starts from.
    pub boot: BootSource,
    /// Its disks, in order.
    pub disks: Vec<Disk>,
    /// Its network interfaces, in order.
    pub nics: Vec<Nic>,
    /// The properties of the image that it is made from.
    #[serde(default, skip_serializing_if = "ImageProperties::is_empty")]
    pub image_properties: ImageProperties,
    /// Copies of the PCI aliases that the flavor names, as they were when the VM was made.
    #[serde(default, skip_serializing_if = "PciAliases::is_empty")]
    pub pci_aliases: PciAliases,
    /// The topology that flavor and image require; absent for a guest that does not care.
    pub topology: Option<InstanceTopology>,
    /// How the guest sees its vCPUs, where flavor or image set it.
    pub cpu_shape: Option<CpuShape>,
    /// The PCI functions that the flavor requests.
    #[serde(default)]
    pub pci: Vec<PciRequest>,
    /// Placement hints, beside the requirements of flavor and image.
    #[serde(default, skip_serializing_if = "SchedulingHints::is_empty")]
    pub hints: SchedulingHints,
    /// The volumes of persistent memory that it has, in order. They were made before it, stay where
    /// they are, and outlive it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeAttachment>,
}

/// Where a VM is to be placed, as its user requested.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SchedulingHints {
    /// The server group that it belongs to.
    #[serde(default)]
    pub server_group: Option<ServerGroupName>,
    /// The availability zone that it is to be in; any host if absent.
    #[serde(default)]
    pub availability_zone: Option<ZoneName>,
}

impl SchedulingHints {
    /// Returns whether no hint is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl VmSpec {
    /// Returns whether the guest has an exact demand: cells, or PCI functions.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.topology.is_some() || !self.pci.is_empty()
    }

    /// Returns whether the guest was given something for its first boot.
    #[must_use]
    pub fn has_seed(&self) -> bool {
        self.disks.iter().any(|disk| disk.seed)
    }

    /// Returns the networks of the cluster that the guest is on, one for each interface on one.
    pub fn networks(&self) -> impl Iterator<Item = &NetworkAttachment> {
        self.nics.iter().filter_map(|nic| nic.network.as_ref())
    }

    /// Returns the persistent memory that the guest requests.
    #[must_use]
    pub fn pmem_demand(&self) -> PmemDemand {
        self.flavor.pmem_demand()
    }
}

/// The state of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum State {
    /// A host is being chosen, or the guest is being started there.
    Building,
    /// It runs.
    Active,
    /// It runs, and is being moved.
    Migrating,
    /// It is being stopped and taken away.
    Deleting,
    /// It does not run, or it is not known whether it does; see [`Vm::error`].
    Error,
    /// It does not run; its claim and its disks are retained.
    Stopped,
    /// It was resized, and the old claim is retained until that is confirmed or reverted.
    Resized,
    /// It does not run and has no claim; its disks remain on the host.
    Shelved,
}

impl State {
    /// All states, for tables.
    pub const ALL: [Self; 8] = [
        Self::Building,
        Self::Active,
        Self::Migrating,
        Self::Deleting,
        Self::Error,
        Self::Stopped,
        Self::Resized,
        Self::Shelved,
    ];

    /// Returns the word for it, as tables and messages show it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Building => "BUILDING",
            Self::Active => "ACTIVE",
            Self::Migrating => "MIGRATING",
            Self::Deleting => "DELETING",
            Self::Error => "ERROR",
            Self::Stopped => "STOPPED",
            Self::Resized => "RESIZED",
            Self::Shelved => "SHELVED",
        }
    }

    /// Returns whether a guest runs on the active claim of a VM in this state, as far as the
    /// cluster knows. One that is resized may have been off before; that is not recorded here.
    #[must_use]
    pub fn may_run(self) -> bool {
        match self {
            Self::Active | Self::Migrating | Self::Resized => true,
            Self::Building | Self::Deleting | Self::Error | Self::Stopped | Self::Shelved => false,
        }
    }
}

/// What can happen to a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Event {
    /// The guest runs on its first host.
    Booted,
    /// The boot was given up and undone.
    BootFailed,
    /// A migration began.
    MigrationBegan,
    /// A migration ended, on either side, with the guest running.
    MigrationEnded,
    /// The guest was found to run nowhere.
    Lost,
    /// A deletion began.
    DeleteBegan,
    /// It was brought elsewhere while it did not run; it does again if it did before.
    Moved,
    /// It was brought elsewhere, or made another size, and that is to be verified.
    Resized,
    /// What had been resized was confirmed or reverted, and runs.
    ResizeEndedRunning,
    /// What had been resized was confirmed or reverted, and does not run.
    ResizeEndedStopped,
    /// It was stopped, and its host given back.
    Shelved,
    /// It runs on a host that was newly chosen.
    Unshelved,
    /// The guest was found to run on its claim.
    PoweredOn,
    /// The guest was found not to run, with its disks whole.
    PoweredOff,
    /// The guest's disks were being recreated, and that failed half-way.
    Broke,
}

impl Event {
    /// All events, for tables.
    pub const ALL: [Self; 15] = [
        Self::Booted,
        Self::BootFailed,
        Self::MigrationBegan,
        Self::MigrationEnded,
        Self::Lost,
        Self::DeleteBegan,
        Self::Moved,
        Self::Resized,
        Self::ResizeEndedRunning,
        Self::ResizeEndedStopped,
        Self::Shelved,
        Self::Unshelved,
        Self::PoweredOn,
        Self::PoweredOff,
        Self::Broke,
    ];
}

/// The event cannot happen in this state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a VM in state {state:?} refuses event {event:?}")]
pub struct Refused {
    /// The state.
    pub state: State,
    /// The event.
    pub event: Event,
}

impl State {
    /// Returns the state after `event`.
    ///
    /// # Errors
    ///
    /// When the event cannot happen in this state.
    pub fn transition(self, event: Event) -> Result<Self, Refused> {
        match (self, event) {
            (Self::Building, Event::Booted) | (Self::Migrating, Event::MigrationEnded) => {
                Ok(Self::Active)
            }
            (Self::Active, Event::MigrationBegan) => Ok(Self::Migrating),
            (Self::Building, Event::BootFailed) | (Self::Active | Self::Migrating, Event::Lost) => {
                Ok(Self::Error)
            }
            (
                Self::Active | Self::Error | Self::Stopped | Self::Resized | Self::Shelved,
                Event::DeleteBegan,
            ) => Ok(Self::Deleting),
            (Self::Active | Self::Stopped, Event::Moved) => Ok(self),
            (Self::Active | Self::Stopped, Event::Resized) => Ok(Self::Resized),
            (Self::Resized, Event::ResizeEndedRunning) | (Self::Shelved, Event::Unshelved) => {
                Ok(Self::Active)
            }
            (Self::Resized, Event::ResizeEndedStopped) => Ok(Self::Stopped),
            (Self::Active | Self::Stopped, Event::Shelved) => Ok(Self::Shelved),
            (Self::Active | Self::Error | Self::Stopped, Event::PoweredOn) => Ok(Self::Active),
            (Self::Active | Self::Error | Self::Stopped, Event::PoweredOff) => Ok(Self::Stopped),
            (Self::Active | Self::Error | Self::Stopped, Event::Broke) => Ok(Self::Error),
            (
                Self::Building
                | Self::Active
                | Self::Migrating
                | Self::Deleting
                | Self::Error
                | Self::Stopped
                | Self::Resized
                | Self::Shelved,
                _,
            ) => Err(Refused { state: self, event }),
        }
    }
}

/// A virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Vm {
    /// Its name.
    pub name: VmName,
    /// This life of that name; also the guest's UUID.
    pub uid: VmUid,
    /// The user's specification of the VM.
    pub spec: VmSpec,
    /// The state.
    pub state: State,
    /// The host that holds it, once one does.
    pub host: Option<HostName>,
    /// Its claim there.
    pub claim: Option<ClaimId>,
    /// Where the files of a guest that was lost, or is shelved, still are; its deletion removes
    /// them there.
    pub remains_on: Option<HostName>,
    /// The operation that works on it.
    pub operation: Option<OperationId>,
    /// Why it is in [`State::Error`].
    pub error: Option<Refusal>,
    /// Changes with every change of this record.
    pub generation: Generation,
    /// When it was requested.
    pub created_at: TimeMs,
    /// What the agent found to be wrong with the guest that should run. Only while it is ACTIVE on
    /// that claim: see [`Vm::settle`].
    #[serde(default)]
    pub trouble: Option<Trouble>,
    /// When it is started again by itself, and when it was.
    #[serde(default, skip_serializing_if = "Restarts::is_default")]
    pub restarts: Restarts,
    /// What operators write on it.
    #[serde(flatten)]
    pub metadata: Metadata,
    /// Its project and its creator.
    #[serde(flatten)]
    pub ownership: Ownership,
    /// What the guest is given for its first boot, as long as that lasts. May hold secrets: it is in no
    /// response but to the conductor that carries the boot out.
    #[serde(skip)]
    pub first_boot: Option<Arc<FirstBoot>>,
}

impl Vm {
    /// Returns how a hint begins that names its deletion or its rebuild: with what lifts its protection, where
    /// it is protected.
    #[must_use]
    pub fn unprotect_first(&self) -> String {
        match self.metadata.protected {
            true => format!(
                "lift its protection first: `berth vm set {} --unprotect`; then ",
                self.name
            ),
            false => String::new(),
        }
    }

    /// Forgets a trouble that is none any more: of another claim, or of a VM that is not to run; that
    /// restarts were used up, of one that runs; and what the guest was given for its first boot, of one
    /// that has begun it or never will.
    pub fn settle(&mut self) {
        let (state, claim) = (self.state, self.claim);
        self.trouble
            .take_if(|trouble| state != State::Active || claim != Some(trouble.claim));
        self.restarts.gave_up_at.take_if(|_| state == State::Active);
        self.first_boot.take_if(|_| state != State::Building);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the machine is total and has exactly the drawn edges. Method: the full product.
    #[test]
    fn every_state_meets_every_event() {
        let mut edges = Vec::new();
        for state in State::ALL {
            for event in Event::ALL {
                if let Ok(next) = state.transition(event) {
                    edges.push((state, event, next));
                }
            }
        }
        use {Event as E, State as S};
        assert_eq!(
            edges,
            [
                (S::Building, E::Booted, S::Active),
                (S::Building, E::BootFailed, S::Error),
                (S::Active, E::MigrationBegan, S::Migrating),
                (S::Active, E::Lost, S::Error),
                (S::Active, E::DeleteBegan, S::Deleting),
                (S::Active, E::Moved, S::Active),
                (S::Active, E::Resized, S::Resized),
                (S::Active, E::Shelved, S::Shelved),
                (S::Active, E::PoweredOn, S::Active),
                (S::Active, E::PoweredOff, S::Stopped),
                (S::Active, E::Broke, S::Error),
                (S::Migrating, E::MigrationEnded, S::Active),
                (S::Migrating, E::Lost, S::Error),
                (S::Error, E::DeleteBegan, S::Deleting),
                (S::Error, E::PoweredOn, S::Active),
                (S::Error, E::PoweredOff, S::Stopped),
                (S::Error, E::Broke, S::Error),
                (S::Stopped, E::DeleteBegan, S::Deleting),
                (S::Stopped, E::Moved, S::Stopped),
                (S::Stopped, E::Resized, S::Resized),
                (S::Stopped, E::Shelved, S::Shelved),
                (S::Stopped, E::PoweredOn, S::Active),
                (S::Stopped, E::PoweredOff, S::Stopped),
                (S::Stopped, E::Broke, S::Error),
                (S::Resized, E::DeleteBegan, S::Deleting),
                (S::Resized, E::ResizeEndedRunning, S::Active),
                (S::Resized, E::ResizeEndedStopped, S::Stopped),
                (S::Shelved, E::DeleteBegan, S::Deleting),
                (S::Shelved, E::Unshelved, S::Active),
            ]
        );
    }
}
