//! A hash of what entries of the log contain, by which members compare their logs.
//!
//! Raft takes entries of one index and term for the same, since a leader makes one for each index.
//! A member that led, came back with an older directory and led the same term again makes others;
//! the terms of the two logs are alike, and only their content shows it.
//!
//! The hash of a range is the wrapping sum of one hash per entry, each over index, term, type and
//! bytes. Members begin their logs at different indexes (a checkpoint, a snapshot) and can compare
//! any range that both have, which a chain that begins with the first entry cannot give without a
//! stored form. It protects against mistakes, not against a member that chooses entries.
//!
//! A leader sends the hashes in the `context` of an append, which raft-rs 0.7 neither fills nor
//! reads there. A program that does not know them ignores them, and nothing of them is stored, so
//! that they need no cluster version; an append without them is not compared.

use prost::Message as _;
use raft::eraftpb::{Entry, EntryType, Message};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The hash of a range of entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogHash(u64);

impl LogHash {
    /// Returns the hash with one more entry.
    pub(crate) fn with(self, entry: &Entry) -> Self {
        let kind = match entry.get_entry_type() {
            EntryType::EntryNormal => 0,
            EntryType::EntryConfChange => 1,
            EntryType::EntryConfChangeV2 => 2,
        };
        let mut place = [0; 17];
        place[..8].copy_from_slice(&entry.index.to_le_bytes());
        place[8..16].copy_from_slice(&entry.term.to_le_bytes());
        place[16] = kind;
        // Each part is the seed of the next, so that bytes cannot move between them unnoticed.
        let place = xxh3_64_with_seed(&place, 0);
        let context = xxh3_64_with_seed(&entry.context, place);
        Self(self.0.wrapping_add(xxh3_64_with_seed(&entry.data, context)))
    }

    /// Returns the hash of the entries that this one has beyond an earlier one.
    pub(crate) fn since(self, earlier: Self) -> u64 {
        self.0.wrapping_sub(earlier.0)
    }
}

/// What a leader states of its entries before those of an append.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LogHashes {
    /// Ranges that end with the entry before the append's first.
    #[prost(message, repeated, tag = "1")]
    pub(crate) ranges: Vec<HashedRange>,
}

/// The hash of the entries behind an index.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct HashedRange {
    /// The index before the first entry.
    #[prost(uint64, tag = "1")]
    pub(crate) after: u64,
    /// The hash.
    #[prost(fixed64, tag = "2")]
    pub(crate) hash: u64,
}

impl LogHashes {
    /// Adds the hashes to an append.
    pub(crate) fn attach(&self, message: &mut Message) {
        message.context = self.encode_to_vec().into();
    }

    /// Takes the hashes from an append; none if it carries none that can be read.
    pub(crate) fn read(message: &Message) -> Self {
        Self::decode(message.context.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
            index: 7,
            term: 3,
            data: vec![1, 2, 3].into(),
            context: vec![4].into(),
            ..Entry::default()
        }
    }

    /// Goal: whatever differs between two entries changes the hash. Method: one change of each field,
    /// and bytes that move from one field to another.
    #[test]
    fn every_part_of_an_entry_counts() {
        let changes: [fn(&mut Entry); 8] = [
            |e| e.index = 8,
            |e| e.term = 4,
            |e| (e.index, e.term) = (3, 7),
            |e| e.set_entry_type(EntryType::EntryConfChange),
            |e| e.set_entry_type(EntryType::EntryConfChangeV2),
            |e| e.data = vec![1, 2].into(),
            |e| e.context = vec![5].into(),
            |e| (e.context, e.data) = (vec![4, 1].into(), vec![2, 3].into()),
        ];
        let mut hashes = vec![LogHash::default().with(&entry())];
        for change in changes {
            let mut other = entry();
            change(&mut other);
            let hash = LogHash::default().with(&other);
            assert!(!hashes.contains(&hash), "{other:?}");
            hashes.push(hash);
        }
    }

    #[test]
    fn a_range_has_one_hash_wherever_the_log_begins() {
        let entries: Vec<Entry> = (1..=9).map(|index| Entry { index, ..entry() }).collect();
        let up_to = |from: usize, to: usize| {
            entries[from..to]
                .iter()
                .fold(LogHash::default(), |hash, entry| hash.with(entry))
        };
        assert_eq!(
            up_to(0, 9).since(up_to(0, 4)),
            up_to(2, 9).since(up_to(2, 4))
        );
        assert_ne!(
            up_to(0, 9).since(up_to(0, 4)),
            up_to(0, 9).since(up_to(0, 3))
        );
    }

    #[test]
    fn hashes_come_back_and_other_bytes_are_none() {
        let hashes = LogHashes {
            ranges: vec![
                HashedRange { after: 3, hash: 9 },
                HashedRange { after: 5, hash: 0 },
            ],
        };
        let mut message = Message::default();
        assert_eq!(LogHashes::read(&message), LogHashes::default());
        hashes.attach(&mut message);
        assert_eq!(LogHashes::read(&message), hashes);
        message.context = vec![0xff; 5].into();
        assert_eq!(LogHashes::read(&message), LogHashes::default());
    }
}
