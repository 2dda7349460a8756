//! A transfer as a bar that fills, on a terminal; as a line now and then elsewhere.
//!
//! Invariant: on standard error only. Other messages begin on a line of their own.

use std::time::{Duration, Instant};

use berth_domain::transfer::{Phase, TransferProgress};

use crate::output;

/// The width of the bar itself.
const WIDTH: u64 = 20;

/// Without a terminal: the progress in percent, or the time, after which the next line is printed.
const LINE_STEP: u64 = 10;
const LINE_PERIOD: Duration = Duration::from_secs(5);
/// A transfer that is over sooner has no line at all there.
const LINE_AFTER_MS: u64 = 2_000;

/// A bar on standard error.
#[derive(Debug)]
pub struct Bar {
    is_terminal: bool,
    /// Whether the line on which the cursor stands holds the bar.
    is_drawn: bool,
    last: Option<(u64, Phase, Instant)>,
}

impl Bar {
    /// Returns a bar that is not drawn yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            is_terminal: output::can_redraw(),
            is_drawn: false,
            last: None,
        }
    }

    /// Draws how far a transfer is.
    pub fn show(&mut self, progress: &TransferProgress, remaining_ms: Option<u64>) {
        let text = line(progress, remaining_ms);
        if self.is_terminal {
            self.is_drawn = true;
            output::redraw(&text);
            return;
        }
        if progress.elapsed_ms < LINE_AFTER_MS {
            return;
        }
        let (percent, now) = (progress.percent(), Instant::now());
        let is_due = self.last.is_none_or(|(shown, phase, at)| {
            percent.abs_diff(shown) >= LINE_STEP
                || phase != progress.phase
                || now.duration_since(at) >= LINE_PERIOD
        });
        if is_due {
            self.last = Some((percent, progress.phase, now));
            output::message(text);
        }
    }

    /// Removes the bar, so that another message can be printed.
    pub fn clear(&mut self) {
        if self.is_drawn {
            self.is_drawn = false;
            output::redraw("");
        }
    }
}

impl Default for Bar {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Returns how far a transfer is as one line of less than 80 characters.
#[must_use]
pub fn line(progress: &TransferProgress, remaining_ms: Option<u64>) -> String {
    let percent = progress.percent();
    let filled = usize::try_from(percent * WIDTH / 100).unwrap_or(0);
    let open = usize::try_from(WIDTH).unwrap_or(0).saturating_sub(filled);
    let bar = format!("{}{}", "#".repeat(filled), ".".repeat(open));
    let phase = match progress.phase {
        Phase::PreCopy if progress.iteration > 1 => format!("pre-copy {}", progress.iteration),
        Phase::PreCopy if progress.memory.total == 0 && progress.disk.total > 0 => {
            "disks".to_owned()
        }
        phase @ (Phase::Setup | Phase::PreCopy | Phase::PostCopy | Phase::Switch) => {
            phase.as_str().to_owned()
        }
    };
    let left = match remaining_ms {
        Some(ms) => format!("{} left", clock(ms)),
        None => format!("{} so far", clock(progress.elapsed_ms)),
    };
    let dirty = match progress.dirty_bytes_per_s {
        0 => String::new(),
        rate => format!("  dirty {}/s", bytes(rate)),
    };
    format!(
        "  [{bar}] {percent:>3} %  {} to go  {}/s{dirty}  {phase}  {left}",
        bytes(progress.remaining()),
        bytes(progress.bytes_per_s),
    )
}

fn clock(ms: u64) -> String {
    let seconds = ms.div_ceil(1000);
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

/// Returns an amount with three digits and its unit.
pub(crate) fn bytes(amount: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = amount as f64;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 || value >= 10.0 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_domain::transfer::Amount;

    #[test]
    fn a_line_says_what_is_left_and_fits_in_a_terminal() {
        let progress = TransferProgress {
            phase: Phase::PreCopy,
            memory: Amount {
                total: 4 << 30,
                processed: 1 << 30,
                remaining: 3 << 30,
            },
            disk: Amount::default(),
            dirty_bytes_per_s: 5 << 20,
            bytes_per_s: 105 << 20,
            elapsed_ms: 10_000,
            downtime_ms: 0,
            iteration: 2,
        };
        let left = progress.remaining_ms();
        assert_eq!(left, Some(30_720));
        assert_eq!(
            line(&progress, left),
            "  [#####...............]  25 %  3.0 GiB to go  105 MiB/s  dirty 5.0 MiB/s  pre-copy 2  \
             0:31 left"
        );
        let stuck = TransferProgress {
            bytes_per_s: 5 << 20,
            ..progress
        };
        assert_eq!(stuck.remaining_ms(), None);
        assert!(line(&stuck, None).ends_with("pre-copy 2  0:10 so far"));
    }

    #[test]
    fn amounts_have_three_digits() {
        for (amount, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 KiB"),
            (10 << 20, "10 MiB"),
            (u64::MAX, "16777216 TiB"),
        ] {
            assert_eq!(bytes(amount), text);
        }
    }
}
