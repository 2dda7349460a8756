//! Starts a VM elsewhere whose host is proven to be dead: claim, start it there with its disks.

use berth_domain::agent::{Call, Reply};
use berth_domain::name::HostName;
use berth_domain::operation::{Effect, Step};
use berth_domain::refusal::Refusal;

use crate::live_migration::migration;
use crate::plan::{Ask, Context, Script, StepPlan, Undo};
use crate::start_stop::{start_on, take_back, taken};

/// The evacuation of a VM.
pub(crate) struct Evacuation;

const STEPS: &[StepPlan] = &[
    // First, in the command that makes the migration and looks at the proof that the host is dead.
    // State alone, and given back last.
    StepPlan {
        step: Step::Claim,
        side_effects: false,
        undo: Undo::ReleaseClaim,
    },
    // Its undo stops the guest and shuts out a start that comes late. The dead host is not asked
    // for anything: its agent, should it come back, takes away what its claims do not cover.
    StepPlan {
        step: Step::StartDestination,
        side_effects: true,
        undo: Undo::AskAgent,
    },
];

impl Script for Evacuation {
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
        if migration(context)?.was_stopped {
            return Ok(Ask::Nothing(Effect::CompleteMove));
        }
        let (host, call) = start_on(context, &context.facts.vm.spec, taken(context)?);
        let call = Box::new(call);
        Ok(Ask::Agent { host, call })
    }

    fn answered(
        &self,
        _step: Step,
        _reply: Reply,
        _context: &mut Context,
    ) -> Result<Effect, Refusal> {
        Ok(Effect::CompleteMove)
    }

    fn undo(&self, _step: Step, context: &Context) -> Result<(HostName, Call), Refusal> {
        Ok(take_back(taken(context)?))
    }

    fn is_candidates_fault(&self, _step: Step) -> bool {
        true
    }

    fn give_up(&self, refusal: Refusal) -> Effect {
        Effect::RefuseMigration(refusal)
    }
}
