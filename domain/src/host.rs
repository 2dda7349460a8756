//! A compute host: what its agent reports, and what the cluster knows of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::cpu_model::HostCpu;
use crate::fence::Fenced;
use crate::host_rule::HostRule;
use crate::id::{ClaimId, Generation, Incarnation, OperationId, ProviderId, TimeMs};
use crate::inventory::Inventory;
use crate::name::HostName;
use crate::network::HostNetwork;
use crate::numa::{Limits, ThreadRules};
use crate::overcommit::AllocationRatio;
use crate::platform::Platform;
use crate::reality::Unknown;
use crate::resource::{ResourceClass, Trait};
use crate::topology::HostTopology;
use crate::version::ServiceVersion;
use crate::volume::{Failed, Region};

/// The driver of a host that runs no guests: it is there for its volumes.
pub const NO_DRIVER: &str = "none";

/// What an agent reports of its host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostReport {
    /// Where the conductor reaches the agent, as `http://10.0.0.1:7300`.
    pub agent_address: String,
    /// This run of the agent's process.
    pub incarnation: Incarnation,
    /// What the agent can do.
    pub service_version: ServiceVersion,
    /// The hypervisor driver, as `sim` or `libvirt`; [`NO_DRIVER`] where no guests run.
    pub driver: String,
    /// Where another hypervisor sends guest memory to, as `qemu+tcp://h2/system`.
    pub migration_uri: String,
    /// The shape of the host.
    pub topology: Arc<HostTopology>,
    /// Memory in MiB that is reserved for the host itself.
    pub memory_reserved_mib: u64,
    /// Disk space for guests in GiB.
    pub disk_gib: u64,
    /// Identifies the storage that holds guest disks; hosts with the same one share it.
    pub storage_id: String,
    /// The traits that the agent discovered, and those that the operator gives to the host.
    pub traits: BTreeSet<Trait>,
    /// What kind of machine it is; older agents do not report it.
    #[serde(default)]
    pub platform: Platform,
    /// The agent's promise: this many milliseconds after it sent the last acknowledged report,
    /// none of its guests runs here, whatever becomes of the agent. 0: it promises nothing. By its
    /// own clock; see [`fence::lapsed_after_ms`](crate::fence::lapsed_after_ms).
    #[serde(default)]
    pub self_fence_ms: u64,
    /// The regions of persistent memory that volumes can be made of, by name.
    #[serde(default)]
    pub regions: Vec<Region>,
    /// What its hypervisor offers to guests as a CPU; absent from older agents, and where guests are
    /// simulated.
    #[serde(default)]
    pub cpu: Option<Arc<HostCpu>>,
    /// The physical networks that it reaches, by name.
    #[serde(default)]
    pub networks: Vec<HostNetwork>,
}

impl HostReport {
    /// Returns whether guests run on the host at all.
    #[must_use]
    pub fn runs_guests(&self) -> bool {
        self.driver != NO_DRIVER
    }
}

/// Whether an agent reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Liveness {
    /// It reports.
    Up,
    /// It has not reported for longer than the liveness limit.
    Down,
}

/// What the cluster knows of a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Host {
    /// Who it is.
    pub name: HostName,
    /// Its root resource provider.
    pub provider: ProviderId,
    /// The latest report of its agent; where its shape was refused, with the shape of before.
    pub report: HostReport,
    /// Whether its agent reports.
    pub liveness: Liveness,
    /// Set by an operator: nothing new is placed here.
    pub cordoned: bool,
    /// The drain that set it, until an operator cordons or uncordons the host.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cordoned_by: Option<OperationId>,
    /// Why the shape that its agent reports was not taken over: what lives here does not fit it.
    /// Nothing new is placed here until a report comes whose shape fits.
    pub shape_refused: Option<String>,
    /// Changes with every change of this record.
    pub generation: Generation,
    /// When it registered first.
    pub created_at: TimeMs,
    /// Who has shown that its guests are dead. Nothing new is placed here until its agent is back
    /// and none of the guests that the host lost runs.
    #[serde(default)]
    pub fenced: Option<Fenced>,
    /// What its hypervisor has and no claim is for, in the order of their UUIDs. What Berth made of
    /// it keeps its CPUs, pages and functions until it is gone.
    #[serde(default)]
    pub unknown: Vec<Unknown>,
    /// Comparisons that rest on an older revision are void: that of the latest comparison that changed
    /// something here or lifted a fence; of the fence; or, on a fenced host, of the latest release of a
    /// claim.
    #[serde(default)]
    pub compared: u64,
    /// The claims that no longer fit its topology. They remain valid; nothing new is assigned
    /// of what they hold.
    #[serde(default)]
    pub hit: BTreeSet<ClaimId>,
    /// The last volumes that it could not make, the latest at the end; at most
    /// [`FAILED_MAX`](crate::volume::FAILED_MAX). Who waits for one finds out there why it is gone.
    #[serde(default)]
    pub failed_volumes: Vec<Failed>,
    /// The cluster version under which its agent registered last: what a newer report has beyond
    /// that was left out, and the agent registers again once the cluster version is raised. Written
    /// from [`ServiceVersion::FINALIZE_UPGRADE`] on; before that, the oldest.
    pub registered_version: ServiceVersion,
    /// Whether its guests are not known since the cluster recovered: its agent has not reported them
    /// yet. Nothing new is placed here until it has.
    #[serde(default)]
    pub unreported: bool,
    /// Those of `unknown` that were here when the cluster recovered, by UUID, and that may be the only
    /// copies of their guests: none is stopped because of a comparison.
    #[serde(default)]
    pub orphans: BTreeSet<Uuid>,
}

