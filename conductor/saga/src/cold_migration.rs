//! Moves a VM while it does not run, to another host or to another flavor: claim, stop it where it
//! is, start it on its claim. What it had before goes at the end, or is kept to be verified.
//!
//! ```text
//!   Claim ─▶ StopSource ─▶ StartDestination ─▶ (done, or to be verified)
//!   └────────────── refused: undone, latest first ──────────────┘
//! ```

use berth_domain::agent::{Call, Reply};
use berth_domain::name::HostName;
use berth_domain::operation::{Effect, Step};
use berth_domain::refusal::Refusal;
use berth_domain::vm::VmSpec;

use crate::live_migration::migration;
use crate::plan::{Ask, Context, Script, StepPlan, Undo};
use crate::refusals;
use crate::start_stop::{one_of, start_on, stop_here, take_back, taken};

/// The move of a VM that does not run meanwhile.
pub(crate) struct ColdMigration;

const STEPS: &[StepPlan] = &[
    // First, in the command that makes the migration: the guest is not stopped before it has
    // somewhere to go. State alone, and given back last.
    StepPlan {
        step: Step::Claim,
        side_effects: false,
        undo: Undo::ReleaseClaim,
    },
    // The disks are one host's at a time: the guest is gone here before it starts there. Its claim
    // stays, so its undo, which starts it where it was, always finds its CPUs.
    StepPlan {
        step: Step::StopSource,
        side_effects: true,
        undo: Undo::AskAgent,
    },
    // Its undo stops the guest and is asked for even after a plain refusal, since an earlier,
    // unanswered try may have started one; it shuts out a start that comes late. It comes before
    // the undo of the stop: the guest never runs twice.
    StepPlan {
        step: Step::StartDestination,
        side_effects: true,
        undo: Undo::AskAgent,
    },
];

/// Returns what the VM is after the move.
fn spec_after(context: &Context) -> Result<&VmSpec, Refusal> {
    let resize = migration(context)?.resize.as_deref();
    Ok(resize.map_or(&context.facts.vm.spec, |resize| &resize.after))
}

impl Script for ColdMigration {
    fn steps(&self) -> &'static [StepPlan] {
        STEPS
    }

    fn can_give_up(&self) -> bool {
        true
    }

    fn start_effect(&self, _step: Step) -> Effect {
        Effect::None
    }

    fn ask(&self, step: Step, context: &Context) -> Result<Ask, Refusal> {
        if step == Step::StopSource {
            return stop_here(context, false);
        }
        if migration(context)?.was_stopped {
            return Ok(Ask::Nothing(Effect::CompleteMove));
        }
        let (host, call) = start_on(context, spec_after(context)?, taken(context)?);
        let call = Box::new(call);
        Ok(Ask::Agent { host, call })
    }

    fn answered(
        &self,
        step: Step,
        _reply: Reply,
        _context: &mut Context,
    ) -> Result<Effect, Refusal> {
        Ok(match step == Step::StartDestination {
            true => Effect::CompleteMove,
            false => Effect::None,
        })
    }

    fn undo(&self, step: Step, context: &Context) -> Result<(HostName, Call), Refusal> {
        if step == Step::StartDestination {
            return Ok(take_back(taken(context)?));
        }
        let vm = &context.facts.vm;
        let claim = vm
            .claim
            .ok_or_else(|| refusals::inconsistent(format!("vm {} is on no host", vm.name)))?;
        let claim = one_of(context, claim)?;
        if migration(context)?.was_stopped {
            return Ok((
                claim.host.clone(),
                Call::StopVm {
                    claim: claim.id,
                    timeout_ms: 0,
                    last: false,
                },
            ));
        }
        Ok(start_on(context, &vm.spec, claim))
    }

    fn is_candidates_fault(&self, step: Step) -> bool {
        step == Step::StartDestination
    }

    fn give_up(&self, refusal: Refusal) -> Effect {
        Effect::RefuseMigration(refusal)
    }
}
