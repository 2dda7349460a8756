//! Takes a cold migration back that waits to be verified: stop the VM where it is, start it where
//! it was, as it was.

use berth_domain::operation::Step;
use berth_domain::refusal::Refusal;

use crate::disks;
use crate::live_migration::migration;
use crate::plan::{Action, Context, Script};
use crate::start_stop::{one_of, start_on, stop_here};

/// The way back.
pub(crate) struct RevertResize;

impl Script for RevertResize {
    fn action(&self, step: Step, context: &Context) -> Result<Action, Refusal> {
        if step == Step::StopDestination {
            return stop_here(context, true);
        }
        if step == Step::DropDestination {
            return Ok(disks::drop_destination(context)?.into());
        }
        let migration = migration(context)?;
        if migration.was_stopped {
            return Ok(Action::Complete(context.success(step)?));
        }
        let resize = migration.resize.as_deref();
        let before = resize.map_or(&context.facts.vm.spec, |resize| &resize.before);
        Ok(start_on(context, before, one_of(context, migration.source_claim)?).into())
    }
}
