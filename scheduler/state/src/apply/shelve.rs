//! Shelving: a VM gives its host back and keeps its disks, and later gets a host again.
//!
//! Invariant: a shelved VM says where its disks are ([`Vm::remains_on`]) until it runs again.

use berth_domain::claim::{Claim, Owner, State as ClaimState};
use berth_domain::constraint::RestartReason;
use berth_domain::id::OperationId;
use berth_domain::name::{HostName, VmName};
use berth_domain::operation::{Kind, Operation, Outcome};
use berth_domain::refusal::Refusal;
use berth_domain::vm::{Event, Vm};

use super::claim::Purpose;
use super::operation::{transition, with_claim};
use crate::command::LeaseRequest;
use crate::refusals::precondition;
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

/// What an unshelving begins with.
pub(super) struct Begin<'a> {
    pub(super) operation: OperationId,
    pub(super) vm: &'a VmName,
    pub(super) requested_host: Option<&'a HostName>,
    pub(super) claim: &'a Claim,
    pub(super) lease: &'a LeaseRequest,
}

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn begin_shelve(
        &mut self,
        id: OperationId,
        name: &VmName,
        lease: &LeaseRequest,
    ) -> Result<Reply, Refusal> {
        let vm = self.idle_vm(name, &Kind::Shelve)?;
        self.examine_orphans(&vm, &Kind::Shelve)?;
        self.examine_new_operation(id, lease)?;
        if let Some(host) = &vm.host {
            self.can_stop_and_start(host)?;
        }
        self.occupy(&vm, id);
        let operation = self.new_operation(id, Kind::Shelve, name, lease);
        Ok(Reply::Operation(self.put_operation(operation)))
    }

    pub(super) fn complete_shelve(&mut self, operation: &mut Operation) -> Result<(), Refusal> {
        let vm = self.vm_of(operation);
        let state = transition(&vm, Event::Shelved)?;
        if let Some(claim) = vm.claim {
            self.release(claim);
        }
        self.put_vm(Vm {
            state,
            remains_on: vm.host.clone(),
            host: None,
            claim: None,
            operation: None,
            generation: vm.generation.next(),
            ..(*vm).clone()
        });
        self.end(operation, Outcome::Succeeded);
        Ok(())
    }

    pub(super) fn begin_unshelve(&mut self, begin: &Begin<'_>) -> Result<Reply, Refusal> {
        let vm = self.idle_vm(begin.vm, &Kind::Unshelve)?;
        self.examine_orphans(&vm, &Kind::Unshelve)?;
        self.examine_new_operation(begin.operation, begin.lease)?;
        let purpose = Purpose {
            vm: begin.vm,
            owner: Owner::Vm,
            demand: &self
                .state
                .cold_demand(&vm, &vm.spec, RestartReason::Unshelving)?,
            requested_host: begin.requested_host,
        };
        self.examine_claim(begin.claim, &purpose)?;
        self.put_vm(Vm {
            host: Some(begin.claim.host.clone()),
            claim: Some(begin.claim.id),
            operation: Some(begin.operation),
            generation: vm.generation.next(),
            ..(*vm).clone()
        });
        let claim = self.hold(begin.claim);
        let operation = self.new_operation(begin.operation, Kind::Unshelve, begin.vm, begin.lease);
        Ok(Reply::Operation(self.put_operation(Operation {
            requested_host: begin.requested_host.cloned(),
            ..with_claim(operation, &claim)
        })))
    }

    pub(super) fn complete_unshelve(&mut self, operation: &mut Operation) -> Result<(), Refusal> {
        let vm = self.vm_of(operation);
        let state = transition(&vm, Event::Unshelved)?;
        let claim = operation.claim.and_then(|id| self.state.claim(id)).cloned();
        let claim =
            claim.ok_or_else(|| precondition("NO_CLAIM", "the unshelving holds no claim"))?;
        self.put_claim(Claim {
            state: ClaimState::Active,
            ..(*claim).clone()
        });
        self.put_vm(Vm {
            state,
            remains_on: None,
            operation: None,
            generation: vm.generation.next(),
            ..(*vm).clone()
        });
        self.end(operation, Outcome::Succeeded);
        Ok(())
    }

    pub(super) fn fail_unshelve(
        &mut self,
        operation: &mut Operation,
        refusal: &Refusal,
    ) -> Result<(), Refusal> {
        let vm = self.vm_of(operation);
        if let Some(claim) = operation.claim {
            self.release(claim);
        }
        self.put_vm(Vm {
            host: None,
            claim: None,
            operation: None,
            generation: vm.generation.next(),
            ..(*vm).clone()
        });
        self.end(operation, Outcome::Failed(refusal.clone()));
        Ok(())
    }
}
