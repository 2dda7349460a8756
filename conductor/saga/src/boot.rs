//! Boots a VM: claim a host, start the guest there, and on a refusal try the next host.

use berth_domain::agent::Call;
use berth_domain::claim::Claim;
use berth_domain::name::HostName;
use berth_domain::operation::Step;
use berth_domain::refusal::Refusal;

use crate::plan::{Action, Context, Script};
use crate::refusals;

/// The boot of a VM.
pub(crate) struct Boot;

fn claim(context: &Context) -> Result<&Claim, Refusal> {
    let facts = &context.facts;
    let claim = facts.claim.as_ref();
    claim.ok_or_else(|| {
        refusals::inconsistent(format!("vm {} is booted without a claim", facts.vm.name))
    })
}

impl Script for Boot {
    fn action(&self, _step: Step, context: &Context) -> Result<Action, Refusal> {
        let (facts, claim) = (&context.facts, claim(context)?);
        let call = Call::SpawnVm {
            vm: facts.vm.name.clone(),
            spec: facts.vm.spec.clone(),
            claim: claim.clone(),
            first_boot: facts.vm.first_boot.clone(),
        };
        Ok((claim.host.clone(), call).into())
    }

    fn undo(&self, _step: Step, context: &Context) -> Result<(HostName, Call), Refusal> {
        Ok((claim(context)?.host.clone(), Call::DestroyVm))
    }
}
