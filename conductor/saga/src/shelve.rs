//! Shelves a VM: stop it, give its host back. Unshelves it: claim a host anew, start it there with
//! the disks that it has.

use berth_domain::agent::{Call, Reply};
use berth_domain::name::HostName;
use berth_domain::operation::{Effect, Step};
use berth_domain::refusal::Refusal;

use crate::plan::{Ask, Context, Script, StepPlan, Undo};
use crate::refusals;
use crate::start_stop::{start_on, stop_here, take_back, taken};

/// The shelving of a VM.
pub(crate) struct Shelve;

/// The unshelving of a VM.
pub(crate) struct Unshelve;

const SHELVE: &[StepPlan] = &[
    // The only step. The claim goes in the command that ends it, after the host has said that the
    // guest is gone. Like a deletion it has no undo and no giving up: while its host does not
    // answer, the operation goes on and says so.
    StepPlan {
        step: Step::StopSource,
        side_effects: true,
        undo: Undo::NoReturn,
    },
];

const UNSHELVE: &[StepPlan] = &[
    // First, in the command that begins it. State alone, and given back last.
    StepPlan {
        step: Step::Claim,
        side_effects: false,
        undo: Undo::ReleaseClaim,
    },
    // Its undo stops the guest and shuts out a start that comes late.
    StepPlan {
        step: Step::StartDestination,
        side_effects: true,
        undo: Undo::AskAgent,
    },
];

impl Script for Shelve {
    fn steps(&self) -> &'static [StepPlan] {
        SHELVE
    }

    fn can_give_up(&self) -> bool {
        false
    }

    fn start_effect(&self, _step: Step) -> Effect {
        Effect::None
    }

    fn ask(&self, _step: Step, context: &Context) -> Result<Ask, Refusal> {
        stop_here(context, true)
    }

    fn answered(
        &self,
        _step: Step,
        _reply: Reply,
        _context: &mut Context,
    ) -> Result<Effect, Refusal> {
        Ok(Effect::CompleteShelve)
    }

    fn undo(&self, _step: Step, _context: &Context) -> Result<(HostName, Call), Refusal> {
        Err(refusals::inconsistent("a shelving has no undo"))
    }

    fn is_candidates_fault(&self, _step: Step) -> bool {
        false
    }

    fn give_up(&self, _refusal: Refusal) -> Effect {
        Effect::None
    }
}

impl Script for Unshelve {
    fn steps(&self) -> &'static [StepPlan] {
        UNSHELVE
    }

    fn can_give_up(&self) -> bool {
        true
    }

    fn start_effect(&self, _step: Step) -> Effect {
        Effect::None
    }

    fn ask(&self, _step: Step, context: &Context) -> Result<Ask, Refusal> {
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
        Ok(Effect::CompleteUnshelve)
    }

    fn undo(&self, _step: Step, context: &Context) -> Result<(HostName, Call), Refusal> {
        Ok(take_back(taken(context)?))
    }

    fn is_candidates_fault(&self, _step: Step) -> bool {
        true
    }

    fn give_up(&self, refusal: Refusal) -> Effect {
        Effect::FailUnshelve(refusal)
    }
}
