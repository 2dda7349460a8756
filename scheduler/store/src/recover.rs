//! Opening what a member left on its disk: which state to start from, and what to report.
//!
//! ```text
//!            checkpoint (older)      checkpoint (newer)     table           end of log
//! ───────────────┼───────────────────────┼────────────────────┼──────────────────┤
//!   log is cut   └── log reaches back to here
//! ```
//!
//! The start is the table if its rows verify and it lies between the newest checkpoint and the
//! end of the log; else the newest checkpoint that verifies and that the log continues. Whatever
//! was wrong with the others is reported in sentences; what cannot be repaired without losing an
//! acknowledged command is an error.
//!
//! Before all of that the log must be whole: its [extent](crate::extent) is compared with its
//! entries and with the [witness](crate::witness).
//!
//! Nothing here applies a command: entries after the start are the replica's to replay, as far
//! as they are known to be committed.

use std::fmt;
use std::io;

use raft::eraftpb::{Entry, HardState};

use crate::checkpoint::{Header, ReadError, Reader};
use crate::checkpoints::{self, CheckpointStore};
use crate::disk::{Disk, Parts};
use crate::extent::{Extent, Tracker};
use crate::hash::StateHash;
use crate::log::{LogBatch, LogContents, LogStore};
use crate::membership::Membership;
use crate::row::Row;
use crate::table::{TableMeta, TableStore as _};

/// The index of the state that a new cluster begins with. It is not 0, so that every member that
/// joins later has to fetch a state and none mistakes its empty disk for one.
pub const FIRST_INDEX: u64 = 1;

/// Where the state that a member starts with came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The disk is that of a member that never received a state.
    Nothing,
    /// The table.
    Table,
    /// The newest checkpoint.
    Checkpoint,
    /// The checkpoint before the newest, which is damaged.
    OlderCheckpoint,
}

/// What opening found and did, for the log that an operator reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Where the state came from.
    pub source: Source,
    /// The index of that state.
    pub index: u64,
    /// How many entries of the log follow it.
    pub entries_after: u64,
    /// What was wrong and what was done about it, in sentences.
    pub repairs: Vec<String>,
    /// Whether the table must be rewritten from the state.
    pub rebuild_table: bool,
    /// How many bytes at the end of the log were no complete write when the process ended. None of
    /// them had been synchronised, as the witness shows, so that nothing acknowledged is lost.
    pub torn_bytes: u64,
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match self.source {
            Source::Nothing => return f.write_str("this member has no state yet"),
            Source::Table => "the table",
            Source::Checkpoint => "the newest checkpoint",
            Source::OlderCheckpoint => "the checkpoint before the newest",
        };
        write!(
            f,
            "the state was read from {source} at index {}, {} log entries follow it",
            self.index, self.entries_after
        )
    }
}

/// What a replica starts with.
#[derive(Debug)]
pub struct Recovered<S> {
    /// The state at `index`; `None` on the disk of a member that never received one.
    pub state: Option<S>,
    /// The index of the state.
    pub index: u64,
    /// The term of the entry at that index.
    pub term: u64,
    /// The hash of the state.
    pub hash: StateHash,
    /// The number of rows of the state.
    pub rows: u64,
    /// The membership at that index.
    pub membership: Membership,
    /// Term, vote and a commit index that is at least `index`.
    pub hard_state: HardState,
    /// The entry before `entries`: everything up to it is known by checkpoint only.
    pub log_start: (u64, u64),
    /// The log behind `log_start`, without gaps.
    pub entries: Vec<Entry>,
    /// What the newest sound checkpoint says about itself.
    pub checkpoint: Option<Header>,
    /// What is to be logged.
    pub recovery: Recovery,
}

