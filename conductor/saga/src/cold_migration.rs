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

use berth_domain::agent::Call;
use berth_domain::name::HostName;
use berth_domain::operation::Step;
use berth_domain::refusal::Refusal;
use berth_domain::vm::VmSpec;

use crate::disks;
use crate::live_migration::migration;
use crate::plan::{Action, Context, Script};
use crate::refusals;
use crate::start_stop::{one_of, start_on, stop_here, take_back, taken};

/// The move of a VM that does not run meanwhile.
pub(crate) struct ColdMigration;

/// Returns what the VM is after the move.
fn spec_after(context: &Context) -> Result<&VmSpec, Refusal> {
    let resize = migration(context)?.resize.as_deref();
    Ok(resize.map_or(&context.facts.vm.spec, |resize| &resize.after))
}

impl Script for ColdMigration {
    fn action(&self, step: Step, context: &Context) -> Result<Action, Refusal> {
        if step == Step::StopSource {
            return stop_here(context, false);
        }
        if step == Step::FetchDisks {
            return Ok(disks::fetch(context, spec_after(context)?)?.into());
        }
        if step == Step::DropSource {
            return Ok(disks::drop_source(migration(context)?).into());
        }
        if migration(context)?.was_stopped {
            return Ok(Action::Complete(context.success(step)?));
        }
        Ok(start_on(context, spec_after(context)?, taken(context)?).into())
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
}
