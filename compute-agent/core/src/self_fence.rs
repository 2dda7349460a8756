//! An agent whose heartbeats were not acknowledged for too long stops its guests by itself, since they
//! may be started elsewhere then.
//!
//! ```text
//!   acknowledged ──limit──▶ lapsed: guests are stopped ──▶ the hypervisor lists none
//!     fed                     fed, for as long as stopping may take     fed
//!                               │
//!                               ▼ one is left, or the hypervisor does not reply
//!                               starved: the watchdog resets the machine
//! ```
//!
//! Not here: how long that is, and what of it was promised to the scheduler. Nor the device itself. Both
//! are the server's: see its modules `self_fencing` and `watchdog`.
//!
//! Invariant: from when the lease lapses until a heartbeat of this agent is acknowledged again, no guest
//! is started, and every one that is here or comes is stopped, again and again until it is. Where a
//! watchdog stands behind that, it is not fed once stopping should be over, until the hypervisor itself
//! has reported that nothing runs.

use std::collections::BTreeSet;

use berth_domain::agent::DomainState;
use berth_domain::id::VmUid;
use berth_driver_api::{Answer, Known, Request, Token};

use super::agent::{Agent, Effect, Work};
use super::answers::Done;
use super::guests::Phase;

/// How long stopping the guests may take. The core looks once a second.
pub const STOPPING_MS: u64 = 5_000;

/// What is to be done about the watchdog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feeding {
    /// Nothing is promised of the guests: it is not to run.
    Off,
    /// It is to run, and is fed now.
    Fed,
    /// It is to run, and is not fed: guests may run that were promised to be stopped by now.
    Starved,
}

/// Whether the hypervisor has reported, since the lease lapsed, that nothing runs here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Proof {
    #[default]
    Missing,
    Queried(Token),
    Given,
}

/// How an agent keeps its promise.
#[derive(Clone, Debug, Default)]
pub(super) struct SelfFence {
    /// How long after its last report that was answered it stops its guests; 0: never.
    pub(super) limit_ms: u64,
    /// The guests whose stop was requested of the driver.
    stopping: BTreeSet<VmUid>,
    /// Whether a watchdog stands behind the promise.
    is_guarded: bool,
    proof: Proof,
}

/// Returns what the watchdog gets, of an agent whose heartbeats were not acknowledged for so long.
fn feeding(limit_ms: u64, silent_ms: Option<u64>, nothing_runs: bool) -> Feeding {
    let is_overdue = silent_ms.is_some_and(|ms| ms > limit_ms.saturating_add(STOPPING_MS));
    match (limit_ms, is_overdue && !nothing_runs) {
        (0, _) => Feeding::Off,
        (_, true) => Feeding::Starved,
        (_, false) => Feeding::Fed,
    }
}

impl Agent {
    /// Returns the same agent, of a host with a watchdog.
    #[must_use]
    pub fn guarded(mut self) -> Self {
        self.self_fence.is_guarded = true;
        self
    }

    /// Returns whether the hypervisor has reported that nothing runs here, and nothing is started since.
    #[must_use]
    pub fn runs_nothing(&self) -> bool {
        self.self_fence.proof == Proof::Given && self.guests.is_empty() && self.has_lapsed()
    }

    /// Records how long it may be without an acknowledged heartbeat.
    pub(super) fn set_self_fence_limit(&mut self, limit_ms: u64) -> Vec<Effect> {
        let before = std::mem::replace(&mut self.self_fence.limit_ms, limit_ms);
        // The promise is not registered before the watchdog runs.
        let is_turned = (before == 0) != (limit_ms == 0);
        is_turned
            .then(|| self.feed())
            .flatten()
            .into_iter()
            .collect()
    }

    /// Returns what the watchdog gets now, if there is one.
    fn feed(&self) -> Option<Effect> {
        let silent_ms = self.reality.silent_ms(self.now);
        let fed = feeding(self.self_fence.limit_ms, silent_ms, self.runs_nothing());
        self.self_fence.is_guarded.then_some(Effect::Watchdog(fed))
    }

    /// Returns whether its guests may be started elsewhere by now.
    pub(super) fn has_lapsed(&self) -> bool {
        let limit_ms = self.self_fence.limit_ms;
        let silent_ms = self.reality.silent_ms(self.now);
        limit_ms > 0 && silent_ms.is_some_and(|ms| ms > limit_ms)
    }

