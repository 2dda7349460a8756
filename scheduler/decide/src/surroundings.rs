//! The cluster around a refused request, as the search for a hint reads it: which VMs could leave a
//! host, and how the request could be made otherwise.
//!
//! Pure. Not here: which of it is tried ([`berth_selection::hint`]).
//!
//! Invariant: an exit is one that the state admits for the VM as it is; a changed request is one
//! that a client can make, with a flavor that can be created.

use std::collections::BTreeSet;
use std::sync::Arc;

use berth_domain::claim::{Claim, Erasure, Owner};
use berth_domain::constraint::{Demand, RestartReason};
use berth_domain::flavor::Flavor;
use berth_domain::hint::RequestChange;
use berth_domain::name::{HostName, VmName, ZoneName};
use berth_domain::pci::PciNumaPolicy;
use berth_domain::pmem::PmemNumaPolicy;
use berth_domain::version::power_gate;
use berth_domain::vm::{self, Vm, VmSpec};
use berth_selection::hint::{Cluster, Exit, Moves, Occupant};
use berth_state::State;

use super::schedule::{Rest, sized_as};

/// How many other zones are tried.
const ZONES_MAX: usize = 8;

/// The VM for which a host was to be chosen.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Subject {
    pub(super) vm: VmName,
    /// What was requested, where a client can request something else.
    pub(super) requested: Option<RequestedVm>,
    /// Whether it takes more than before, so that admission control looks at it.
    pub(super) takes_more: bool,
}

/// A VM that was requested.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RequestedVm {
    /// A new one.
    Boot(Box<VmSpec>),
    /// Another size of one that is there.
    Resize(Box<VmSpec>),
}

/// The cluster around a refused request.
pub(super) struct Surroundings<'s> {
    pub(super) state: &'s State,
    pub(super) subject: &'s Subject,
}

impl RequestedVm {
    fn spec(&self) -> &VmSpec {
        match self {
            Self::Boot(spec) | Self::Resize(spec) => spec,
        }
    }
}

impl Cluster for Surroundings<'_> {
    fn occupants(&self, host: &HostName) -> Vec<Occupant> {
        let claims = self.state.claims_of_host(host);
        claims.filter_map(|claim| self.occupant(claim)).collect()
    }

    fn moves(&self, vm: &VmName) -> Moves {
        let Some(vm) = self.state.vm(vm) else {
            return Moves::default();
        };
        let runs = vm.state == vm::State::Active;
        let cold = |vm: &Vm| self.state.cold_demand(vm, &vm.spec, RestartReason::Move);
        Moves {
            live: runs.then(|| self.state.live_demand(vm).ok()).flatten(),
            cold: cold(vm).ok(),
        }
    }

    fn erasing(&self, host: &HostName) -> Vec<Arc<Claim>> {
        let claims = self.state.claims_of_host(host);
        let goes_on = |erasure: &Erasure| !erasure.is_quarantined() && !erasure.written_off;
        let erasing = claims.filter(|c| !c.is_in_use() && c.erasures.values().all(goes_on));
        erasing.cloned().collect()
    }

    fn changes(&self) -> Vec<RequestChange> {
        let Some(requested) = &self.subject.requested else {
            return Vec::new();
        };
        let mut changes = of_policies(requested.spec());
        if let RequestedVm::Boot(spec) = requested {
            changes.extend(self.of_hints(spec));
        }
        changes.extend(of_topology(requested.spec()));
        changes.extend(of_host_properties(&requested.spec().flavor));
        changes
    }

    fn changed(&self, change: &RequestChange) -> Option<Demand> {
        let requested = self.subject.requested.as_ref()?;
        let spec = self.changed_spec(requested.spec(), change)?;
        let vm = &self.subject.vm;
        let demand = match requested {
            RequestedVm::Boot(_) => {
                let demand = Demand::boot(&spec).ok()?;
                self.state.with_relations(demand, vm, &spec)
            }
            RequestedVm::Resize(_) => {
                let vm = self.state.vm(vm)?;
                if spec == vm.spec {
                    return None;
                }
                self.state.cold_demand(vm, &spec, RestartReason::Resize)
            }
        };
        demand.ok()
    }

    fn size(&self) -> Option<(u32, u64)> {
        let flavor = &self.subject.requested.as_ref()?.spec().flavor;
        Some((flavor.vcpus, flavor.memory_mib))
    }
}

