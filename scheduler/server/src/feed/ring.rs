//! The latest changes of one table, bounded in number and in bytes.
//!
//! Invariant: it holds every change after revision `first` up to `last`.

use std::collections::{BTreeMap, VecDeque};

use berth_domain::refusal::Refusal;
use berth_replication::{Retained, Row as StoredRow};

use super::{Limits, not_kept};

/// A change of a row.
#[derive(Debug)]
struct Change<K> {
    revision: u64,
    key: K,
    /// The stored row, decoded for those who watch only; `None` when it is gone.
    row: Option<StoredRow>,
}

impl<K> Change<K> {
    fn bytes(&self) -> usize {
        let row = self.row.as_ref();
        size_of::<Self>() + row.map_or(0, |row| row.key.len() + row.value.len())
    }
}

/// The latest changes of one table.
#[derive(Debug)]
pub(super) struct Ring<K> {
    first: u64,
    last: u64,
    changes: VecDeque<Change<K>>,
    bytes: usize,
    limits: Limits,
}

/// The changes after a revision, as stored.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Changes<K> {
    /// The revision up to which this is complete.
    pub(crate) revision: u64,
    /// The rows that changed, as they are at that revision; `None` for one that is gone.
    pub(crate) rows: BTreeMap<K, Option<StoredRow>>,
}

impl<K: Ord + Clone> Ring<K> {
    /// Returns the ring of a table whose changes are known from this revision on.
    pub(super) fn new(revision: u64, limits: Limits) -> Self {
        Self {
            first: revision,
            last: revision,
            changes: VecDeque::new(),
            bytes: 0,
            limits,
        }
    }

    /// Records a change.
    pub(super) fn push(&mut self, revision: u64, key: K, row: Option<StoredRow>) {
        let change = Change { revision, key, row };
        let bytes = change.bytes();
        while self.changes.len() >= self.limits.changes || self.bytes + bytes > self.limits.bytes {
            let Some(oldest) = self.changes.pop_front() else {
                break;
            };
            self.bytes -= oldest.bytes();
            self.first = oldest.revision;
        }
        self.bytes += bytes;
        self.changes.push_back(change);
    }

    /// Marks everything up to this revision as recorded.
    pub(super) fn complete(&mut self, revision: u64) {
        self.last = self.last.max(revision);
    }

    /// Returns how much is retained.
    pub(super) fn retained(&self, name: &'static str) -> Retained {
        Retained::counted(name, self.changes.len(), self.limits.changes)
            .with_bytes(self.bytes as u64, self.limits.bytes as u64)
    }

    /// Drops everything: the changes before this revision are unknown.
    pub(super) fn start_over(&mut self, revision: u64) {
        *self = Self::new(revision, self.limits);
    }

    /// Returns what changed after a revision.
    pub(super) fn since(&self, after: u64) -> Result<Changes<K>, Refusal> {
        if after < self.first {
            return Err(not_kept(after, self.first));
        }
        let from = self.changes.partition_point(|c| c.revision <= after);
        let mut rows = BTreeMap::new();
        for change in self.changes.range(from..) {
            rows.insert(change.key.clone(), change.row.clone());
        }
        Ok(Changes {
            revision: self.last,
            rows,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        changes: 3,
        bytes: 4096,
    };

    fn ring(changes: &[(u64, &'static str)]) -> Ring<&'static str> {
        let mut ring = Ring::new(10, LIMITS);
        for (revision, key) in changes {
            ring.push(*revision, *key, None);
            ring.complete(*revision);
        }
        ring
    }

    fn names_since(ring: &Ring<&'static str>, after: u64) -> Result<Vec<&'static str>, String> {
        let changes = ring.since(after).map_err(|refusal| refusal.reason)?;
        Ok(changes.rows.into_keys().collect())
    }

    #[test]
    fn changes_after_a_revision_are_returned_once() {
        let ring = ring(&[(11, "a"), (12, "b"), (14, "a")]);
        assert_eq!(names_since(&ring, 10), Ok(vec!["a", "b"]));
        assert_eq!(names_since(&ring, 12), Ok(vec!["a"]));
        assert_eq!(names_since(&ring, 14), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_longer_kept_is_refused() {
        let ring = ring(&[(11, "a"), (12, "b"), (13, "c"), (14, "d")]);
        assert_eq!(names_since(&ring, 10), Err("REVISION_NOT_KEPT".into()));
        assert_eq!(names_since(&ring, 11).map(|names| names.len()), Ok(3));
        assert_eq!(
            names_since(&self::ring(&[]), 9),
            Err("REVISION_NOT_KEPT".into())
        );
    }

    /// Goal: large rows push others out before there are too many of them, and one that alone is
    /// larger than allowed is retained all the same, so that it is sent.
    #[test]
    fn bytes_are_bounded() {
        let row = |bytes: usize| {
            Some(StoredRow {
                key: Default::default(),
                value: vec![0; bytes].into(),
            })
        };
        let mut ring = Ring::new(10, LIMITS);
        for (revision, key, bytes) in [(11, "a", 1500), (12, "b", 1500), (13, "c", 1500)] {
            ring.push(revision, key, row(bytes));
            ring.complete(revision);
        }
        assert_eq!(names_since(&ring, 10), Err("REVISION_NOT_KEPT".into()));
        assert_eq!(names_since(&ring, 11), Ok(vec!["b", "c"]));
        ring.push(14, "d", row(10_000));
        ring.complete(14);
        assert_eq!(names_since(&ring, 12), Err("REVISION_NOT_KEPT".into()));
        assert_eq!(names_since(&ring, 13), Ok(vec!["d"]));
        ring.push(15, "e", None);
        assert_eq!(names_since(&ring, 14), Ok(vec!["e"]));
        assert_eq!(ring.bytes, size_of::<Change<&str>>());
    }
}
