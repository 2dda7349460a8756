//! Shelves a VM: stop it, give its host back.
//!
//! Not here: how it is unshelved (`start_elsewhere`).

use berth_domain::agent::{Call, Reply};
use berth_domain::name::HostName;
use berth_domain::operation::{Effect, Step};
use berth_domain::refusal::Refusal;

use crate::plan::{Ask, Context, Script, StepPlan, Undo};
use crate::refusals;
use crate::start_stop::stop_here;

/// The shelving of a VM.
pub(crate) struct Shelve;

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
