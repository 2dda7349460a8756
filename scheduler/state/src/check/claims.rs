//! What must hold of claims: each has an owner, and its amounts agree with its CPUs.

use std::collections::BTreeSet;

use berth_domain::allocation::Resources;
use berth_domain::claim::{Claim, Owner, State as ClaimState};
use berth_domain::migration::State as MigrationState;
use berth_domain::operation::Kind;
use berth_domain::pmem::CLASS_PREFIX;
use berth_domain::resource::ResourceClass;
use berth_domain::vm::{self, VmSpec};

use super::{Violation, rule};
use crate::state::State;

/// No claim is left over: its VM or its migration holds it and says so.
pub(super) fn claims_have_owners(state: &State) -> Result<(), Violation> {
    for (id, claim) in state.claims.iter().filter(|(_, c)| c.is_in_use()) {
        let vm = state.vms.get(&claim.vm);
        let owned = match &claim.owner {
            Owner::Vm => {
                vm.is_some_and(|vm| vm.claim == Some(*id) && vm.host.as_ref() == Some(&claim.host))
            }
            Owner::Migration(migration) => {
                let migration = state.migrations.get(migration);
                migration.is_some_and(|m| {
                    let side = match m.state {
                        MigrationState::Verifying => (Some(m.source_claim), Some(&m.source)),
                        MigrationState::Preparing
                        | MigrationState::Running
                        | MigrationState::Unsettled
                        | MigrationState::Completed
                        | MigrationState::Failed
                        | MigrationState::Reverted => (m.destination_claim, m.destination.as_ref()),
                    };
                    side == (Some(*id), Some(&claim.host))
                        && m.vm == claim.vm
                        && !m.state.is_ended()
                })
            }
        };
        let what = format_args!("claim {id} of vm {} on {}", claim.vm, claim.host);
        rule(owned, "claims_have_owners", what)?;
    }
    Ok(())
}

/// A held claim is one that nothing runs on yet.
pub(super) fn states_follow_their_owners(state: &State) -> Result<(), Violation> {
    for (id, claim) in &state.claims {
        let operation = state.vms.get(&claim.vm).and_then(|vm| vm.operation);
        let kind = operation.and_then(|id| state.operations.get(&id));
        let kind = kind.map(|operation| &operation.kind);
        let vm = state.vms.get(&claim.vm).map(|vm| vm.state);
        let tried = matches!(kind, Some(Kind::Boot | Kind::Unshelve));
        let moving = kind.is_some_and(|kind| kind.claiming().is_some());
        let good = match (&claim.owner, claim.state) {
            (Owner::Vm, ClaimState::Held) => tried,
            (Owner::Vm, ClaimState::Active) => !tried,
            (Owner::Migration(_), ClaimState::Held) => {
                moving || matches!(vm, Some(vm::State::Resized | vm::State::Deleting))
            }
            (Owner::Migration(_), ClaimState::Active) => false,
            (Owner::Vm | Owner::Migration(_), ClaimState::Releasing) => true,
        };
        let what = format_args!(
            "claim {id} is {:?} for {:?}, vm {vm:?}",
            claim.state, claim.owner
        );
        rule(good, "states_follow_their_owners", what)?;
    }
    Ok(())
}

/// What is left of a claim that was given back is its namespaces, each with its erasure; and nothing
/// that is in use is being erased; at most it is recorded as written off.
pub(super) fn released_claims_are_erased(state: &State) -> Result<(), Violation> {
    for (id, claim) in &state.claims {
        let names = claim.assignment.pmem.iter().map(|device| &device.name);
        let good = match claim.is_in_use() {
            true => {
                let names: BTreeSet<_> = names.collect();
                let mut recorded = claim.erasures.iter();
                recorded.all(|(name, erasure)| erasure.written_off && names.contains(name))
            }
            false => {
                let mut bare = claim.assignment.clone();
                bare.pmem.clear();
                bare.is_empty()
                    && !claim.erasures.is_empty()
                    && names.collect::<BTreeSet<_>>() == claim.erasures.keys().collect()
            }
        };
        let what = format_args!("claim {id} on {}: {:?}", claim.host, claim.erasures);
        rule(good, "released_claims_are_erased", what)?;
    }
    Ok(())
}

/// PCPU is the number of dedicated CPUs, and so on.
pub(super) fn counted_and_exact_agree(state: &State) -> Result<(), Violation> {
    for (id, claim) in &state.claims {
        if let Some(what) = pmem_disagreement(claim) {
            let what = format_args!("claim {id}: {what}");
            return rule(false, "counted_and_exact_agree", what);
        }
        let vm = state.vms.get(&claim.vm).filter(|_| claim.is_in_use());
        let Some(vm) = vm else {
            continue;
        };
        if let Some(what) = disagreement(claim, spec_of(state, claim).unwrap_or(&vm.spec)) {
            return rule(
                false,
                "counted_and_exact_agree",
                format_args!("claim {id}: {what}"),
            );
        }
    }
    Ok(())
}

/// Returns the size that a claim was made for, where it is not the VM's.
pub(crate) fn spec_of<'s>(state: &'s State, claim: &Claim) -> Option<&'s VmSpec> {
    let Owner::Migration(id) = claim.owner else {
        return None;
    };
    let migration = state.migrations.get(&id)?;
    let resize = migration.resize.as_deref()?;
    Some(match claim.id == migration.source_claim {
        true => &resize.before,
        false => &resize.after,
    })
}

/// Returns how counted amounts, exact assignment and the guest's size disagree, if they do.
fn disagreement(claim: &Claim, spec: &VmSpec) -> Option<String> {
    let amount = |class: ResourceClass| claim.resources.get(&class).copied().unwrap_or(0);
    let (vcpu, pcpu) = (amount(ResourceClass::vcpu()), amount(ResourceClass::pcpu()));
    let memory = amount(ResourceClass::memory_mb());
    let dedicated = claim.assignment.dedicated().len() as u64;
    let vcpus = u64::from(spec.flavor.vcpus) + claim.assignment.emulator.len() as u64;
    let cells = &claim.assignment.cells;
    let shared: u64 = cells.iter().map(|c| u64::from(c.shared_vcpus)).sum();
    let given: u64 = cells.iter().map(|c| c.memory_mib).sum();
    let pairs = [
        ("PCPU and dedicated CPUs", pcpu, dedicated),
        ("VCPU and PCPU together and vCPUs", vcpu + pcpu, vcpus),
        ("MEMORY_MB and the flavor", memory, spec.flavor.memory_mib),
    ];
    let cell_pairs = [
        ("VCPU and floating vCPUs", vcpu, shared),
        ("MEMORY_MB and the memory of cells", memory, given),
    ];
    let exact = cell_pairs.into_iter().filter(|_| !cells.is_empty());
    pairs
        .into_iter()
        .chain(exact)
        .find(|(_, counted, exact)| counted != exact)
        .map(|(what, counted, exact)| format!("{what} differ: {counted}, {exact}"))
}

/// Returns how the counted namespaces and the given ones disagree, if they do.
fn pmem_disagreement(claim: &Claim) -> Option<String> {
    let counted = claim.resources.iter();
    let counted: Resources = counted
        .filter(|(class, _)| class.as_str().starts_with(CLASS_PREFIX))
        .map(|(class, amount)| (class.clone(), *amount))
        .collect();
    let given = claim.counted_pmem();
    (counted != given).then(|| format!("pmem namespaces differ: {counted:?}, {given:?}"))
}
