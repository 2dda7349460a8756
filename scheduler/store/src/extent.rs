//! What the Raft log says about itself: how many writes it took and which entries it holds.
//!
//! Every batch that is made durable carries the extent that it leads to, in the log, and a copy of
//! it goes to the [witness](crate::witness). The extent therefore shows at open what the entries
//! alone cannot: that a later write is missing, whatever it held (entries, a vote, a reset), and
//! that entries in the middle are those of an older version of a file. Index and term identify an
//! entry, so the terms of all entries stand for their content.
//!
//! Rejected: comparing index and term alone with the witness. A member whose uncommitted entries
//! were replaced by a newer leader's has a shorter log than before, at a higher or even at a lower
//! term; only the number of the write says that nothing is missing. It also covers votes, which
//! have no entry.

use std::collections::VecDeque;

use raft::eraftpb::Entry;
use xxhash_rust::xxh3::xxh3_64;

/// The bytes of an encoded extent.
pub const EXTENT_BYTES: usize = 40;

/// What the log is after a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// The number of the write; grows by one with each, and is 0 before the first.
    pub sequence: u64,
    /// The first entry; 0 if there is none.
    pub first_index: u64,
    /// The last entry; 0 if there is none.
    pub last_index: u64,
    /// The term of the last entry.
    pub last_term: u64,
    /// A hash of where each term begins.
    pub terms_hash: u64,
}

impl Extent {
    /// Returns the stored form.
    pub fn to_bytes(self) -> [u8; EXTENT_BYTES] {
        let mut bytes = [0; EXTENT_BYTES];
        let words = [
            self.sequence,
            self.first_index,
            self.last_index,
            self.last_term,
            self.terms_hash,
        ];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads the stored form.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; EXTENT_BYTES] = bytes.try_into().ok()?;
        let mut words = bytes.chunks_exact(8).map(|chunk| {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            u64::from_le_bytes(word)
        });
        Some(Self {
            sequence: words.next()?,
            first_index: words.next()?,
            last_index: words.next()?,
            last_term: words.next()?,
            terms_hash: words.next()?,
        })
    }

    /// Says whether two extents speak of the same entries, whatever their number.
    pub fn same_entries(&self, other: &Self) -> bool {
        let sequence = self.sequence;
        *self == Self { sequence, ..*other }
    }
}

/// Follows the log, so that its extent is known without reading it.
#[derive(Clone, Debug, Default)]
pub struct Tracker {
    sequence: u64,
    last_index: u64,
    /// Where each term begins: (index, term), without gaps. Empty for an empty log.
    runs: VecDeque<(u64, u64)>,
}

impl Tracker {
    /// Begins with a log that holds these entries after this many writes.
    pub fn new(sequence: u64, entries: &[Entry]) -> Self {
        let mut tracker = Self {
            sequence,
            ..Self::default()
        };
        tracker.append(entries);
        tracker
    }

    /// Follows entries that replace what the log has from the first one's index on.
    pub fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        while self.runs.back().is_some_and(|run| run.0 >= first.index) {
            self.runs.pop_back();
        }
        for entry in entries {
            if self.runs.back().is_none_or(|run| run.1 != entry.term) {
                self.runs.push_back((entry.index, entry.term));
            }
            self.last_index = entry.index;
        }
    }

    /// Follows the removal of the entries before this index.
    pub fn compact(&mut self, first_kept: u64) {
        if first_kept > self.last_index {
            return self.reset();
        }
        while self.runs.get(1).is_some_and(|run| run.0 <= first_kept) {
            self.runs.pop_front();
        }
        if let Some(front) = self.runs.front_mut() {
            front.0 = front.0.max(first_kept);
        }
    }

    /// Follows the removal of all entries.
    pub fn reset(&mut self) {
        self.runs.clear();
    }

    /// Counts a write and returns what the log is after it.
    pub fn count_write(&mut self) -> Extent {
        self.sequence += 1;
        self.extent()
    }

    /// Returns what the log is.
    pub fn extent(&self) -> Extent {
        let (Some(first), Some(last)) = (self.runs.front(), self.runs.back()) else {
            return Extent {
                sequence: self.sequence,
                ..Extent::default()
            };
        };
        let mut bytes = Vec::with_capacity(16 * self.runs.len());
        for (index, term) in &self.runs {
            bytes.extend_from_slice(&index.to_le_bytes());
            bytes.extend_from_slice(&term.to_le_bytes());
        }
        Extent {
            sequence: self.sequence,
            first_index: first.0,
            last_index: self.last_index,
            last_term: last.1,
            terms_hash: xxh3_64(&bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entries(first: u64, terms: &[u64]) -> Vec<Entry> {
        (first..)
            .zip(terms)
            .map(|(index, term)| Entry {
                index,
                term: *term,
                ..Entry::default()
            })
            .collect()
    }

    #[test]
    fn bytes_come_back() {
        let extent = Tracker::new(7, &entries(5, &[1, 1, 2])).extent();
        assert_eq!(Extent::from_bytes(&extent.to_bytes()), Some(extent));
        assert_eq!(Extent::from_bytes(&extent.to_bytes()[..39]), None);
    }

    #[test]
    fn a_lost_replacement_shows_although_the_length_is_the_same() {
        let mut tracker = Tracker::new(0, &entries(1, &[1, 1, 2, 2, 2]));
        let stale = tracker.extent();
        tracker.append(&entries(4, &[3, 3]));
        assert_eq!(stale.last_index, tracker.extent().last_index);
        assert!(!tracker.extent().same_entries(&stale));
    }

    proptest! {
        /// Goal: following a log gives the extent of what it holds. Method: a list of terms is
        /// changed in the same way as the tracker.
        #[test]
        fn following_equals_reading(
            steps in prop::collection::vec((0_u8..8, 0_u64..12, 1_usize..6), 1..40)
        ) {
            let mut tracker = Tracker::default();
            let mut model: Vec<Entry> = Vec::new();
            let mut term = 1;
            for (kind, at, count) in steps {
                let first = model.first().map_or(1, |e| e.index);
                let last = model.last().map_or(0, |e| e.index);
                match kind {
                    0 => {
                        tracker.reset();
                        model.clear();
                    }
                    1 => {
                        tracker.compact(first + at);
                        model.retain(|e| e.index >= first + at);
                    }
                    _ => {
                        term += u64::from(kind == 2);
                        let from = (last + 1).saturating_sub(at).max(first);
                        let added = entries(from, &vec![term; count]);
                        tracker.append(&added);
                        model.retain(|e| e.index < from);
                        model.extend(added);
                    }
                }
                prop_assert_eq!(tracker.extent(), Tracker::new(0, &model).extent());
            }
        }
    }
}
