//! How the indexes of resource providers follow a provider that changes, and those of server groups
//! their members.
//!
//! Invariant: what an index holds is a function of the providers alone; [`crate::check`] recomputes
//! it. A provider whose allocations alone changed, as with every claim, moves in no index, and
//! seeing that takes a few comparisons.

use std::collections::BTreeSet;

use berth_domain::id::ProviderId;
use berth_domain::name::{HostName, ServerGroupName};
use berth_domain::provider::ResourceProvider;
use berth_domain::resource::ResourceClass;
use berth_domain::vm::Vm;
use imbl::OrdSet;

use crate::image::files_of;
use crate::network::networks_of;
use crate::state::Index;

/// The custom resource classes that a provider has something of.
pub(crate) fn custom_classes(provider: &ResourceProvider) -> impl Iterator<Item = &ResourceClass> {
    provider
        .inventories
        .keys()
        .filter(|class| class.is_custom())
}

impl Index {
    /// Takes note of a new VM.
    pub(crate) fn join_group(&mut self, vm: &Vm) {
        if let Some(group) = &vm.spec.hints.server_group {
            let members = self.group_vms.entry(group.clone()).or_default();
            members.insert(vm.name.clone());
        }
    }

    /// Forgets a VM that is gone, and whose claims are.
    pub(crate) fn leave_group(&mut self, vm: &Vm) {
        let Some(group) = &vm.spec.hints.server_group else {
            return;
        };
        let Some(members) = self.group_vms.get_mut(group) else {
            return;
        };
        members.remove(&vm.name);
        if members.is_empty() {
            self.group_vms.remove(group);
        }
    }

    /// Follows whether the guest of a VM was found not to run.
    pub(crate) fn mark_troubled(&mut self, vm: &Vm) {
        match (vm.trouble.is_some(), self.troubled.contains(&vm.name)) {
            (true, false) => drop(self.troubled.insert(vm.name.clone())),
            (false, true) => drop(self.troubled.remove(&vm.name)),
            (true, true) | (false, false) => {}
        }
    }

    /// Counts a new VM to its project, which it never leaves.
    pub(crate) fn join_project(&mut self, vm: &Vm) {
        let project = vm.ownership.project_name().into();
        let vms = self.project_vms.entry(project).or_default();
        vms.insert(vm.name.clone());
    }

    /// Removes a deleted VM from its project.
    pub(crate) fn leave_project(&mut self, vm: &Vm) {
        let project = vm.ownership.project_name();
        let Some(vms) = self.project_vms.get_mut(project) else {
            return;
        };
        vms.remove(&vm.name);
        if vms.is_empty() {
            self.project_vms.remove(project);
        }
    }

    /// Takes note of the volumes of a VM that is new, or has given some up. A resize does not change them.
    pub(crate) fn attach_volumes(&mut self, vm: &Vm) {
        for attachment in &vm.spec.volumes {
            let volume = attachment.volume.clone();
            self.volume_vms.insert(volume, vm.name.clone());
        }
    }

    /// Forgets whose volumes they were.
    pub(crate) fn detach_volumes(&mut self, vm: &Vm) {
        for attachment in &vm.spec.volumes {
            self.volume_vms.remove(&attachment.volume);
        }
    }

    /// Follows the images of a VM that is new, gone, or has others than before.
    pub(crate) fn move_images(&mut self, old: Option<&Vm>, new: Option<&Vm>) {
        let are_same = old
            .zip(new)
            .is_some_and(|(old, new)| old.spec.image_files().eq(new.spec.image_files()));
        if are_same {
            return;
        }
        for (vm, file) in old
            .iter()
            .flat_map(|vm| files_of(vm).into_iter().map(|f| (&vm.name, f)))
        {
            if let Some(vms) = self.image_vms.get_mut(&file) {
                vms.remove(vm);
                if vms.is_empty() {
                    self.image_vms.remove(&file);
                }
            }
        }
        for (vm, file) in new
            .iter()
            .flat_map(|vm| files_of(vm).into_iter().map(|f| (&vm.name, f)))
        {
            self.image_vms.entry(file).or_default().insert(vm.clone());
        }
    }