    /// Stops what runs here, if it must not any more.
    pub(super) fn tick_self_fence(&mut self) -> Vec<Effect> {
        let mut effects = self.stop_what_is_here();
        effects.extend(self.prove());
        effects.extend(self.feed());
        effects
    }

    fn stop_what_is_here(&mut self) -> Vec<Effect> {
        if !self.has_lapsed() {
            return Vec::new();
        }
        let mut due = Vec::new();
        for (vm, guest) in &mut self.guests {
            let ordering = match (&mut guest.phase, &mut guest.leaving) {
                // One that leaves cannot be stopped before its transfer is.
                (Phase::Sending(transfer), _) => Some(&mut transfer.ordering),
                (Phase::Starting | Phase::Running | Phase::Incoming(_), Some(leaving)) => {
                    Some(&mut leaving.ordering)
                }
                (Phase::Starting | Phase::Running | Phase::Incoming(_), None) => None,
            };
            match ordering {
                Some(true) => {}
                Some(ordering) => {
                    *ordering = true;
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

    /// A guest was stopped, or could not be: then it is tried again. One on which other work is under
    /// way may be here again in a moment.
    pub(super) fn fenced_itself(&mut self, vm: VmUid, result: &Done) {
        self.self_fence.stopping.remove(&vm);
        if result.is_ok() && !self.is_worked_on(vm) {
            self.guests.remove(&vm);
        }
    }

    /// Queries the hypervisor for what runs, once nothing does as far as is known here.
    fn prove(&mut self) -> Option<Effect> {
        if !self.has_lapsed() || !self.guests.is_empty() {
            self.self_fence.proof = Proof::Missing;
            return None;
        }
        if !self.self_fence.is_guarded || self.self_fence.proof != Proof::Missing {
            return None;
        }
        let token = self.spare_token();
        self.self_fence.proof = Proof::Queried(token);
        let request = Request::Domains;
        Some(Effect::Driver { token, request })
    }

    /// Takes the hypervisor's word, if this is it; what runs all the same is stopped.
    pub(super) fn proof_result(&mut self, token: Token, result: &Done) -> Option<Vec<Effect>> {
        if self.self_fence.proof != Proof::Queried(token) {
            return None;
        }
        self.self_fence.proof = Proof::Missing;
        // One that cannot reply is queried again with the next tick.
        let Ok(Answer::Domains(known)) = result else {
            return Some(Vec::new());
        };
        let mut running = known.iter().filter(|known| runs(known)).peekable();
        if running.peek().is_none() {
            self.self_fence.proof = Proof::Given;
            return Some(self.feed().into_iter().collect());
        }
        let mut effects = Vec::new();
        for vm in running.map(|known| known.domain.uid) {
            if self.self_fence.stopping.insert(vm) {
                let request = Request::Stop(vm);
                effects.push(self.driver(vm, None, Work::FenceItself, request).1);
            }
        }
        Some(effects)
    }
}

/// Returns whether a guest runs, or may come to by itself.
fn runs(known: &Known) -> bool {
    match known.state {
        DomainState::Absent | DomainState::Stopped => false,
        DomainState::Starting
        | DomainState::Prepared
        | DomainState::MigratingIn
        | DomainState::Running
        | DomainState::Paused
        | DomainState::MigratingOut
        | DomainState::PostCopyBroken => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the watchdog is fed while the agent is heard, while stopping may take, and once nothing
    /// runs; not a moment longer.
    #[test]
    fn it_is_fed_for_as_long_as_the_promise_holds() {
        let check = |limit, silent, nothing_runs, expected| {
            let fed = feeding(limit, silent, nothing_runs);
            assert_eq!(fed, expected, "{limit} {silent:?} {nothing_runs}");
        };
        check(0, Some(0), false, Feeding::Off);
        check(0, Some(u64::MAX), false, Feeding::Off);
        check(9_000, None, false, Feeding::Fed);
        check(9_000, Some(9_000), false, Feeding::Fed);
        check(9_000, Some(9_000 + STOPPING_MS), false, Feeding::Fed);
        check(9_000, Some(9_001 + STOPPING_MS), false, Feeding::Starved);
        check(9_000, Some(9_001 + STOPPING_MS), true, Feeding::Fed);
        check(u64::MAX, Some(u64::MAX), false, Feeding::Fed);
    }
}
