//! How long things took.

use std::time::Duration;

/// Times of one kind.
#[derive(Debug, Default)]
pub(crate) struct Times(Vec<Duration>);

impl Times {
    pub(crate) fn record(&mut self, took: Duration) {
        self.0.push(took);
    }

    /// Returns the time below which so many of a hundred stayed, in milliseconds.
    pub(crate) fn percentile_ms(&mut self, percent: usize) -> f64 {
        self.0.sort_unstable();
        let last = self.0.len().saturating_sub(1);
        let time = self.0.get((last * percent).div_ceil(100));
        time.map_or(0.0, |time| time.as_secs_f64() * 1e3)
    }
}
