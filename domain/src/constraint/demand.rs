//! What a guest demands of a host.

use std::collections::{BTreeMap, BTreeSet};

use super::leaving;
use crate::aggregate::AggregateSpecs;
use crate::allocation::Resources;
use crate::claim::Claim;
use crate::cpu_model::CpuDemand;
use crate::fault;
use crate::flavor::Requirements;
use crate::host::Host;
use crate::instance::InstanceTopology;
use crate::name::{HostName, VolumeId, ZoneName};
use crate::network::NetworkAttachment;
use crate::pci::PciRequest;
use crate::platform::PlatformDemand;
use crate::pmem::PmemDemand;
use crate::refusal::Refusal;
use crate::resource::Trait;
use crate::server_group::GroupDemand;
use crate::topology::CellId;
use crate::version::ServiceVersion;
use crate::vm::VmSpec;

/// What a guest demands of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Counted amounts.
    pub resources: Resources,
    /// Exact cells; absent for a guest that does not care.
    pub topology: Option<InstanceTopology>,
    /// PCI functions.
    pub pci: Vec<PciRequest>,
    /// Persistent memory.
    pub pmem: PmemDemand,
    /// Qualities that the host must have.
    pub required: BTreeSet<Trait>,
    /// Qualities that the host must not have.
    pub forbidden: BTreeSet<Trait>,
    /// Where the guest is now, if it is to move.
    pub leaving: Option<Leaving>,
    /// Its server group, and where the other members are. Only the state knows; it fills it in.
    pub group: Option<GroupDemand>,
    /// Its volumes, and where they are. Only the state knows; it fills it in.
    pub volumes: Vec<VolumeLocation>,
    /// The availability zone that the user requested.
    pub zone: Option<ZoneName>,
    /// The metadata that the aggregates of the host must have.
    pub aggregate_specs: AggregateSpecs,
    /// What kind of machine its image requests.
    pub platform: PlatformDemand,
    /// Whether it was given something for its first boot.
    pub has_seed: bool,
    /// The CPU that it is to have, or runs with. A baseline is computed by the state, which fills it in.
    pub cpu: CpuDemand,
    /// The networks of the cluster that it is on.
    pub networks: Vec<NetworkAttachment>,
}

/// Where a volume of a guest is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeLocation {
    /// Which.
    pub volume: VolumeId,
    /// Whether it becomes an nvdimm of the guest, rather than a disk.
    pub is_nvdimm: bool,
    /// The hosts on which the guest can have it, with the cell that it is attached to where the
    /// host reports it; several only for a cache.
    pub hosts: BTreeMap<HostName, Option<CellId>>,
}

/// How a guest is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveKind {
    /// While it runs.
    Live,
    /// While it does not run.
    Cold {
        /// Whether it may come back to the host where it is.
        may_stay: bool,
    },
}

/// Why a guest is restarted with the disks that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartReason {
    /// It is moved to another host.
    Move,
    /// It gets another size, on any host.
    Resize,
    /// Its host is dead.
    Evacuation,
    /// It was shelved, and is on no host.
    Unshelving,
}

impl RestartReason {
    /// Returns why the guest of a migration is restarted.
    #[must_use]
    pub fn of_move(is_evacuated: bool, is_resized: bool) -> Self {
        match (is_evacuated, is_resized) {
            (true, _) => Self::Evacuation,
            (false, true) => Self::Resize,
            (false, false) => Self::Move,
        }
    }

    /// Returns whether it may come back to the host where its disks are.
    fn may_stay(self) -> bool {
        match self {
            Self::Resize | Self::Unshelving => true,
            Self::Move | Self::Evacuation => false,
        }
    }

    /// Returns whether its disks can be fetched from there: nothing is read from a host that is
    /// dead, and an unshelving calls no host but the one where the guest is to start.
    fn can_fetch(self) -> bool {
        match self {
            Self::Move | Self::Resize => true,
            Self::Evacuation | Self::Unshelving => false,
        }
    }
}

/// What matters of the host that a guest is to leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// How it is moved.
    pub kind: MoveKind,
    /// The host.
    pub host: HostName,
    /// What its agent can do.
    pub version: ServiceVersion,
    /// Its hypervisor driver.
    pub driver: String,
    /// Its storage of guest disks.
    pub storage_id: String,
    /// Whether the guest has disks.
    pub has_disks: bool,
    /// Whether an agent there can send them.
    pub can_be_read: bool,
}

impl Leaving {
    fn of(spec: &VmSpec, source: &Host, kind: MoveKind) -> Self {
        Self {
            kind,
            host: source.name.clone(),
            version: source.report.service_version,
            driver: source.report.driver.clone(),
            storage_id: source.report.storage_id.clone(),
            has_disks: !spec.disks.is_empty(),
            can_be_read: true,
        }
    }
}

impl Demand {
    /// Returns what a new guest demands.
    ///
    /// # Errors
    ///
    /// The specification is not valid.
    pub fn boot(spec: &VmSpec) -> Result<Self, Refusal> {
        let requirements = spec
            .validate()
            .map_err(|faults| fault::refusal("vm", &faults))?;
        let mut demand = Self::new(requirements);
        demand.zone = spec.hints.availability_zone.clone();
        demand.has_seed = spec.has_seed();
        demand.networks = spec.networks().cloned().collect();
        Ok(demand)
    }

    /// Returns what a guest demands that runs on `source` under `claim`, of another host. Its pages
    /// keep their size, its PCI functions their model, its persistent memory size and alignment, and
    /// its CPU stays what it is.
    ///
    /// # Errors
    ///
    /// The specification is not valid, or the guest has PCI functions with which it cannot be
    /// moved while it runs.
    pub fn migration(spec: &VmSpec, claim: &Claim, source: &Host) -> Result<Self, Refusal> {
        let mut demand = Self::boot(spec)?;
        demand.pci = leaving::requests(spec, claim, source)?;
        demand.topology = demand.topology.map(|wish| wish.settled(&claim.assignment));
        demand.pmem = demand.pmem.settled(&claim.assignment.pmem);
        demand.cpu = CpuDemand::running(claim.cpu.as_ref());
        demand.leaving = Some(Leaving::of(spec, source, MoveKind::Live));
        Ok(demand)
    }

    /// Returns what a guest demands that is to be restarted with the disks that it has on
    /// `source`: of another host, or, if it may stay, of any. Everything but its disks is chosen
    /// again, as for a new guest.
    ///
    /// # Errors
    ///
    /// The specification is not valid.
    pub fn cold(spec: &VmSpec, source: &Host, reason: RestartReason) -> Result<Self, Refusal> {
        let mut demand = Self::boot(spec)?;
        let may_stay = reason.may_stay();
        demand.leaving = Some(Leaving {
            can_be_read: reason.can_fetch(),
            ..Leaving::of(spec, source, MoveKind::Cold { may_stay })
        });
        Ok(demand)
    }

    fn new(requirements: Requirements) -> Self {
        Self {
            resources: requirements.resources,
            topology: requirements.topology,
            pci: requirements.pci,
            pmem: requirements.pmem,
            required: requirements.required_traits,
            forbidden: requirements.forbidden_traits,
            leaving: None,
            group: None,
            volumes: Vec::new(),
            zone: None,
            aggregate_specs: requirements.aggregate_specs,
            platform: requirements.platform,
            has_seed: false,
            cpu: requirements.cpu_model.demand(),
            networks: Vec::new(),
        }
    }
}