impl Host {
    /// Records whether its agent reports. A report ends a proof that it is dead.
    pub fn record_liveness(&mut self, liveness: Liveness) {
        self.liveness = liveness;
        if let Some(fenced) = &mut self.fenced {
            fenced.reported_since |= liveness == Liveness::Up;
        }
    }

    /// Closes it to new guests, for an operator or for a drain. What an operator closed stays the
    /// operator's.
    pub fn cordon(&mut self, drain: Option<OperationId>) {
        if !self.cordoned || drain.is_none() {
            self.cordoned_by = drain;
        }
        self.cordoned = true;
    }

    /// Opens it again.
    pub fn uncordon(&mut self) {
        (self.cordoned, self.cordoned_by) = (false, None);
    }

    /// Returns whether new guests may be placed here.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.liveness == Liveness::Up
            && !self.cordoned
            && self.shape_refused.is_none()
            && self.fenced.is_none()
            && !self.unreported
    }
}

/// Returns what a host offers as counted resources where this rule holds of it; classes of which it
/// has nothing are left out, and all of them where it runs no guests.
#[must_use]
pub fn inventories_of(report: &HostReport, rule: HostRule) -> BTreeMap<ResourceClass, Inventory> {
    if !report.runs_guests() {
        return BTreeMap::new();
    }
    let shared = rule.cpu.inventory(report.topology.shared().len() as u64);
    let memory_mib = report.topology.memory_mib();
    let memory = Inventory {
        reserved: (rule.memory.mem_node_mib)
            .unwrap_or(report.memory_reserved_mib)
            .min(memory_mib),
        allocation_ratio: rule.memory.ratio,
        ..Inventory::exact(memory_mib)
    };
    let dedicated = Inventory::exact(report.topology.dedicated().len() as u64);
    let mut pmem: BTreeMap<ResourceClass, Inventory> = BTreeMap::new();
    for namespace in report.topology.pmem() {
        // One that is of no use just now counts: its guest still has it, and which of them can be
        // given is not a matter of numbers.
        let total = pmem.get(&namespace.class).map_or(0, |i| i.total);
        pmem.insert(namespace.class.clone(), Inventory::exact(total + 1));
    }
    [
        (ResourceClass::vcpu(), shared),
        (ResourceClass::pcpu(), dedicated),
        (ResourceClass::memory_mb(), memory),
        (ResourceClass::disk_gb(), Inventory::exact(report.disk_gib)),
    ]
    .into_iter()
    .filter(|(_, inventory)| inventory.total > 0)
    .chain(pmem)
    .collect()
}

/// Returns the ratios up to which the cells of a host with these inventories are given away. Memory
/// is by the rule of [`crate::memory`] at every ratio. What is reserved of shared CPUs and memory is
/// reserved of the host as a whole, in no cell of it: guests with cells take from the inventories,
/// too, so that all together never take more than these.
#[must_use]
pub fn limits_of(inventories: &BTreeMap<ResourceClass, Inventory>) -> Limits {
    let ratio = |class| {
        let inventory = inventories.get(&class);
        inventory.map_or(AllocationRatio::ONE, |i| i.allocation_ratio)
    };
    Limits {
        cpu_ratio: Some(ratio(ResourceClass::vcpu())),
        ram_ratio: Some(ratio(ResourceClass::memory_mb())),
        exact_memory: true,
        threads: ThreadRules::Nova,
    }
}

/// Returns the qualities of a host: those that it reports, and those that follow from its shape
/// even if an older agent does not report it. They are named as in OpenStack's os-traits.
#[must_use]
pub fn traits_of(report: &HostReport) -> BTreeSet<Trait> {
    let mut cores = report.topology.cells().iter().flat_map(|c| &c.cores);
    let mut traits = report.traits.clone();
    if cores.any(|core| core.len() > 1) {
        traits.insert(Trait::hyperthreading());
    }
    traits
}
