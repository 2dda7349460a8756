//! Volumes that a host could not make: why, for a client that waits for them after their removal.

use serde::{Deserialize, Serialize};

use super::{DisplayName, FAILURE_LENGTH_MAX};
use crate::id::TimeMs;
use crate::name::VolumeId;

/// Of how many volumes a host keeps why it could not make them: the last ones.
pub const FAILED_MAX: usize = 16;

/// A volume that a host could not make.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Failed {
    /// Which.
    pub volume: VolumeId,
    /// What people called it.
    pub display_name: DisplayName,
    /// Why; at most [`FAILURE_LENGTH_MAX`] bytes.
    pub why: String,
    /// When it was reported.
    pub at: TimeMs,
}

impl Failed {
    /// Writes it down as the last one, and forgets the first one where there are too many.
    pub fn record(self, failed: &mut Vec<Self>) {
        failed.retain(|other| other.volume != self.volume);
        let too_many = (failed.len() + 1).saturating_sub(FAILED_MAX);
        failed.drain(..too_many);
        failed.push(self);
    }
}

/// Returns as much of a reason as is kept.
#[must_use]
pub fn cut(mut why: String) -> String {
    let mut end = FAILURE_LENGTH_MAX.min(why.len());
    while !why.is_char_boundary(end) {
        end -= 1;
    }
    why.truncate(end);
    why
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn failed(number: u128) -> Failed {
        let display_name = DisplayName::new("v").unwrap();
        Failed {
            volume: display_name.id(Uuid::from_u128(number)),
            display_name,
            why: "x".to_owned(),
            at: TimeMs(1),
        }
    }

    #[test]
    fn the_last_ones_are_kept() {
        let mut kept = Vec::new();
        for number in 0..20 {
            failed(number).record(&mut kept);
        }
        failed(10).record(&mut kept);
        let expected: Vec<u128> = (4..10).chain(11..20).chain([10]).collect();
        assert_eq!(kept, expected.into_iter().map(failed).collect::<Vec<_>>());
    }

    #[test]
    fn reasons_are_cut_between_characters() {
        assert_eq!(cut("why".to_owned()), "why");
        let long = "ä".repeat(FAILURE_LENGTH_MAX);
        assert_eq!(cut(format!("x{long}")).len(), FAILURE_LENGTH_MAX - 1);
    }
}
