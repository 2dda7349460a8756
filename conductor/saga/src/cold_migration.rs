//! Moves a VM while it does not run, to another host or to another flavor: claim, stop it where it
//! is, start it on its claim. What it had before goes at the end, or is kept to be verified.
//!
//! ```text
//!   Claim ─▶ StopSource ─▶ [FetchDisks] ─▶ StartDestination ─▶ [DropSource] ─▶ done
//!   └────────────── refused: undone, latest first ──────────────┘  │
//!                                                                  └▶ to be verified
//! ```
//!
//! The steps in brackets are those of hosts that do not share the disks of the VM. What waits to be
//! verified leaves them on the source: confirmed, they go; reverted, those that were fetched do.

use berth_domain::agent::{Call, Reply};
use berth_domain::name::HostName;
use berth_domain::operation::{Effect, Step};
use berth_domain::refusal::Refusal;
use berth_domain::vm::VmSpec;

use crate::disks;
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
    // Where the hosts do not share the disks. Nothing writes to them now, and the claim of the source
    // keeps everybody off them. Once it has succeeded all of them are on the destination's stable
    // storage. Its undo stops what goes on and deletes what is there; only then is the guest started
    // where it was, so that nothing is read from disks below a guest.
    StepPlan {
        step: Step::FetchDisks,
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
    // Where nobody is to verify it. From its start on the VM cannot go back, so that nothing is given
    // up any more: while the source does not answer, the operation goes on and says so. One that is dead
    // keeps what it has. The command that ends it gives the source's claim back.
    StepPlan {
        step: Step::DropSource,
        side_effects: true,
        undo: Undo::NoReturn,
    },
];

/// Returns what the VM is after the move.
fn spec_after(context: &Context) -> Result<&VmSpec, Refusal> {
    let resize = migration(context)?.resize.as_deref();
    Ok(resize.map_or(&context.facts.vm.spec, |resize| &resize.after))
}

/// The last step that there is ends it.
fn ended(step: Step, context: &Context) -> Effect {
    let last = match disks::are_dropped_at_once(context) {
        true => Step::DropSource,
        false => Step::StartDestination,
    };
    match step == last {
        true => Effect::CompleteMove,
        false => Effect::None,
    }
}

impl Script for ColdMigration {
    fn steps(&self) -> &'static [StepPlan] {
        STEPS
    }

    fn can_give_up(&self) -> bool {
        true
    }

    // A conductor that takes over must not have disks fetched again below a guest that was started.
    fn resumes(&self) -> bool {
        true
    }

    fn is_needed(&self, step: Step, context: &Context) -> bool {
        match step {
            Step::FetchDisks => disks::are_fetched(context),
            Step::DropSource => disks::are_dropped_at_once(context),
            Step::Claim
            | Step::Spawn
            | Step::CheckDestination
            | Step::CheckSource
            | Step::FitDestination
            | Step::PreLiveMigration
            | Step::LiveMigration
            | Step::Settle
            | Step::Destroy
            | Step::StopSource
            | Step::StartDestination
            | Step::StopDestination
            | Step::StartSource
            | Step::Stop
            | Step::MakeDisks
            | Step::Start
            | Step::CopyDisk
            | Step::PublishImage
            | Step::DropDestination => true,
        }
    }

    fn no_return(&self) -> Option<Step> {
        Some(Step::DropSource)
    }

    fn start_effect(&self, _step: Step) -> Effect {
        Effect::None
    }

    fn ask(&self, step: Step, context: &Context) -> Result<Ask, Refusal> {
        if step == Step::StopSource {
            return stop_here(context, false);
        }
        if step == Step::FetchDisks {
            let (host, call) = disks::fetch(context, spec_after(context)?)?;
            let call = Box::new(call);
            return Ok(Ask::Agent { host, call });
        }
        if step == Step::DropSource {
            let (host, call) = disks::drop_source(migration(context)?);
            let call = Box::new(call);
            return Ok(Ask::Agent { host, call });
        }
        if migration(context)?.was_stopped {
            return Ok(Ask::Nothing(ended(step, context)));
        }
        let (host, call) = start_on(context, spec_after(context)?, taken(context)?);
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

    fn undo(&self, step: Step, context: &Context) -> Result<(HostName, Call), Refusal> {
        if step == Step::StartDestination {
            return Ok(take_back(taken(context)?));
        }
        if step == Step::FetchDisks {
            return disks::undo_fetch(context);
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
        matches!(step, Step::FetchDisks | Step::StartDestination)
    }

    fn give_up(&self, refusal: Refusal) -> Effect {
        Effect::RefuseMigration(refusal)
    }
}
