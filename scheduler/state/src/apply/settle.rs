//! Where a guest is after the point of no return, as the two hypervisors say.
//!
//! Invariant: both claims stay until it is known.

use berth_domain::claim::{Claim, Owner, State as ClaimState};
use berth_domain::migration::{Event, Migration, State};
use berth_domain::operation::{Operation, Outcome};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::vm::{self, Vm};

use super::migration::move_on;
use super::operation::transition;
use crate::refusals::{invalid, precondition};
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn settle(
        &mut self,
        operation: &mut Operation,
        event: Event,
        refusal: Option<&Refusal>,
    ) -> Result<(), Refusal> {
        let migration = self.migration_of(operation)?;
        let state = move_on(&migration, event)?;
        match event {
            Event::Arrived => self.arrived(operation, &migration, state),
            Event::Stayed => self.stayed(operation, &migration, state, refusal),
            Event::Lost => self.lost(operation, &migration, state, refusal),
            Event::Unknown => {
                let error = refusal.cloned();
                if migration.state != state || migration.error != error {
                    self.change_migration(migration.id, |migration| {
                        migration.state = state;
                        migration.error = error;
                    });
                }
                Ok(())
            }
            Event::Refuse
            | Event::Begin
            | Event::Moved
            | Event::Resized
            | Event::Confirmed
            | Event::Reverted => Err(invalid(
                "EFFECT_NOT_ALLOWED",
                format!("{event:?} does not say where the guest is"),
            )),
        }
    }

    fn arrived(
        &mut self,
        operation: &mut Operation,
        migration: &Migration,
        state: State,
    ) -> Result<(), Refusal> {
        let vm = self.vm_of(operation);
        let vm_state = transition(&vm, vm::Event::MigrationEnded)?;
        let claim = migration.destination_claim;
        let claim = claim.and_then(|id| self.state.claim(id)).cloned();
        let claim = claim.ok_or_else(|| {
            precondition(
                "NO_CLAIM",
                format!("migration {} holds no claim", migration.id),
            )
        })?;
        self.release(migration.source_claim);
        let claim = self.put_claim(Claim {
            owner: Owner::Vm,
            state: ClaimState::Active,
            ..(*claim).clone()
        });
        self.put_vm(Vm {
            state: vm_state,
            host: Some(claim.host.clone()),
            claim: Some(claim.id),
            operation: None,
            generation: vm.generation.next(),
            ..(*vm).clone()
        });
        self.end_migration(migration, state, None);
        self.end(operation, Outcome::Succeeded);
        Ok(())
    }

    fn stayed(
        &mut self,
        operation: &mut Operation,
        migration: &Migration,
        state: State,
        refusal: Option<&Refusal>,
    ) -> Result<(), Refusal> {
        let vm = self.vm_of(operation);
        let vm_state = transition(&vm, vm::Event::MigrationEnded)?;
        let why = refusal.cloned().unwrap_or_else(|| {
            let message = format!("vm {} stayed on host {}", vm.name, migration.source);
            Refusal::new(Code::Aborted, "MIGRATION_STAYED", message)
        });
        if let Some(claim) = migration.destination_claim {
            self.release(claim);
        }
        self.put_vm(Vm {
            state: vm_state,
            operation: None,
            generation: vm.generation.next(),
            ..(*vm).clone()
        });
        self.end_migration(migration, state, Some(why.clone()));
        self.end(operation, Outcome::Failed(why));
        Ok(())
    }

    fn lost(
        &mut self,
        operation: &mut Operation,
        migration: &Migration,
        state: State,
        refusal: Option<&Refusal>,
    ) -> Result<(), Refusal> {
        let vm = self.vm_of(operation);
        let vm_state = transition(&vm, vm::Event::Lost)?;
        let why = refusal.cloned().unwrap_or_else(|| {
            let message = format!("vm {} runs on neither host of its migration", vm.name);
            Refusal::new(Code::Internal, "GUEST_LOST", message)
        });
        self.release(migration.source_claim);
        if let Some(claim) = migration.destination_claim {
            self.release(claim);
        }
        self.put_vm(Vm {
            state: vm_state,
            host: None,
            claim: None,
            // Its disks are the user's until the VM is deleted.
            remains_on: Some(migration.source.clone()),
            operation: None,
            error: Some(why.clone()),
            generation: vm.generation.next(),
            ..(*vm).clone()
        });
        self.end_migration(migration, state, Some(why.clone()));
        self.end(operation, Outcome::Failed(why));
        Ok(())
    }
}
