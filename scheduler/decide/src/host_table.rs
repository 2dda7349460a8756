//! The hosts of a state, indexed between choices.
//!
//! It only makes choosing faster: the index and the proofs are brought up to the state whenever a host
//! is chosen.

use std::sync::{Mutex, MutexGuard, PoisonError};

use berth_domain::refusal::Refusal;
use berth_selection::failover::Broken;
use berth_selection::fleet::FleetGuest;
use berth_selection::{Choice, Index, NoHost, Request};
use berth_state::State;

use super::admission::Reserve;
use super::chooser::Chooser;

/// The hosts of a state, indexed between choices.
#[derive(Debug, Default)]
pub struct HostTable {
    /// Locked for the length of one choice, without contention, since one task decides.
    index: Mutex<Index>,
    /// As the index: the failover proofs, while the policy calls for admission control.
    reserve: Mutex<Reserve>,
}

impl HostTable {
    fn reserve(&self) -> MutexGuard<'_, Reserve> {
        self.reserve.lock().unwrap_or_else(|poisoned| {
            // A panic may have left it inconsistent; it is rebuilt.
            let mut reserve = poisoned.into_inner();
            reserve.clear();
            reserve
        })
    }
}

impl Chooser for &HostTable {
    fn choose(&mut self, state: &State, request: &Request) -> Result<Choice, NoHost> {
        // A choice that panicked may have left the table inconsistent; it is rebuilt then.
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        index.sync(state.hosts());
        index.select(request)
    }

    fn would_break(&mut self, state: &State, guest: &FleetGuest) -> Result<Vec<Broken>, Refusal> {
        self.reserve().would_break(state, guest)
    }

    fn forget_reserve(&mut self) {
        self.reserve().clear();
    }
}
