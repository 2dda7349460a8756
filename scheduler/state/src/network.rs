//! Which VMs are on a network.

use std::collections::BTreeSet;

use berth_domain::name::{NetworkName, VmName};
use berth_domain::vm::Vm;
use imbl::OrdSet;

use crate::state::State;

impl State {
    /// Returns the VMs that are on a network.
    #[must_use]
    pub fn vms_on_network(&self, network: &NetworkName) -> OrdSet<VmName> {
        let vms = self.index.network_vms.get(network);
        vms.cloned().unwrap_or_default()
    }
}

/// Returns the networks that a VM is on, each once.
pub(crate) fn networks_of(vm: &Vm) -> BTreeSet<&NetworkName> {
    vm.spec.networks().map(|one| &one.name).collect()
}
