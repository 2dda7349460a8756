//! The part of the log that is in memory, which is all that raft-rs reads.
//!
//! It reaches back to the older checkpoint, as the log on disk does, so its size is bounded by
//! the distance of checkpoints. A follower that needs something older gets a snapshot. Keeping it
//! in memory makes the core free of reads from disk.
//!
//! Entries are added when they are handed to the disk, not when they are durable: what is durable
//! is raft-rs's to track.

use std::cell::Cell;
use std::collections::VecDeque;

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Result, Storage, StorageError};

/// What a snapshot to a member that fell behind will contain.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Mark {
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) conf: ConfState,
}

/// The log since the older checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Window {
    hard_state: HardState,
    conf: ConfState,
    /// Index and term of the entry before the first.
    start: (u64, u64),
    entries: VecDeque<Entry>,
    /// The size of the entries.
    bytes: u64,
    /// The newest durable checkpoint.
    checkpoint: Option<Mark>,
    /// Set when a snapshot was requested that no checkpoint can give. A cell, since raft-rs requests
    /// it through a shared reference.
    checkpoint_requested: Cell<bool>,
}

impl Window {
    pub(crate) fn new(
        hard_state: HardState,
        conf: ConfState,
        start: (u64, u64),
        entries: Vec<Entry>,
        checkpoint: Option<Mark>,
    ) -> Self {
        Self {
            hard_state,
            conf,
            start,
            bytes: entries.iter().map(entry_bytes).sum(),
            entries: entries.into(),
            checkpoint,
            checkpoint_requested: Cell::new(false),
        }
    }

    /// Returns whether a newer checkpoint was requested, and clears the request.
    pub(crate) fn take_checkpoint_request(&self) -> bool {
        self.checkpoint_requested.take()
    }

    fn first(&self) -> u64 {
        self.start.0 + 1
    }

    fn last(&self) -> u64 {
        self.start.0 + self.entries.len() as u64
    }

    /// Adds entries; they replace what is there from the first one's index on.
    pub(crate) fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        assert!(
            first.index > self.start.0 && first.index <= self.last() + 1,
            "entry {} does not continue the log from {} to {}",
            first.index,
            self.first(),
            self.last()
        );
        let kept = (first.index - self.first()) as usize;
        let replaced: u64 = self.entries.drain(kept..).map(|e| entry_bytes(&e)).sum();
        self.bytes -= replaced;
        self.bytes += entries.iter().map(entry_bytes).sum::<u64>();
        self.entries.extend(entries.iter().cloned());
    }

    /// Forgets everything: a snapshot takes the place of the log up to this entry.
    pub(crate) fn reset(&mut self, start: (u64, u64)) {
        self.entries.clear();
        self.bytes = 0;
        self.start = start;
    }

    /// Forgets the entries up to this index, as far as there are any.
    pub(crate) fn compact(&mut self, up_to: u64) {
        while let Some(front) = self.entries.front().filter(|e| e.index <= up_to) {
            self.start = (front.index, front.term);
            self.bytes -= entry_bytes(front);
            self.entries.pop_front();
        }
    }

    /// Returns how many entries there are, and their size in bytes.
    pub(crate) fn size(&self) -> (usize, u64) {
        (self.entries.len(), self.bytes)
    }

    pub(crate) fn set_checkpoint(&mut self, mark: Mark) {
        self.checkpoint = Some(mark);
    }

    pub(crate) fn checkpoint(&self) -> Option<&Mark> {
        self.checkpoint.as_ref()
    }
}

