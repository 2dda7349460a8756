//! Volumes that a guest has, and the state has for another VM.
//!
//! A volume is its VM's until that is deleted. A guest without a record that has one shows therefore that
//! the VM was deleted in the time that is lost: that VM gives the volume up and is in ERROR, without it and
//! without a claim, so that it is not started without its data.
//!
//! Invariant: a VM loses no volume while its own guest runs, nor where that is not known.

use std::collections::BTreeSet;
use std::sync::Arc;

use berth_domain::id::ClaimId;
use berth_domain::name::{VmName, VolumeId};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::vm::{State as VmState, Vm, VmSpec};

use super::Seat;
use super::adopt::{Stray, claims_in_the_way};
use super::settle::Settling;
use crate::recovery::Settled;
use crate::state::State;
use crate::transaction::{Journal, Transaction};

/// The reason why a VM is in ERROR that gave up a volume to the guest of another one.
pub(crate) const VOLUME_TAKEN: &str = "VOLUME_TAKEN";

impl<J: Journal> Transaction<'_, J> {
    /// Makes way for a guest: takes its volumes and what else it holds from VMs without guests.
    pub(super) fn make_way(
        &mut self,
        stray: &Stray,
        settling: &mut Settling,
    ) -> Result<Vec<ClaimId>, Refusal> {
        let owners = self.former_owners(stray, settling);
        if owners.is_empty() {
            return claims_in_the_way(self.state, stray, &settling.idle);
        }
        let claims = owners.iter().filter_map(|owner| owner.claim);
        let idle: Vec<ClaimId> = claims.filter(|id| settling.idle.remove(id)).collect();
        // The volumes are taken only if nothing else is in the way of the guest.
        let trial = without_volumes(self.state, &owners, stray);
        let claims = match claims_in_the_way(&trial, stray, &settling.idle) {
            Ok(claims) => claims,
            Err(refusal) => {
                settling.idle.extend(idle);
                return Err(refusal);
            }
        };
        for owner in &owners {
            let settled = self.release_volumes(owner, stray);
            settling.note(settled);
        }
        Ok(claims)
    }

    /// Returns the VMs that the state has the volumes of a guest for, and that give them up.
    fn former_owners(&self, stray: &Stray, settling: &Settling) -> Vec<Arc<Vm>> {
        let recovery = self.state.header.recovery;
        if !recovery.is_some_and(|recovery| recovery.volumes_follow_guests) {
            return Vec::new();
        }
        let attached = stray.vm.spec.volumes.iter();
        let owners = attached.filter_map(|one| self.state.vm_with_volume(&one.volume));
        let owners: BTreeSet<&VmName> = owners.filter(|vm| **vm != stray.vm.name).collect();
        let owners = owners.into_iter().filter_map(|name| self.state.vm(name));
        let owners = owners.filter(|vm| self.gives_way(vm, &stray.seat, settling));
        owners.cloned().collect()
    }

    /// Returns whether a VM gives its volumes up to a guest: its own does not run, and is nowhere where the
    /// other one is off too.
    fn gives_way(&self, vm: &Vm, seat: &Seat, settling: &Settling) -> bool {
        let is_off = match seat.is_live {
            true => !settling.has_live(vm),
            false => !settling.has(vm),
        };
        if self.state.is_recovering() {
            return is_off;
        }
        // After the recovery one host alone has reported, on which nothing was started before: only of a VM
        // that rests there it is known that no other host runs its guest.
        let rests = match vm.state {
            VmState::Active | VmState::Stopped | VmState::Error => vm.operation.is_none(),
            VmState::Building
            | VmState::Migrating
            | VmState::Deleting
            | VmState::Shelved
            | VmState::Resized => false,
        };
        is_off && rests && vm.host.as_ref() == Some(&seat.host)
    }

    /// Takes the volumes of a guest from the VM that the state has them for.
    fn release_volumes(&mut self, vm: &Vm, stray: &Stray) -> Settled {
        let taken: Vec<&VolumeId> = (stray.vm.spec.volumes.iter())
            .map(|one| &one.volume)
            .filter(|id| vm.spec.volumes.iter().any(|own| own.volume == **id))
            .collect();
        let why = taken_by(self.state, vm, stray, &taken);
        self.unbind(vm, None);
        self.take_back_erasures(&stray.seat.host, &stray.held());
        let left = vm.spec.volumes.iter();
        let left = left.filter(|own| !taken.contains(&&own.volume));
        let spec = VmSpec {
            volumes: left.cloned().collect(),
            ..vm.spec.clone()
        };
        let left = Vm { spec, ..vm.clone() };
        self.exchange_volumes(vm, &left);
        // Its deletion removes there what is left of it.
        let remains_on = vm.host.clone().or_else(|| vm.remains_on.clone());
        self.fail(&left, None, remains_on, why)
    }
}

/// Returns a state in which these VMs have given up the volumes of a guest.
fn without_volumes(state: &State, owners: &[Arc<Vm>], stray: &Stray) -> State {
    let mut state = state.clone();
    let mut trial = Transaction::unrecorded(&mut state);
    for owner in owners {
        let _ = trial.release_volumes(owner, stray);
    }
    state
}

/// Why a VM is without volumes that it had.
fn taken_by(state: &State, vm: &Vm, stray: &Stray, taken: &[&VolumeId]) -> Refusal {
    let named = taken.iter().map(|id| match state.volume(id) {
        Some(volume) => format!("{} ({id})", volume.display_name),
        None => id.to_string(),
    });
    let named: Vec<String> = named.collect();
    let (volumes, are) = match named.len() {
        1 => ("volume", "is"),
        _ => ("volumes", "are"),
    };
    let (other, host) = (&stray.vm.name, &stray.seat.host);
    let runs = match stray.seat.is_live {
        true => "runs",
        false => "is",
    };
    let message = format!(
        "{volumes} {} {are} in use by vm {other}, which {runs} on host {host}: vm {} was deleted in the time \
         that is lost",
        named.join(", "),
        vm.name,
    );
    let first = taken.first().map(ToString::to_string);
    let why = Refusal::new(Code::FailedPrecondition, VOLUME_TAKEN, message)
        .with_hint(format!(
            "{}delete it, which leaves the {volumes} to vm {other}: `berth vm delete {}`",
            vm.unprotect_first(),
            vm.name
        ))
        .with("volume", first.unwrap_or_default())
        .with("attached_vm", other)
        .with("host", host);
    why.as_record(true)
}
