//! Pieces of a region: which are free, and which of them a new namespace gets.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A piece of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Extent {
    /// Where it begins, in bytes from the beginning of the region.
    pub offset_bytes: u64,
    /// How long it is, in bytes.
    pub length_bytes: u64,
}

impl Extent {
    /// Returns where it ends; the largest number where that is beyond all numbers.
    #[must_use]
    pub fn end_bytes(self) -> u64 {
        self.offset_bytes.saturating_add(self.length_bytes)
    }

    /// Returns whether a byte is in both.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.offset_bytes < other.end_bytes() && other.offset_bytes < self.end_bytes()
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.offset_bytes, self.length_bytes)
    }
}

/// Returns the free pieces of a region, by offset, none of them empty. What is taken may overlap
/// and come in any order; what is beyond the end of the region counts up to its end.
#[must_use]
pub fn holes(capacity_bytes: u64, taken: impl IntoIterator<Item = Extent>) -> Vec<Extent> {
    let taken = taken.into_iter().filter(|piece| piece.length_bytes > 0);
    let mut taken: Vec<Extent> = taken.collect();
    taken.sort_unstable();
    let mut free = Vec::new();
    let mut from = 0;
    for extent in taken {
        let until = extent.offset_bytes.min(capacity_bytes);
        if until > from {
            free.push(Extent {
                offset_bytes: from,
                length_bytes: until - from,
            });
        }
        from = from.max(extent.end_bytes().min(capacity_bytes));
    }
    if capacity_bytes > from {
        free.push(Extent {
            offset_bytes: from,
            length_bytes: capacity_bytes - from,
        });
    }
    free
}

/// Returns where a new piece of this length comes to lie: at the beginning of the first hole that
/// has space for it, which is where the kernel puts a namespace.
#[must_use]
pub fn first_fit(holes: &[Extent], length_bytes: u64) -> Option<Extent> {
    let hole = holes
        .iter()
        .find(|hole| hole.length_bytes >= length_bytes)?;
    Some(Extent {
        offset_bytes: hole.offset_bytes,
        length_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(offset_bytes: u64, length_bytes: u64) -> Extent {
        Extent {
            offset_bytes,
            length_bytes,
        }
    }

    /// The example of PMEM-CSI's documentation of fragmentation, in GB.
    #[test]
    fn two_holes_are_not_one() {
        let free = holes(128, [extent(63, 1)]);
        assert_eq!(free, [extent(0, 63), extent(64, 64)]);
        assert_eq!(first_fit(&free, 63), Some(extent(0, 63)));
        assert_eq!(first_fit(&free, 64), Some(extent(64, 64)));
        assert_eq!(first_fit(&free, 65), None);
    }

    /// Goal: holes are exactly what is not taken. Method: byte by byte, all pairs of pieces of a
    /// small region, those beyond its end and those that overlap included.
    #[test]
    fn holes_are_what_is_not_taken() {
        let pieces: Vec<Extent> = (0..8)
            .flat_map(|offset| (0..4).map(move |length| extent(offset, length)))
            .chain([extent(2, u64::MAX), extent(u64::MAX, u64::MAX)])
            .collect();
        for &a in &pieces {
            for &b in &pieces {
                let free = holes(6, [a, b]);
                for byte in 0..6 {
                    let at = extent(byte, 1);
                    let is_free = free.iter().any(|hole| hole.overlaps(at));
                    assert_eq!(
                        is_free,
                        !a.overlaps(at) && !b.overlaps(at),
                        "{a} {b} {byte}"
                    );
                }
                assert!(
                    free.iter()
                        .all(|h| h.length_bytes > 0 && h.end_bytes() <= 6)
                );
                assert!(
                    free.windows(2)
                        .all(|w| w[0].end_bytes() < w[1].offset_bytes)
                );
            }
        }
    }
}
