//! How far a simulated transfer is, and how it is made to end.
//!
//! A transfer takes the time that the hypervisor is set up with, or longer where a limited bandwidth
//! makes it so. Nothing is really sent; the figures are those that such a transfer would have.

use std::time::Duration;

use berth_domain::id::{TimeMs, VmUid};
use berth_domain::transfer::{Amount, Phase, TransferProgress};

use crate::arrivals::Arrival;
use crate::domain::{DomainSpec, Force, Sending};
use crate::error::Error;

/// How often a simulated memory is gone over at most.
const ITERATIONS_MAX: u64 = 30;

/// The part of the memory that is small enough to be sent while the guest stands still: one of so many.
const LAST_PART: u64 = 1_024;

/// Returns what became of a transfer of so much memory, of which the guest touches this share while it
/// is sent: each time that is sent again, until little is left. The rest and the switch are the
/// downtime.
pub(super) fn arrival(
    memory: u64,
    active_percent: u64,
    took: Duration,
    switch: Duration,
) -> Arrival {
    let (mut bytes, mut left, mut iterations) = (0_u64, memory, 0);
    while iterations < ITERATIONS_MAX && (iterations == 0 || left > memory / LAST_PART) {
        bytes = bytes.saturating_add(left);
        left = left / 100 * active_percent.min(100);
        iterations += 1;
    }
    let bytes = bytes.saturating_add(left);
    let took_us = took.as_micros();
    let rest_us = took_us * u128::from(left) / u128::from(bytes.max(1));
    let rest = Duration::from_micros(u64::try_from(rest_us).unwrap_or(u64::MAX));
    Arrival {
        bytes,
        downtime: Some(rest + switch),
        iterations,
    }
}

/// A transfer that goes out.
#[derive(Clone, Debug)]
pub(super) struct Underway {
    began_at: TimeMs,
    takes_ms: u64,
    memory: u64,
    disk: u64,
    post_copy_allowed: bool,
    forced: Option<Force>,
}

impl Underway {
    /// Begins one that takes `least`, or as long as its bandwidth makes it.
    pub(super) fn begin(
        now: TimeMs,
        least: Duration,
        guest: &DomainSpec,
        sending: &Sending,
    ) -> Self {
        let memory = guest.spec.flavor.memory_mib << 20;
        let disk: u64 = sending.copies.iter().map(|c| c.virtual_bytes).sum();
        let bandwidth = sending.policy.bandwidth_mib_per_s_max;
        let bound_ms = bandwidth.map_or(0, |most| {
            let mib = (memory >> 20) + (disk >> 20);
            mib.saturating_mul(1000) / u64::from(most).max(1)
        });
        let least_ms = u64::try_from(least.as_millis()).unwrap_or(u64::MAX);
        Self {
            began_at: now,
            takes_ms: least_ms.max(bound_ms),
            memory,
            disk,
            post_copy_allowed: sending.policy.post_copy,
            forced: None,
        }
    }

    /// Returns for how long it goes on.
    pub(super) fn left(&self, now: TimeMs) -> Duration {
        if self.forced.is_some() {
            return Duration::ZERO;
        }
        let elapsed = now.0.saturating_sub(self.began_at.0);
        Duration::from_millis(self.takes_ms.saturating_sub(elapsed))
    }

    /// Returns whether it was made to end.
    pub(super) fn is_forced(&self) -> bool {
        self.forced.is_some()
    }

    /// Returns whether the guest is let go on the other side first.
    pub(super) fn is_post_copy(&self) -> bool {
        self.forced == Some(Force::PostCopy)
    }

    /// Makes it end; what it was made to first counts.
    pub(super) fn force(&mut self, vm: VmUid, how: Force) -> Result<(), Error> {
        if how == Force::PostCopy && !self.post_copy_allowed {
            let message = format!("the transfer of guest {vm} was begun without post-copy");
            return Err(Error::refused(message));
        }
        self.forced = self.forced.or(Some(how));
        Ok(())
    }

    /// Returns how far it is.
    pub(super) fn progress(&self, now: TimeMs) -> TransferProgress {
        let elapsed_ms = now.0.saturating_sub(self.began_at.0);
        let share = |total: u64| {
            let done = u128::from(total) * u128::from(elapsed_ms.min(self.takes_ms))
                / u128::from(self.takes_ms.max(1));
            let processed = u64::try_from(done).unwrap_or(total);
            Amount {
                total,
                processed,
                remaining: total.saturating_sub(processed),
            }
        };
        let phase = match self.forced {
            None => Phase::PreCopy,
            Some(Force::PostCopy) => Phase::PostCopy,
            Some(Force::Pause) => Phase::Switch,
        };
        let all = self.memory.saturating_add(self.disk);
        TransferProgress {
            phase,
            memory: share(self.memory),
            disk: share(self.disk),
            dirty_bytes_per_s: 0,
            bytes_per_s: all.saturating_mul(1000) / self.takes_ms.max(1),
            elapsed_ms,
            downtime_ms: 0,
            iteration: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_guest_touches_is_sent_again() {
        let (took, switch) = (Duration::from_secs(10), Duration::from_millis(3));
        let memory = 1 << 30;
        let arrival = |active_percent| arrival(memory, active_percent, took, switch);
        let idle = arrival(0);
        assert_eq!((idle.bytes, idle.iterations), (memory, 1));
        assert_eq!(idle.downtime, Some(switch));
        let busy = arrival(50);
        assert_eq!(busy.iterations, 10);
        assert!(
            busy.bytes > memory * 199 / 100 && busy.bytes < memory * 2,
            "{busy:?}"
        );
        // It never converges: all of it is sent while the guest stands still.
        let wild = arrival(100);
        assert_eq!(wild.iterations, ITERATIONS_MAX);
        let downtime = wild.downtime.unwrap();
        assert!(downtime > took / 32 && downtime < took / 30, "{downtime:?}");
        assert!(busy.downtime < wild.downtime && busy.downtime > idle.downtime);
    }
}
