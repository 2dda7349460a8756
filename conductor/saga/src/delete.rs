//! Deletes a VM: take the guest away, then forget the VM together with its claim.

use berth_domain::agent::{Call, Reply};
use berth_domain::name::HostName;
use berth_domain::operation::{Effect, Step};
use berth_domain::refusal::Refusal;

use crate::disks;
use crate::live_migration::migration;
use crate::plan::{Ask, Context, Script, StepPlan, Undo};
use crate::refusals;

/// The deletion of a VM.
pub(crate) struct Delete;

const STEPS: &[StepPlan] = &[
    // Where its disks were fetched by a move that waits to be verified, they are on the source too. First,
    // as the claim there is released with the VM. No undo, as below.
    StepPlan {
        step: Step::DropSource,
        side_effects: true,
        undo: Undo::NoReturn,
    },
    // The only other step. The claim goes with the VM in the command that ends it, after the host has
    // said that the guest is gone: CPUs are never given to another while a guest may still run
    // on them. There is no undo: a guest that was destroyed cannot be brought back. So there is
    // no giving up and no cancelling either; while its host does not answer, the operation goes
    // on and says so.
    StepPlan {
        step: Step::Destroy,
        side_effects: true,
        undo: Undo::NoReturn,
    },
];

impl Script for Delete {
    fn steps(&self) -> &'static [StepPlan] {
        STEPS
    }

    fn can_give_up(&self) -> bool {
        false
    }

    fn is_needed(&self, step: Step, context: &Context) -> bool {
        step != Step::DropSource || disks::are_left(context)
    }

    fn resumes(&self) -> bool {
        true
    }

    fn start_effect(&self, _step: Step) -> Effect {
        Effect::None
    }

    fn ask(&self, step: Step, context: &Context) -> Result<Ask, Refusal> {
        if step == Step::DropSource {
            let (host, call) = disks::drop_source(migration(context)?);
            let call = Box::new(call);
            return Ok(Ask::Agent { host, call });
        }
        let facts = &context.facts;
        let remains_on = facts.vm.remains_on.as_ref();
        // A host that was removed since has taken with it what was left there.
        let remains_on = remains_on.filter(|host| facts.hosts.contains_key(*host));
        Ok(match facts.vm.host.as_ref().or(remains_on) {
            Some(host) => Ask::Agent {
                host: host.clone(),
                call: Box::new(Call::DestroyVm),
            },
            None => Ask::Nothing(Effect::CompleteDelete),
        })
    }

    fn answered(
        &self,
        step: Step,
        _reply: Reply,
        _context: &mut Context,
    ) -> Result<Effect, Refusal> {
        Ok(match step == Step::Destroy {
            true => Effect::CompleteDelete,
            false => Effect::None,
        })
    }

    fn undo(&self, _step: Step, _context: &Context) -> Result<(HostName, Call), Refusal> {
        Err(refusals::inconsistent("a deletion has no undo"))
    }

    fn is_candidates_fault(&self, _step: Step) -> bool {
        false
    }

    fn give_up(&self, _refusal: Refusal) -> Effect {
        Effect::None
    }
}
