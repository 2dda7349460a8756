//! The VMs that own the volumes of this host: as the scheduler records, cached beside each volume.
//!
//! A VM owns its volumes from its creation until its deletion, also while it is off and uses nothing
//! on its host; a mark on the host says who uses a volume now, which is something else. The cached
//! owner counts where no scheduler can be reached.
//!
//! Invariant: while a guest has the mark of a volume, the volume is not recorded as unowned.

use berth_domain::name::VolumeId;
use berth_pmem::volume::{Phase, VolumeStore};
use berth_proto::volume::v1::Volume;

use super::guests::guest_of;

/// Returns the name of the VM that owns a volume, by the scheduler's record; empty: none.
pub(super) fn owner_name(volume: &Volume) -> String {
    let vm = &volume.attached_vm;
    vm.strip_prefix("vms/").unwrap_or(vm).to_owned()
}

/// Takes over the scheduler's record; `owner` is the cached one. A reply from before the guest
/// started may come after it.
pub(super) fn update_cached<'t>(
    mut targets: impl Iterator<Item = &'t String>,
    owner: &mut String,
    recorded: String,
) {
    if !recorded.is_empty() || guest_of(&mut targets).is_none() {
        *owner = recorded;
    }
}

/// Caches the owners of these volumes, where they are new. Blocks.
pub(super) fn cache_all(store: &VolumeStore, owners: Vec<(VolumeId, String)>) {
    for (id, vm) in owners {
        let known = store.get(&id).map(|volume| volume.record);
        let is_new = known.is_some_and(|r| r.phase == Phase::Ready && r.owner != vm);
        if !is_new {
            continue;
        }
        let cached = store.set_use(&id, |targets, owner| {
            update_cached(targets.keys(), owner, vm.clone());
        });
        // It is queried again before the volume is assigned to any user.
        if let Err(error) = cached {
            tracing::warn!(volume = %id, vm, %error, "owner of a volume cannot be recorded");
        }
    }
}
