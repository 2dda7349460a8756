//! Booting: the VM, its claim and its operation begin together, and end together.

use std::sync::Arc;

use berth_domain::claim::{Claim, Owner, State as ClaimState};
use berth_domain::constraint::Demand;
use berth_domain::id::{ClaimId, Generation, OperationId, VmUid};
use berth_domain::name::{HostName, VmName};
use berth_domain::operation::{Entry, Kind, Mark, Operation, Outcome, Step};
use berth_domain::refusal::Refusal;
use berth_domain::vm::{Event, State, Vm, VmSpec};

use super::claim::{Purpose, not_held};
use crate::command::LeaseRequest;
use crate::refusals::{exists, precondition};
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

/// What a boot begins with.
pub(super) struct Begin<'a> {
    pub(super) operation: OperationId,
    pub(super) vm: &'a VmName,
    pub(super) uid: VmUid,
    pub(super) spec: &'a VmSpec,
    pub(super) requested_host: Option<&'a HostName>,
    pub(super) claim: &'a Claim,
    pub(super) lease: &'a LeaseRequest,
}

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn begin_boot(&mut self, begin: &Begin<'_>) -> Result<Reply, Refusal> {
        if self.state.vm(begin.vm).is_some() {
            return Err(exists("vm", begin.vm));
        }
        self.examine_operation_id(begin.operation)?;
        let purpose = Purpose {
            vm: begin.vm,
            owner: Owner::Vm,
            demand: &Demand::boot(begin.spec)?,
            requested_host: begin.requested_host,
        };
        self.examine_claim(begin.claim, &purpose)?;
        let claim = self.hold(begin.claim);
        let created_at = self.now();
        self.put_vm(Vm {
            name: begin.vm.clone(),
            uid: begin.uid,
            spec: begin.spec.clone(),
            state: State::Building,
            host: Some(claim.host.clone()),
            claim: Some(claim.id),
            operation: Some(begin.operation),
            error: None,
            generation: Generation(1),
            created_at,
        });
        let operation = self.new_operation(begin.operation, Kind::Boot, begin.vm, begin.lease);
        Ok(Reply::Operation(self.put_operation(Operation {
            requested_host: begin.requested_host.cloned(),
            ..with_claim(operation, &claim)
        })))
    }

    pub(super) fn complete_boot(&mut self, operation: &mut Operation) -> Result<(), Refusal> {
        let vm = self.vm_of(operation);
        let state = transition(&vm, Event::Booted)?;
        let claim = operation.claim.and_then(|id| self.state.claim(id)).cloned();
        let claim = claim.ok_or_else(|| precondition("NO_CLAIM", "the boot holds no claim"))?;
        self.put_claim(Claim {
            state: ClaimState::Active,
            ..(*claim).clone()
        });
        self.put_vm(Vm {
            state,
            operation: None,
            generation: vm.generation.next(),
            ..(*vm).clone()
        });
        self.end(operation, Outcome::Succeeded);
        Ok(())
    }

    pub(super) fn fail_boot(
        &mut self,
        operation: &mut Operation,
        refusal: &Refusal,
    ) -> Result<(), Refusal> {
        let vm = self.vm_of(operation);
        let state = transition(&vm, Event::BootFailed)?;
        if let Some(claim) = operation.claim {
            self.release(claim);
        }
        self.put_vm(Vm {
            state,
            host: None,
            claim: None,
            operation: None,
            error: Some(refusal.clone()),
            generation: vm.generation.next(),
            ..(*vm).clone()
        });
        self.end(operation, Outcome::Failed(refusal.clone()));
        Ok(())
    }

    /// Holds the next candidate's claim for a boot or a migration.
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
        let owner = match operation.kind {
            Kind::LiveMigrate { migration } => Owner::Migration(migration),
            Kind::Boot | Kind::Delete => Owner::Vm,
        };
        let purpose = Purpose {
            vm: &vm.name,
            owner,
            demand: &self.demand_of(operation, &vm)?,
            requested_host: operation.requested_host.as_ref(),
        };
        self.examine_claim(claim, &purpose)?;
        if let Kind::LiveMigrate { migration } = operation.kind {
            self.aim_migration(migration, claim);
        } else {
            self.put_vm(Vm {
                host: Some(claim.host.clone()),
                claim: Some(claim.id),
                generation: vm.generation.next(),
                ..(*vm).clone()
            });
        }
        self.hold(claim);
        operation.claim = Some(claim.id);
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
        if let Kind::LiveMigrate { migration } = operation.kind {
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
        match operation.kind {
            Kind::LiveMigrate { .. } => self.demand_of_move(vm),
            Kind::Boot | Kind::Delete => Demand::boot(&vm.spec),
        }
    }

    /// Returns the VM that a running operation works on.
    pub(super) fn vm_of(&self, operation: &Operation) -> Arc<Vm> {
        let vm = self.state.vm(&operation.vm);
        vm.expect("a VM is not forgotten while an operation works on it")
            .clone()
    }

    pub(super) fn examine_operation_id(&self, id: OperationId) -> Result<(), Refusal> {
        match self.state.operation(id) {
            Some(_) => Err(exists("operation", id)),
            None => Ok(()),
        }
    }

    /// Returns a running operation with a lease and an empty log.
    pub(super) fn new_operation(
        &mut self,
        id: OperationId,
        kind: Kind,
        vm: &VmName,
        lease: &LeaseRequest,
    ) -> Operation {
        Operation {
            id,
            kind,
            vm: vm.clone(),
            requested_host: None,
            excluded: Vec::new(),
            claim: None,
            lease: Some(self.grant(lease)),
            cancelled: false,
            log: Vec::new(),
            outcome: None,
            created_at: self.now(),
            ended_at: None,
        }
    }
}

/// Returns a new operation with its first claim, logged.
pub(super) fn with_claim(operation: Operation, claim: &Claim) -> Operation {
    let entry = Entry {
        step: Step::Claim,
        mark: Mark::Succeeded,
        host: Some(claim.host.clone()),
        at: operation.created_at,
    };
    Operation {
        claim: Some(claim.id),
        log: vec![entry],
        ..operation
    }
}

/// Returns the state of a VM after an event.
pub(super) fn transition(vm: &Vm, event: Event) -> Result<State, Refusal> {
    vm.state.transition(event).map_err(|refused| {
        precondition("VM_STATE", format!("vm {}: {refused}", vm.name))
            .with("vm", &vm.name)
            .with("state", format!("{:?}", vm.state))
    })
}
