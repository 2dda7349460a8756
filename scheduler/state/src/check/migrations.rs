//! What must hold of migrations: both claims are there while it is not known where the guest is.

use berth_domain::claim::Owner;
use berth_domain::migration::State as MigrationState;
use berth_domain::vm::State as VmState;

use super::{Violation, rule};
use crate::state::State;

/// A migration that has not ended leaves the VM with its source; once the transfer was started,
/// the destination is claimed too.
pub(super) fn running_have_both_claims(state: &State) -> Result<(), Violation> {
    const RULE: &str = "running_have_both_claims";
    for (id, migration) in &state.migrations {
        if migration.state.is_ended() || migration.state == MigrationState::Verifying {
            continue;
        }
        let vm = state.vms.get(&migration.vm);
        let at_source = vm.is_some_and(|vm| {
            vm.host.as_ref() == Some(&migration.source)
                && vm.claim == Some(migration.source_claim)
                && vm.operation == Some(migration.operation)
        });
        rule(
            at_source,
            RULE,
            format_args!("migration {id}: the vm is not with its source"),
        )?;
        let claim = migration
            .destination_claim
            .and_then(|id| state.claims.get(&id));
        let claimed = match migration.state {
            MigrationState::Preparing => migration.destination_claim.is_none() == claim.is_none(),
            MigrationState::Running
            | MigrationState::Unsettled
            | MigrationState::Completed
            | MigrationState::Failed
            | MigrationState::Verifying
            | MigrationState::Reverted => claim.is_some(),
        };
        let owned = claim.is_none_or(|c| {
            c.owner == Owner::Migration(*id)
                && Some(&c.assignment) == migration.assignment_after.as_ref()
                && (c.host != migration.source || migration.resize.is_some())
        });
        let what = format_args!("migration {id} is {:?}, claim {claim:?}", migration.state);
        rule(claimed && owned, RULE, what)?;
        let operation = state.operations.get(&migration.operation);
        let carried = operation.is_some_and(|o| !o.is_done() && o.kind.claiming() == Some(*id));
        rule(
            carried,
            RULE,
            format_args!("nothing carries migration {id} out"),
        )?;
    }
    Ok(())
}

/// What a VM had before its resize is kept as long as that waits; the VM is with its destination. One
/// that is deleted keeps it while it has disks there.
pub(super) fn verified_keep_both_claims(state: &State) -> Result<(), Violation> {
    for (id, migration) in &state.migrations {
        if migration.state != MigrationState::Verifying {
            continue;
        }
        let kept = state.claims.get(&migration.source_claim);
        let vm = state.vms.get(&migration.vm);
        let good = kept.is_some_and(|c| c.owner == Owner::Migration(*id))
            && vm.is_some_and(|vm| {
                let deleted = vm.state == VmState::Deleting && migration.fetches_disks;
                let waits = vm.state == VmState::Resized || deleted;
                waits && vm.claim == migration.destination_claim
            });
        let what = format_args!("migration {id} is to be verified");
        rule(good, "verified_keep_both_claims", what)?;
    }
    Ok(())
}

/// A migration that ended has no claim of its own.
pub(super) fn ended_hold_nothing(state: &State) -> Result<(), Violation> {
    for (id, migration) in &state.migrations {
        let ended = migration.state.is_ended();
        let good =
            !ended || (migration.destination_claim.is_none() && migration.ended_at.is_some());
        rule(good, "ended_hold_nothing", format_args!("migration {id}"))?;
    }
    Ok(())
}
