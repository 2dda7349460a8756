//! Deleting a VM: its claim stays until its host said that the guest is gone. One that was lost
//! holds no claim, but the host that has its files is called all the same.

use berth_domain::id::OperationId;
use berth_domain::migration;
use berth_domain::name::VmName;
use berth_domain::operation::{Kind, Operation, Outcome};
use berth_domain::refusal::Refusal;
use berth_domain::vm::{Event, Vm};

use super::metadata::examine_protection;
use super::migration::move_on;
use super::operation::transition;
use crate::command::LeaseRequest;
use crate::refusals::vm_busy;
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn begin_delete(
        &mut self,
        id: OperationId,
        name: &VmName,
        lease: &LeaseRequest,
    ) -> Result<Reply, Refusal> {
        let vm = self.state.vm(name).cloned();
        let vm = vm.ok_or_else(|| Refusal::not_found("vm", name))?;
        if let Some(operation) = vm.operation {
            return Err(vm_busy(name, operation));
        }
        let state = transition(&vm, Event::DeleteBegan)?;
        examine_protection(&vm, "deleted")?;
        self.examine_orphans(&vm, &Kind::Delete)?;
        self.examine_new_operation(id, lease)?;
        // Where it left disks on the source, what it had there is kept until they are deleted.
        if !self.resize_of(&vm).is_some_and(|m| m.fetches_disks) {
            self.forget_resize(&vm)?;
        }
        let mut operation = self.new_operation(id, Kind::Delete, name, lease);
        let remains_on = vm.remains_on.as_ref();
        let remains = remains_on.is_some_and(|host| self.state.host(host).is_some());
        if vm.claim.is_none() && !remains {
            // Nothing is left anywhere: there is no host to ask.
            self.end(&mut operation, Outcome::Succeeded);
            self.remove_vm(name);
        } else {
            self.put_vm(Vm {
                state,
                operation: Some(id),
                generation: vm.generation.next(),
                ..(*vm).clone()
            });
        }
        Ok(Reply::Operation(self.put_operation(operation)))
    }

    pub(super) fn complete_delete(&mut self, operation: &mut Operation) -> Result<(), Refusal> {
        let vm = self.vm_of(operation);
        if let Some(migration) = self.resize_of(&vm) {
            let state = move_on(&migration, migration::Event::Confirmed)?;
            self.end_migration(&migration, state, None);
        }
        let claims: Vec<_> = self.state.claims_of_vm(&vm.name).map(|c| c.id).collect();
        for claim in claims {
            self.release(claim);
        }
        self.remove_vm(&vm.name);
        self.end(operation, Outcome::Succeeded);
        Ok(())
    }
}
