//! The latest changes that are sent as events, revision by revision, bounded in number and bytes.
//!
//! Unlike a `ring`, it merges nothing. Readers share what is kept: who reads slowly costs nothing
//! beyond it, and is refused once what it has not read yet was dropped.
//!
//! Invariant: it holds every change after revision `first` up to `last`, those of one revision
//! together.

use std::collections::VecDeque;
use std::sync::Arc;

use berth_codec as codec;
use berth_domain::event::{Change, Name, Record};
use berth_domain::refusal::Refusal;
use berth_replication::{Retained, Row as StoredRow};
use berth_state::Row;

use super::{Limits, not_kept, not_readable};

/// The most revisions that are handed out at once.
const PART_MAX: usize = 256;

/// A change of a record, as it is stored.
#[derive(Clone, Debug)]
pub struct RecordChange {
    name: Name,
    /// `None` when it is gone.
    row: Option<StoredRow>,
}

impl RecordChange {
    pub(super) fn new(name: Name, row: Option<StoredRow>) -> Self {
        Self { name, row }
    }

    /// Returns which record it is about.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Returns what became of the record.
    ///
    /// # Errors
    ///
    /// When the stored record cannot be read: a fault of the program.
    pub fn read(&self) -> Result<Change, Refusal> {
        let Some(row) = &self.row else {
            return Ok(Change::Deleted(self.name.clone()));
        };
        let unreadable = || not_readable(self.name.kind().word());
        let row = codec::decode_row(row).map_err(|_| unreadable())?;
        record(row).map(Change::Put).ok_or_else(unreadable)
    }

    fn bytes(&self) -> usize {
        let row = self.row.as_ref();
        size_of::<Self>() + row.map_or(0, |row| row.key.len() + row.value.len())
    }
}

/// Returns the record of a row, if its changes are sent as events.
#[must_use]
pub fn record(row: Row) -> Option<Record> {
    match row {
        Row::Vm(vm) => Some(Record::Vm(vm)),
        Row::Migration(migration) => Some(Record::Migration(migration)),
        Row::Host(host) => Some(Record::Host(host)),
        Row::Claim(claim) => Some(Record::Claim(claim)),
        Row::Operation(operation) => Some(Record::Operation(operation)),
        Row::Audit(entry) => Some(Record::Audit(entry)),
        Row::Header(_)
        | Row::Provider(_)
        | Row::Consumer(_)
        | Row::Flavor(_)
        | Row::Service(_)
        | Row::Request(_)
        | Row::Class(_)
        | Row::Trait(_)
        | Row::Policy(_)
        | Row::PciAlias(_)
        | Row::Image(_)
        | Row::Network(_)
        | Row::ServerGroup(_)
        | Row::Aggregate(_)
        | Row::Volume(_)
        | Row::RevokedCertificate(_)
        | Row::RecoveredHost(_)
        | Row::SettledVm(_) => None,
    }
}

/// The changes of one command.
#[derive(Debug)]
pub struct Revision {
    /// The command's index.
    pub revision: u64,
    /// The changes.
    pub changes: Vec<RecordChange>,
}

impl Revision {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.changes.iter().map(RecordChange::bytes).sum::<usize>()
    }
}

/// The changes after a revision, or the first part of them.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// The revision up to which this is complete.
    pub revision: u64,
    /// The revisions with their changes, in order.
    pub revisions: Vec<Arc<Revision>>,
    /// Whether more is known already.
    pub is_more: bool,
}

/// The latest changes.
#[derive(Debug)]
pub(super) struct History {
    first: u64,
    last: u64,
    revisions: VecDeque<Arc<Revision>>,
    changes: usize,
    bytes: usize,
    limits: Limits,
}

impl History {
    /// Returns a history in which everything after this revision is known.
    pub(super) fn new(revision: u64, limits: Limits) -> Self {
        Self {
            first: revision,
            last: revision,
            revisions: VecDeque::new(),
            changes: 0,
            bytes: 0,
            limits,
        }
    }

    /// Records all changes of one command, and drops the oldest beyond the limits.
    /// The changes of a single command are retained whatever their size, so that they are sent.
    pub(super) fn push(&mut self, revision: u64, changes: Vec<RecordChange>) {
        self.last = self.last.max(revision);
        if changes.is_empty() {
            return;
        }
        let revision = Revision { revision, changes };
        self.changes += revision.changes.len();
        self.bytes += revision.bytes();
        self.revisions.push_back(Arc::new(revision));
        let exceeds = |s: &Self| s.changes > s.limits.changes || s.bytes > s.limits.bytes;
        while exceeds(self) && self.revisions.len() > 1 {
            let Some(oldest) = self.revisions.pop_front() else {
                return;
            };
            self.changes -= oldest.changes.len();
            self.bytes -= oldest.bytes();
            self.first = oldest.revision;
        }
    }

    /// Returns how much is retained.
    pub(super) fn retained(&self, name: &'static str) -> Retained {
        Retained::counted(name, self.changes, self.limits.changes)
            .with_bytes(self.bytes as u64, self.limits.bytes as u64)
    }

