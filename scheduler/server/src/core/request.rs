//! What a client, a conductor or an agent can ask that changes the state.
//!
//! Not the wire: `service` converts from it, the simulator makes requests itself. Every fresh id
//! that a request may need is inside, made by whoever received it, so that deciding stays pure.

use std::collections::BTreeSet;

use berth_domain::id::{ClaimId, Epoch, Generation, MigrationId, OperationId, VmUid};
use berth_domain::image::ImageProperties;
use berth_domain::name::{FlavorName, HostName, VmName};
use berth_domain::numa::Assignment;
use berth_domain::policy::{Scope, Setting};
use berth_domain::topology::CellId;
use berth_domain::transfer::TransferWishes;
use berth_domain::vm::{BootSource, Disk, Nic, SchedulingHints, VolumeAttachment};
use berth_domain::volume::{DisplayName, Kind, Parameters};
use berth_state::command::{Command, LeaseRequest, RequestKey};
use uuid::Uuid;

/// A request with what surrounds every request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// On whose behalf, as `unverified:127.0.0.1`.
    pub principal: String,
    /// Present where the client may retry.
    pub key: Option<RequestKey>,
    /// Whether the decision is only to be explained, not made.
    pub validate_only: bool,
    /// What is asked.
    pub request: Request,
}

impl Ask {
    /// On whose behalf a leader does by itself what is its duty.
    pub const LEADER: &str = "berth:scheduler";

    /// Returns whether nobody asks: it is a duty of the leader.
    #[must_use]
    pub fn is_duty(&self) -> bool {
        self.principal == Self::LEADER
    }

    /// Returns a request that is not retried.
    #[must_use]
    pub fn new(principal: impl Into<String>, request: Request) -> Self {
        Self {
            principal: principal.into(),
            key: None,
            validate_only: false,
            request,
        }
    }
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Makes a VM: chooses its host, claims there and begins the boot.
    ScheduleVm(ScheduleVm),
    /// Begins a migration: chooses or examines the destination and claims there.
    ScheduleMigration(ScheduleMigration),
    /// Begins a cold migration, a resize or an evacuation: chooses or examines the destination and
    /// claims there.
    ScheduleMove(ScheduleMove),
    /// Begins to start a shelved VM: chooses or examines its host and claims there.
    ScheduleUnshelve(ScheduleUnshelve),
    /// Chooses and claims the next host for an operation whose host refused.
    ScheduleNext {
        /// The operation.
        operation: OperationId,
        /// The lease under which it is asked.
        epoch: Epoch,
        /// The new claim.
        claim: ClaimId,
    },
    /// Changes what is preferred.
    SetPolicy {
        /// For what it is set.
        scope: Scope,
        /// What is set; the rest stays.
        settings: Vec<Setting>,
        /// The generation that the client saw; absent: whatever it is.
        generation: Option<Generation>,
    },
    /// Makes a volume: chooses its hosts and regions and claims there.
    CreateVolume(Box<CreateVolume>),
    /// Asks for a command as it is: no host is to be chosen for it.
    Plain(Command),
}

/// A VM to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleVm {
    /// The operation that boots it.
    pub operation: OperationId,
    /// The VM's name.
    pub vm: VmName,
    /// This life of it.
    pub uid: VmUid,
    /// The claim on the chosen host.
    pub claim: ClaimId,
    /// Its flavor.
    pub flavor: FlavorName,
    /// What the guest starts from.
    pub boot: BootSource,
    /// Its disks.
    pub disks: Vec<Disk>,
    /// Its network interfaces; an empty MAC address is made from the VM's uid.
    pub nics: Vec<Nic>,
    /// The properties of the image that it is made from.
    pub image_properties: ImageProperties,
    /// Where it is to go.
    pub hints: SchedulingHints,
    /// The volumes that it has.
    pub volumes: Vec<VolumeAttachment>,
    /// The host that the user named, if any.
    pub host: Option<HostName>,
    /// Who carries the boot out.
    pub lease: LeaseRequest,
}

/// A VM to be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleMigration {
    /// The operation that moves it.
    pub operation: OperationId,
    /// The attempt.
    pub migration: MigrationId,
    /// The VM.
    pub vm: VmName,
    /// The claim on the destination.
    pub claim: ClaimId,
    /// The host that the user named, if any.
    pub host: Option<HostName>,
    /// Who carries the migration out.
    pub lease: LeaseRequest,
    /// How the guest is to be sent, otherwise than the policy says.
    pub transfer: TransferWishes,
}

/// A VM to be moved while it does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleMove {
    /// The operation that moves it.
    pub operation: OperationId,
    /// The attempt.
    pub migration: MigrationId,
    /// The VM.
    pub vm: VmName,
    /// The claim on the destination.
    pub claim: ClaimId,
    /// Its flavor from now on; absent: as it is.
    pub flavor: Option<FlavorName>,
    /// The host that the user named, if any.
    pub host: Option<HostName>,
    /// Where a plan has it: taken if it still will do, else a host is chosen.
    pub preferred: Option<Preferred>,
    /// Whether it waits to be confirmed or reverted.
    pub verify: bool,
    /// Whether the VM's host is dead, and it is started elsewhere.
    pub evacuate: bool,
    /// Who carries it out.
    pub lease: LeaseRequest,
}

/// Where a plan has a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preferred {
    /// The host.
    pub host: HostName,
    /// What it takes there; absent: it is fitted anew.
    pub assignment: Option<Assignment>,
}

/// A shelved VM to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleUnshelve {
    /// The operation that starts it.
    pub operation: OperationId,
    /// The VM.
    pub vm: VmName,
    /// The claim on the chosen host.
    pub claim: ClaimId,
    /// The host that the user named, if any.
    pub host: Option<HostName>,
    /// Who carries it out.
    pub lease: LeaseRequest,
}

/// A volume to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateVolume {
    /// The number in its id.
    pub number: Uuid,
    /// What people call it.
    pub display_name: DisplayName,
    /// How long it lives, and where.
    pub kind: Kind,
    /// What its hosts have to know.
    pub parameters: Parameters,
    /// How much of it must be usable at least, in bytes.
    pub required_bytes: u64,
    /// How much at most; 0: no limit.
    pub limit_bytes: u64,
    /// On how many hosts.
    pub replicas: usize,
    /// The hosts that are tried first, in this order.
    pub preferred: Vec<HostName>,
    /// The hosts that may be taken at all; empty: all.
    pub requisite: BTreeSet<HostName>,
    /// The cell of the host that it is to be near to.
    pub preferred_cell: Option<CellId>,
}
