//! Starts a VM on a host that is claimed anew, with the disks that it has: one whose host is proven to
//! be dead, or one that was shelved. Nobody has to be asked to stop it first.

use berth_domain::agent::{Call, Reply};
use berth_domain::name::HostName;
use berth_domain::operation::{Effect, Step};
use berth_domain::refusal::Refusal;

use crate::live_migration::migration;
use crate::plan::{Ask, Context, Script, StepPlan, Undo};
use crate::start_stop::{start_on, take_back, taken};

/// Why a VM is started on another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartElsewhere {
    /// Its host is dead.
    Evacuation,
    /// It is shelved, and on no host.
    Unshelving,
}

const STEPS: &[StepPlan] = &[
    // First, in the command that begins it, which looks at the proof that the old host is dead if
    // there is one. State alone, and given back last.
    StepPlan {
        step: Step::Claim,
        side_effects: false,
        undo: Undo::ReleaseClaim,
    },
    // Its undo stops the guest and shuts out a start that comes late. A dead host is not asked for
    // anything: its agent, should it come back, takes away what its claims do not cover.
    StepPlan {
        step: Step::StartDestination,
        side_effects: true,
        undo: Undo::AskAgent,
    },
];

impl StartElsewhere {
    fn complete(self) -> Effect {
        match self {
            Self::Evacuation => Effect::CompleteMove,
            Self::Unshelving => Effect::CompleteUnshelve,
        }
    }
}

impl Script for StartElsewhere {
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
        // What was stopped when its host died stays so; what is unshelved is to run.
        if *self == Self::Evacuation && migration(context)?.was_stopped {
            return Ok(Ask::Nothing(self.complete()));
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
        Ok(self.complete())
    }

    fn undo(&self, _step: Step, context: &Context) -> Result<(HostName, Call), Refusal> {
        Ok(take_back(taken(context)?))
    }

    fn is_candidates_fault(&self, _step: Step) -> bool {
        true
    }

    fn give_up(&self, refusal: Refusal) -> Effect {
        match self {
            Self::Evacuation => Effect::RefuseMigration(refusal),
            Self::Unshelving => Effect::FailUnshelve(refusal),
        }
    }
}
