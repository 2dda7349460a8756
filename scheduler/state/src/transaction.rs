//! Every write to the state passes through here: tables, indexes, host views and the journal of
//! changes stay together.
//!
//! It does not decide anything. A command looks first and writes last, because nothing undoes a
//! write: what is refused must not have written.

mod aggregate;
mod audit;
mod left_names;
mod recovered;
mod volume;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::allocation::{Consumer, Resources};
use berth_domain::claim::Claim;
use berth_domain::cpu_model::HostCpu;
use berth_domain::flavor::Flavor;
use berth_domain::host::Host;
use berth_domain::host_view::HostView;
use berth_domain::id::{ClaimId, ConsumerId, MigrationId, OperationId, ProviderId, TimeMs};
use berth_domain::image::Image;
use berth_domain::migration::Migration;
use berth_domain::name::{
    FlavorName, HostName, ImageName, NetworkName, PciAliasName, ServerGroupName, ServiceName,
    VmName,
};
use berth_domain::network::Network;
use berth_domain::operation::Operation;
use berth_domain::pci::PciAlias;
use berth_domain::policy::SchedulingPolicy;
use berth_domain::provider::ResourceProvider;
use berth_domain::resource::{Custom, ResourceClass, Trait};
use berth_domain::revocation::{Fingerprint, RevokedCertificate};
use berth_domain::server_group::ServerGroup;
use berth_domain::service::Service;
use berth_domain::vm::Vm;

pub(crate) use self::left_names::LeftNames;
use crate::request::{Request, RequestName};
use crate::row::{Change, Key, Row};
use crate::state::State;

/// Records what a command changes, or does not.
pub(crate) trait Journal {
    /// Records one write; the change is computed only if the journal needs it.
    fn record(&mut self, change: impl FnOnce() -> Change);

    /// Forgets everything: all of it was taken back.
    fn forget(&mut self);
}

/// No change is recorded.
pub(crate) struct NoJournal;

impl Journal for NoJournal {
    fn record(&mut self, _: impl FnOnce() -> Change) {}

    fn forget(&mut self) {}
}

/// How many rows are searched one by one: most commands write a handful.
const SEARCHED_MAX: usize = 32;

/// Every row that differs from before, each once.
#[derive(Default)]
pub(crate) struct RecordedChanges {
    changes: Vec<Change>,
    /// Where the change of a row stands; kept only where there are many.
    places: BTreeMap<Key, usize>,
}

impl RecordedChanges {
    /// Returns the changes. A row that the command both made and took away is no change.
    pub(crate) fn into_changes(mut self) -> Vec<Change> {
        self.changes
            .retain(|change| change.old.is_some() || change.new.is_some());
        self.changes
    }

    fn place(&self, key: &Key) -> Option<usize> {
        match self.changes.len() <= SEARCHED_MAX {
            true => self.changes.iter().position(|c| c.key == *key),
            false => self.places.get(key).copied(),
        }
    }
}

impl Journal for RecordedChanges {
    fn record(&mut self, change: impl FnOnce() -> Change) {
        let change = change();
        if let Some(at) = self.place(&change.key) {
            self.changes[at].new = change.new;
            return;
        }
        self.changes.push(change);
        // From the first on as soon as there are many.
        if self.changes.len() > SEARCHED_MAX {
            for (at, change) in self.changes.iter().enumerate().skip(self.places.len()) {
                self.places.insert(change.key.clone(), at);
            }
        }
    }

    fn forget(&mut self) {
        *self = Self::default();
    }
}

/// The state while a command is carried out.
pub(crate) struct Transaction<'s, J> {
    pub(crate) state: &'s mut State,
    pub(crate) journal: J,
    /// On whose behalf: recorded as the creator of what the command creates.
    pub(crate) principal: &'s str,
    /// Written with every provider, and emptied at the end of the command.
    pub(crate) left_names: LeftNames,
}

impl<'s> Transaction<'s, NoJournal> {
    /// Returns one of which nothing is recorded, as of a state that is made or tried out.
    pub(crate) fn unrecorded(state: &'s mut State) -> Self {
        Self {
            state,
            journal: NoJournal,
            principal: "",
            left_names: LeftNames::default(),
        }
    }
}

