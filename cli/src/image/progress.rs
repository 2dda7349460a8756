//! How far an image is on its way, where its length is known. Not here: how it is drawn (`bar`).

use std::time::{Duration, Instant};

use berth_domain::transfer::{Amount, Phase, TransferProgress};

use crate::bar::Bar;

/// How often the progress is drawn.
const DRAW_PERIOD: Duration = Duration::from_millis(100);

/// The line that shows it.
pub(super) struct ProgressLine {
    bar: Bar,
    begun: Instant,
    drawn: Option<Instant>,
}

impl ProgressLine {
    pub(super) fn new() -> Self {
        Self {
            bar: Bar::new(),
            begun: Instant::now(),
            drawn: None,
        }
    }

    /// Shows how many bytes of it have gone, unless that was shown just before.
    pub(super) fn show(&mut self, processed: u64, total: u64) {
        let is_due = |drawn: Instant| drawn.elapsed() >= DRAW_PERIOD;
        if !self.drawn.is_none_or(is_due) {
            return;
        }
        self.drawn = Some(Instant::now());
        let elapsed_ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let progress = TransferProgress {
            phase: Phase::PreCopy,
            memory: Amount::default(),
            disk: Amount {
                total,
                processed,
                remaining: total.saturating_sub(processed),
            },
            dirty_bytes_per_s: 0,
            bytes_per_s: processed.saturating_mul(1000) / elapsed_ms.max(1),
            elapsed_ms,
            downtime_ms: 0,
            iteration: 0,
        };
        self.bar.show(&progress, None);
    }
}