/// Why a member cannot start from its disk.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] crate::log::Error),
    /// The folder of checkpoints cannot be read.
    #[error(transparent)]
    Checkpoints(#[from] crate::checkpoints::Error),
    /// The log has a gap.
    #[error("the Raft log has no entry {missing}, although it goes on after it")]
    Gap {
        /// The first missing index.
        missing: u64,
    },
    /// The log ends before what was synchronised.
    #[error(
        "the Raft log ends at write {} with {}, but write {} with {} was synchronised, as the \
         witness shows: the disk lost votes or entries that this member acknowledged, or an older \
         log was put back",
        .log.sequence, entries_of(.log), .witness.sequence, entries_of(.witness)
    )]
    Behind {
        /// What the log holds.
        log: Extent,
        /// What the witness says.
        witness: Extent,
    },
    /// The log is not behind the witness, but not the same log either.
    #[error(
        "the Raft log has {} at write {}, where the witness has {}: one of the two comes from \
         elsewhere",
        entries_of(.log), .log.sequence, entries_of(.witness)
    )]
    Contradicted {
        /// What the log holds.
        log: Extent,
        /// What the witness says.
        witness: Extent,
    },
    /// No record of the witness is left.
    #[error(
        "the Raft log is at write {}, but the witness beside it has no record that can be read, \
         so that nothing shows whether the log is whole",
        .log.sequence
    )]
    Unwitnessed {
        /// What the log holds.
        log: Extent,
    },
    /// Entries are missing from the log, or are those of an older version of one of its files.
    #[error(
        "the Raft log holds {} of the {} that its last write names: the disk lost entries that \
         this member acknowledged",
        entries_of(.actual), entries_of(.expected)
    )]
    Incomplete {
        /// What the entries are.
        actual: Extent,
        /// What the log says they are.
        expected: Extent,
    },
    /// No checkpoint can be used.
    #[error("no usable checkpoint is left ({what}); the log alone does not hold the state")]
    NoCheckpoint {
        /// What was wrong with each.
        what: String,
    },
    /// A checkpoint belongs to another cluster.
    #[error("checkpoint {index} belongs to cluster {actual}, not to cluster {expected}")]
    OtherCluster {
        /// Which checkpoint.
        index: u64,
        /// The cluster it belongs to.
        actual: String,
        /// The cluster of this disk.
        expected: String,
    },
    /// The table knows of commands that the log has lost.
    #[error(
        "the table is at index {table} but the log ends at {log}: the disk lost entries that were \
         acknowledged"
    )]
    LogLost {
        /// The index of the table.
        table: u64,
        /// The last index of the log.
        log: u64,
    },
    /// The rows of a sound checkpoint do not make a state.
    #[error("the rows of checkpoint {index} do not make a state: {what}")]
    State {
        /// Which checkpoint.
        index: u64,
        /// What the machine said.
        what: String,
    },
}

fn entries_of(extent: &Extent) -> String {
    match extent.last_index {
        0 => "no entries".into(),
        last => format!(
            "entries {} to {last} (term {})",
            extent.first_index, extent.last_term
        ),
    }
}

/// Makes a state of rows, or says why they do not make one.
pub type Build<'a, S> = &'a dyn Fn(&mut dyn Iterator<Item = Row>, u64) -> Result<S, String>;

/// A state that verified, and what is known about it.
struct Base<S> {
    state: S,
    header: Header,
    hash: StateHash,
}

/// Reads a disk and decides what to start from.
pub fn recover<D: Disk, S>(
    parts: &mut Parts<D>,
    build: Build<'_, S>,
) -> Result<Recovered<S>, Error> {
    let log = parts.log.load()?;
    check_gaps(&log.entries)?;
    check_extent(&log)?;
    let mut repairs = std::mem::take(&mut parts.repairs);
    repairs.extend(witness_repairs(&log));
    let recovered = start_from(parts, log, repairs, build)?;
    parts.log.begin()?;
    Ok(recovered)
}

