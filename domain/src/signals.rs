//! What a host's agent measured of its memory: how much there is, how much is free, what the guests
//! keep from being given back, swap, and how long programs waited for memory.
//!
//! Not the basis of placement: that is the state of record, which never flutters. Signals are not
//! replicated either. They show what over-commitment does to a host at this moment: to operators,
//! to balancing, and to the warnings of [`swap_warnings`].
//!
//! Invariant: what could not be measured is absent, and absence is never counted as zero. A value
//! that was measured only in part is absent as a whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::name::VmName;
use crate::overcommit::AllocationRatio;

mod swap;

pub use swap::{Measurement, Warning, swap_warnings};

/// The most guests of which each one's memory is reported; the sum counts all.
pub const GUESTS_MAX: usize = 1024;

/// The most that a stall can be: all of the time, in thousandths of a percent.
pub const STALL_MAX: u32 = 100_000;

/// What an agent measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySignals {
    /// The host's memory.
    pub memory: Option<NodeMemory>,
    /// The host's swap space; one without any has a total of 0.
    pub swap: Option<Swap>,
    /// How long programs waited for memory; absent where the kernel does not report it.
    pub pressure: Option<Pressure>,
    /// The memory of the guests.
    pub guests: Option<GuestsMemory>,
}

/// What an agent measured, and how long ago.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// How long ago, to the moment of the report.
    pub age_ms: u64,
    /// What was measured.
    pub signals: Arc<MemorySignals>,
}

/// The memory of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMemory {
    /// All of it, huge pages included.
    pub total_kib: u64,
    /// Free, or used for buffers and caches, as Ganeti counts it: MemFree + Buffers + Cached.
    pub free_kib: u64,
    /// What the kernel thinks that it could give away without swapping: MemAvailable. Absent where
    /// it does not report it.
    pub available_kib: Option<u64>,
    /// In pools of huge pages, free or not: no part of what is over-committed.
    pub huge_kib: u64,
}

/// Swap space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swap {
    /// All of it.
    pub total_kib: u64,
    /// What is unused of it.
    pub free_kib: u64,
}

/// How long programs waited for memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pressure {
    /// At least one of them did.
    pub some: Stall,
    /// All of them did at the same time.
    pub full: Stall,
}

/// A share of the time, in thousandths of a percent: 1.25 % is 1250.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stall {
    /// Of the last 10 seconds.
    pub avg10_milli_percent: u32,
    /// Of the last minute.
    pub avg60_milli_percent: u32,
}

/// The memory of a guest, or of several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestMemory {
    /// What is in ordinary pages of the host's memory and could be taken away only by swapping:
    /// anonymous and shared memory, not pages of files.
    pub resident_kib: u64,
    /// What is in huge pages.
    pub huge_kib: u64,
    /// What is swapped out.
    pub swapped_kib: u64,
}

/// The memory of all guests of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestsMemory {
    /// Of all guests together, those included that are not in `each`.
    pub sum: GuestMemory,
    /// Of each guest; the largest [`GUESTS_MAX`] if there are more.
    pub each: BTreeMap<VmName, GuestMemory>,
}

impl MemorySignals {
    /// Returns whether nothing could be measured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns what the guests have that is not immediately discardable, in KiB, in pages of every
    /// size; absent where it is not known.
    #[must_use]
    pub fn non_discardable_kib(&self) -> Option<u64> {
        Some(self.guests.as_ref()?.sum.non_discardable_kib())
    }
}

impl GuestMemory {
    /// Returns what is not immediately discardable: it is in the host's memory, and its contents
    /// are nowhere else.
    #[must_use]
    pub fn non_discardable_kib(self) -> u64 {
        self.resident_kib.saturating_add(self.huge_kib)
    }

    fn plus(self, other: Self) -> Self {
        Self {
            resident_kib: self.resident_kib.saturating_add(other.resident_kib),
            huge_kib: self.huge_kib.saturating_add(other.huge_kib),
            swapped_kib: self.swapped_kib.saturating_add(other.swapped_kib),
        }
    }
}

