//! The cluster as the watch has reported it: hosts with their claims, VMs, migrations and operations.
//!
//! Not here: how changes arrive ([`feed`](super::feed)), and what is selected or drawn.
//!
//! Invariant: a model after some changes equals a model that is made of the records as they then are. So
//! nothing depends on the order of the records, sums are kept with each change, and what is deleted
//! leaves nothing behind. The model is as large as the cluster's state, which is bounded; of a VM it
//! retains what is shown.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::claim::Claim;
use berth_domain::event::{Change, Name, Record};
use berth_domain::host::Host;
use berth_domain::id::{ClaimId, MigrationId, OperationId};
use berth_domain::migration::{self, Migration};
use berth_domain::name::{HostName, VmName};
use berth_domain::operation::Operation;
use berth_domain::topology::HostTopology;
use berth_domain::vm::{self, Vm};

use super::usage::{Capacity, Usage};

/// A host, and what it has for guests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostEntry {
    /// The record.
    pub host: Arc<Host>,
    /// What follows from its report.
    pub capacity: Capacity,
}

/// The claims on a host. They may be reported before the host is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimsOnHost {
    /// Which.
    pub claims: BTreeSet<ClaimId>,
    /// What they take together.
    pub usage: Usage,
}

/// What is shown of a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmEntry {
    /// The state.
    pub state: vm::State,
    /// The host that holds it.
    pub host: Option<HostName>,
    /// Its claim there.
    pub claim: Option<ClaimId>,
    /// The name of its flavor.
    pub flavor: String,
    /// Why it is in [`vm::State::Error`], with the reason.
    pub error: Option<String>,
    /// What is wrong with the guest that should run.
    pub trouble: bool,
    /// Its project.
    pub project: String,
}

impl VmEntry {
    fn of(vm: &Vm) -> Self {
        let error = vm.error.as_ref();
        Self {
            state: vm.state,
            host: vm.host.clone(),
            claim: vm.claim,
            flavor: vm.spec.flavor.name.to_string(),
            error: error.map(|why| format!("{} ({})", why.message, why.reason)),
            trouble: vm.trouble.is_some(),
            project: vm.ownership.project_name().to_owned(),
        }
    }
}

/// The cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    hosts: BTreeMap<HostName, HostEntry>,
    on_hosts: BTreeMap<HostName, ClaimsOnHost>,
    claims: BTreeMap<ClaimId, Arc<Claim>>,
    vms: BTreeMap<VmName, VmEntry>,
    migrations: BTreeMap<MigrationId, Arc<Migration>>,
    operations: BTreeMap<OperationId, Arc<Operation>>,
}