fn start_from<D: Disk, S>(
    parts: &mut Parts<D>,
    log: LogContents,
    mut repairs: Vec<String>,
    build: Build<'_, S>,
) -> Result<Recovered<S>, Error> {
    let indexes = parts.checkpoints.list()?;
    if indexes.is_empty() {
        return never_had_a_state(&parts.table, log, repairs);
    }

    // Where there is a table, its rows make the state: those of the checkpoint are only verified then.
    let has_table = matches!(parts.table.meta(), Ok(Some(_)));
    let build_first = |rows: &mut dyn Iterator<Item = Row>, index| match has_table {
        true => {
            rows.for_each(drop);
            Ok(None)
        }
        false => build(rows, index).map(Some),
    };
    let checkpoint = newest_sound(parts, &indexes, &log, &build_first, &mut repairs)?;
    let newest = &checkpoint.base.header;
    if let Some(first) = log.entries.first().filter(|e| e.index > newest.index + 1) {
        return Err(Error::NoCheckpoint {
            what: format!(
                "the newest is at {}, the Raft log begins at {}",
                newest.index, first.index
            ),
        });
    }
    let (hard_state, torn_bytes) = (log.hard_state, log.torn_bytes);
    let (log_start, entries) = if continues(&log.entries, newest) {
        let start = &checkpoint.oldest;
        let behind = log.entries.into_iter().filter(|e| e.index > start.index);
        ((start.index, start.term), behind.collect())
    } else {
        set_aside(&mut parts.log, hard_state.clone(), newest, &mut repairs)?;
        ((newest.index, newest.term), Vec::new())
    };
    let last_index = entries.last().map_or(newest.index, |e: &Entry| e.index);

    let newest = checkpoint.base.header.clone();
    let table = read_table(parts, &newest, &entries, last_index, build, &mut repairs)?;
    let rebuild_table = table.is_none();
    let (base, source) = match table {
        Some(base) => (base, Source::Table),
        None => {
            let base = built(parts, checkpoint.base, build)?;
            match indexes.first() == Some(&newest.index) {
                true => (base, Source::Checkpoint),
                false => (base, Source::OlderCheckpoint),
            }
        }
    };
    Ok(Recovered {
        index: base.header.index,
        term: base.header.term,
        hash: base.hash,
        rows: base.header.rows,
        membership: base.header.membership.clone(),
        hard_state: known_at_least(hard_state, &base.header, entries.last()),
        log_start,
        recovery: Recovery {
            source,
            index: base.header.index,
            entries_after: last_index - base.header.index,
            repairs,
            rebuild_table,
            torn_bytes,
        },
        entries,
        checkpoint: Some(newest),
        state: Some(base.state),
    })
}

fn check_gaps(entries: &[Entry]) -> Result<(), Error> {
    for pair in entries.windows(2) {
        if pair[1].index != pair[0].index + 1 {
            return Err(Error::Gap {
                missing: pair[0].index + 1,
            });
        }
    }
    Ok(())
}

/// Compares what the log says it holds with what it holds, and with the witness.
fn check_extent(log: &LogContents) -> Result<(), Error> {
    let (own, witness) = (log.extent, log.witness);
    if own.sequence < witness.sequence {
        return Err(Error::Behind { log: own, witness });
    }
    if own.sequence == witness.sequence && own != witness {
        return Err(Error::Contradicted { log: own, witness });
    }
    // The first write of all, made when a directory gets its witness, may have reached the log
    // alone; it held nothing that was acknowledged. A loss of power in the same moment of the next
    // start leaves a second such write: every other one has a hard state.
    let is_blank = log.hard_state.is_none() && log.entries.is_empty();
    if witness.sequence == 0 && own.sequence > 1 && !is_blank {
        return Err(Error::Unwitnessed { log: own });
    }
    let actual = Tracker::new(own.sequence, &log.entries).extent();
    if own.sequence > 0 && actual != own {
        return Err(Error::Incomplete {
            actual,
            expected: own,
        });
    }
    Ok(())
}

/// Says what is to be reported about a witness that did its work all the same.
fn witness_repairs(log: &LogContents) -> Option<String> {
    // One record is torn when a loss of power comes while it is written; one write is missing
    // then, or when the process ended between log and witness.
    let behind = log.extent.sequence - log.witness.sequence;
    (log.witness_damaged > 0 || behind > 2).then(|| {
        format!(
            "the witness has {} torn or damaged records and was {behind} writes behind the Raft \
             log; the log is whole, and the witness was brought up to it",
            log.witness_damaged
        )
    })
}

