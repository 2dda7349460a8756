//! How long the calls of one phase took.

use std::time::Duration;

/// What one phase did.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    times: Vec<Duration>,
    time: Duration,
    /// How many calls failed.
    pub(crate) failures: u64,
}

impl Figures {
    /// Counts a call.
    pub(crate) fn record(&mut self, took: Duration) {
        self.times.push(took);
    }

    /// Sets how long the phase took.
    pub(crate) fn end(&mut self, time: Duration) {
        self.times.sort_unstable();
        self.time = time;
    }

    /// Adds those of another phase that has ended.
    pub(crate) fn add(&mut self, other: Self) {
        self.times.extend(other.times);
        self.failures += other.failures;
        self.end(self.time + other.time);
    }

    /// Returns how many calls succeeded.
    pub(crate) fn calls(&self) -> usize {
        self.times.len()
    }

    /// Returns how many calls succeeded per second.
    pub(crate) fn rate(&self) -> f64 {
        self.times.len() as f64 / self.time.as_secs_f64().max(1e-9)
    }

    /// Returns the time below which so many of a hundred calls stayed, in milliseconds; the phase has
    /// ended.
    pub(crate) fn percentile_ms(&self, percent: usize) -> f64 {
        let last = self.times.len().saturating_sub(1);
        let at = (last * percent).div_ceil(100);
        self.times
            .get(at)
            .map_or(0.0, |time| time.as_secs_f64() * 1000.0)
    }
}
