//! How much of the hosts is taken, over a history and at its end.
//!
//! Levels follow the changed hosts alone, so that a history of a hundred thousand commands is measured
//! in passing. What is stranded is computed once, at the end: it evaluates every host.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_domain::constraint::{Demand, PreparedDemand};
use berth_domain::host_view::HostView;
use berth_domain::instance::InstanceTopology;
use berth_domain::name::{FlavorName, HostName};
use berth_domain::resource::ResourceClass;
use berth_domain::vm::VmSpec;
use berth_selection::stranded::{single_nodes, stranded_cpus};
use berth_state::State;
use imbl::OrdMap;
use imbl::ordmap::DiffItem;

/// How many different requests are kept as the mix of a history.
const MIX_MAX: usize = 1_000;

/// How full the hosts are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// By resource class.
    pub classes: BTreeMap<ResourceClass, Level>,
    /// Dedicated CPUs that are free, on NUMA nodes that take no NUMA node of any requested VM.
    pub stranded_cpus: u64,
    /// All dedicated CPUs.
    pub dedicated_cpus: u64,
    /// Hosts that take none of the requested VMs.
    pub full_hosts: u64,
    /// Shared vCPUs that are free on these.
    pub stranded_vcpus: u64,
    /// Hosts without any claim.
    pub empty_hosts: u64,
    /// All hosts.
    pub hosts: u64,
}

/// How much of a resource class is taken on all hosts together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// What is taken at the end.
    pub used: u64,
    /// What can be taken at the end: the total, without what is reserved, times its ratio.
    pub capacity: u64,
    /// The most that was taken at a time.
    pub peak: u64,
}

/// Follows how full the hosts of a state are, and which VMs are requested.
#[derive(Debug, Default)]
pub struct Meter {
    hosts: OrdMap<HostName, Arc<HostView>>,
    classes: BTreeMap<ResourceClass, Level>,
    /// The mix: one spec of each kind that was requested.
    mix: BTreeMap<FlavorName, Vec<(Demand, Option<InstanceTopology>)>>,
    mixed: usize,
}

impl Meter {
    /// Begins with the hosts and VMs of a state.
    #[must_use]
    pub fn new(state: &State) -> Self {
        let mut meter = Self::default();
        meter.follow(state);
        for vm in state.vms().values() {
            meter.request(&vm.spec);
        }
        meter
    }

    /// Takes the hosts as they are now.
    pub fn follow(&mut self, state: &State) {
        if self.hosts.ptr_eq(state.hosts()) {
            return;
        }
        let before = std::mem::replace(&mut self.hosts, state.hosts().clone());
        for change in before.diff(&self.hosts) {
            match change {
                DiffItem::Add(_, new) => add(&mut self.classes, new),
                DiffItem::Update { old, new } => {
                    subtract(&mut self.classes, old.1);
                    add(&mut self.classes, new.1);
                }
                DiffItem::Remove(_, old) => subtract(&mut self.classes, old),
            }
        }
        for level in self.classes.values_mut() {
            level.peak = level.peak.max(level.used);
        }
    }

    /// Takes a requested VM into the mix.
    pub fn request(&mut self, spec: &VmSpec) {
        if self.mixed >= MIX_MAX {
            return;
        }
        let Ok(demand) = Demand::boot(spec) else {
            return;
        };
        let of_flavor = self.mix.entry(spec.flavor.name.clone()).or_default();
        if of_flavor.iter().all(|(known, _)| *known != demand) {
            of_flavor.push((demand, spec.topology.clone()));
            self.mixed += 1;
        }
    }

    /// Returns how full the hosts are.
    #[must_use]
    pub fn usage(&self, state: &State) -> Usage {
        let mut usage = Usage {
            classes: self.classes.clone(),
            hosts: state.hosts().len() as u64,
            ..Usage::default()
        };
        let mix = self.mix.values().flatten();
        let nodes = single_nodes(mix.filter_map(|(_, topology)| topology.as_ref()));
        let demands = self.mix.values().flatten();
        let demands = demands.filter_map(|(demand, _)| state.with_cpu(demand.clone()).ok());
        let demands: Vec<Demand> = demands.collect();
        let demands: Vec<PreparedDemand<'_>> = demands.iter().map(PreparedDemand::new).collect();
        let cells = state.policy().cells;
        for view in state.hosts().values() {
            let all = view.host.report.topology.cells().iter();
            usage.dedicated_cpus += all.map(|cell| cell.dedicated.len() as u64).sum::<u64>();
            usage.stranded_cpus += stranded_cpus(view, &nodes);
            usage.empty_hosts += u64::from(view.used.is_empty());
            let takes = |demand: &PreparedDemand<'_>| demand.try_place(view, cells).is_some();
            if !demands.iter().any(takes) {
                usage.full_hosts += 1;
                usage.stranded_vcpus += free(view, &ResourceClass::vcpu());
            }
        }
        usage
    }
}

fn free(view: &HostView, class: &ResourceClass) -> u64 {
    let inventory = view.inventories.get(class);
    inventory.map_or(0, |inventory| inventory.free(view.used_of(class)))
}

fn add(classes: &mut BTreeMap<ResourceClass, Level>, view: &HostView) {
    for (class, inventory) in view.inventories.iter() {
        let level = classes.entry(class.clone()).or_default();
        level.capacity += inventory.capacity();
        level.used += view.used_of(class);
    }
}

fn subtract(classes: &mut BTreeMap<ResourceClass, Level>, view: &HostView) {
    for (class, inventory) in view.inventories.iter() {
        let level = classes.entry(class.clone()).or_default();
        level.capacity = level.capacity.saturating_sub(inventory.capacity());
        level.used = level.used.saturating_sub(view.used_of(class));
    }
}