/// A disk without checkpoints is that of a member that was added and never reached, unless the
/// log or the table shows that there was a state: the table is written behind a checkpoint only. A
/// table that cannot be read shows nothing.
fn never_had_a_state<S>(
    table: &impl crate::table::TableStore,
    log: LogContents,
    repairs: Vec<String>,
) -> Result<Recovered<S>, Error> {
    let hard_state = log.hard_state.unwrap_or_default();
    if !log.entries.is_empty() || hard_state.commit > 0 {
        return Err(Error::NoCheckpoint {
            what: format!(
                "the folder is empty, while the log shows a commit up to {}",
                hard_state.commit
            ),
        });
    }
    if let Ok(Some(meta)) = table.meta() {
        return Err(Error::LogLost {
            table: meta.index,
            log: 0,
        });
    }
    Ok(Recovered {
        state: None,
        index: 0,
        term: 0,
        hash: StateHash::EMPTY,
        rows: 0,
        membership: Membership::default(),
        hard_state,
        log_start: (0, 0),
        entries: Vec::new(),
        checkpoint: None,
        recovery: Recovery {
            source: Source::Nothing,
            index: 0,
            entries_after: 0,
            repairs,
            rebuild_table: true,
            torn_bytes: log.torn_bytes,
        },
    })
}

struct Checkpoint<S> {
    base: Base<S>,
    /// The oldest checkpoint that the log still continues: the log is kept from there.
    oldest: Header,
}

fn newest_sound<D: Disk, S>(
    parts: &Parts<D>,
    indexes: &[u64],
    log: &LogContents,
    build: Build<'_, S>,
    repairs: &mut Vec<String>,
) -> Result<Checkpoint<S>, Error> {
    let mut faults = Vec::new();
    let mut unreadable = None;
    for (position, index) in indexes.iter().enumerate() {
        match read_checkpoint(parts, *index, build)? {
            Err(fault) => {
                faults.push(format!("checkpoint {index}: {}", fault.what));
                unreadable = unreadable.or(fault.unreadable);
            }
            Ok(base) => {
                let first = log.entries.first().map_or(u64::MAX, |e| e.index);
                // An older checkpoint is of use only if the log goes on from it and reaches the
                // newest: else acknowledged commands would be missing.
                let reached = log.entries.last().map_or(0, |e| e.index) >= indexes[0];
                if position > 0 && (first > index + 1 || !reached) {
                    faults.push(format!(
                        "checkpoint {index}: the log does not continue it up to {}",
                        indexes[0]
                    ));
                    continue;
                }
                if position > 0 {
                    // Left there, the next commit would keep it and remove the sound one.
                    for damaged in &indexes[..position] {
                        parts.checkpoints.remove(*damaged)?;
                    }
                    repairs.push(format!(
                        "{}; it was removed, the state is taken from checkpoint {index} and the \
                         log",
                        faults.join("; ")
                    ));
                }
                let oldest = oldest_header(parts, &indexes[position + 1..], first)
                    .unwrap_or_else(|| base.header.clone());
                return Ok(Checkpoint { base, oldest });
            }
        }
    }
    let what = faults.join("; ");
    Err(useless(CheckpointFault { what, unreadable }))
}

/// Returns a checkpoint with the state of its rows, which are read again where they were only verified.
fn built<D: Disk, S>(
    parts: &Parts<D>,
    base: Base<Option<S>>,
    build: Build<'_, S>,
) -> Result<Base<S>, Error> {
    let Base {
        state,
        header,
        hash,
    } = base;
    match state {
        Some(state) => Ok(Base {
            state,
            header,
            hash,
        }),
        None => read_checkpoint(parts, header.index, build)?.map_err(useless),
    }
}

/// Returns the error of a member for which no checkpoint is left.
fn useless(fault: CheckpointFault) -> Error {
    match fault.unreadable {
        // It may be whole: once the disk can be read again the member serves.
        Some(source) => Error::Checkpoints(checkpoints::Error::io("reading", source)),
        None => Error::NoCheckpoint { what: fault.what },
    }
}

/// Returns the header of the older checkpoint, if the log continues it.
fn oldest_header<D: Disk>(parts: &Parts<D>, older: &[u64], first: u64) -> Option<Header> {
    let index = *older.last()?;
    if first > index + 1 {
        return None;
    }
    let reader = Reader::new(parts.checkpoints.open(index).ok()?).ok()?;
    Some(reader.header().clone())
}

type Fault = String;

