//! The present, as it is passed to what is drawn, and durations as people write them.

use std::time::Duration;

use berth_domain::id::TimeMs;

/// The present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The time since the program began, which never goes back.
    pub running: Duration,
    /// The time of day, to compare with the cluster's.
    pub clock: TimeMs,
}

/// Returns a duration in its two largest units.
#[must_use]
pub fn describe(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..=9 => format!("{}.{} s", seconds, ms % 1000 / 100),
        10..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        7200..=172_799 => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {:02} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// Returns the time between two moments of the cluster, 0 if the clocks disagree.
#[must_use]
pub fn between(from: TimeMs, to: TimeMs) -> u64 {
    to.0.saturating_sub(from.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_their_largest_units() {
        for (ms, text) in [
            (0, "0.0 s"),
            (9_950, "9.9 s"),
            (119_000, "119 s"),
            (125_000, "2 min 05 s"),
            (7_260_000, "2 h 01 min"),
            (u64::MAX, "213503982334 d 14 h"),
        ] {
            assert_eq!(describe(ms), text);
        }
        assert_eq!(between(TimeMs(5), TimeMs(3)), 0);
    }
}
