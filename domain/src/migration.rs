//! One attempt to move a VM: its state machine, and the `migrate_data` that its agents exchange.
//!
//! ```text
//!   PREPARING ──begin──▶ RUNNING ──arrived──────────▶ COMPLETED
//!       │ refuse            │  │   stayed
//!       ▼                   │  └────────────────────▶ FAILED
//!     FAILED                └──unknown──▶ UNSETTLED ──arrived / stayed / lost──▶ …
//! ```
//!
//! While the VM does not run (a cold migration, a resize, an evacuation):
//!
//! ```text
//!   PREPARING ──moved──▶ COMPLETED
//!       │ └─────resized──▶ VERIFYING ──confirmed──▶ COMPLETED
//!       ▼ refuse               └──────reverted────▶ REVERTED
//!     FAILED
//! ```
//!
//! Invariant: in PREPARING nothing has moved and the VM is the source's; from RUNNING on both
//! claims stay until the two hypervisors have reported where the guest is.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::claim::Claim;
use crate::cpu_set::CpuSet;
use crate::id::{ClaimId, Generation, MigrationId, OperationId, TimeMs, VmUid};
use crate::instance::InstanceNumaTopology;
use crate::name::{HostName, VmName};
use crate::network::BridgeMapping;
use crate::numa::Assignment;
use crate::pci::PciAddress;
use crate::refusal::Refusal;
use crate::transfer::{DiskCopy, TransferPolicy, Tried};
use crate::vm::VmSpec;

/// The state of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum State {
    /// A destination is chosen, claimed and prepared; nothing has moved.
    Preparing,
    /// The hypervisors are moving the guest: the point of no return is passed.
    Running,
    /// It cannot be known yet where the guest is; both claims are retained.
    Unsettled,
    /// The guest runs on the destination.
    Completed,
    /// The guest remained on the source, or was lost.
    Failed,
    /// The guest is on the destination, and its claim on the source is retained until that is
    /// confirmed or reverted.
    Verifying,
    /// It was reverted: the guest is on the source again.
    Reverted,
}

impl State {
    /// All states, for tables.
    pub const ALL: [Self; 7] = [
        Self::Preparing,
        Self::Running,
        Self::Unsettled,
        Self::Completed,
        Self::Failed,
        Self::Verifying,
        Self::Reverted,
    ];

    /// Returns the word for it, as tables and messages show it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Preparing => "PREPARING",
            Self::Running => "RUNNING",
            Self::Unsettled => "UNSETTLED",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Verifying => "VERIFYING",
            Self::Reverted => "REVERTED",
        }
    }

    /// Returns whether nothing more will happen.
    #[must_use]
    pub fn is_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Reverted)
    }
}

/// What can happen to a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Event {
    /// It was refused or given up before anything moved.
    Refuse,
    /// The source is about to be instructed to start.
    Begin,
    /// The guest runs on the destination, and the source no longer has it.
    Arrived,
    /// The guest runs on the source, and the destination does not have it.
    Stayed,
    /// Both, or an unreachable one: it cannot be known.
    Unknown,
    /// Both hypervisors report that they do not have it.
    Lost,
    /// The VM, which did not run meanwhile, is on the destination for good.
    Moved,
    /// The VM, which did not run meanwhile, is on the destination until that is verified.
    Resized,
    /// The user keeps what it brought.
    Confirmed,
    /// The VM is on the source again.
    Reverted,
}

impl Event {
    /// All events, for tables.
    pub const ALL: [Self; 10] = [
        Self::Refuse,
        Self::Begin,
        Self::Arrived,
        Self::Stayed,
        Self::Unknown,
        Self::Lost,
        Self::Moved,
        Self::Resized,
        Self::Confirmed,
        Self::Reverted,
    ];
}

/// The event cannot happen in this state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a migration in state {state:?} refuses event {event:?}")]
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
            (Self::Preparing, Event::Refuse)
            | (Self::Running | Self::Unsettled, Event::Stayed | Event::Lost) => Ok(Self::Failed),
            (Self::Preparing, Event::Begin) => Ok(Self::Running),
            (Self::Running | Self::Unsettled, Event::Arrived) => Ok(Self::Completed),
            (Self::Running | Self::Unsettled, Event::Unknown) => Ok(Self::Unsettled),
            (Self::Preparing, Event::Moved) | (Self::Verifying, Event::Confirmed) => {
                Ok(Self::Completed)
            }
            (Self::Preparing, Event::Resized) => Ok(Self::Verifying),
            (Self::Verifying, Event::Reverted) => Ok(Self::Reverted),
            (
                Self::Preparing
                | Self::Running
                | Self::Unsettled
                | Self::Completed
                | Self::Failed
                | Self::Verifying
                | Self::Reverted,
                _,
            ) => Err(Refused { state: self, event }),
        }
    }
}

