//! Confirms a cold migration whose disks were fetched: what it left on the source is deleted, and then
//! what the VM had there is given back.
//!
//! Not here: the confirmation of any other move, which is one command without an operation.

use berth_domain::operation::Step;
use berth_domain::refusal::Refusal;

use crate::disks;
use crate::live_migration::migration;
use crate::plan::{Action, Context, Script};

/// The confirmation.
pub(crate) struct ConfirmResize;

impl Script for ConfirmResize {
    fn action(&self, _step: Step, context: &Context) -> Result<Action, Refusal> {
        Ok(disks::drop_source(migration(context)?).into())
    }
}