impl GuestsMemory {
    /// Returns the memory of these guests: all in the sum, the largest one by one.
    #[must_use]
    pub fn of(each: BTreeMap<VmName, GuestMemory>) -> Self {
        let sum = each.values().fold(GuestMemory::default(), |sum, guest| {
            GuestMemory::plus(sum, *guest)
        });
        if each.len() <= GUESTS_MAX {
            return Self { sum, each };
        }
        let mut largest: Vec<_> = each.into_iter().collect();
        // The order of names decides between equal ones.
        largest.sort_by_key(|(_, guest)| std::cmp::Reverse(guest.non_discardable_kib()));
        largest.truncate(GUESTS_MAX);
        let each = largest.into_iter().collect();
        Self { sum, each }
    }
}

impl Stall {
    /// Reads a share in percent with at most two decimals, as `12.5`, in hundredths of a percent.
    #[must_use]
    pub fn hundredths(text: &str) -> Option<u32> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !is_number(whole) || !is_number(part) || part.len() > 2 {
            return None;
        }
        let part: u32 = format!("{part:0<2}").parse().ok()?;
        let hundredths = whole.parse::<u32>().ok()?.checked_mul(100)?;
        hundredths
            .checked_add(part)
            .filter(|share| *share <= 10_000)
    }

    /// Returns a stall of so many hundredths of a percent, as the kernel writes them.
    #[must_use]
    pub fn from_hundredths(avg10: u32, avg60: u32) -> Self {
        let milli = |hundredths: u32| hundredths.saturating_mul(10).min(STALL_MAX);
        Self {
            avg10_milli_percent: milli(avg10),
            avg60_milli_percent: milli(avg60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(resident_kib: u64) -> GuestMemory {
        GuestMemory {
            resident_kib,
            huge_kib: 1,
            swapped_kib: 2,
        }
    }

    fn name(number: usize) -> VmName {
        VmName::new(&format!("vm-{number:05}")).unwrap()
    }

    #[test]
    fn all_guests_are_summed_and_the_largest_listed() {
        let few: BTreeMap<_, _> = (0..3).map(|n| (name(n), guest(10))).collect();
        let guests = GuestsMemory::of(few.clone());
        assert_eq!(guests.each, few);
        assert_eq!((guests.sum.resident_kib, guests.sum.swapped_kib), (30, 6));
        assert_eq!(guests.sum.non_discardable_kib(), 33);

        let many = (0..GUESTS_MAX + 10).map(|n| (name(n), guest(n as u64)));
        let guests = GuestsMemory::of(many.collect());
        let all = (0..(GUESTS_MAX + 10) as u64).sum::<u64>();
        assert_eq!(guests.sum.resident_kib, all);
        assert_eq!(guests.each.len(), GUESTS_MAX);
        assert!(!guests.each.contains_key(&name(9)) && guests.each.contains_key(&name(10)));
    }

    #[test]
    fn absence_is_not_zero() {
        let nothing = MemorySignals::default();
        assert!(nothing.is_empty());
        assert_eq!(nothing.non_discardable_kib(), None);
        let no_guests = MemorySignals {
            guests: Some(GuestsMemory::default()),
            ..nothing
        };
        assert!(!no_guests.is_empty());
        assert_eq!(no_guests.non_discardable_kib(), Some(0));
    }

    #[test]
    fn shares_are_read_as_the_kernel_writes_them() {
        for (text, hundredths) in [
            ("0.00", Some(0)),
            ("1.25", Some(125)),
            ("12.5", Some(1250)),
            ("100", Some(10_000)),
            ("100.01", None),
            ("1.234", None),
            ("-1", None),
            ("+1", None),
            ("1.", None),
            (".5", None),
            ("", None),
            ("99999999999", None),
            ("nan", None),
        ] {
            assert_eq!(Stall::hundredths(text), hundredths, "{text:?}");
        }
    }

    #[test]
    fn stalls_are_bounded() {
        let stall = Stall::from_hundredths(125, u32::MAX);
        assert_eq!(stall.avg10_milli_percent, 1250);
        assert_eq!(stall.avg60_milli_percent, STALL_MAX);
    }
}
