//! Which of several operators is active: what one does about the Lease that all of them see.
//!
//! ```text
//!   no holder, or not renewed for its duration ─▶ Acquire      mine ─▶ Renew      another's ─▶ Wait
//! ```
//!
//! Clocks of machines differ, so the time in a Lease is compared with nothing: an operator counts from
//! the moment at which it saw a Lease change last, on its own clock. A holder counts from the moment at
//! which it *sent* its last successful renewal, and stops writing after two thirds of the duration: it
//! stops before another one may begin.
//!
//! Not here: the requests. They carry the version of the Lease that was seen, so of two operators that
//! acquire at once one is refused.
//!
//! Invariant: a function of its arguments.

use std::time::Duration;

/// A Lease as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// Who holds it; empty if it was released.
    pub holder: String,
    /// For how long after a renewal.
    pub duration: Duration,
    /// Changes with every write.
    pub version: String,
}

/// What was seen of the Lease so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// As it was read last; `None` if there is none.
    pub lease: Option<Lease>,
    /// When it was first seen so.
    pub since: Duration,
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Become the holder.
    Acquire,
    /// Renew it.
    Renew,
    /// Read it again after this time.
    Wait(Duration),
}

impl Seen {
    /// Records the Lease as it was read now.
    pub fn record(&mut self, lease: Option<Lease>, now: Duration) {
        let version = |lease: &Option<Lease>| lease.as_ref().map(|one| one.version.clone());
        if version(&self.lease) != version(&lease) {
            self.since = now;
        }
        self.lease = lease;
    }

    /// Returns what the operator of this name does now; it looks again after `interval` at the latest.
    #[must_use]
    pub fn step(&self, name: &str, interval: Duration, now: Duration) -> Step {
        match &self.lease {
            None => Step::Acquire,
            Some(lease) if lease.holder.is_empty() => Step::Acquire,
            Some(lease) if lease.holder == name => Step::Renew,
            Some(lease) => match (self.since + lease.duration).checked_sub(now) {
                Some(left) if !left.is_zero() => Step::Wait(left.min(interval)),
                Some(_) | None => Step::Acquire,
            },
        }
    }
}

/// Returns until when a holder may write, if it sent its last successful renewal at `sent`.
#[must_use]
pub fn valid_until(sent: Duration, duration: Duration) -> Duration {
    sent + duration * 2 / 3
}

/// Returns how long an operator waits for the API server when it reads and writes the Lease, if its permit
/// is still valid for `left`.
///
/// The active one waits so long that it can try once more before its permit ends. For another one nothing
/// ends: if it gave up sooner than a loaded API server responds, it would never become active, and its
/// repetitions would be a load of their own.
#[must_use]
pub fn patience(left: Duration, duration: Duration, interval: Duration) -> Duration {
    match left.is_zero() {
        true => valid_until(Duration::ZERO, duration),
        false => interval.max(left / 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DURATION: Duration = Duration::from_secs(15);
    const INTERVAL: Duration = Duration::from_secs(3);

    fn lease(holder: &str, version: &str) -> Option<Lease> {
        Some(Lease {
            holder: holder.to_owned(),
            duration: DURATION,
            version: version.to_owned(),
        })
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn what_is_free_is_acquired() {
        let mut seen = Seen::default();
        assert_eq!(seen.step("a", INTERVAL, at(0)), Step::Acquire);
        seen.record(lease("", "1"), at(0));
        assert_eq!(seen.step("a", INTERVAL, at(0)), Step::Acquire);
    }

    #[test]
    fn the_holder_renews() {
        let mut seen = Seen::default();
        seen.record(lease("a", "1"), at(0));
        assert_eq!(seen.step("a", INTERVAL, at(100)), Step::Renew);
    }

    /// Goal: a Lease of another operator is acquired exactly when it has not changed for its duration, on
    /// the own clock, whatever its own times say.
    #[test]
    fn a_lease_that_is_renewed_is_not_acquired() {
        let mut seen = Seen::default();
        seen.record(lease("b", "1"), at(100));
        assert_eq!(seen.step("a", INTERVAL, at(100)), Step::Wait(INTERVAL));
        assert_eq!(seen.step("a", INTERVAL, at(113)), Step::Wait(at(2)));
        seen.record(lease("b", "1"), at(114));
        assert_eq!(seen.step("a", INTERVAL, at(115)), Step::Acquire);
        seen.record(lease("b", "2"), at(115));
        assert_eq!(seen.step("a", INTERVAL, at(116)), Step::Wait(INTERVAL));
        assert_eq!(seen.step("a", INTERVAL, at(130)), Step::Acquire);
    }

    #[test]
    fn a_holder_can_try_twice_and_another_one_waits() {
        let patience = |left| patience(at(left), DURATION, INTERVAL);
        assert_eq!(patience(0), valid_until(at(0), DURATION));
        for left in 1..=6 {
            assert_eq!(patience(left), INTERVAL);
        }
        for left in 7..=10 {
            assert_eq!(patience(left) * 2, at(left));
        }
    }

    /// Goal: no two operators may write at once. Method: a holder that renews no more, and another that
    /// sees each of its renewals as early as it can.
    #[test]
    fn a_holder_stops_before_another_begins() {
        for sent in 0..40 {
            let mut seen = Seen::default();
            seen.record(lease("b", "1"), at(sent));
            let until = valid_until(at(sent), DURATION);
            assert!(matches!(seen.step("a", INTERVAL, until), Step::Wait(_)));
        }
    }
}