impl Model {
    /// Applies a change.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Put(Record::Host(host)) => self.put_host(host),
            Change::Put(Record::Claim(claim)) => self.put_claim(claim),
            Change::Put(Record::Vm(vm)) => {
                self.vms.insert(vm.name.clone(), VmEntry::of(&vm));
            }
            Change::Put(Record::Migration(migration)) => {
                self.migrations.insert(migration.id, migration);
            }
            Change::Put(Record::Operation(operation)) => {
                self.operations.insert(operation.id, operation);
            }
            // It is not watched.
            Change::Put(Record::Audit(_)) => {}
            Change::Deleted(name) => self.delete(&name),
        }
    }

    fn delete(&mut self, name: &Name) {
        match name {
            Name::Host(name) => {
                self.hosts.remove(name);
            }
            Name::Claim(id) => self.remove_claim(*id),
            Name::Vm(name) => {
                self.vms.remove(name);
            }
            Name::Migration(id) => {
                self.migrations.remove(id);
            }
            Name::Operation(id) => {
                self.operations.remove(id);
            }
            Name::Audit(_) => {}
        }
    }

    fn put_host(&mut self, mut host: Arc<Host>) {
        let name = host.name.clone();
        let capacity = Capacity::of(&host.report);
        // Machines are bought by the rack: equal shapes beside each other are stored once.
        let topology = &host.report.topology;
        if let Some(equal) = self.equal_topology(&name, topology) {
            Arc::make_mut(&mut host).report.topology = equal;
        }
        self.hosts.insert(name, HostEntry { host, capacity });
    }

    /// Returns the shape of the same host, or of the host before it, if it is equal.
    fn equal_topology(
        &self,
        name: &HostName,
        topology: &HostTopology,
    ) -> Option<Arc<HostTopology>> {
        let (_, before) = self.hosts.range::<HostName, _>(..=name).next_back()?;
        let before = &before.host.report.topology;
        (**before == *topology).then(|| before.clone())
    }

    fn put_claim(&mut self, claim: Arc<Claim>) {
        self.remove_claim(claim.id);
        let on_host = self.on_hosts.entry(claim.host.clone()).or_default();
        on_host.claims.insert(claim.id);
        on_host.usage.add(&Usage::of(&claim));
        self.claims.insert(claim.id, claim);
    }

    fn remove_claim(&mut self, id: ClaimId) {
        let Some(claim) = self.claims.remove(&id) else {
            return;
        };
        if let Some(on_host) = self.on_hosts.get_mut(&claim.host) {
            on_host.claims.remove(&id);
            on_host.usage.subtract(&Usage::of(&claim));
            if on_host.claims.is_empty() {
                self.on_hosts.remove(&claim.host);
            }
        }
    }

    /// Returns the hosts in the order of their names.
    pub fn hosts(&self) -> impl Iterator<Item = &HostEntry> {
        self.hosts.values()
    }

    /// Returns a host.
    #[must_use]
    pub fn host(&self, name: &HostName) -> Option<&HostEntry> {
        self.hosts.get(name)
    }

    /// Returns how many hosts there are.
    #[must_use]
    pub fn host_count(&self) -> usize {
        self.hosts.len()
    }

    /// Returns how many records there are.
    #[must_use]
    pub fn record_count(&self) -> usize {
        let moves = self.migrations.len() + self.operations.len();
        self.hosts.len() + self.claims.len() + self.vms.len() + moves
    }

    /// Returns what is taken of a host.
    #[must_use]
    pub fn usage(&self, host: &HostName) -> Usage {
        self.on_hosts
            .get(host)
            .map_or_else(Usage::default, |on| on.usage)
    }

    /// Returns the claims on a host, in the order of their ids.
    pub fn claims_on(&self, host: &HostName) -> impl Iterator<Item = &Arc<Claim>> {
        let ids = self
            .on_hosts
            .get(host)
            .into_iter()
            .flat_map(|on| &on.claims);
        ids.filter_map(|id| self.claims.get(id))
    }

    /// Returns a claim.
    #[must_use]
    pub fn claim(&self, id: ClaimId) -> Option<&Arc<Claim>> {
        self.claims.get(&id)
    }

    /// Returns the VMs in the order of their names.
    pub fn vms(&self) -> impl Iterator<Item = (&VmName, &VmEntry)> {
        self.vms.iter()
    }

    /// Returns a VM.
    #[must_use]
    pub fn vm(&self, name: &VmName) -> Option<&VmEntry> {
        self.vms.get(name)
    }

    /// Returns a migration.
    #[must_use]
    pub fn migration(&self, id: MigrationId) -> Option<&Arc<Migration>> {
        self.migrations.get(&id)
    }

    /// Returns the migrations that have not ended.
    pub fn open_migrations(&self) -> impl Iterator<Item = &Arc<Migration>> {
        let all = self.migrations.values();
        all.filter(|migration| !migration.state.is_ended())
    }

    /// Returns how many migrations wait until it is known where the guest is.
    #[must_use]
    pub fn unsettled(&self) -> usize {
        let open = self.open_migrations();
        open.filter(|m| m.state == migration::State::Unsettled)
            .count()
    }

    /// Returns the operations in the order of their ids.
    pub fn operations(&self) -> impl Iterator<Item = &Arc<Operation>> {
        self.operations.values()
    }

    /// Returns an operation.
    #[must_use]
    pub fn operation(&self, id: OperationId) -> Option<&Arc<Operation>> {
        self.operations.get(&id)
    }

    /// Returns the operations: those that run first, the youngest of each at the top.
    #[must_use]
    pub fn operations_by_age(&self) -> Vec<&Arc<Operation>> {
        let mut all: Vec<_> = self.operations.values().collect();
        all.sort_by_key(|o| {
            (
                o.is_done(),
                std::cmp::Reverse((o.ended_at, o.created_at, o.id)),
            )
        });
        all
    }

    /// Returns the operation of a VM that was requested last.
    #[must_use]
    pub fn last_operation(&self, vm: &VmName) -> Option<&Arc<Operation>> {
        let of_vm = self.operations.values().filter(|o| o.vm() == Some(vm));
        of_vm.max_by_key(|operation| (operation.created_at, operation.id))
    }
}
