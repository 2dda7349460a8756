//! What must hold of operations: a running one has a holder, a done one holds nothing.

use std::collections::BTreeSet;

use berth_domain::claim::State as ClaimState;
use berth_domain::operation::Operation;

use super::{Violation, rule};
use crate::apply::{AUDIT_MAX, DONE_MAX, ENDED_MAX, LOG_MAX};
use crate::state::State;

fn running(state: &State) -> impl Iterator<Item = &Operation> {
    state
        .operations
        .values()
        .map(|o| &**o)
        .filter(|o| !o.is_done())
}

/// A conductor carries out what runs, under an epoch that was given.
pub(super) fn running_have_leases(state: &State) -> Result<(), Violation> {
    for operation in running(state) {
        let lease = operation.lease.as_ref();
        let good = lease.is_some_and(|l| l.epoch <= state.header.epoch && l.epoch.0 > 0);
        let what = format_args!("operation {} has lease {lease:?}", operation.id);
        rule(good, "running_have_leases", what)?;
    }
    Ok(())
}

/// No epoch is given twice.
pub(super) fn epochs_are_distinct(state: &State) -> Result<(), Violation> {
    let mut epochs = BTreeSet::new();
    for operation in running(state) {
        let Some(lease) = &operation.lease else {
            continue;
        };
        let what = format_args!("operation {} shares epoch {}", operation.id, lease.epoch);
        rule(epochs.insert(lease.epoch), "epochs_are_distinct", what)?;
    }
    Ok(())
}

/// One operation works on a VM, and the VM knows it.
pub(super) fn running_work_on_their_vm(state: &State) -> Result<(), Violation> {
    for operation in running(state) {
        let Some(name) = operation.vm() else { continue };
        let vm = state.vms.get(name);
        let good = vm.is_some_and(|vm| vm.operation == Some(operation.id));
        let what = format_args!("operation {} and vm {name}", operation.id);
        rule(good, "running_work_on_their_vm", what)?;
    }
    Ok(())
}

/// The claim that an operation took is held for what it carries out.
pub(super) fn claims_are_their_own(state: &State) -> Result<(), Violation> {
    for operation in running(state) {
        let vm_claim = operation.vm().and_then(|vm| state.vms.get(vm)?.claim);
        let expected = match (operation.kind.plan().claims, operation.kind.claiming()) {
            (None, _) => None,
            (Some(_), None) => vm_claim,
            (Some(_), Some(migration)) => {
                let migration = state.migrations.get(&migration);
                migration.and_then(|m| m.destination_claim)
            }
        };
        let held = operation.claim.is_none_or(|id| {
            let claim = state.claims.get(&id);
            claim.is_some_and(|c| c.state == ClaimState::Held && Some(&c.vm) == operation.vm())
        });
        let what = format_args!(
            "operation {} holds claim {:?}",
            operation.id, operation.claim
        );
        rule(
            operation.claim == expected && held,
            "claims_are_their_own",
            what,
        )?;
    }
    Ok(())
}

/// What is done has no lease, no claim and an end.
pub(super) fn done_hold_nothing(state: &State) -> Result<(), Violation> {
    for operation in state.operations.values().filter(|o| o.is_done()) {
        let good = operation.lease.is_none()
            && operation.claim.is_none()
            && operation.ended_at.is_some_and(|at| at <= state.header.time);
        rule(
            good,
            "done_hold_nothing",
            format_args!("operation {}", operation.id),
        )?;
        let vm = operation.vm().and_then(|vm| state.vms.get(vm));
        let forgotten = vm.is_none_or(|vm| vm.operation != Some(operation.id));
        let name = operation.subject_name();
        let what = format_args!("vm {name} still names operation {}", operation.id);
        rule(forgotten, "done_hold_nothing", what)?;
    }
    Ok(())
}

/// What ended is forgotten in the end.
pub(super) fn logs_and_tables_are_bounded(state: &State) -> Result<(), Violation> {
    const RULE: &str = "logs_and_tables_are_bounded";
    for operation in state.operations.values() {
        let what = format_args!("the log of operation {}", operation.id);
        rule(operation.log.len() <= LOG_MAX, RULE, what)?;
    }
    let audit = state.audit.len();
    rule(
        audit <= AUDIT_MAX,
        RULE,
        format_args!("{audit} entries of the audit"),
    )?;
    let done = state.operations.values().filter(|o| o.is_done()).count();
    rule(
        done <= DONE_MAX,
        RULE,
        format_args!("{done} done operations"),
    )?;
    let ended = state
        .migrations
        .values()
        .filter(|m| m.state.is_ended())
        .count();
    rule(
        ended <= ENDED_MAX,
        RULE,
        format_args!("{ended} ended migrations"),
    )
}
