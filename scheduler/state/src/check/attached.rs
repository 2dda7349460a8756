//! What must hold of the volumes of VMs.

use berth_domain::name::{VmName, VolumeId};
use imbl::OrdMap;

use super::{Violation, rule};
use crate::state::State;

/// No volume belongs to two VMs, each is there and stays as long as it does, on a host where its VM
/// is, and each is found by its own.
pub(super) fn volumes_have_one_vm(state: &State) -> Result<(), Violation> {
    const RULE: &str = "volumes_have_one_vm";
    let mut owners: OrdMap<VolumeId, VmName> = OrdMap::new();
    for vm in state.vms.values() {
        for attachment in &vm.spec.volumes {
            let id = &attachment.volume;
            let other = owners.insert(id.clone(), vm.name.clone());
            let what = format_args!("volume {id} belongs to {other:?} and to {}", vm.name);
            rule(other.is_none(), RULE, what)?;
            let volume = state.volumes.get(id);
            let is_there = volume.is_some_and(|volume| !volume.is_deleting());
            let what = format_args!("volume {id} of vm {} is not there", vm.name);
            rule(is_there, RULE, what)?;
            let hosts = state.claims_of_vm(&vm.name).map(|claim| &claim.host);
            let mut hosts = hosts.filter(|host| volume.is_none_or(|v| v.on(host).is_none()));
            let astray = hosts.next();
            let what = format_args!("vm {} is on {astray:?}, volume {id} is not", vm.name);
            rule(astray.is_none(), RULE, what)?;
        }
    }
    rule(owners == state.index.volume_vms, RULE, "vms by volume")
}
