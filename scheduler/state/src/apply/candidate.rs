//! The candidate of an operation: the claim that it holds on one host after the other, until an
//! agent takes the guest.

use berth_domain::claim::{Claim, Owner};
use berth_domain::constraint::Demand;
use berth_domain::id::ClaimId;
use berth_domain::name::HostName;
use berth_domain::numa::Assignment;
use berth_domain::operation::{ClaimPurpose, Kind, Operation};
use berth_domain::refusal::Refusal;
use berth_domain::vm::Vm;

use super::claim::{Purpose, not_held};
use crate::refusals::precondition;
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    /// Holds the next candidate's claim for an operation that claims a host.
    pub(super) fn hold_next(
        &mut self,
        operation: &mut Operation,
        claim: &Claim,
    ) -> Result<(), Refusal> {
        if operation.excluded.contains(&claim.host) {
            return Err(precondition(
                "HOST_EXCLUDED",
                format!("host {} refused this operation before", claim.host),
            )
            .with("host", &claim.host));
        }
        let vm = self.vm_of(operation);
        let migration = operation.kind.claiming();
        let owner = migration.map_or(Owner::Vm, Owner::Migration);
        let purpose = Purpose {
            vm: &vm.name,
            owner,
            demand: &self.demand_of(operation, &vm)?,
            requested_host: operation.requested_host.as_ref(),
        };
        self.examine_claim(claim, &purpose)?;
        if let Some(migration) = migration {
            self.aim_migration(migration, claim);
            self.record_storage(operation, &vm, &claim.host);
        } else {
            self.put_vm(Vm {
                host: Some(claim.host.clone()),
                claim: Some(claim.id),
                generation: vm.generation.next(),
                ..(*vm).clone()
            });
        }
        self.hold(claim);
        if let Kind::Evacuate { .. } = operation.kind {
            self.separate(&vm);
        }
        operation.claim = Some(claim.id);
        Ok(())
    }

    /// Says whether the disks of a VM that is off have to be fetched to its next host.
    fn record_storage(&mut self, operation: &Operation, vm: &Vm, destination: &HostName) {
        let Kind::ColdMigrate { migration } = operation.kind else {
            return;
        };
        let source = self.state.migration(migration).map(|m| m.source.clone());
        let apart = source.is_some_and(|source| self.state.are_apart(vm, &source, destination));
        let transfer = self.fetch_policy(apart);
        self.change_migration(migration, |migration| {
            migration.fetches_disks = apart;
            migration.transfer = transfer;
        });
    }

    pub(super) fn confirm(&self, operation: &Operation, id: ClaimId) -> Result<(), Refusal> {
        if operation.claim == Some(id) {
            Ok(())
        } else {
            Err(not_held(id))
        }
    }

    pub(super) fn swap(
        &mut self,
        operation: &Operation,
        id: ClaimId,
        assignment: &Assignment,
    ) -> Result<(), Refusal> {
        let claim = self.state.claim(id).filter(|_| operation.claim == Some(id));
        let claim = claim.cloned().ok_or_else(|| not_held(id))?;
        let demand = self.demand_of(operation, &self.vm_of(operation))?;
        let swapped = self.examine_swap(&claim, &demand, assignment)?;
        if let Some(migration) = operation.kind.claiming() {
            self.aim_migration(migration, &swapped);
        }
        self.touch_provider(&swapped.host);
        self.put_claim(swapped);
        Ok(())
    }

    /// Gives the operation's claim back, for another candidate or for none.
    pub(super) fn give_up(
        &mut self,
        operation: &mut Operation,
        id: ClaimId,
        exclude: bool,
    ) -> Result<(), Refusal> {
        let claim = self.state.claim(id).filter(|_| operation.claim == Some(id));
        let claim = claim.cloned().ok_or_else(|| not_held(id))?;
        if exclude && !operation.excluded.contains(&claim.host) {
            operation.excluded.push(claim.host.clone());
        }
        if let Some(migration) = operation.kind.claiming() {
            if exclude {
                self.record_tried(migration, operation, &claim.host);
            }
            self.unaim_migration(migration);
        } else {
            let vm = self.vm_of(operation);
            self.put_vm(Vm {
                host: None,
                claim: None,
                generation: vm.generation.next(),
                ..(*vm).clone()
            });
        }
        self.release(id);
        operation.claim = None;
        Ok(())
    }

    /// Returns what an operation's VM demands of the next host.
    pub(super) fn demand_of(&self, operation: &Operation, vm: &Vm) -> Result<Demand, Refusal> {
        match operation.kind.plan().claims {
            Some(ClaimPurpose::LiveMigration) => self.state.live_demand(vm),
            // Those without a purpose have no step that claims.
            Some(ClaimPurpose::Boot) | None => self.demand_of_boot(&vm.name, &vm.spec),
            Some(
                ClaimPurpose::ColdMigration | ClaimPurpose::Evacuation | ClaimPurpose::Unshelving,
            ) => self.state.next_cold_demand(operation, vm),
        }
    }
}
