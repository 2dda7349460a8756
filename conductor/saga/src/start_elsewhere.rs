//! Starts a VM on a newly claimed host, with the disks that it has: one whose host is proven to
//! be dead, or one that was shelved. No agent has to stop it first.

use berth_domain::agent::Call;
use berth_domain::name::HostName;
use berth_domain::operation::Step;
use berth_domain::refusal::Refusal;

use crate::live_migration::migration;
use crate::plan::{Action, Context, Script};
use crate::start_stop::{start_on, take_back, taken};

/// Why a VM is started on another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartElsewhere {
    /// Its host is dead.
    Evacuation,
    /// It is shelved, and on no host.
    Unshelving,
}

impl Script for StartElsewhere {
    fn action(&self, step: Step, context: &Context) -> Result<Action, Refusal> {
        // What was stopped when its host died stays so; what is unshelved is to run.
        if *self == Self::Evacuation && migration(context)?.was_stopped {
            return Ok(Action::Complete(context.success(step)?));
        }
        Ok(start_on(context, &context.facts.vm.spec, taken(context)?).into())
    }

    fn undo(&self, _step: Step, context: &Context) -> Result<(HostName, Call), Refusal> {
        Ok(take_back(taken(context)?))
    }
}
