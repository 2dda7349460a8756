//! Which VMs the volumes of this host belong to: the scheduler's word, written down beside each volume.
//!
//! A VM has its volumes from when it is made until it is deleted, also while it is off and uses nothing
//! on its host; a mark on the host says who uses a volume now, and is another thing. What is written down
//! here counts where no scheduler can be asked.
//!
//! Invariant: while a guest has the mark of a volume, it is not written down that the volume is nobody's.

use berth_domain::name::VolumeId;
use berth_pmem::volume::{Phase, Volumes};
use berth_proto::volume::v1::Volume;

use super::guests::guest_of;

/// Returns the name of the VM that has a volume, as the scheduler says; empty: none.
pub(super) fn told(volume: &Volume) -> String {
    let vm = &volume.attached_vm;
    vm.strip_prefix("vms/").unwrap_or(vm).to_owned()
}

/// Takes over what the scheduler said; `owner` is what is written down. A word of before the guest
/// started may come after it.
pub(super) fn take_over<'t>(
    mut targets: impl Iterator<Item = &'t String>,
    owner: &mut String,
    told: String,
) {
    if !told.is_empty() || guest_of(&mut targets).is_none() {
        *owner = told;
    }
}

/// Writes down what the scheduler said of these volumes, where that is new. Blocks.
pub(super) fn note_all(keeper: &Volumes, told: Vec<(VolumeId, String)>) {
    for (id, vm) in told {
        let known = keeper.get(&id).map(|volume| volume.record);
        let is_news = known.is_some_and(|r| r.phase == Phase::Ready && r.owner != vm);
        if !is_news {
            continue;
        }
        let noted = keeper.set_use(&id, |targets, owner| {
            take_over(targets.keys(), owner, vm.clone());
        });
        // It is asked for again before anybody is given the volume.
        if let Err(error) = noted {
            tracing::warn!(volume = %id, vm, %error, "whose it is cannot be written down");
        }
    }
}
