//! Boots a VM: claim a host, start the guest there, and on a refusal try the next host.

use berth_domain::agent::{Call, Reply};
use berth_domain::name::HostName;
use berth_domain::operation::{Effect, Step};
use berth_domain::refusal::Refusal;

use crate::plan::{Ask, Context, Script, StepPlan, Undo};
use crate::refusals;

/// The boot of a VM.
pub(crate) struct Boot;

const STEPS: &[StepPlan] = &[
    // First, and in the very command that makes the VM: no moment exists in which the VM is
    // there without resources, or resources are held for no VM. A claim is state alone, and so
    // is giving it back. It is given back last: only once the host has said that nothing runs
    // on it.
    StepPlan {
        step: Step::Claim,
        side_effects: false,
        undo: Undo::ReleaseClaim,
    },
    // The claim goes with the call, so the guest starts on exactly what was committed. An agent
    // that is asked twice starts one guest. Its undo destroys the guest and is asked for even
    // after a plain refusal, since an earlier, unanswered try may have started one; an agent
    // that was told to destroy refuses a start that comes late.
    StepPlan {
        step: Step::Spawn,
        side_effects: true,
        undo: Undo::AskAgent,
    },
];

impl Boot {
    fn host(context: &Context) -> Result<HostName, Refusal> {
        let claim = context.facts.claim.as_ref();
        claim.map(|c| c.host.clone()).ok_or_else(|| {
            refusals::inconsistent(format!(
                "vm {} is booted without a claim",
                context.facts.vm.name
            ))
        })
    }
}

impl Script for Boot {
    fn steps(&self) -> &'static [StepPlan] {
        STEPS
    }

    fn can_give_up(&self) -> bool {
        true
    }

    fn start_effect(&self, _step: Step) -> Effect {
        Effect::None
    }

    fn ask(&self, _step: Step, context: &Context) -> Result<Ask, Refusal> {
        let facts = &context.facts;
        let host = Self::host(context)?;
        let claim = facts.claim.clone().ok_or_else(|| {
            refusals::inconsistent(format!("vm {} is booted without a claim", facts.vm.name))
        })?;
        let call = Box::new(Call::SpawnVm {
            vm: facts.vm.name.clone(),
            spec: facts.vm.spec.clone(),
            claim,
        });
        Ok(Ask::Agent { host, call })
    }

    fn answered(
        &self,
        _step: Step,
        _reply: Reply,
        _context: &mut Context,
    ) -> Result<Effect, Refusal> {
        // Agents may answer with the guest's status or plainly: either way it runs.
        Ok(Effect::CompleteBoot)
    }

    fn undo(&self, _step: Step, context: &Context) -> Result<(HostName, Call), Refusal> {
        Ok((Self::host(context)?, Call::DestroyVm))
    }

    fn is_candidates_fault(&self, _step: Step) -> bool {
        true
    }

    fn give_up(&self, refusal: Refusal) -> Effect {
        Effect::FailBoot(refusal)
    }
}