    /// Takes note of the networks of a new VM, which stays on them.
    pub(crate) fn join_networks(&mut self, vm: &Vm) {
        for network in networks_of(vm) {
            let vms = self.network_vms.entry(network.clone()).or_default();
            vms.insert(vm.name.clone());
        }
    }

    /// Forgets a VM that is gone.
    pub(crate) fn leave_networks(&mut self, vm: &Vm) {
        for network in networks_of(vm) {
            let Some(vms) = self.network_vms.get_mut(network) else {
                continue;
            };
            vms.remove(&vm.name);
            if vms.is_empty() {
                self.network_vms.remove(network);
            }
        }
    }

    /// Counts a claim of a member.
    pub(crate) fn count_in_group(&mut self, group: ServerGroupName, host: &HostName) {
        let hosts = self.group_hosts.entry(group).or_default();
        *hosts.entry(host.clone()).or_default() += 1;
    }

    /// Forgets a claim of a member.
    pub(crate) fn uncount_in_group(&mut self, group: &ServerGroupName, host: &HostName) {
        let Some(hosts) = self.group_hosts.get_mut(group) else {
            return;
        };
        if let Some(count) = hosts.get_mut(host) {
            *count -= 1;
            if *count == 0 {
                hosts.remove(host);
            }
        }
        if hosts.is_empty() {
            self.group_hosts.remove(group);
        }
    }

    /// Follows a provider from its old row to its new one.
    pub(crate) fn move_provider(
        &mut self,
        old: Option<&ResourceProvider>,
        new: Option<&ResourceProvider>,
    ) {
        let Some(id) = new.or(old).map(|provider| provider.id) else {
            return;
        };
        self.move_name(id, old, new);
        let parents = |provider: Option<&ResourceProvider>| provider.and_then(|p| p.parent);
        shift(&mut self.children, id, parents(old), parents(new));
        let root = |provider: Option<&ResourceProvider>| provider.map(|p| p.root);
        shift(&mut self.trees, id, root(old), root(new));
        let classes = |provider: Option<&ResourceProvider>| {
            provider.map_or_else(BTreeSet::new, |p| custom_classes(p).cloned().collect())
        };
        let same = old.zip(new).is_some_and(|(old, new)| {
            old.inventories.len() == new.inventories.len()
                && old.inventories.keys().eq(new.inventories.keys())
        });
        if !same {
            change(&mut self.class_providers, id, &classes(old), &classes(new));
        }
        let none = BTreeSet::new();
        let traits = [old, new].map(|provider| provider.map_or(&none, |p| &p.traits));
        change(&mut self.trait_providers, id, traits[0], traits[1]);
        let none = BTreeSet::new();
        let aggregates = [old, new].map(|provider| provider.map_or(&none, |p| &p.aggregates));
        let index = &mut self.aggregate_providers;
        change(index, id, aggregates[0], aggregates[1]);
    }

    fn move_name(
        &mut self,
        id: ProviderId,
        old: Option<&ResourceProvider>,
        new: Option<&ResourceProvider>,
    ) {
        if old.map(|p| &p.name) == new.map(|p| &p.name) {
            return;
        }
        if let Some(old) = old {
            self.provider_names.remove(old.name.as_str());
        }
        if let Some(new) = new {
            self.provider_names.insert(new.name.as_str().into(), id);
        }
    }
}

/// Moves a provider that is under at most one key.
fn shift<K: Ord + Copy>(
    index: &mut OrdSet<(K, ProviderId)>,
    id: ProviderId,
    old: Option<K>,
    new: Option<K>,
) {
    if old == new {
        return;
    }
    if let Some(key) = old {
        index.remove(&(key, id));
    }
    if let Some(key) = new {
        index.insert((key, id));
    }
}

/// Moves a provider that is under any number of keys.
fn change<K: Ord + Clone>(
    index: &mut OrdSet<(K, ProviderId)>,
    id: ProviderId,
    old: &BTreeSet<K>,
    new: &BTreeSet<K>,
) {
    if old == new {
        return;
    }
    for key in old.difference(new) {
        index.remove(&(key.clone(), id));
    }
    for key in new.difference(old) {
        index.insert((key.clone(), id));
    }
}