/// What the agents of a live migration send each other through the conductor (OpenStack's
/// `LiveMigrateData`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MigrateData {
    /// The VM.
    pub vm: VmName,
    /// This life of it.
    pub vm_uid: VmUid,
    /// The user's specification of the VM.
    pub spec: VmSpec,
    /// The URI that the guest's memory is sent to. Set by the destination.
    pub destination_uri: String,
    /// The destination's shared CPUs: what does not care where it runs floats over them there.
    pub destination_shared: CpuSet,
    /// With which bridges the destination reaches physical networks.
    #[serde(default)]
    pub destination_bridges: Vec<BridgeMapping>,
    /// The guest's topology: from the source as it is, from the destination as it will be. Dropped
    /// by agents older than
    /// [`ServiceVersion::NUMA_LIVE_MIGRATION`](crate::version::ServiceVersion::NUMA_LIVE_MIGRATION).
    pub numa_topology: Option<InstanceNumaTopology>,
    /// The claim on the destination, as confirmed or swapped by its agent.
    pub claim: Option<Claim>,
    /// The PCI functions that the guest has on the source, request by request; see
    /// [`Self::pci_map`].
    #[serde(default)]
    pub source_pci: Vec<BTreeSet<PciAddress>>,
    /// How the guest may be sent. Dropped by agents older than
    /// [`ServiceVersion::TRANSFER_CONTROL`](crate::version::ServiceVersion::TRANSFER_CONTROL),
    /// which do as they are set up.
    #[serde(default)]
    pub transfer: TransferPolicy,
    /// The disks that the hypervisor copies, as the source reports; the others are shared. Never
    /// from or to agents older than
    /// [`ServiceVersion::DISK_COPY`](crate::version::ServiceVersion::DISK_COPY).
    #[serde(default)]
    pub disk_copies: Vec<DiskCopy>,
    /// Whether memory and copied disks are sent encrypted, as the source reports; see
    /// [`crate::migration_tls`].
    #[serde(default)]
    pub tls: bool,
}

impl MigrateData {
    /// Returns which function of the destination each function of the source becomes: those of one
    /// request in the order of their addresses, which is that of the guest's devices. Without a
    /// claim there is none.
    #[must_use]
    pub fn pci_map(&self) -> BTreeMap<PciAddress, PciAddress> {
        let claimed = self.claim.iter().flat_map(|claim| &claim.assignment.pci);
        let requests = self.source_pci.iter().zip(claimed);
        requests
            .flat_map(|(here, there)| here.iter().copied().zip(there.iter().copied()))
            .collect()
    }
}

/// How a VM is moved.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Kind {
    /// While it runs.
    #[default]
    Live,
    /// While it does not run: a cold migration, or a resize.
    Cold,
    /// From a host that is proven to be dead.
    Evacuation,
}

/// Another size of a VM.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Resize {
    /// The specification before.
    pub before: VmSpec,
    /// The user's request now.
    pub after: VmSpec,
}

/// One attempt to move a VM.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Migration {
    /// Who it is.
    pub id: MigrationId,
    /// The VM.
    pub vm: VmName,
    /// Where the VM is.
    pub source: HostName,
    /// The claim there.
    pub source_claim: ClaimId,
    /// The host that the user named, if any.
    pub requested: Option<HostName>,
    /// Where the VM goes, once chosen.
    pub destination: Option<HostName>,
    /// The claim there, as long as it is the migration's or the VM's.
    pub destination_claim: Option<ClaimId>,
    /// The state.
    pub state: State,
    /// Why it failed, or what an unsettled one waits for.
    pub error: Option<Refusal>,
    /// The exact assignment on the source when it began.
    pub assignment_before: Assignment,
    /// The exact assignment on the destination as last claimed.
    pub assignment_after: Option<Assignment>,
    /// The operation that carries it out.
    pub operation: OperationId,
    /// Changes with every change of this record.
    pub generation: Generation,
    /// When it was requested.
    pub created_at: TimeMs,
    /// When it ended.
    pub ended_at: Option<TimeMs>,
    /// How the VM is moved.
    #[serde(default)]
    pub kind: Kind,
    /// Whether the VM did not run when it began, and so is not started.
    #[serde(default)]
    pub was_stopped: bool,
    /// Whether it waits to be confirmed or reverted.
    #[serde(default)]
    pub verify: bool,
    /// The VM's size before and after, where it changes.
    #[serde(default)]
    pub resize: Option<Box<Resize>>,
    /// How the guest may be sent: the cluster's policy and the user's overrides when it began.
    #[serde(default)]
    pub transfer: TransferPolicy,
    /// How many hosts are tried.
    #[serde(default = "hosts_tried_default")]
    pub hosts_tried_max: u32,
    /// The hosts that were tried and not taken, oldest first; at most as many as are tried.
    #[serde(default)]
    pub tried: Vec<Tried>,
    /// Whether the destination fetches the disks of the VM, which does not run meanwhile, since the
    /// two hosts do not share them. Set with each claim on a destination, and not changed
    /// afterwards, whatever the hosts report later: it is what was done.
    #[serde(default)]
    pub fetches_disks: bool,
}

fn hosts_tried_default() -> u32 {
    crate::transfer::HOSTS_TRIED_DEFAULT
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the machine is total, ends stay ended, and nothing but the hypervisors' word ends it
    /// once it runs. Method: the full product.
    #[test]
    fn every_state_meets_every_event() {
        for state in State::ALL {
            for event in Event::ALL {
                let next = state.transition(event);
                if state.is_ended() {
                    assert!(next.is_err(), "{state:?} {event:?}");
                }
                if event == Event::Refuse {
                    assert_eq!(next.is_ok(), state == State::Preparing);
                }
            }
        }
        assert_eq!(
            State::Unsettled.transition(Event::Arrived),
            Ok(State::Completed)
        );
    }
}
