//! What operators write on VMs: labels, a description, and the protection from deletion.
//!
//! A change has no part in what operations do: it is possible while one works on the VM, and leaves that
//! operation as it is. What is protected is looked at when a deletion or a rebuild begins, in the command
//! that begins it, so that no client and no conductor gets around it.

use berth_domain::fault;
use berth_domain::name::VmName;
use berth_domain::refusal::Refusal;
use berth_domain::vm::{Metadata, MetadataChange, State, Vm};

use crate::refusals::precondition;
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn update_vm(
        &mut self,
        name: &VmName,
        change: &MetadataChange,
    ) -> Result<Reply, Refusal> {
        let vm = self.state.vm(name).cloned();
        let vm = vm.ok_or_else(|| Refusal::not_found("vm", name))?;
        let metadata = vm.metadata.changed(change);
        let mut faults = change.faults();
        faults.extend(metadata.faults());
        refuse_faults(&faults)?;
        if metadata == vm.metadata {
            return Ok(Reply::None);
        }
        // It would promise what cannot be: the disks may be gone already.
        if vm.state == State::Deleting && metadata.protected && !vm.metadata.protected {
            let message = format!("vm {name} is being deleted: it cannot be protected any more");
            return Err(precondition("VM_STATE", message)
                .with("vm", name)
                .with("state", vm.state.as_str()));
        }
        self.put_vm(Vm {
            metadata,
            generation: vm.generation.next(),
            ..(*vm).clone()
        });
        Ok(Reply::None)
    }
}

/// Refuses metadata that cannot be.
pub(super) fn examine_metadata(metadata: &Metadata) -> Result<(), Refusal> {
    refuse_faults(&metadata.faults())
}

fn refuse_faults(faults: &[fault::Fault]) -> Result<(), Refusal> {
    match faults {
        [] => Ok(()),
        faults => Err(fault::refusal("vm", faults)),
    }
}

/// Refuses to destroy the disks of a VM that is protected. `what` is what would be done to it.
pub(super) fn examine_protection(vm: &Vm, what: &str) -> Result<(), Refusal> {
    if !vm.metadata.protected {
        return Ok(());
    }
    let name = &vm.name;
    let message = format!("vm {name} is protected from deletion: it cannot be {what}");
    Err(precondition("VM_PROTECTED", message)
        .with_hint(format!(
            "`berth vm set {name} --unprotect` lifts the protection"
        ))
        .with("vm", name))
}
