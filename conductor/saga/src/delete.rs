//! Deletes a VM: take the guest away, then forget the VM together with its claim.

use berth_domain::agent::Call;
use berth_domain::operation::Step;
use berth_domain::refusal::Refusal;

use crate::disks;
use crate::live_migration::migration;
use crate::plan::{Action, Context, Script};

/// The deletion of a VM.
pub(crate) struct Delete;

impl Script for Delete {
    fn action(&self, step: Step, context: &Context) -> Result<Action, Refusal> {
        if step == Step::DropSource {
            return Ok(disks::drop_source(migration(context)?).into());
        }
        let facts = &context.facts;
        let remains_on = facts.vm.remains_on.as_ref();
        // A host that was removed since has taken with it what was left there.
        let remains_on = remains_on.filter(|host| facts.hosts.contains_key(*host));
        match facts.vm.host.as_ref().or(remains_on) {
            Some(host) => Ok((host.clone(), Call::DestroyVm).into()),
            None => Ok(Action::Complete(context.success(step)?)),
        }
    }
}
