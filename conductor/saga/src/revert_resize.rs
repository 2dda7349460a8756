//! Takes a cold migration back that waits to be verified: stop the VM where it is, start it where
//! it was, as it was.

use berth_domain::agent::{Call, Reply};
use berth_domain::name::HostName;
use berth_domain::operation::{Effect, Step};
use berth_domain::refusal::Refusal;

use crate::disks;
use crate::live_migration::migration;
use crate::plan::{Ask, Context, Script, StepPlan, Undo};
use crate::refusals;
use crate::start_stop::{one_of, start_on, stop_here};

/// The way back.
pub(crate) struct RevertResize;

const STEPS: &[StepPlan] = &[
    // The guest is gone here before it starts there. There is no undo, since this is one already:
    // what it goes back to is claimed, so nothing can be in its way for good.
    StepPlan {
        step: Step::StopDestination,
        side_effects: true,
        undo: Undo::NoReturn,
    },
    // On the claim that was kept for it. The command that ends it gives the other claim back.
    StepPlan {
        step: Step::StartSource,
        side_effects: true,
        undo: Undo::NoReturn,
    },
    // Where the disks were fetched: those on the source are the VM's again, as they were left there,
    // and these nobody's. The other claim, with its disk space, is given back afterwards.
    StepPlan {
        step: Step::DropDestination,
        side_effects: true,
        undo: Undo::NoReturn,
    },
];

/// The last step that there is ends it.
fn ended(step: Step, context: &Context) -> Effect {
    let last = match disks::are_fetched(context) {
        true => Step::DropDestination,
        false => Step::StartSource,
    };
    match step == last {
        true => Effect::CompleteRevert,
        false => Effect::None,
    }
}

impl Script for RevertResize {
    fn steps(&self) -> &'static [StepPlan] {
        STEPS
    }

    fn can_give_up(&self) -> bool {
        false
    }

    // A guest that was started on the source is not started again if it has stopped since.
    fn resumes(&self) -> bool {
        true
    }

    fn is_needed(&self, step: Step, context: &Context) -> bool {
        step != Step::DropDestination || disks::are_fetched(context)
    }

    fn start_effect(&self, _step: Step) -> Effect {
        Effect::None
    }

    fn ask(&self, step: Step, context: &Context) -> Result<Ask, Refusal> {
        if step == Step::StopDestination {
            return stop_here(context, true);
        }
        if step == Step::DropDestination {
            let (host, call) = disks::drop_destination(context)?;
            let call = Box::new(call);
            return Ok(Ask::Agent { host, call });
        }
        let migration = migration(context)?;
        if migration.was_stopped {
            return Ok(Ask::Nothing(ended(step, context)));
        }
        let resize = migration.resize.as_deref();
        let before = resize.map_or(&context.facts.vm.spec, |resize| &resize.before);
        let (host, call) = start_on(context, before, one_of(context, migration.source_claim)?);
        let call = Box::new(call);
        Ok(Ask::Agent { host, call })
    }

    fn answered(
        &self,
        step: Step,
        _reply: Reply,
        context: &mut Context,
    ) -> Result<Effect, Refusal> {
        Ok(ended(step, context))
    }

    fn undo(&self, _step: Step, _context: &Context) -> Result<(HostName, Call), Refusal> {
        Err(refusals::inconsistent("a revert has no undo"))
    }

    fn is_candidates_fault(&self, _step: Step) -> bool {
        false
    }

    fn give_up(&self, _refusal: Refusal) -> Effect {
        Effect::None
    }
}