/// Why a checkpoint is of no use.
struct CheckpointFault {
    what: String,
    /// What the operating system said, where the disk could not read it.
    unreadable: Option<io::Error>,
}

/// EIO, for which the standard library has no kind.
const EIO: i32 = 5;

/// Distinguishes a checkpoint that is damaged, and for which an older one may take its place, from a process
/// that may not, or cannot now, read any file: that says nothing about the checkpoint.
///
/// # Errors
///
/// The latter.
fn checkpoint_fault(error: &(dyn std::error::Error + 'static)) -> Result<CheckpointFault, Error> {
    let what = error_chain(error);
    let Some(number) = os_error(error) else {
        return Ok(CheckpointFault {
            what,
            unreadable: None,
        });
    };
    let source = io::Error::from_raw_os_error(number);
    if number == EIO {
        return Ok(CheckpointFault {
            what,
            unreadable: Some(source),
        });
    }
    Err(Error::Checkpoints(checkpoints::Error::io(
        "reading", source,
    )))
}

/// Returns the number of the error of the operating system among the causes, if there is one.
fn os_error(error: &(dyn std::error::Error + 'static)) -> Option<i32> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let number = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::raw_os_error);
        if number.is_some() {
            return number;
        }
        cause = error.source();
    }
    None
}

fn read_checkpoint<D: Disk, S>(
    parts: &Parts<D>,
    index: u64,
    build: Build<'_, S>,
) -> Result<Result<Base<S>, CheckpointFault>, Error> {
    let expected = &parts.identity.cluster_id;
    let mut reader = match parts.checkpoints.open(index).map(Reader::new) {
        Ok(Ok(reader)) => reader,
        Ok(Err(error)) => return checkpoint_fault(&error).map(Err),
        Err(error) => return checkpoint_fault(&error).map(Err),
    };
    if reader.header().cluster_id != *expected {
        return Err(Error::OtherCluster {
            index,
            actual: reader.header().cluster_id.clone(),
            expected: expected.clone(),
        });
    }
    if reader.header().index != index {
        return Ok(Err(CheckpointFault {
            what: "its name and its content do not belong together".to_owned(),
            unreadable: None,
        }));
    }
    let state = build(&mut reader, index);
    match reader.finish() {
        Err(error) => checkpoint_fault(&error).map(Err),
        Ok(header) => {
            let hash = header.hash().unwrap_or_default();
            // The bytes are exactly what was written, so rows that make no state are a fault of
            // the program, not of the disk; an older checkpoint would not help.
            let state = state.map_err(|what| Error::State { index, what })?;
            Ok(Ok(Base {
                state,
                header,
                hash,
            }))
        }
    }
}

/// Says whether the log belongs to the same history as the checkpoint and reaches it.
fn continues(entries: &[Entry], newest: &Header) -> bool {
    match entries.iter().find(|e| e.index == newest.index) {
        Some(entry) => entry.term == newest.term,
        // The log begins right behind the checkpoint.
        None => entries.first().is_none_or(|e| e.index == newest.index + 1),
    }
}

/// Does what was left undone when a snapshot got its name and the process ended before the log
/// was reset. What the log holds is older than the snapshot, or was never committed.
fn set_aside(
    log: &mut impl LogStore,
    hard_state: Option<HardState>,
    newest: &Header,
    repairs: &mut Vec<String>,
) -> Result<(), Error> {
    repairs.push(format!(
        "the log is older than checkpoint {} and was set aside",
        newest.index
    ));
    log.append(LogBatch {
        reset: true,
        entries: Vec::new(),
        hard_state: Some(known_at_least(hard_state, newest, None)),
    })?;
    log.sync()?;
    Ok(())
}

/// Returns the state of the table if it can be trusted.
fn read_table<D: Disk, S>(
    parts: &Parts<D>,
    newest: &Header,
    entries: &[Entry],
    last_index: u64,
    build: Build<'_, S>,
    repairs: &mut Vec<String>,
) -> Result<Option<Base<S>>, Error> {
    let meta = match parts.table.meta() {
        Ok(Some(meta)) => meta,
        // A cluster that has just begun: its table was never written.
        Ok(None) if newest.index <= FIRST_INDEX && entries.is_empty() => return Ok(None),
        Ok(None) => {
            repairs.push("the table is empty or unfinished and is rebuilt".into());
            return Ok(None);
        }
        Err(error) => {
            repairs.push(format!("{}; it is rebuilt", error_chain(&error)));
            return Ok(None);
        }
    };
    let term = match meta.index == newest.index {
        true => Some(newest.term),
        false => entries
            .iter()
            .find(|e| e.index == meta.index)
            .map(|e| e.term),
    };
    let fault = if meta.cluster_id != parts.identity.cluster_id {
        Some("it belongs to another cluster".to_owned())
    } else if meta.index < newest.index {
        Some(format!(
            "it is at index {}, behind checkpoint {}",
            meta.index, newest.index
        ))
    } else if meta.index > last_index {
        return Err(Error::LogLost {
            table: meta.index,
            log: last_index,
        });
    } else if term != Some(meta.term) {
        Some(format!("the log has another entry at index {}", meta.index))
    } else {
        None
    };
    let fault = match fault {
        Some(fault) => fault,
        None => match table_state(&parts.table, &meta, build) {
            Ok(base) => return Ok(Some(base)),
            Err(fault) => fault,
        },
    };
    repairs.push(format!("the table is rebuilt: {fault}"));
    Ok(None)
}

fn table_state<T: crate::table::TableStore, S>(
    table: &T,
    meta: &TableMeta,
    build: Build<'_, S>,
) -> Result<Base<S>, Fault> {
    let mut hash = StateHash::EMPTY;
    let mut count = 0;
    let mut fault = None;
    let state = {
        let mut rows = table.rows().map_while(|row| match row {
            Ok(row) => {
                hash.insert(&row.key, &row.value);
                count += 1;
                Some(row)
            }
            Err(error) => {
                fault = Some(error_chain(&error));
                None
            }
        });
        let state = build(&mut rows, meta.index);
        // A machine may stop at the first row it dislikes; the verdict is on all of them.
        rows.by_ref().for_each(drop);
        state
    };
    if let Some(fault) = fault {
        return Err(fault);
    }
    if Some(hash) != meta.hash() || count != meta.rows {
        return Err(format!(
            "its {count} rows do not have the hash that was written with them"
        ));
    }
    let header = Header {
        cluster_id: meta.cluster_id.clone(),
        index: meta.index,
        term: meta.term,
        membership: meta.membership.clone(),
        state_hash: meta.state_hash.clone(),
        rows: meta.rows,
    };
    Ok(Base {
        state: state?,
        header,
        hash,
    })
}

/// Lifts the hard state to what the state and the log prove. It is written lazily: a commit index
/// or a term seen in a snapshot may not have reached the disk.
fn known_at_least(hard_state: Option<HardState>, base: &Header, last: Option<&Entry>) -> HardState {
    let mut hard_state = hard_state.unwrap_or_default();
    hard_state.commit = hard_state
        .commit
        .max(base.index)
        // A commit index behind the log's end is impossible; one may be left from a log that was
        // set aside.
        .min(last.map_or(base.index, |e| e.index));
    let term = base.term.max(last.map_or(0, |e| e.term));
    if term > hard_state.term {
        hard_state.term = term;
        hard_state.vote = 0;
    }
    hard_state
}

fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    text
}

/// Reads a received snapshot and makes a state of it, trusting nothing before the end.
pub fn read_snapshot<S>(
    input: impl std::io::Read,
    cluster_id: &str,
    build: Build<'_, S>,
) -> Result<(Header, S), SnapshotError> {
    let mut reader = Reader::new(input)?;
    if reader.header().cluster_id != cluster_id {
        return Err(SnapshotError::OtherCluster(
            reader.header().cluster_id.clone(),
        ));
    }
    let index = reader.header().index;
    let state = build(&mut reader, index);
    let header = reader.finish()?;
    Ok((header, state.map_err(SnapshotError::State)?))
}

/// Why a received snapshot cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// It did not verify.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It belongs to another cluster.
    #[error("the snapshot belongs to cluster {0}")]
    OtherCluster(String),
    /// Its rows do not make a state.
    #[error("the rows of the snapshot do not make a state: {0}")]
    State(String),
}
