//! A disk in memory that forgets what was not synchronised, for simulation.
//!
//! All parts share one [`MemoryDisk`], which outlives the replica that uses it: the simulator
//! keeps a clone, crashes it, and opens it again. Nothing here uses time, threads or randomness;
//! how much of the unsynchronised tail survives a crash is set by the caller.
//!
//! Invariant: what survives is always a prefix of what was written, batch by batch, and contains
//! everything that was synchronised.

use std::collections::BTreeMap;
use std::io::{self, Cursor, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use raft::eraftpb::{Entry, HardState};

use crate::checkpoints::{self, CheckpointSink, CheckpointStore};
use crate::disk::{Disk, Parts};
use crate::extent::{Extent, Tracker};
use crate::identity::Identity;
use crate::log::{self, LogBatch, LogContents, LogStore};
use crate::row::Row;
use crate::table::{self, TableBatch, TableMeta, TableStore};
use crate::witness_record;

#[derive(Clone, Default)]
struct LogState {
    hard_state: Option<HardState>,
    entries: BTreeMap<u64, Entry>,
    tracker: Tracker,
}

impl LogState {
    fn apply(&mut self, batch: &LogBatch) {
        if batch.reset {
            self.entries.clear();
            self.tracker.reset();
        }
        self.tracker.append(&batch.entries);
        // The number is in the tracker; on a real disk it is written with the batch.
        self.tracker.count_write();
        if let Some(first) = batch.entries.first() {
            self.entries.split_off(&first.index);
        }
        for entry in &batch.entries {
            self.entries.insert(entry.index, entry.clone());
        }
        if let Some(hard_state) = &batch.hard_state {
            self.hard_state = Some(hard_state.clone());
        }
    }
}

/// The witness, of which the newest record is written and perhaps not synchronised, as on a real disk.
#[derive(Clone, Default)]
struct WitnessState {
    /// Empty before the first record.
    synced: Vec<u8>,
    written: Option<Extent>,
}

impl WitnessState {
    fn record(&mut self, extent: Extent, owner: u64) {
        self.settle(owner);
        self.written = Some(extent);
    }

    fn settle(&mut self, owner: u64) {
        if let Some(extent) = self.written.take() {
            let block = witness_record::encode(extent, owner);
            self.write(witness_record::position(extent), &block);
        }
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.synced.resize(witness_record::BYTES, 0);
        self.synced[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn lose_power(&mut self, owner: u64, record: Record) {
        match (record, self.written) {
            (Record::Kept, _) | (_, None) => self.settle(owner),
            (Record::Lost, Some(_)) => self.written = None,
            (Record::Torn, Some(extent)) => {
                self.written = None;
                let block = witness_record::encode(extent, owner);
                self.write(witness_record::position(extent), &block[..TORN_BYTES]);
            }
        }
    }
}

/// How much of a torn record reaches the disk: its number, and not its checksum.
const TORN_BYTES: usize = 32;

/// What a loss of power leaves of the witness's newest record, which was written and perhaps not
/// synchronised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// All of it.
    Kept,
    /// Nothing: what was there before stays.
    Lost,
    /// The beginning.
    Torn,
}

/// What a disk loses although it was synchronised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The whole log.
    Log,
    /// All records of the witness.
    Witness,
}

#[derive(Clone, Default)]
struct TableState {
    rows: BTreeMap<Bytes, Bytes>,
    meta: Option<TableMeta>,
}

impl TableState {
    fn apply(&mut self, (batch, meta): &(TableBatch, Option<TableMeta>)) {
        for (key, value) in batch {
            match value {
                Some(value) => self.rows.insert(key.clone(), value.clone()),
                None => self.rows.remove(key),
            };
        }
        if let Some(meta) = meta {
            self.meta = Some(meta.clone());
        }
    }
}

#[derive(Clone, Default)]
struct Inner {
    log: LogState,
    log_unsynced: Vec<LogBatch>,
    witness: WitnessState,
    checkpoints: BTreeMap<u64, Bytes>,
    table: TableState,
    table_unsynced: Vec<(TableBatch, Option<TableMeta>)>,
    full: bool,
}

/// What a disk held at some moment.
#[derive(Clone)]
pub struct MemoryCopy(Inner);

/// A disk in memory. Clones are handles on the same disk.
#[derive(Clone)]
pub struct MemoryDisk {
    identity: Identity,
    owner: u64,
    inner: Arc<Mutex<Inner>>,
}

impl MemoryDisk {
    /// Returns an empty disk of this member.
    pub fn new(identity: Identity) -> Self {
        Self {
            owner: witness_record::owner_of(&identity),
            identity,
            inner: Arc::default(),
        }
    }

    /// Loses power: of what was not synchronised, only so many batches of the log and of the
    /// table survive.
    pub fn crash(&self, log_batches: usize, table_batches: usize) {
        self.crash_with(log_batches, table_batches, Record::Kept);
    }

    /// As [`Self::crash`], and this becomes of the witness's newest record.
    pub fn crash_with(&self, log_batches: usize, table_batches: usize, record: Record) {
        let owner = self.owner;
        let mut inner = self.lock();
        inner.witness.lose_power(owner, record);
        let log: Vec<LogBatch> = std::mem::take(&mut inner.log_unsynced);
        for batch in log.iter().take(log_batches) {
            inner.log.apply(batch);
        }
        let table = std::mem::take(&mut inner.table_unsynced);
        for batch in table.iter().take(table_batches) {
            inner.table.apply(batch);
        }
    }

    /// Returns how many batches of the log and of the table are not synchronised.
    pub fn unsynced(&self) -> (usize, usize) {
        let inner = self.lock();
        (inner.log_unsynced.len(), inner.table_unsynced.len())
    }

    /// Flips a byte of a checkpoint. Says whether there was such a byte.
    pub fn damage_checkpoint(&self, index: u64, at: usize) -> bool {
        let mut inner = self.lock();
        let Some(found) = inner.checkpoints.get_mut(&index) else {
            return false;
        };
        let mut bytes = found.to_vec();
        let Some(byte) = bytes.get_mut(at) else {
            return false;
        };
        *byte ^= 0xff;
        *found = bytes.into();
        true
    }

    /// Empties the table without a word, as a lost or swapped file would.
    pub fn empty_table(&self) {
        let mut inner = self.lock();
        inner.table = TableState::default();
        inner.table_unsynced.clear();
    }

    /// Changes a row of the table behind everybody's back. Says whether there was one.
    pub fn damage_table(&self) -> bool {
        let mut inner = self.lock();
        match inner.table.rows.values_mut().next() {
            None => false,
            Some(value) => {
                *value = Bytes::from_static(b"damaged");
                true
            }
        }
    }

    /// Copies what is synchronised.
    pub fn copy(&self) -> MemoryCopy {
        let mut inner = self.lock().clone();
        inner.log_unsynced.clear();
        inner.table_unsynced.clear();
        MemoryCopy(inner)
    }

    /// Puts everything back as it was: what no witness on this disk can show.
    pub fn put_back(&self, copy: &MemoryCopy) {
        *self.lock() = copy.0.clone();
    }

    /// Puts the log alone back as it was, as damage does that cuts off its end.
    pub fn put_back_log(&self, copy: &MemoryCopy) {
        self.lock().log = copy.0.log.clone();
    }

    /// Loses what was synchronised.
    pub fn lose(&self, loss: Loss) {
        let mut inner = self.lock();
        match loss {
            Loss::Log => inner.log = LogState::default(),
            Loss::Witness => inner.witness = WitnessState::default(),
        }
    }

    /// Makes the witness say what the log says, as no program does: it hides that the log lost
    /// what was synchronised.
    pub fn forge_witness(&self) {
        let owner = self.owner;
        let mut inner = self.lock();
        inner.witness = WitnessState::default();
        let extent = inner.log.tracker.extent();
        if extent.sequence > 0 {
            inner.witness.record(extent, owner);
        }
    }

    /// Returns whether the log was synchronised more often than in this copy.
    pub fn is_ahead_of(&self, copy: &MemoryCopy) -> bool {
        let sequence = |inner: &Inner| inner.log.tracker.extent().sequence;
        sequence(&self.lock()) > sequence(&copy.0)
    }

    /// From now on every write fails because the disk is full, or no longer.
    pub fn set_full(&self, full: bool) {
        self.lock().full = full;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic elsewhere does not make the bytes less true.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for MemoryDisk {
    type Log = MemoryLog;
    type Checkpoints = MemoryCheckpoints;
    type Table = MemoryTable;

    fn split(self) -> Parts<Self> {
        Parts {
            identity: self.identity.clone(),
            log: MemoryLog(self.clone()),
            checkpoints: MemoryCheckpoints(self.clone()),
            table: MemoryTable(self),
            repairs: Vec::new(),
            guard: Box::new(()),
        }
    }
}

/// The log of a [`MemoryDisk`].
pub struct MemoryLog(MemoryDisk);

impl LogStore for MemoryLog {
    fn load(&mut self) -> Result<LogContents, log::Error> {
        let owner = self.0.owner;
        let inner = &mut *self.0.lock();
        // What was written is read, synchronised or not.
        inner.witness.settle(owner);
        let newest = witness_record::newest(&inner.witness.synced, owner);
        let newest = newest.expect("a disk in memory is the same member's for ever");
        let is_blank = inner.witness.synced.is_empty();
        Ok(LogContents {
            hard_state: inner.log.hard_state.clone(),
            entries: inner.log.entries.values().cloned().collect(),
            extent: inner.log.tracker.extent(),
            witness: newest.extent,
            witness_damaged: if is_blank { 0 } else { newest.damaged },
            torn_bytes: 0,
        })
    }

    fn begin(&mut self) -> Result<(), log::Error> {
        self.append(LogBatch::default())?;
        self.sync()?;
        let owner = self.0.owner;
        self.0.lock().witness.settle(owner);
        Ok(())
    }

    fn append(&mut self, batch: LogBatch) -> Result<(), log::Error> {
        let mut inner = self.0.lock();
        if inner.full {
            return Err(log::Error::Full);
        }
        inner.log_unsynced.push(batch);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), log::Error> {
        let owner = self.0.owner;
        let mut inner = self.0.lock();
        if inner.full {
            return Err(log::Error::Full);
        }
        for batch in std::mem::take(&mut inner.log_unsynced) {
            inner.log.apply(&batch);
        }
        let extent = inner.log.tracker.extent();
        inner.witness.record(extent, owner);
        Ok(())
    }

    fn compact(&mut self, first_kept: u64) -> Result<(), log::Error> {
        let owner = self.0.owner;
        let mut inner = self.0.lock();
        inner.log.entries = inner.log.entries.split_off(&first_kept);
        inner.log.tracker.compact(first_kept);
        let extent = inner.log.tracker.count_write();
        inner.witness.record(extent, owner);
        Ok(())
    }
}

/// The checkpoints of a [`MemoryDisk`].
pub struct MemoryCheckpoints(MemoryDisk);

impl CheckpointStore for MemoryCheckpoints {
    fn list(&self) -> Result<Vec<u64>, checkpoints::Error> {
        Ok(self.0.lock().checkpoints.keys().rev().copied().collect())
    }

    fn open(&self, index: u64) -> Result<Box<dyn Read + Send>, checkpoints::Error> {
        match self.0.lock().checkpoints.get(&index) {
            Some(bytes) => Ok(Box::new(Cursor::new(bytes.clone()))),
            None => Err(checkpoints::Error::io(
                "opening",
                io::ErrorKind::NotFound.into(),
            )),
        }
    }

    fn remove(&self, index: u64) -> Result<(), checkpoints::Error> {
        self.0.lock().checkpoints.remove(&index);
        Ok(())
    }

    fn create(&self) -> Result<Box<dyn CheckpointSink>, checkpoints::Error> {
        Ok(Box::new(MemorySink {
            disk: self.0.clone(),
            bytes: Vec::new(),
        }))
    }
}

struct MemorySink {
    disk: MemoryDisk,
    bytes: Vec<u8>,
}

impl Write for MemorySink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.disk.lock().full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl CheckpointSink for MemorySink {
    fn seal(&mut self) -> Result<(), checkpoints::Error> {
        Ok(())
    }

    fn reopen(&mut self) -> Result<Box<dyn Read + Send>, checkpoints::Error> {
        Ok(Box::new(Cursor::new(Bytes::copy_from_slice(&self.bytes))))
    }

    fn commit(self: Box<Self>, index: u64, keep: usize) -> Result<(), checkpoints::Error> {
        let mut inner = self.disk.lock();
        inner.checkpoints.insert(index, self.bytes.into());
        let superfluous: Vec<u64> = inner
            .checkpoints
            .keys()
            .rev()
            .copied()
            .filter(|other| *other != index)
            .skip(keep - 1)
            .collect();
        for old in superfluous {
            inner.checkpoints.remove(&old);
        }
        Ok(())
    }
}

/// The table of a [`MemoryDisk`].
pub struct MemoryTable(MemoryDisk);

impl MemoryTable {
    /// Reading sees what was written, synchronised or not.
    fn current(&self) -> TableState {
        let inner = self.0.lock();
        let mut state = inner.table.clone();
        for batch in &inner.table_unsynced {
            state.apply(batch);
        }
        state
    }
}

impl TableStore for MemoryTable {
    fn meta(&self) -> Result<Option<TableMeta>, table::Error> {
        Ok(self.current().meta)
    }

    fn rows(&self) -> Box<dyn Iterator<Item = Result<Row, table::Error>> + '_> {
        Box::new(
            self.current()
                .rows
                .into_iter()
                .map(|(key, value)| Ok(Row { key, value })),
        )
    }

    fn write(&mut self, batch: TableBatch, meta: Option<&TableMeta>) -> Result<(), table::Error> {
        let mut inner = self.0.lock();
        if inner.full {
            return Err(table::Error::Full);
        }
        inner.table_unsynced.push((batch, meta.cloned()));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), table::Error> {
        let mut inner = self.0.lock();
        if inner.full {
            return Err(table::Error::Full);
        }
        for batch in std::mem::take(&mut inner.table_unsynced) {
            inner.table.apply(&batch);
        }
        Ok(())
    }

    fn clear(&mut self) -> Result<(), table::Error> {
        let mut inner = self.0.lock();
        inner.table = TableState::default();
        inner.table_unsynced.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> MemoryDisk {
        MemoryDisk::new(Identity {
            cluster_id: "c".into(),
            member_id: 1,
            disk_id: "d".into(),
        })
    }

    fn batch(index: u64) -> LogBatch {
        LogBatch {
            entries: vec![Entry {
                index,
                term: 1,
                ..Entry::default()
            }],
            ..LogBatch::default()
        }
    }

    fn indexes(disk: &MemoryDisk) -> Vec<u64> {
        let contents = disk.clone().split().log.load().expect("load");
        contents.entries.iter().map(|e| e.index).collect()
    }

    #[test]
    fn a_crash_drops_what_was_not_synchronised() {
        let disk = disk();
        let mut log = disk.clone().split().log;
        log.append(batch(2)).expect("append");
        log.sync().expect("sync");
        log.append(batch(3)).expect("append");
        log.append(batch(4)).expect("append");
        assert_eq!(disk.unsynced(), (2, 0));
        disk.crash(1, 0);
        assert_eq!(indexes(&disk), [2, 3]);
    }

    /// Goal: whatever a loss of power leaves of the witness's newest record, the log is never behind
    /// it; what the log loses afterwards shows.
    #[test]
    fn a_loss_of_power_is_no_damage_and_damage_shows() {
        for record in [Record::Kept, Record::Lost, Record::Torn] {
            let disk = disk();
            let mut log = disk.clone().split().log;
            for index in 2..12 {
                log.append(batch(index)).expect("append");
                log.sync().expect("sync");
            }
            let older = disk.copy();
            for index in 12..20 {
                log.append(batch(index)).expect("append");
                log.sync().expect("sync");
            }
            disk.crash_with(0, 0, record);
            let contents = log.load().expect("load");
            let behind = contents.extent.sequence - contents.witness.sequence;
            assert_eq!(behind, u64::from(record != Record::Kept), "{record:?}");
            assert_eq!(
                contents.witness_damaged,
                usize::from(record == Record::Torn)
            );
            assert!(disk.is_ahead_of(&older));
            let all = disk.copy();
            disk.put_back_log(&older);
            let contents = log.load().expect("load");
            assert!(contents.extent.sequence < contents.witness.sequence);
            disk.lose(Loss::Log);
            let contents = log.load().expect("load");
            assert!(contents.entries.is_empty() && contents.witness.sequence > 0);
            disk.put_back(&all);
            disk.lose(Loss::Witness);
            let contents = log.load().expect("load");
            assert_eq!(contents.witness.sequence, 0);
            disk.put_back_log(&older);
            disk.forge_witness();
            let contents = log.load().expect("load");
            assert_eq!(contents.extent, contents.witness);
        }
    }

    /// Goal: power that is lost in the moment between log and witness does not keep a new member from
    /// starting, however often; once something was acknowledged, a lost witness does.
    #[test]
    fn power_lost_again_and_again_at_the_first_start_is_no_damage() {
        let disk = disk();
        let mut parts = disk.clone().split();
        let build = |_: &mut dyn Iterator<Item = Row>, _| Ok(());
        for _ in 0..4 {
            // What `begin` does before it waits for the witness.
            parts.log.append(LogBatch::default()).expect("append");
            parts.log.sync().expect("sync");
            disk.crash_with(0, 0, Record::Lost);
            let contents = parts.log.load().expect("load");
            assert_eq!(contents.witness.sequence, 0);
            crate::recover(&mut parts, &build).expect("nothing was acknowledged");
            disk.lose(Loss::Witness);
        }
        let vote = LogBatch {
            hard_state: Some(HardState::default()),
            ..LogBatch::default()
        };
        parts.log.append(vote).expect("append");
        parts.log.sync().expect("sync");
        disk.lose(Loss::Witness);
        let refused = crate::recover(&mut parts, &build).map(|_| ());
        assert!(matches!(
            refused,
            Err(crate::recover::Error::Unwitnessed { .. })
        ));
    }

    #[test]
    fn a_full_disk_takes_nothing() {
        let disk = disk();
        let mut parts = disk.clone().split();
        disk.set_full(true);
        assert!(matches!(parts.log.append(batch(2)), Err(log::Error::Full)));
        assert!(matches!(
            parts.table.write(Vec::new(), None),
            Err(table::Error::Full)
        ));
        let mut sink = parts.checkpoints.create().expect("create");
        assert!(sink.write_all(b"x").is_err());
    }
}
