//! When guests are moved so that hosts are loaded evenly.

use serde::{Deserialize, Serialize};

/// The greatest score that can be a threshold, in thousandths: a million.
pub const THRESHOLD_MILLI_MAX: u32 = 1_000_000_000;
/// The longest time for which a guest that was moved can be left alone: a week.
pub const HOLD_MS_MAX: u64 = 604_800_000;
/// The least gain of a move by default, in thousandths: that of Ganeti's hbal.
pub const GAIN_MIN_MILLI_DEFAULT: u32 = 10;
/// The greatest gain that can be required of a move, in thousandths.
pub const GAIN_MIN_MILLI_MAX: u32 = 1_000_000;

/// When guests are moved so that hosts are loaded evenly. Scores are those of the cluster metric,
/// in thousandths; the lower, the more even.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BalancePolicy {
    /// Nothing is moved while the score is below this; absent: it is not looked at. From 1 to
    /// [`THRESHOLD_MILLI_MAX`].
    pub threshold_milli: Option<u32>,
    /// How long a guest that was moved is left alone, at most [`HOLD_MS_MAX`].
    pub hold_ms: u64,
    /// How much the score must gain by a move, from 1 to [`GAIN_MIN_MILLI_MAX`].
    pub gain_min_milli: u32,
}

impl Default for BalancePolicy {
    fn default() -> Self {
        Self {
            threshold_milli: None,
            hold_ms: 0,
            gain_min_milli: GAIN_MIN_MILLI_DEFAULT,
        }
    }
}

impl BalancePolicy {
    /// Returns whether it is within its bounds.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        self.threshold_milli
            .is_none_or(|score| (1..=THRESHOLD_MILLI_MAX).contains(&score))
            && self.hold_ms <= HOLD_MS_MAX
            && (1..=GAIN_MIN_MILLI_MAX).contains(&self.gain_min_milli)
    }
}
