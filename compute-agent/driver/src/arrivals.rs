//! Guests that arrived by live migration: how much was transferred, and for how long each stood still.
//!
//! The destination's hypervisor knows: libvirt hands the figures over with the guest, and forgets them on
//! the source together with it.
//!
//! Not here: how far a transfer is that goes on ([`berth_domain::transfer::TransferProgress`]).
//!
//! Invariant: at most [`ARRIVALS_MAX`] are kept until they are taken, the latest ones.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How many are kept.
pub const ARRIVALS_MAX: usize = 1_024;

/// A guest that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Bytes of memory and disks that were transferred for it, those that were sent again among them.
    pub bytes: u64,
    /// For how long it ran on neither side; absent where the hypervisor does not know.
    pub downtime: Option<Duration>,
    /// How often its memory was gone over.
    pub iterations: u64,
}

/// Those that were not taken yet.
#[derive(Debug, Default)]
pub struct Arrivals(Mutex<VecDeque<Arrival>>);

impl Arrivals {
    /// Adds one; the oldest goes if there are too many.
    pub fn push(&self, arrival: Arrival) {
        // It is whole between any two statements.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() == ARRIVALS_MAX {
            all.pop_front();
        }
        all.push_back(arrival);
    }

    /// Returns all, and keeps none.
    pub fn take(&self) -> Vec<Arrival> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_kept_until_they_are_taken() {
        let arrivals = Arrivals::default();
        let arrival = |bytes| Arrival {
            bytes,
            downtime: None,
            iterations: 1,
        };
        for number in 0..=ARRIVALS_MAX as u64 {
            arrivals.push(arrival(number));
        }
        let taken = arrivals.take();
        assert_eq!(taken.len(), ARRIVALS_MAX);
        assert_eq!(taken.first(), Some(&arrival(1)));
        assert_eq!(taken.last(), Some(&arrival(ARRIVALS_MAX as u64)));
        assert!(arrivals.take().is_empty());
    }
}
