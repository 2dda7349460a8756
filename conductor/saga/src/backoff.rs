//! How long a saga waits before it tries again: growing, and bounded.

/// The waits of one kind of repetition, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    /// Before the first repetition.
    pub first_ms: u64,
    /// Never more than this.
    pub most_ms: u64,
}

impl Backoff {
    /// Before a call is repeated that had no answer.
    pub(crate) const CALL: Self = Self {
        first_ms: 100,
        most_ms: 5_000,
    };
    /// Before the scheduler is called again.
    pub(crate) const SCHEDULER: Self = Self {
        first_ms: 100,
        most_ms: 5_000,
    };
    /// Between two looks at a transfer that goes its way.
    pub(crate) const TRANSFER: Self = Self {
        first_ms: 50,
        most_ms: 1_000,
    };
    /// Between two polls of a transfer whose end is reported: only for requests that users may make
    /// meanwhile.
    pub(crate) const HEARD: Self = Self {
        first_ms: 250,
        most_ms: 1_000,
    };
    /// Between two looks at what should pass by itself, as the end of a transfer that one side has
    /// not noticed yet.
    pub(crate) const PASSING: Self = Self {
        first_ms: 5,
        most_ms: 1_000,
    };
    /// Between two looks at a guest of which it cannot be known where it is.
    pub(crate) const UNSETTLED: Self = Self {
        first_ms: 500,
        most_ms: 5_000,
    };

    /// Returns the wait after `failures` failures in a row, at least one.
    pub(crate) fn after(self, failures: u32) -> u64 {
        let doublings = failures.saturating_sub(1).min(20);
        self.first_ms
            .saturating_mul(1 << doublings)
            .min(self.most_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_are_bounded() {
        let waits: Vec<u64> = (1..=9).map(|n| Backoff::CALL.after(n)).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]);
        assert_eq!(Backoff::CALL.after(u32::MAX), 5_000);
        assert_eq!(Backoff::CALL.after(0), 100);
    }
}
