//! What must hold of VMs: one host holds each that runs, and one operation works on it.

use std::collections::BTreeMap;

use berth_domain::claim::{Claim, Owner, State as ClaimState};
use berth_domain::name::VmName;
use berth_domain::vm::{PER_HOUR_MAX, State as VmState, Vm};

use super::{Violation, rule};
use crate::state::State;

/// The promise itself: a VM that may run is held by exactly one host.
pub(super) fn running_vms_hold_one_active_claim(state: &State) -> Result<(), Violation> {
    const RULE: &str = "running_vms_hold_one_active_claim";
    let mut claims: BTreeMap<&VmName, Vec<&Claim>> = BTreeMap::new();
    for claim in state.claims.values() {
        if claim.owner == Owner::Vm && claim.state == ClaimState::Active {
            claims.entry(&claim.vm).or_default().push(claim);
        }
    }
    for (name, vm) in &state.vms {
        let may_run = match vm.state {
            VmState::Active | VmState::Migrating | VmState::Stopped | VmState::Resized => true,
            // One whose rebuild failed half-way keeps its place; any other has none.
            VmState::Error => vm.claim.is_some(),
            // One that was lost before holds nothing.
            VmState::Deleting => vm.claim.is_some() || vm.remains_on.is_none(),
            VmState::Building | VmState::Shelved => false,
        };
        // A host is being tried for it.
        let tried = match vm.state {
            VmState::Building => true,
            VmState::Shelved => vm.operation.is_some(),
            VmState::Active
            | VmState::Migrating
            | VmState::Deleting
            | VmState::Error
            | VmState::Stopped
            | VmState::Resized => false,
        };
        let active = claims.get(name).map_or(&[][..], Vec::as_slice);
        let good = if may_run {
            active.len() == 1
                && vm.claim == Some(active[0].id)
                && vm.host.as_ref() == Some(&active[0].host)
        } else {
            active.is_empty() && (tried || vm.claim.is_none())
        };
        let what = format_args!(
            "vm {name} is {:?} with {} active claims",
            vm.state,
            active.len()
        );
        rule(good, RULE, what)?;
        let together = vm.host.is_some() == vm.claim.is_some();
        let what = format_args!("vm {name} has host {:?} and claim {:?}", vm.host, vm.claim);
        rule(together, RULE, what)?;
    }
    Ok(())
}

/// A VM is in a passing state only while an operation of that kind works on it.
pub(super) fn vm_states_match_operations(state: &State) -> Result<(), Violation> {
    for (name, vm) in &state.vms {
        let kind = vm.operation.and_then(|id| state.operations.get(&id));
        let kind = kind
            .filter(|o| o.vm() == Some(name) && !o.is_done())
            .map(|o| &o.kind);
        let passing = match vm.state {
            VmState::Building | VmState::Migrating | VmState::Deleting => true,
            VmState::Active
            | VmState::Error
            | VmState::Stopped
            | VmState::Resized
            | VmState::Shelved => false,
        };
        let good = match kind {
            Some(kind) => kind.works_in(vm.state),
            None => !passing && vm.operation.is_none(),
        };
        let what = format_args!("vm {name} is {:?} and {kind:?} works on it", vm.state);
        rule(good, "vm_states_match_operations", what)?;
    }
    Ok(())
}

/// A shelved VM says where its disks are.
pub(super) fn shelved_vms_record_their_host(state: &State) -> Result<(), Violation> {
    for (name, vm) in &state.vms {
        let good = vm.state != VmState::Shelved || vm.remains_on.is_some();
        rule(
            good,
            "shelved_vms_record_their_host",
            format_args!("vm {name}"),
        )?;
    }
    Ok(())
}

/// What a guest is given for its first boot is kept exactly as long as that lasts.
pub(super) fn first_boots_are_of_vms_that_boot(state: &State) -> Result<(), Violation> {
    for (name, vm) in &state.vms {
        let boots = vm.state == VmState::Building && vm.spec.has_seed();
        let good = vm.first_boot.is_some() == boots;
        let what = format_args!("vm {name} is {:?}: {:?}", vm.state, vm.first_boot);
        rule(good, "first_boots_are_of_vms_that_boot", what)?;
    }
    Ok(())
}

/// A guest is found not to run only where one should.
pub(super) fn troubles_are_of_running_vms(state: &State) -> Result<(), Violation> {
    for (name, vm) in &state.vms {
        let mut settled = (**vm).clone();
        settled.settle();
        let what = format_args!("vm {name}: {:?}", vm.trouble);
        rule(settled == **vm, "troubles_are_of_running_vms", what)?;
    }
    Ok(())
}

/// No VM has more restarts by its policy recorded than any policy permits.
pub(super) fn restarts_are_bounded(state: &State) -> Result<(), Violation> {
    for (name, vm) in &state.vms {
        let restarts = &vm.restarts;
        let good = restarts.policy.faults().is_empty()
            && restarts.begun_at.len() <= PER_HOUR_MAX as usize
            && restarts.begun_at.is_sorted();
        let what = format_args!("vm {name}: {restarts:?}");
        rule(good, "restarts_are_bounded", what)?;
    }
    Ok(())
}

/// What is written on VMs is within its bounds.
pub(super) fn metadata_is_valid(state: &State) -> Result<(), Violation> {
    for (name, vm) in &state.vms {
        let what = format_args!("vm {name}: {:?}", vm.metadata);
        rule(vm.metadata.faults().is_empty(), "metadata_is_valid", what)?;
    }
    Ok(())
}

/// Only a VM in ERROR says why it is.
pub(super) fn only_errors_have_a_reason(state: &State) -> Result<(), Violation> {
    let good = |vm: &Vm| match vm.state {
        VmState::Error => vm.error.is_some(),
        VmState::Deleting => true,
        VmState::Building
        | VmState::Active
        | VmState::Migrating
        | VmState::Stopped
        | VmState::Resized
        | VmState::Shelved => vm.error.is_none(),
    };
    for (name, vm) in &state.vms {
        let what = format_args!("vm {name} is {:?} with {:?}", vm.state, vm.error);
        rule(good(vm), "only_errors_have_a_reason", what)?;
    }
    Ok(())
}
