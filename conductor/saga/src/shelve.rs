//! Shelves a VM: stop it, give its host back.
//!
//! Not here: how it is unshelved (`start_elsewhere`).

use berth_domain::operation::Step;
use berth_domain::refusal::Refusal;

use crate::plan::{Action, Context, Script};
use crate::start_stop::stop_here;

/// The shelving of a VM.
pub(crate) struct Shelve;

impl Script for Shelve {
    fn action(&self, _step: Step, context: &Context) -> Result<Action, Refusal> {
        stop_here(context, true)
    }
}
