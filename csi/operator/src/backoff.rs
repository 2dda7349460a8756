//! How long to wait after failures in a row.
//!
//! Exponential with jitter: one half of the time is fixed and the other random, so that operators which
//! failed together do not repeat together, and none repeats at once.
//!
//! Invariant: a function of its arguments; the caller draws the random number.

use std::time::Duration;

/// The most that is waited after the first failure.
pub const FIRST: Duration = Duration::from_millis(500);
/// The most that is waited at all.
pub const LONGEST: Duration = Duration::from_secs(60);

/// Returns how long to wait after this many failures in a row; `random` is any number.
#[must_use]
pub fn delay(failures: u32, random: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let most = FIRST.saturating_mul(1 << doublings).min(LONGEST);
    let half = most / 2;
    let share = f64::from(random) / f64::from(u32::MAX);
    half + half.mul_f64(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: times grow to the bound and never beyond, none is below half of its bound, and the random
    /// number moves them. Method: each count of failures with the extremes of the random number.
    #[test]
    fn times_grow_within_their_bounds() {
        let mut last = Duration::ZERO;
        for failures in 1..=40 {
            let (least, most) = (delay(failures, 0), delay(failures, u32::MAX));
            assert_eq!(least * 2, most, "{failures}");
            assert!(most >= last && most <= LONGEST, "{failures}: {most:?}");
            last = most;
        }
        assert_eq!(delay(1, u32::MAX), FIRST);
        assert_eq!(delay(3, u32::MAX), FIRST * 4);
        assert_eq!(last, LONGEST);
        assert_eq!(delay(0, 0), FIRST / 2);
    }
}