impl Storage for Window {
    fn initial_state(&self) -> Result<RaftState> {
        Ok(RaftState::new(self.hard_state.clone(), self.conf.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> Result<Vec<Entry>> {
        if low < self.first() {
            return Err(Error::Store(StorageError::Compacted));
        }
        if high > self.last() + 1 {
            return Err(Error::Store(StorageError::Unavailable));
        }
        let from = (low - self.first()) as usize;
        let to = (high - self.first()) as usize;
        let limit = max_size.into().unwrap_or(u64::MAX);
        let mut bytes = 0;
        let mut found = Vec::with_capacity((to - from).min(1024));
        for entry in self.entries.range(from..to) {
            bytes += entry_bytes(entry);
            // At least one entry, however large.
            if bytes > limit && !found.is_empty() {
                break;
            }
            found.push(entry.clone());
        }
        Ok(found)
    }

    fn term(&self, index: u64) -> Result<u64> {
        if index == self.start.0 {
            return Ok(self.start.1);
        }
        if index < self.start.0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        match self.entries.get((index - self.first()) as usize) {
            Some(entry) => Ok(entry.term),
            None => Err(Error::Store(StorageError::Unavailable)),
        }
    }

    fn first_index(&self) -> Result<u64> {
        Ok(self.first())
    }

    fn last_index(&self) -> Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, to: u64) -> Result<Snapshot> {
        // A member refuses a snapshot from before it was added: it would not find itself there.
        let fits = |mark: &&Mark| {
            let knows = mark.conf.get_voters().contains(&to)
                || mark.conf.get_learners().contains(&to)
                || mark.conf.get_voters_outgoing().contains(&to);
            knows && mark.index >= request_index
        };
        let Some(mark) = self.checkpoint.as_ref().filter(fits) else {
            self.checkpoint_requested.set(true);
            return Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable));
        };
        // Only the description: the content travels on a stream of its own.
        let mut snapshot = Snapshot::default();
        let metadata = snapshot.mut_metadata();
        metadata.index = mark.index;
        metadata.term = mark.term;
        metadata.set_conf_state(mark.conf.clone());
        Ok(snapshot)
    }
}

/// What an entry weighs in a message, near enough.
pub(crate) fn entry_bytes(entry: &Entry) -> u64 {
    (entry.data.len() + entry.context.len() + 16) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u64, term: u64) -> Entry {
        Entry {
            index,
            term,
            data: vec![0; 84].into(),
            ..Entry::default()
        }
    }

    fn window(entries: Vec<Entry>) -> Window {
        Window::new(
            HardState::default(),
            ConfState::default(),
            (3, 1),
            entries,
            None,
        )
    }

    fn read(window: &Window, low: u64, high: u64, limit: u64) -> Result<Vec<u64>> {
        let entries = window.entries(low, high, limit, GetEntriesContext::empty(false))?;
        Ok(entries.iter().map(|e| e.index).collect())
    }

    #[test]
    fn entries_are_limited_by_bytes_but_never_none() {
        let window = window(vec![entry(4, 1), entry(5, 1), entry(6, 2)]);
        assert_eq!(read(&window, 4, 7, u64::MAX).expect("read"), [4, 5, 6]);
        assert_eq!(read(&window, 4, 7, 200).expect("read"), [4, 5]);
        assert_eq!(read(&window, 5, 7, 0).expect("read"), [5]);
        assert_eq!(
            read(&window, 3, 7, 0),
            Err(Error::Store(StorageError::Compacted))
        );
    }

    #[test]
    fn a_conflicting_suffix_is_replaced() {
        let mut window = window(vec![entry(4, 1), entry(5, 1), entry(6, 1)]);
        window.append(&[entry(5, 2)]);
        assert_eq!(window.last_index(), Ok(5));
        assert_eq!(window.term(5), Ok(2));
    }

    #[test]
    fn compaction_keeps_the_term_before_the_first() {
        let mut window = window(vec![entry(4, 1), entry(5, 2), entry(6, 2)]);
        window.compact(5);
        assert_eq!(window.first_index(), Ok(6));
        assert_eq!(window.term(5), Ok(2));
        assert_eq!(window.term(4), Err(Error::Store(StorageError::Compacted)));
        window.compact(60);
        assert_eq!((window.first_index(), window.last_index()), (Ok(7), Ok(6)));
    }

    #[test]
    fn the_size_is_that_of_the_entries() {
        let size_of = |entries: u64| (entries as usize, entries * 100);
        let mut window = window(vec![entry(4, 1), entry(5, 1), entry(6, 1)]);
        assert_eq!(window.size(), size_of(3));
        window.append(&[entry(5, 2)]);
        assert_eq!(window.size(), size_of(2));
        window.append(&[entry(6, 2), entry(7, 2)]);
        assert_eq!(window.size(), size_of(4));
        window.compact(5);
        assert_eq!(window.size(), size_of(2));
        window.reset((9, 2));
        assert_eq!(window.size(), size_of(0));
    }
}