macro_rules! plain_table {
    ($put:ident, $take:ident, $table:ident, $variant:ident, $row:ty, $key:ty, $name:ident) => {
        pub(crate) fn $put(&mut self, row: $row) -> Arc<$row> {
            let row = Arc::new(row);
            let key = row.$name.clone();
            let old = self.state.$table.insert(key, row.clone());
            self.journal.record(|| Change {
                key: Key::$variant(row.$name.clone()),
                old: old.map(Row::$variant),
                new: Some(Row::$variant(row.clone())),
            });
            row
        }

        pub(crate) fn $take(&mut self, key: &$key) {
            let old = self.state.$table.remove(key);
            self.journal.record(|| Change {
                key: Key::$variant(key.clone()),
                old: old.map(Row::$variant),
                new: None,
            });
        }
    };
}

impl<J: Journal> Transaction<'_, J> {
    pub(crate) fn now(&self) -> TimeMs {
        self.state.header.time
    }

    plain_table!(
        put_flavor,
        remove_flavor,
        flavors,
        Flavor,
        Flavor,
        FlavorName,
        name
    );
    plain_table!(
        put_pci_alias,
        remove_pci_alias,
        pci_aliases,
        PciAlias,
        PciAlias,
        PciAliasName,
        name
    );
    plain_table!(
        put_image,
        remove_image,
        images,
        Image,
        Image,
        ImageName,
        name
    );
    plain_table!(
        put_network,
        remove_network,
        networks,
        Network,
        Network,
        NetworkName,
        name
    );
    plain_table!(
        put_revoked_certificate,
        remove_revoked_certificate,
        revoked_certificates,
        RevokedCertificate,
        RevokedCertificate,
        Fingerprint,
        fingerprint
    );
    plain_table!(
        put_class,
        remove_class,
        classes,
        Class,
        Custom<ResourceClass>,
        ResourceClass,
        name
    );
    plain_table!(
        put_trait,
        remove_trait,
        traits,
        Trait,
        Custom<Trait>,
        Trait,
        name
    );

    plain_table!(
        put_server_group,
        remove_server_group,
        server_groups,
        ServerGroup,
        ServerGroup,
        ServerGroupName,
        name
    );

    pub(crate) fn put_vm(&mut self, mut vm: Vm) -> Arc<Vm> {
        vm.settle();
        let vm = Arc::new(vm);
        let old = self.state.vms.insert(vm.name.clone(), vm.clone());
        self.state.index.mark_troubled(&vm);
        self.state.index.move_images(old.as_deref(), Some(&vm));
        if old.is_none() {
            // What the user requested never changes while a VM lives.
            for nic in &vm.spec.nics {
                let macs = &mut self.state.index.macs;
                macs.insert(nic.mac.as_str().into(), vm.name.clone());
            }
            self.state.index.attach_volumes(&vm);
            self.state.index.join_group(&vm);
            self.state.index.join_project(&vm);
            self.state.index.join_networks(&vm);
        }
        self.journal.record(|| Change {
            key: Key::Vm(vm.name.clone()),
            old: old.map(Row::Vm),
            new: Some(Row::Vm(vm.clone())),
        });
        vm
    }

    /// Follows volumes that a VM gives up; the caller writes the VM as it is without them.
    pub(crate) fn exchange_volumes(&mut self, before: &Vm, after: &Vm) {
        self.state.index.detach_volumes(before);
        self.state.index.attach_volumes(after);
    }

    pub(crate) fn remove_vm(&mut self, name: &VmName) {
        let old = self.state.vms.remove(name);
        for nic in old.iter().flat_map(|vm| &vm.spec.nics) {
            self.state.index.macs.remove(nic.mac.as_str());
        }
        if let Some(vm) = &old {
            self.state.index.troubled.remove(&vm.name);
            self.state.index.detach_volumes(vm);
            self.state.index.move_images(Some(vm), None);
            self.state.index.leave_group(vm);
            self.state.index.leave_project(vm);
            self.state.index.leave_networks(vm);
        }
        self.journal.record(|| Change {
            key: Key::Vm(name.clone()),
            old: old.map(Row::Vm),
            new: None,
        });
    }

    /// Writes what is preferred, and what follows from it for the rules of hosts. It is never taken
    /// away again.
    pub(crate) fn put_policy(&mut self, policy: SchedulingPolicy) -> Arc<SchedulingPolicy> {
        let policy = Arc::new(policy);
        let old = std::mem::replace(&mut self.state.policy, policy.clone());
        if old.memory != policy.memory || old.cpu != policy.cpu {
            let hosts: Vec<HostName> = self.state.hosts.keys().cloned().collect();
            for host in hosts {
                self.settle_rule(&host);
            }
        }
        self.journal.record(|| Change {
            key: Key::Policy,
            old: old.is_set().then_some(Row::Policy(old)),
            new: Some(Row::Policy(policy.clone())),
        });
        policy
    }

    pub(crate) fn put_service(&mut self, row: Service) -> Arc<Service> {
        let row = Arc::new(row);
        let old = self.state.services.insert(row.name.clone(), row.clone());
        self.journal.record(|| Change {
            key: Key::Service(row.name.clone()),
            old: old.map(Row::Service),
            new: Some(Row::Service(row.clone())),
        });
        row
    }

    pub(crate) fn remove_service(&mut self, name: &ServiceName) {
        let old = self.state.services.remove(name);
        self.journal.record(|| Change {
            key: Key::Service(name.clone()),
            old: old.map(Row::Service),
            new: None,
        });
    }

    /// Writes a host. Its claims must fit the new topology; their usage is counted again over it.
    pub(crate) fn put_host(&mut self, mut host: Host) -> Arc<Host> {
        let old = self.state.hosts.get(&host.name).cloned();
        let of_old = old.as_ref().and_then(|view| view.host.report.cpu.as_ref());
        let is_old = |cpu: &Arc<HostCpu>| of_old.is_some_and(|old| Arc::ptr_eq(old, cpu));
        host.report.cpu = match host.report.cpu {
            Some(cpu) if !is_old(&cpu) => Some(self.state.shared_cpu(cpu)),
            known => known,
        };
        let host = Arc::new(host);
        let view = match &old {
            Some(view) if view.sums_up(&host) => {
                let mut view = (**view).clone();
                view.set_host(host.clone());
                view
            }
            Some(_) | None => self.summed_up(&host),
        };
        let old = old.map(|view| view.host.clone());
        self.state.hosts.insert(host.name.clone(), Arc::new(view));
        self.follow_host(&host.name, old.as_deref());
        self.journal.record(|| Change {
            key: Key::Host(host.name.clone()),
            old: old.map(Row::Host),
            new: Some(Row::Host(host.clone())),
        });
        host
    }

    /// Has a host's view say which rule holds of it now.
    pub(crate) fn settle_rule(&mut self, host: &HostName) {
        let rule = self.state.rule_of(host);
        // While the state is put together from rows, the host may come later.
        let view = self.state.hosts.get(host);
        if view.is_some_and(|view| view.rule != rule)
            && let Some(view) = self.state.hosts.get_mut(host)
        {
            Arc::make_mut(view).set_rule(rule);
        }
    }

    pub(crate) fn remove_host(&mut self, name: &HostName) {
        let old = self.state.hosts.remove(name);
        let old = old.map(|view| view.host.clone());
        self.follow_host(name, old.as_deref());
        self.journal.record(|| Change {
            key: Key::Host(name.clone()),
            old: old.map(Row::Host),
            new: None,
        });
    }

    pub(crate) fn put_provider(&mut self, provider: ResourceProvider) -> Arc<ResourceProvider> {
        let provider = Arc::new(provider);
        let id = provider.id;
        let old = self.state.providers.insert(id, provider.clone());
        if let Some(old) = &old {
            self.left_names.record(old, Some(&provider));
        }
        self.state
            .index
            .move_provider(old.as_deref(), Some(&provider));
        self.journal.record(|| Change {
            key: Key::Provider(id),
            old: old.map(Row::Provider),
            new: Some(Row::Provider(provider.clone())),
        });
        provider
    }

    pub(crate) fn remove_provider(&mut self, id: ProviderId) {
        let old = self.state.providers.remove(&id);
        if let Some(old) = &old {
            self.left_names.record(old, None);
        }
        self.state.index.move_provider(old.as_deref(), None);
        self.journal.record(|| Change {
            key: Key::Provider(id),
            old: old.map(Row::Provider),
            new: None,
        });
    }

    /// Writes a consumer, and what its providers have left.
    pub(crate) fn put_consumer(&mut self, consumer: Consumer) -> Arc<Consumer> {
        let consumer = Arc::new(consumer);
        let old = self.state.consumers.insert(consumer.id, consumer.clone());
        if let Some(old) = &old {
            self.uncount(old);
        }
        self.count(&consumer);
        let old_project = old.as_ref().map(|c| c.project.as_str());
        if old_project != Some(&consumer.project) {
            let projects = &mut self.state.index.project_consumers;
            if let Some(project) = old_project {
                projects.remove(&(project.into(), consumer.id));
            }
            projects.insert((consumer.project.as_str().into(), consumer.id));
        }
        self.journal.record(|| Change {
            key: Key::Consumer(consumer.id),
            old: old.map(Row::Consumer),
            new: Some(Row::Consumer(consumer.clone())),
        });
        consumer
    }

    pub(crate) fn remove_consumer(&mut self, id: ConsumerId) {
        let old = self.state.consumers.remove(&id);
        if let Some(old) = &old {
            self.uncount(old);
            let entry = (old.project.as_str().into(), id);
            self.state.index.project_consumers.remove(&entry);
        }
        self.journal.record(|| Change {
            key: Key::Consumer(id),
            old: old.map(Row::Consumer),
            new: None,
        });
    }

    fn count(&mut self, consumer: &Consumer) {
        for (provider, resources) in &consumer.allocations {
            let entry = (*provider, consumer.id);
            self.state.index.provider_consumers.insert(entry);
            let used = self.state.index.provider_used.entry(*provider).or_default();
            let used = Arc::make_mut(used);
            for (class, amount) in resources {
                *used.entry(class.clone()).or_default() += amount;
            }
        }
    }

    fn uncount(&mut self, consumer: &Consumer) {
        for (provider, resources) in &consumer.allocations {
            let entry = (*provider, consumer.id);
            self.state.index.provider_consumers.remove(&entry);
            let Some(used) = self.state.index.provider_used.get_mut(provider) else {
                continue;
            };
            let used = Arc::make_mut(used);
            subtract(used, resources);
            if used.is_empty() {
                self.state.index.provider_used.remove(provider);
            }
        }
    }

    /// Writes a claim; what it takes is moved on its host where it differs from before.
    ///
    /// The host exists, and has room: both were looked at before.
    pub(crate) fn put_claim(&mut self, claim: Claim) -> Arc<Claim> {
        let claim = self.place_claim(claim);
        self.recount_hits(&claim.host);
        claim
    }

    /// Writes a claim without a look at who its host has room for: as it is when all of them are
    /// written.
    pub(crate) fn place_claim(&mut self, claim: Claim) -> Arc<Claim> {
        let claim = Arc::new(claim);
        let old = self.state.claims.insert(claim.id, claim.clone());
        let same = old.as_ref().is_some_and(|old| {
            old.host == claim.host
                && old.resources == claim.resources
                && old.assignment == claim.assignment
        });
        if !same {
            if let Some(old) = &old {
                self.leave_host(old);
            }
            self.view_mut(&claim.host).place(&claim);
            self.index_claim(&claim);
        }
        let group = old.as_ref().and_then(|old| self.group_of(old));
        self.journal.record(|| Change {
            key: Key::Claim(claim.id),
            old: old.map(Row::Claim),
            new: Some(Row::Claim(claim.clone())),
        });
        if let Some(group) = group {
            self.rejoin(&group);
        }
        claim
    }

    /// Writes the claims of a state that is put together from rows. Each host is summed up once, and not
    /// with every claim.
    pub(crate) fn place_claims(&mut self, claims: Vec<Arc<Claim>>) {
        let mut hosts = BTreeSet::new();
        for claim in claims {
            self.index_claim(&claim);
            hosts.insert(claim.host.clone());
            self.state.claims.insert(claim.id, claim);
        }
        for host in &hosts {
            let view = self.summed_up(&self.state.hosts[host].host);
            self.state.hosts.insert(host.clone(), Arc::new(view));
        }
    }

    fn index_claim(&mut self, claim: &Claim) {
        let index = &mut self.state.index;
        index.host_claims.insert((claim.host.clone(), claim.id));
        if claim.is_in_use() {
            index.vm_claims.insert((claim.vm.clone(), claim.id));
        }
        if let Some(group) = self.group_of(claim) {
            self.state.index.count_in_group(group, &claim.host);
        }
    }

    /// Returns a host with what its claims take, counted from scratch.
    fn summed_up(&self, host: &Arc<Host>) -> HostView {
        let rule = self.state.rule_of(&host.name);
        let claims = self.state.claims_of_host(&host.name);
        let claims = claims.map(|claim| &**claim);
        let mut view = HostView::under(host.clone(), rule, claims);
        view.set_aggregates(self.said_of(&host.name));
        view
    }

    pub(crate) fn remove_claim(&mut self, id: ClaimId) {
        let old = self.state.claims.remove(&id);
        if let Some(old) = &old {
            self.leave_host(old);
        }
        let host = old.as_ref().map(|old| old.host.clone());
        let group = old.as_ref().and_then(|old| self.group_of(old));
        self.journal.record(|| Change {
            key: Key::Claim(id),
            old: old.map(Row::Claim),
            new: None,
        });
        if let Some(group) = group {
            self.rejoin(&group);
        }
        if let Some(host) = host {
            self.recount_hits(&host);
        }
    }

    fn leave_host(&mut self, claim: &Claim) {
        self.view_mut(&claim.host).release(claim);
        let entry = (claim.host.clone(), claim.id);
        self.state.index.host_claims.remove(&entry);
        let entry = (claim.vm.clone(), claim.id);
        self.state.index.vm_claims.remove(&entry);
        if let Some(group) = self.group_of(claim) {
            self.state.index.uncount_in_group(&group, &claim.host);
        }
    }

    /// Returns the server group of a claim's VM, which is there as long as the claim is in use.
    fn group_of(&self, claim: &Claim) -> Option<ServerGroupName> {
        // Claims are frequent and groups are not.
        if self.state.index.group_vms.is_empty() || !claim.is_in_use() {
            return None;
        }
        self.state
            .vms
            .get(&claim.vm)?
            .spec
            .hints
            .server_group
            .clone()
    }

    fn view_mut(&mut self, host: &HostName) -> &mut HostView {
        let view = self.state.hosts.get_mut(host);
        Arc::make_mut(view.expect("a host with claims is not removed"))
    }

    pub(crate) fn put_operation(&mut self, operation: Operation) -> Arc<Operation> {
        let operation = Arc::new(operation);
        let id = operation.id;
        let old = self.state.operations.insert(id, operation.clone());
        let index = &mut self.state.index;
        if let Some(at) = done_at(&operation) {
            index.running.remove(&id);
            index.done.insert((at, id));
        } else if old.is_none() {
            index.running.insert(id);
        }
        self.journal.record(|| Change {
            key: Key::Operation(id),
            old: old.map(Row::Operation),
            new: Some(Row::Operation(operation.clone())),
        });
        operation
    }

    pub(crate) fn remove_operation(&mut self, id: OperationId) {
        let old = self.state.operations.remove(&id);
        if let Some(old) = &old {
            self.state.index.running.remove(&id);
            if let Some(at) = done_at(old) {
                self.state.index.done.remove(&(at, id));
            }
        }
        self.journal.record(|| Change {
            key: Key::Operation(id),
            old: old.map(Row::Operation),
            new: None,
        });
    }

    pub(crate) fn put_migration(&mut self, migration: Migration) -> Arc<Migration> {
        let migration = Arc::new(migration);
        let id = migration.id;
        let old = self.state.migrations.insert(id, migration.clone());
        if let Some(at) = ended_at(&migration) {
            self.state.index.ended.insert((at, id));
        }
        self.journal.record(|| Change {
            key: Key::Migration(id),
            old: old.map(Row::Migration),
            new: Some(Row::Migration(migration.clone())),
        });
        migration
    }

    pub(crate) fn remove_migration(&mut self, id: MigrationId) {
        let old = self.state.migrations.remove(&id);
        if let Some(at) = old.as_ref().and_then(|old| ended_at(old)) {
            self.state.index.ended.remove(&(at, id));
        }
        self.journal.record(|| Change {
            key: Key::Migration(id),
            old: old.map(Row::Migration),
            new: None,
        });
    }

    pub(crate) fn put_request(&mut self, request: Request) {
        let request = Arc::new(request);
        let name = request.name.clone();
        let old = self.state.requests.insert(name.clone(), request.clone());
        if let Some(old) = &old {
            self.state.index.remove_request(old);
        }
        self.state.index.put_request(&request);
        self.journal.record(|| Change {
            key: Key::Request(name),
            old: old.map(Row::Request),
            new: Some(Row::Request(request)),
        });
    }

    pub(crate) fn remove_request(&mut self, name: &Arc<RequestName>) {
        let old = self.state.requests.remove(name);
        if let Some(old) = &old {
            self.state.index.remove_request(old);
        }
        self.journal.record(|| Change {
            key: Key::Request(name.clone()),
            old: old.map(Row::Request),
            new: None,
        });
    }
}

/// Takes `resources` out of `used`; a class of which nothing is left is gone.
pub(crate) fn subtract(used: &mut Resources, resources: &Resources) {
    for (class, amount) in resources {
        if let Some(left) = used.get_mut(class) {
            *left = left.saturating_sub(*amount);
        }
    }
    used.retain(|_, amount| *amount > 0);
}

fn done_at(operation: &Operation) -> Option<TimeMs> {
    operation
        .is_done()
        .then(|| operation.ended_at.unwrap_or_default())
}

fn ended_at(migration: &Migration) -> Option<TimeMs> {
    migration
        .state
        .is_ended()
        .then(|| migration.ended_at.unwrap_or_default())
}
