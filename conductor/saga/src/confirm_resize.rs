//! Confirms a cold migration whose disks were fetched: what it left on the source is deleted, and then
//! what the VM had there is given back.
//!
//! Not here: the confirmation of any other move, which is one command without an operation.

use berth_domain::agent::{Call, Reply};
use berth_domain::name::HostName;
use berth_domain::operation::{Effect, Step};
use berth_domain::refusal::Refusal;

use crate::disks;
use crate::live_migration::migration;
use crate::plan::{Ask, Context, Script, StepPlan, Undo};
use crate::refusals;

/// The confirmation.
pub(crate) struct ConfirmResize;

const STEPS: &[StepPlan] = &[
    // The only step. The claim on the source goes in the command that ends it, so that its disk space
    // is nobody else's before it is free. What is deleted cannot be brought back, so there is no undo;
    // while the source does not answer, the operation goes on and says so. One that is dead keeps its
    // disks, which nobody uses any more.
    StepPlan {
        step: Step::DropSource,
        side_effects: true,
        undo: Undo::NoReturn,
    },
];

impl Script for ConfirmResize {
    fn steps(&self) -> &'static [StepPlan] {
        STEPS
    }

    fn can_give_up(&self) -> bool {
        false
    }

    fn start_effect(&self, _step: Step) -> Effect {
        Effect::None
    }

    fn ask(&self, _step: Step, context: &Context) -> Result<Ask, Refusal> {
        let (host, call) = disks::drop_source(migration(context)?);
        let call = Box::new(call);
        Ok(Ask::Agent { host, call })
    }

    fn answered(
        &self,
        _step: Step,
        _reply: Reply,
        _context: &mut Context,
    ) -> Result<Effect, Refusal> {
        Ok(Effect::CompleteConfirm)
    }

    fn undo(&self, _step: Step, _context: &Context) -> Result<(HostName, Call), Refusal> {
        Err(refusals::inconsistent("a confirmation has no undo"))
    }

    fn is_candidates_fault(&self, _step: Step) -> bool {
        false
    }

    fn give_up(&self, _refusal: Refusal) -> Effect {
        Effect::None
    }
}
