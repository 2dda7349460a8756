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

use crate::log_hash::LogHash;

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
    /// The hash up to the entry before the first.
    start_hash: LogHash,
    /// The hash up to each entry.
    hashes: VecDeque<LogHash>,
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
        let mut window = Self {
            hard_state,
            conf,
            start,
            checkpoint,
            ..Self::default()
        };
        window.extend(entries);
        window
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
        self.hashes.truncate(kept);
        self.extend(entries.to_vec());
    }

    /// Adds entries behind the last.
    fn extend(&mut self, entries: Vec<Entry>) {
        let mut hash = *self.hashes.back().unwrap_or(&self.start_hash);
        for entry in entries {
            hash = hash.with(&entry);
            self.hashes.push_back(hash);
            self.bytes += entry_bytes(&entry);
            self.entries.push_back(entry);
        }
    }

    /// Returns the hash of all entries up to this one; only the difference of two means something.
    pub(crate) fn hash_up_to(&self, index: u64) -> Option<LogHash> {
        if index == self.start.0 {
            return Some(self.start_hash);
        }
        let at = index.checked_sub(self.first())?;
        self.hashes.get(usize::try_from(at).ok()?).copied()
    }

    /// Forgets everything: a snapshot takes the place of the log up to this entry.
    pub(crate) fn reset(&mut self, start: (u64, u64)) {
        self.entries.clear();
        self.hashes.clear();
        self.start_hash = LogHash::default();
        self.bytes = 0;
        self.start = start;
    }

    /// Forgets the entries up to this index, as far as there are any.
    pub(crate) fn compact(&mut self, up_to: u64) {
        while let Some(front) = self.entries.front().filter(|e| e.index <= up_to) {
            self.start = (front.index, front.term);
            self.bytes -= entry_bytes(front);
            self.entries.pop_front();
            self.start_hash = self.hashes.pop_front().unwrap_or_default();
        }
    }

    /// Returns the index of the entry before the first.
    pub(crate) fn start(&self) -> u64 {
        self.start.0
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

    /// Goal: a range has one hash, whatever was replaced, forgotten or not there from the beginning.
    #[test]
    fn ranges_are_hashed_as_in_a_log_that_was_never_touched() {
        let hash_of = |window: &Window, after, index| {
            let hash = window.hash_up_to(index)?;
            Some(hash.since(window.hash_up_to(after)?))
        };
        let entries = [entry(4, 1), entry(5, 2), entry(6, 2), entry(7, 2)];
        let whole = window(entries.to_vec());
        let mut other = window(vec![entry(4, 1), entry(5, 1), entry(6, 1)]);
        assert_ne!(hash_of(&other, 3, 6), hash_of(&whole, 3, 6));
        other.append(&entries[1..]);
        assert_eq!(hash_of(&other, 3, 7), hash_of(&whole, 3, 7));
        other.compact(5);
        for (after, index) in [(5, 5), (5, 6), (5, 7), (6, 7)] {
            assert!(hash_of(&other, after, index).is_some());
            assert_eq!(hash_of(&other, after, index), hash_of(&whole, after, index));
        }
        assert_eq!(hash_of(&other, 4, 7), None);
        assert_eq!(hash_of(&other, 5, 8), None);
        other.reset((6, 2));
        other.append(&entries[3..]);
        assert_eq!(hash_of(&other, 6, 7), hash_of(&whole, 6, 7));
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
