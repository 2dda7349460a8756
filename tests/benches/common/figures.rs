//! Counts and latencies of one measured phase.

use std::time::Duration;

use hdrhistogram::Histogram;

/// What one phase did.
pub(crate) struct Figures {
    histogram: Histogram<u64>,
    time: Duration,
    /// How many calls failed.
    pub(crate) failures: u64,
}

impl Figures {
    /// Returns the figures of a phase that has done nothing yet.
    pub(crate) fn new() -> Self {
        let histogram =
            Histogram::new_with_bounds(1, 60_000_000, 3).expect("the bounds are in order");
        Self {
            histogram,
            time: Duration::ZERO,
            failures: 0,
        }
    }

    /// Counts one call that took `latency`.
    pub(crate) fn note(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(micros.max(1));
    }

    /// Adds what another client did in the same time.
    pub(crate) fn add(&mut self, other: &Self) {
        self.histogram
            .add(&other.histogram)
            .expect("all have the same bounds");
        self.failures += other.failures;
    }

    /// Says how long the phase took.
    pub(crate) fn end(&mut self, time: Duration) {
        self.time = time;
    }

    /// Returns how many calls succeeded.
    pub(crate) fn calls(&self) -> u64 {
        self.histogram.len()
    }

    /// Returns how many calls succeeded per second.
    pub(crate) fn rate(&self) -> f64 {
        self.calls() as f64 / self.time.as_secs_f64().max(1e-9)
    }

    /// Returns the latency below which this share of the calls stayed, in milliseconds.
    pub(crate) fn quantile_ms(&self, share: f64) -> f64 {
        self.histogram.value_at_quantile(share) as f64 / 1000.0
    }
}
