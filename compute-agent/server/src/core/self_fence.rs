//! An agent that nobody has heard for too long stops its guests by itself, since they may be started
//! elsewhere then.
//!
//! Not here: how long that is, and what of it was promised to the scheduler; see `self_fencing`.
//!
//! Invariant: from when the lease lapses until somebody hears of this agent again, no guest is started,
//! and every one that is here or comes is stopped, again and again until it is.

use std::collections::BTreeSet;

use berth_domain::id::VmUid;
use berth_driver::Request;

use super::agent::{Agent, Effect, Work};
use super::answers::Done;
use super::guests::Phase;

/// How an agent keeps its promise.
#[derive(Debug, Default)]
pub(super) struct SelfFence {
    /// How long after its last report that was answered it stops its guests; 0: never.
    pub(super) limit_ms: u64,
    /// The guests whose stop the driver was asked for.
    stopping: BTreeSet<VmUid>,
}

impl Agent {
    /// Returns whether its guests may be started elsewhere by now.
    pub(super) fn has_lapsed(&self) -> bool {
        let limit_ms = self.self_fence.limit_ms;
        let silent_ms = self.reality.silent_ms(self.now);
        limit_ms > 0 && silent_ms.is_some_and(|ms| ms > limit_ms)
    }

    /// Stops what runs here, if it must not any more.
    pub(super) fn tick_self_fence(&mut self) -> Vec<Effect> {
        if !self.has_lapsed() {
            return Vec::new();
        }
        let mut due = Vec::new();
        for (vm, guest) in &mut self.guests {
            let telling = match (&mut guest.phase, &mut guest.leaving) {
                // One that leaves cannot be stopped before its transfer is.
                (Phase::Sending(transfer), _) => Some(&mut transfer.telling),
                (Phase::Starting | Phase::Running | Phase::Incoming(_), Some(leaving)) => {
                    Some(&mut leaving.telling)
                }
                (Phase::Starting | Phase::Running | Phase::Incoming(_), None) => None,
            };
            match telling {
                Some(true) => {}
                Some(telling) => {
                    *telling = true;
                    due.push((*vm, Work::Order, Request::Abort(*vm)));
                }
                None if self.self_fence.stopping.insert(*vm) => {
                    due.push((*vm, Work::FenceItself, Request::Stop(*vm)));
                }
                None => {}
            }
        }
        due.into_iter()
            .map(|(vm, work, request)| self.driver(vm, None, work, request).1)
            .collect()
    }

    /// A guest was stopped, or could not be: then it is tried again. One that something else is being
    /// done to may be here again in a moment.
    pub(super) fn fenced_itself(&mut self, vm: VmUid, result: &Done) {
        self.self_fence.stopping.remove(&vm);
        if result.is_ok() && !self.is_worked_on(vm) {
            self.guests.remove(&vm);
        }
    }
}
