//! Over-commitment: how often one unit of a resource may be given away.
//!
//! It is the one place of Berth's placement where floating-point numbers are calculated with.
//! OpenStack Placement's ratios are binary fractions, and whether an allocation fits must come out
//! here as it does there, so no decimal stands in for them.
//!
//! Invariant: a ratio is finite and not negative, so that equal ratios have equal bits, and members
//! that multiply the same numbers get the same answer (one IEEE 754 multiplication, rounded once).

use std::fmt;
use std::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize};

/// How often one unit may be given away: 1.0 is never more than once.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct AllocationRatio(f64);

/// Why a number is no ratio.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{0} is no allocation ratio: it must be a finite number and not negative")]
pub struct InvalidRatio(pub f64);

impl AllocationRatio {
    /// Every unit once.
    pub const ONE: Self = Self(1.0);

    /// Returns the ratio after checking it.
    ///
    /// # Errors
    ///
    /// When it is negative, infinite or no number.
    pub fn new(ratio: f64) -> Result<Self, InvalidRatio> {
        if ratio.is_finite() && ratio >= 0.0 {
            // Adding zero takes the sign from a negative zero: equal ratios have equal bits.
            Ok(Self(ratio + 0.0))
        } else {
            Err(InvalidRatio(ratio))
        }
    }

    /// Returns the ratio of so many thousandths.
    #[must_use]
    pub fn from_milli(milli: u64) -> Self {
        Self(milli as f64 / 1000.0)
    }

    /// Returns the ratio in thousandths, rounded to the nearest.
    #[must_use]
    pub fn milli(self) -> u64 {
        (self.0 * 1000.0).round() as u64
    }

    /// Returns the number.
    #[must_use]
    pub fn get(self) -> f64 {
        self.0
    }

    /// Returns how much may be given away in all: (total - reserved) x ratio, rounded down.
    #[must_use]
    pub fn capacity(self, total: u64, reserved: u64) -> u64 {
        // The conversion rounds towards zero, and what is too large becomes the largest.
        self.product(total, reserved) as u64
    }

    /// Returns whether `used` may be given away in all. As in OpenStack Placement it is compared
    /// with what was not rounded.
    #[must_use]
    pub fn holds(self, total: u64, reserved: u64, used: u64) -> bool {
        used as f64 <= self.product(total, reserved)
    }

    /// Returns the least total of which `used` may be given away; nothing is enough at ratio 0.
    #[must_use]
    pub fn needed(self, used: u64) -> u64 {
        if used == 0 {
            return 0;
        }
        if self.0 == 0.0 {
            return u64::MAX;
        }
        let holds = |total: u64| self.capacity(total, 0) >= used;
        // The quotient is rounded, so that the least is one of its neighbours.
        let near = (used as f64 / self.0).ceil() as u64;
        let mut least = near.saturating_sub(1);
        while !holds(least) && least < u64::MAX {
            least += 1;
        }
        least
    }

    fn product(self, total: u64, reserved: u64) -> f64 {
        total.saturating_sub(reserved) as f64 * self.0
    }
}

impl TryFrom<f64> for AllocationRatio {
    type Error = InvalidRatio;

    fn try_from(ratio: f64) -> Result<Self, InvalidRatio> {
        Self::new(ratio)
    }
}

impl From<AllocationRatio> for f64 {
    fn from(ratio: AllocationRatio) -> Self {
        ratio.0
    }
}

// The bits of numbers that are not negative are in the order of the numbers.
impl PartialEq for AllocationRatio {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for AllocationRatio {}

impl PartialOrd for AllocationRatio {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for AllocationRatio {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.to_bits().cmp(&other.0.to_bits())
    }
}

impl Hash for AllocationRatio {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

impl fmt::Display for AllocationRatio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for AllocationRatio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(number: f64) -> AllocationRatio {
        AllocationRatio::new(number).unwrap()
    }

    /// Goal: capacity as OpenStack Placement counts it, at its edges. Method: a table, whose last
    /// column was computed by Python as `int((total - reserved) * ratio)`.
    #[test]
    fn capacity_is_rounded_down_from_the_binary_product() {
        for (total, reserved, number, capacity) in [
            (10, 1, 1.5, 13),
            (10, 10, 16.0, 0),
            (10, 12, 1.0, 0),
            (100, 0, 1.1, 110),
            (10, 0, 0.1, 1),
            (3, 0, 0.1, 0),
            (1000, 0, 1.001, 1000),
            (2_147_483_647, 0, 3.402_82e38, u64::MAX),
        ] {
            let is = ratio(number).capacity(total, reserved);
            assert_eq!(is, capacity, "({total} - {reserved}) x {number}");
            if capacity < u64::MAX {
                assert!(ratio(number).holds(total, reserved, capacity));
                assert!(!ratio(number).holds(total, reserved, capacity + 1));
            }
        }
    }

    #[test]
    fn only_finite_numbers_that_are_not_negative_are_ratios() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.5] {
            assert!(AllocationRatio::new(bad).is_err(), "{bad}");
        }
        assert_eq!(ratio(-0.0), ratio(0.0));
        assert!(ratio(0.0) < ratio(0.5) && ratio(0.5) < AllocationRatio::ONE);
        assert!(AllocationRatio::ONE < ratio(16.0));
    }

    /// Goal: what is needed is the least that is enough. Method: every amount up to a thousand at
    /// ratios with and without exact fractions, and large ones.
    #[test]
    fn what_is_needed_is_the_least_that_is_enough() {
        for milli in [1000, 1001, 1100, 1200, 1333, 1500, 2000, 3700, 16_000] {
            let ratio = AllocationRatio::from_milli(milli);
            for used in (0..1000).chain([1 << 30, (1 << 40) - 1, 1 << 40]) {
                let needed = ratio.needed(used);
                assert!(ratio.capacity(needed, 0) >= used, "{ratio} {used}");
                assert!(
                    needed == 0 || ratio.capacity(needed - 1, 0) < used,
                    "{ratio} {used}"
                );
            }
        }
        assert_eq!(AllocationRatio::ONE.needed(77), 77);
        assert_eq!((ratio(0.0).needed(0), ratio(0.0).needed(1)), (0, u64::MAX));
    }

    #[test]
    fn thousandths_are_kept() {
        for milli in [0, 1, 999, 1000, 1001, 1500, 4000, 16_000_000] {
            assert_eq!(AllocationRatio::from_milli(milli).milli(), milli);
        }
    }
}
