//! The state hash: an incremental digest of all rows.
//!
//! It is the wrapping sum of one 128-bit hash per row, so it does not depend on the order of rows
//! and is maintained from changes alone. Members compare it at equal index, a checkpoint and the
//! table carry it. It protects against mistakes and damage, not against an adversary who chooses
//! rows.

use std::fmt;

use xxhash_rust::xxh3::{xxh3_64, xxh3_128_with_seed};

use crate::row::{Row, RowChange};

/// The digest of a set of rows.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct StateHash(u128);

impl StateHash {
    /// The hash of no rows at all.
    pub const EMPTY: Self = Self(0);

    /// Adds one row.
    pub fn insert(&mut self, key: &[u8], value: &[u8]) {
        self.0 = self.0.wrapping_add(row_hash(key, value));
    }

    /// Takes one row away.
    pub fn remove(&mut self, key: &[u8], value: &[u8]) {
        self.0 = self.0.wrapping_sub(row_hash(key, value));
    }

    /// Follows one change.
    pub fn change(&mut self, change: &RowChange) {
        if let Some(old) = &change.old {
            self.remove(&change.key, old);
        }
        if let Some(new) = &change.new {
            self.insert(&change.key, new);
        }
    }

    /// Computes the hash of whole states.
    pub fn of_rows(rows: impl IntoIterator<Item = Row>) -> Self {
        let mut hash = Self::EMPTY;
        for row in rows {
            hash.insert(&row.key, &row.value);
        }
        hash
    }

    /// Returns the stored form.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }

    /// Reads the stored form; `None` when the length is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(Self(u128::from_le_bytes(bytes.try_into().ok()?)))
    }
}

impl fmt::Debug for StateHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for StateHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The key enters as the seed, so that moving bytes between key and value changes the hash
/// without a buffer that joins the two.
fn row_hash(key: &[u8], value: &[u8]) -> u128 {
    xxh3_128_with_seed(value, xxh3_64(key))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn row(key: &'static str, value: &'static str) -> Row {
        Row {
            key: Bytes::from_static(key.as_bytes()),
            value: Bytes::from_static(value.as_bytes()),
        }
    }

    #[test]
    fn order_does_not_matter() {
        let one = StateHash::of_rows([row("a", "1"), row("b", "2")]);
        let two = StateHash::of_rows([row("b", "2"), row("a", "1")]);
        assert_eq!(one, two);
    }

    #[test]
    fn changes_lead_to_the_hash_of_the_rows() {
        let mut hash = StateHash::of_rows([row("a", "1"), row("b", "2")]);
        hash.change(&RowChange {
            key: Bytes::from_static(b"a"),
            old: Some(Bytes::from_static(b"1")),
            new: Some(Bytes::from_static(b"9")),
        });
        hash.change(&RowChange {
            key: Bytes::from_static(b"b"),
            old: Some(Bytes::from_static(b"2")),
            new: None,
        });
        assert_eq!(hash, StateHash::of_rows([row("a", "9")]));
    }

    #[test]
    fn bytes_do_not_wander_between_key_and_value() {
        assert_ne!(
            StateHash::of_rows([row("ab", "c")]),
            StateHash::of_rows([row("a", "bc")])
        );
        assert_ne!(
            StateHash::of_rows([row("a", "")]),
            StateHash::of_rows([row("", "a")])
        );
    }
}