impl Surroundings<'_> {
    fn occupant(&self, claim: &Arc<Claim>) -> Option<Occupant> {
        let vm = self.state.vm(&claim.vm)?;
        if !claim.is_in_use() || vm.name == self.subject.vm || vm.operation.is_some() {
            return None;
        }
        let is_own = vm.claim == Some(claim.id);
        let view = self.state.host(&claim.host)?;
        let may_stop = power_gate(&claim.host, view.host.report.service_version).is_ok();
        let exit = match (vm.state, &claim.owner) {
            (vm::State::Active | vm::State::Stopped, Owner::Vm) if is_own && may_stop => Exit::Move,
            (vm::State::Active, Owner::Vm) if is_own => Exit::MoveLive,
            // Of one that is protected the deletion is refused.
            (vm::State::Error, Owner::Vm) if !vm.metadata.protected => Exit::Delete,
            (vm::State::Resized, Owner::Migration(_)) => Exit::Confirm,
            (
                vm::State::Building
                | vm::State::Active
                | vm::State::Migrating
                | vm::State::Deleting
                | vm::State::Error
                | vm::State::Stopped
                | vm::State::Resized
                | vm::State::Shelved,
                Owner::Vm | Owner::Migration(_),
            ) => return None,
        };
        Some(Occupant {
            vm: vm.name.clone(),
            claim: Arc::clone(claim),
            group: vm.spec.hints.server_group.clone(),
            exit,
        })
    }

    /// Returns other zones, no zone, no server group.
    fn of_hints(&self, spec: &VmSpec) -> Vec<RequestChange> {
        let mut changes = Vec::new();
        if let Some(zone) = &spec.hints.availability_zone {
            let aggregates = self.state.aggregates().values();
            let zones: BTreeSet<ZoneName> = aggregates.filter_map(|a| a.zone()).collect();
            let others = zones.into_iter().filter(|other| other != zone);
            changes.extend(others.take(ZONES_MAX).map(|z| RequestChange::Zone(Some(z))));
            changes.push(RequestChange::Zone(None));
        }
        let group = spec.hints.server_group.clone();
        changes.extend(group.map(RequestChange::LeaveGroup));
        changes
    }

    fn changed_spec(&self, spec: &VmSpec, change: &RequestChange) -> Option<VmSpec> {
        let mut flavor = spec.flavor.clone();
        let mut hints = spec.hints.clone();
        match change {
            RequestChange::AnyHost => {}
            RequestChange::ExtraSpec { key, value } => match value {
                Some(value) => drop(flavor.extra_specs.insert(key.clone(), value.clone())),
                None => drop(flavor.extra_specs.remove(key)),
            },
            RequestChange::Vcpus(vcpus) => flavor.vcpus = *vcpus,
            RequestChange::MemoryMib(memory_mib) => flavor.memory_mib = *memory_mib,
            RequestChange::Zone(zone) => hints.availability_zone.clone_from(zone),
            RequestChange::LeaveGroup(_) => hints.server_group = None,
        }
        flavor.validate().ok()?;
        let rest = Rest {
            boot: spec.boot.clone(),
            disks: spec.disks.clone(),
            nics: spec.nics.clone(),
            image_properties: spec.image_properties.clone(),
            hints,
            volumes: spec.volumes.clone(),
        };
        sized_as(self.state, flavor, rest).ok()
    }
}

fn extra_spec(key: &str, value: &str) -> RequestChange {
    RequestChange::ExtraSpec {
        key: key.to_owned(),
        value: Some(value.to_owned()),
    }
}

fn without_extra_spec(key: &str) -> RequestChange {
    RequestChange::ExtraSpec {
        key: key.to_owned(),
        value: None,
    }
}

/// Returns weaker policies of devices.
fn of_policies(spec: &VmSpec) -> Vec<RequestChange> {
    let mut changes = Vec::new();
    let is_strict = |policy| policy != PciNumaPolicy::Preferred;
    if spec.pci.iter().any(|request| is_strict(request.policy)) {
        changes.push(extra_spec("hw:pci_numa_affinity_policy", "preferred"));
    }
    if spec.pmem_demand().policy == PmemNumaPolicy::Required {
        changes.push(extra_spec("hw:pmem_numa_policy", "preferred"));
    }
    changes
}

/// Returns other pages, threads and NUMA nodes.
fn of_topology(spec: &VmSpec) -> Vec<RequestChange> {
    let specs = &spec.flavor.extra_specs;
    let mut changes = Vec::new();
    let (pages, threads) = ("hw:mem_page_size", "hw:cpu_thread_policy");
    let (emulator, nodes) = ("hw:emulator_threads_policy", "hw:numa_nodes");
    if specs.contains_key(threads) {
        changes.push(without_extra_spec(threads));
    }
    if specs.contains_key(emulator) {
        changes.push(without_extra_spec(emulator));
    }
    if let Some(size) = specs.get(pages) {
        let others = ["small", "large", "any"].into_iter();
        let others = others.filter(|other| size != other);
        changes.extend(others.map(|other| extra_spec(pages, other)));
    }
    if let Some(topology) = &spec.topology {
        let present = topology.cells.len();
        let others = [1_usize, 2, 3, 4, 8].into_iter();
        let others = others.filter(|other| *other != present);
        changes.extend(others.map(|other| extra_spec(nodes, &other.to_string())));
    }
    changes
}

/// Returns the flavor without one of the properties that it requires of hosts.
fn of_host_properties(flavor: &Flavor) -> Vec<RequestChange> {
    let is_property = |key: &&String| {
        key.starts_with("trait:") || key.starts_with("aggregate_instance_extra_specs:")
    };
    let keys = flavor.extra_specs.keys().filter(is_property);
    keys.map(|key| without_extra_spec(key)).collect()
}
