//! How every operation begins and ends, whatever it is about.

use std::sync::Arc;

use berth_domain::claim::Claim;
use berth_domain::id::OperationId;
use berth_domain::name::VmName;
use berth_domain::operation::{Advice, Entry, Kind, Mark, Operation, Outcome, Step, Subject};
use berth_domain::refusal::Refusal;
use berth_domain::vm::{Event, State, Vm};

use crate::command::LeaseRequest;
use crate::refusals::{exists, precondition};
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    /// Returns the VM that a running operation works on.
    pub(super) fn vm_of(&self, operation: &Operation) -> Arc<Vm> {
        let vm = operation.vm().and_then(|vm| self.state.vm(vm));
        vm.expect("a VM is not forgotten while an operation works on it")
            .clone()
    }

    /// Refuses an id that is taken, and a conductor that is too old.
    pub(super) fn examine_new_operation(
        &self,
        id: OperationId,
        lease: &LeaseRequest,
    ) -> Result<(), Refusal> {
        self.examine_conductor(&lease.conductor)?;
        match self.state.operation(id) {
            Some(_) => Err(exists("operation", id)),
            None => Ok(()),
        }
    }

    /// Returns a running operation on a VM with a lease and an empty log.
    pub(super) fn new_operation(
        &mut self,
        id: OperationId,
        kind: Kind,
        vm: &VmName,
        lease: &LeaseRequest,
    ) -> Operation {
        self.new_operation_on(id, kind, Subject::Vm(vm.clone()), lease)
    }

    /// As [`Self::new_operation`], on a VM or a host.
    pub(super) fn new_operation_on(
        &mut self,
        id: OperationId,
        kind: Kind,
        subject: Subject,
        lease: &LeaseRequest,
    ) -> Operation {
        // That of a host is the default one.
        let project = match &subject {
            Subject::Vm(name) => self
                .state
                .vm(name)
                .and_then(|vm| vm.ownership.project.clone()),
            Subject::Drain(_) => None,
        };
        Operation {
            id,
            kind,
            subject,
            requested_host: None,
            excluded: Vec::new(),
            claim: None,
            lease: Some(self.grant(lease)),
            cancelled: false,
            log: Vec::new(),
            outcome: None,
            created_at: self.now(),
            ended_at: None,
            force_complete: false,
            ownership: self.ownership(project.as_ref()),
        }
    }

    /// Ends an operation: it has no lease and no claim of its own from here on.
    pub(super) fn end(&self, operation: &mut Operation, outcome: Outcome) {
        operation.claim = None;
        operation.lease = None;
        operation.outcome = Some(outcome);
        operation.ended_at = Some(self.now());
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
/// Refuses an operation in the state that a VM is in, with what helps where something does.
pub(super) fn advised(vm: &Vm, kind: &Kind, why: &str) -> Refusal {
    let message = format!("vm {} is {:?}: {why}", vm.name, vm.state);
    let refusal = precondition("VM_STATE", message)
        .with("vm", &vm.name)
        .with("state", format!("{:?}", vm.state));
    match Advice::new(vm.state, vm.claim.is_some(), kind) {
        Some(advice) => refusal.with_hint(advice.describe(vm)),
        None => refusal,
    }
}

pub(super) fn transition(vm: &Vm, event: Event) -> Result<State, Refusal> {
    vm.state.transition(event).map_err(|refused| {
        precondition("VM_STATE", format!("vm {}: {refused}", vm.name))
            .with("vm", &vm.name)
            .with("state", format!("{:?}", vm.state))
    })
}