    /// Drops everything: the changes before this revision are unknown.
    pub(super) fn start_over(&mut self, revision: u64) {
        *self = Self::new(revision, self.limits);
    }

    /// Returns what changed after a revision, as far as it is handed out at once. Nothing changed
    /// after a revision that is still to come.
    pub(super) fn since(&self, after: u64) -> Result<Part, Refusal> {
        if after < self.first {
            return Err(not_kept(after, self.first));
        }
        let from = self.revisions.partition_point(|r| r.revision <= after);
        let until = self.revisions.len().min(from + PART_MAX);
        let revisions: Vec<_> = self.revisions.range(from..until).cloned().collect();
        let is_more = until < self.revisions.len();
        let revision = match revisions.last() {
            Some(last) if is_more => last.revision,
            Some(_) | None => self.last.max(after),
        };
        Ok(Part {
            revision,
            revisions,
            is_more,
        })
    }
}

#[cfg(test)]
mod tests {
    use berth_domain::name::VmName;

    use super::*;

    const LIMITS: Limits = Limits {
        changes: 6,
        bytes: 4096,
    };

    fn change(name: &str, bytes: usize) -> RecordChange {
        let row = StoredRow {
            key: Default::default(),
            value: vec![0; bytes].into(),
        };
        RecordChange::new(Name::Vm(VmName::new(name).unwrap()), Some(row))
    }

    fn since(history: &History, after: u64) -> Result<(u64, Vec<(u64, usize)>), String> {
        let part = history.since(after).map_err(|refusal| refusal.reason)?;
        let revisions = part.revisions.iter();
        let revisions = revisions.map(|r| (r.revision, r.changes.len()));
        Ok((part.revision, revisions.collect()))
    }

    /// Goal: nothing is merged, and the changes of one revision stay together, also when the
    /// oldest are dropped.
    #[test]
    fn revisions_are_returned_whole_and_dropped_whole() {
        let mut history = History::new(10, LIMITS);
        history.push(11, vec![change("a", 1), change("b", 1)]);
        history.push(12, Vec::new());
        history.push(13, vec![change("a", 1)]);
        assert_eq!(since(&history, 10), Ok((13, vec![(11, 2), (13, 1)])));
        assert_eq!(since(&history, 11), Ok((13, vec![(13, 1)])));
        assert_eq!(since(&history, 13), Ok((13, Vec::new())));
        history.push(14, vec![change("a", 1), change("b", 1), change("c", 1)]);
        assert_eq!(since(&history, 10).map(|part| part.1.len()), Ok(3));
        history.push(15, vec![change("a", 1)]);
        assert_eq!(since(&history, 10), Err("REVISION_NOT_KEPT".into()));
        assert_eq!(since(&history, 11).map(|part| part.1.len()), Ok(3));
    }

    /// Goal: a revision that is still to come is waited for, and changes before it are not returned.
    #[test]
    fn the_future_is_empty() {
        let mut history = History::new(10, LIMITS);
        history.push(11, vec![change("a", 1)]);
        assert_eq!(since(&history, 20), Ok((20, Vec::new())));
        history.push(20, vec![change("a", 1)]);
        assert_eq!(since(&history, 20), Ok((20, Vec::new())));
        history.push(21, vec![change("a", 1)]);
        assert_eq!(since(&history, 20), Ok((21, vec![(21, 1)])));
    }

    /// Goal: bytes are bounded, and one command that alone is larger is returned all the same.
    #[test]
    fn bytes_are_bounded() {
        let mut history = History::new(10, LIMITS);
        for revision in 11..14 {
            history.push(revision, vec![change("a", 1500)]);
        }
        assert_eq!(since(&history, 10), Err("REVISION_NOT_KEPT".into()));
        assert_eq!(since(&history, 11).map(|part| part.1.len()), Ok(2));
        history.push(14, vec![change("a", 10_000)]);
        assert_eq!(since(&history, 12), Err("REVISION_NOT_KEPT".into()));
        assert_eq!(since(&history, 13), Ok((14, vec![(14, 1)])));
        history.push(15, vec![change("a", 1)]);
        assert_eq!(since(&history, 14), Ok((15, vec![(15, 1)])));
        let kept: usize = history.revisions.iter().map(|r| r.bytes()).sum();
        assert_eq!((history.bytes, history.changes), (kept, 1));
    }

    /// Goal: each returned part is bounded and has the revision that it reaches.
    #[test]
    fn parts_are_bounded() {
        let limits = Limits {
            changes: 10_000,
            bytes: 1 << 20,
        };
        let mut history = History::new(0, limits);
        (1..=600).for_each(|revision| history.push(revision, vec![change("a", 1)]));
        let (mut after, mut seen) = (0, Vec::new());
        loop {
            let part = history.since(after).unwrap();
            assert!(part.revisions.len() <= PART_MAX);
            seen.extend(part.revisions.iter().map(|r| r.revision));
            after = part.revision;
            assert_eq!(seen.last(), Some(&after));
            if !part.is_more {
                break;
            }
        }
        assert_eq!(seen, (1..=600).collect::<Vec<_>>());
    }
}
