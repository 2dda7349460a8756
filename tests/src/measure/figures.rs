//! Counts and latencies of one measured phase.

use std::time::Duration;

use hdrhistogram::Histogram;

/// What one phase did.
#[derive(Debug)]
pub struct Figures {
    histogram: Histogram<u64>,
    time: Duration,
    /// How many calls failed.
    pub failures: u64,
}

impl Figures {
    /// Returns the figures of a phase that has done nothing yet.
    ///
    /// # Panics
    ///
    /// Never: the bounds are constants.
    #[must_use]
    pub fn new() -> Self {
        let histogram =
            Histogram::new_with_bounds(1, 60_000_000, 3).expect("the bounds are in order");
        Self {
            histogram,
            time: Duration::ZERO,
            failures: 0,
        }
    }

    /// Counts one call that took `latency`.
    pub fn record(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(micros.max(1));
    }

    /// Adds what another client did in the same time.
    ///
    /// # Panics
    ///
    /// Never: all have the same bounds.
    pub fn add(&mut self, other: &Self) {
        self.histogram
            .add(&other.histogram)
            .expect("all have the same bounds");
        self.failures += other.failures;
    }

    /// Sets how long the phase took.
    pub fn end(&mut self, time: Duration) {
        self.time = time;
    }

    /// Returns how many calls succeeded.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.histogram.len()
    }

    /// Returns how many calls succeeded per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.calls() as f64 / self.time.as_secs_f64().max(1e-9)
    }

    /// Returns the latency below which this share of the calls stayed, in milliseconds.
    #[must_use]
    pub fn quantile_ms(&self, share: f64) -> f64 {
        self.histogram.value_at_quantile(share) as f64 / 1000.0
    }
}

impl Default for Figures {
    fn default() -> Self {
        Self::new()
    }
}
