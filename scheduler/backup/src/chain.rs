//! Verification of a full backup and the increments that follow it.
//!
//! ```text
//!   full ──rows──▶ state ──▶ its own rows hash to what the file states
//!                    │
//!   increment ──entries──▶ replay ──▶ place and hash at the end of each file
//!                    │
//!                 finish ──▶ the hash of all rows again, and every invariant of the state
//! ```
//!
//! A checksum shows that a file is as it was written; only loading it shows that it was written
//! right. Not here: what is done with the verified state.
//!
//! Invariant: files are taken in order and without a gap, all of one cluster and one history.

use std::io::Read;

use berth_replication::effects::Position;
use berth_replication::replay::{Observer, Replay, ReplayError, Unobserved};
use berth_replication::{Machine, Row};
use berth_store::StateHash;

use crate::header::{Header, Kind};
use crate::reader::{ReadError, Reader, Summary};
use crate::record::Item;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why a chain of backups does not verify.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The file is no sound backup.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The chain begins with an increment.
    #[error("it is an increment that follows index {after}, and no full backup stands before it")]
    NoFull {
        /// Where it begins.
        after: u64,
    },
    /// A full backup stands behind another one.
    #[error("it is a full backup, and another one stands before it")]
    SecondFull,
    /// It belongs to another cluster.
    #[error("it is of cluster {actual}, and the one before it of {expected}")]
    OtherCluster {
        /// The cluster of the first file.
        expected: String,
        /// The cluster of this one.
        actual: String,
    },
    /// Entries are missing before it.
    #[error("entries {first} to {last} are missing between it and the one before it")]
    Gap {
        /// The first one that is missing.
        first: u64,
        /// The last one that is missing.
        last: u64,
    },
    /// It begins before the end of the one before it.
    #[error("it follows index {after}, and the one before it ends at index {end}")]
    Overlap {
        /// Where it begins.
        after: u64,
        /// Where the one before it ends.
        end: u64,
    },
    /// It follows another history of the same cluster.
    #[error("it follows another history: at index {index} the one before it has another {what}")]
    OtherHistory {
        /// Where they meet.
        index: u64,
        /// `term` or `state`.
        what: &'static str,
    },
    /// The rows make no state.
    #[error("its rows make no state")]
    State(#[source] Source),
    /// Entries cannot be applied.
    #[error("its entries cannot be replayed")]
    Replay(#[from] ReplayError),
    /// The state is another one than the file states.
    #[error("the state at index {index} has hash {actual}, and the file states {stated}")]
    Hash {
        /// The index.
        index: u64,
        /// The hash of the state.
        actual: StateHash,
        /// The stated hash.
        stated: StateHash,
    },
    /// The state has another number of rows than the file states.
    #[error("the state at index {index} has {actual} rows, and the file states {stated}")]
    Rows {
        /// The index.
        index: u64,
        /// The number of the state's rows.
        actual: u64,
        /// The stated number.
        stated: u64,
    },
    /// The state breaks an invariant.
    #[error("the state at index {index} breaks an invariant: {what}")]
    Invariant {
        /// The index.
        index: u64,
        /// Which one.
        what: String,
    },
    /// The state is requested at an index before the first one.
    #[error("the full backup is of revision {first}, after revision {at}")]
    Later {
        /// The revision of the full backup.
        first: u64,
        /// The revision at which the state is to be.
        at: u64,
    },
    /// The files end before the index at which the state is to be.
    #[error("the backups end at index {end}, before index {at}")]
    NotReached {
        /// The index of the last entry.
        end: u64,
        /// The index at which the state is to be.
        at: u64,
    },
    /// No file was given.
    #[error("there is no backup to verify")]
    Nothing,
}

/// What a verified chain leads to.
pub struct Verified<M> {
    /// The state at the end.
    pub machine: M,
    /// Where it is.
    pub position: Position,
    /// How many commands were replayed.
    pub commands: u64,
}

/// Backups that were taken so far.
pub struct Chain<M: Machine> {
    level: M::Level,
    cluster_id: String,
    replay: Option<Replay<M>>,
    /// The last index that is replayed; absent: all are.
    at: Option<u64>,
    /// Whether a command comes too late to be replayed.
    is_late: Option<IsLate<M>>,
    /// Whether one came.
    is_reached: bool,
}

/// Returns whether a command is one of those that are left out.
type IsLate<M> = Box<dyn Fn(&<M as Machine>::Command) -> bool>;

impl<M: Machine> Chain<M> {
    /// Begins with no file. A file that holds what this level does not know is refused.
    pub fn new(level: M::Level) -> Self {
        Self {
            level,
            cluster_id: String::new(),
            replay: None,
            at: None,
            is_late: None,
            is_reached: false,
        }
    }

    /// Leads to the state at this index instead of the one at the end of the last file.
    #[must_use]
    pub fn up_to(mut self, index: u64) -> Self {
        self.at = Some(index);
        self
    }

    /// Leads to the state before the first command that is late, instead of the one at the end of the last
    /// file.
    #[must_use]
    pub fn before(mut self, is_late: impl Fn(&M::Command) -> bool + 'static) -> Self {
        self.is_late = Some(Box::new(is_late));
        self
    }

    /// Returns the state so far; nothing before the first file.
    pub fn machine(&self) -> Option<&M> {
        self.replay.as_ref().map(Replay::machine)
    }

    /// Returns whether a command was late.
    pub fn is_reached(&self) -> bool {
        self.is_reached
    }

    /// Returns where the last file ended; nothing before the first.
    pub fn position(&self) -> Option<Position> {
        self.replay.as_ref().map(Replay::position)
    }

    /// Takes the next file.
    ///
    /// # Errors
    ///
    /// It is not sound, or does not follow the one before it. The chain is of no use then.
    pub fn add<R: Read>(&mut self, reader: Reader<R>) -> Result<Summary, VerifyError> {
        self.add_observed(reader, &mut Unobserved)
    }

    /// Takes the next file as [`Self::add`] does, and shows each replayed command to an observer. What
    /// it sees is of a file that is not verified before the chain is [finished](Self::finish).
    ///
    /// # Errors
    ///
    /// As those of [`Self::add`].
    pub fn add_observed<R: Read>(
        &mut self,
        mut reader: Reader<R>,
        observer: &mut dyn Observer<M>,
    ) -> Result<Summary, VerifyError> {
        let header = reader.header().clone();
        match (header.kind(), &mut self.replay) {
            (Kind::Full, None) => {
                // It may end behind its last command, with an entry that changes nothing.
                let first = header.revision;
                if let Some(at) = self.at.filter(|at| first > *at) {
                    return Err(VerifyError::Later { first, at });
                }
                self.replay = Some(load(self.level, &mut reader, &header)?);
                self.cluster_id.clone_from(&header.cluster_id);
            }
            (Kind::Full, Some(_)) => return Err(VerifyError::SecondFull),
            (Kind::Increment | Kind::Unspecified, None) => {
                let after = header.after_index();
                return Err(VerifyError::NoFull { after });
            }
            (Kind::Increment | Kind::Unspecified, Some(replay)) => {
                if !self.is_reached && self.at.is_none_or(|at| replay.position().index < at) {
                    follows(&self.cluster_id, replay.position(), &header)?;
                }
                let mut is_whole = true;
                while let Some(item) = reader.next()? {
                    let Item::Entry(entry) = item else { continue };
                    if let Some(is_late) = self.is_late.as_ref().filter(|_| !self.is_reached) {
                        let command = replay.command(&entry)?;
                        self.is_reached = command.is_some_and(|command| is_late(&command));
                    }
                    match !self.is_reached && self.at.is_none_or(|at| entry.index <= at) {
                        true => replay.apply_observed(&entry, observer)?,
                        false => is_whole = false,
                    }
                }
                if is_whole {
                    compare(replay.position(), &header)?;
                }
            }
        }
        Ok(reader.finish()?)
    }

    /// Checks the state that the files lead to.
    ///
    /// # Errors
    ///
    /// It is not sound.
    pub fn finish(self) -> Result<Verified<M>, VerifyError> {
        let replay = self.reached()?;
        let index = replay.position().index;
        std::thread::scope(|scope| {
            // It takes as long as the check.
            let compared = scope.spawn(|| compare_replayed(&replay));
            let checked = replay.machine().check();
            checked.map_err(|what| VerifyError::Invariant { index, what })?;
            // A panic goes on in the caller.
            let compared = compared.join();
            compared.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        Ok(Verified::of(&replay))
    }

    /// Returns the state that the files lead to, whose invariants are not checked. For those who make
    /// another state of it and check that one: a large state is not checked twice then.
    ///
    /// # Errors
    ///
    /// It is not the state that the files state.
    pub fn finish_unchecked(self) -> Result<Verified<M>, VerifyError> {
        let replay = self.reached()?;
        compare_replayed(&replay)?;
        Ok(Verified::of(&replay))
    }

    /// Returns where the files lead to, if that is what was requested.
    fn reached(self) -> Result<Replay<M>, VerifyError> {
        let replay = self.replay.ok_or(VerifyError::Nothing)?;
        let end = replay.position().index;
        match self.at.filter(|at| end < *at) {
            Some(at) => Err(VerifyError::NotReached { end, at }),
            None => Ok(replay),
        }
    }
}

impl<M: Machine> Verified<M> {
    fn of(replay: &Replay<M>) -> Self {
        Self {
            machine: replay.machine().clone(),
            position: replay.position(),
            commands: replay.commands(),
        }
    }
}

/// Compares the hash that was followed by changes with that of the rows themselves. Where nothing was
/// replayed, they were compared when the rows were loaded.
fn compare_replayed<M: Machine>(replay: &Replay<M>) -> Result<(), VerifyError> {
    match replay.commands() {
        0 => Ok(()),
        _ => compare_rows(replay.machine(), replay.position()),
    }
}

/// The rows of a reader, up to its first fault.
struct Rows<'r, R: Read> {
    reader: &'r mut Reader<R>,
    fault: Option<ReadError>,
}

impl<R: Read> Iterator for Rows<'_, R> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        match self.reader.next() {
            Ok(Some(Item::Row(row))) => Some(row),
            // A reader refuses entries in a full backup.
            Ok(Some(Item::Entry(_)) | None) => None,
            Err(fault) => {
                self.fault = Some(fault);
                None
            }
        }
    }
}

fn load<M: Machine, R: Read>(
    level: M::Level,
    reader: &mut Reader<R>,
    header: &Header,
) -> Result<Replay<M>, VerifyError> {
    let mut rows = Rows {
        reader,
        fault: None,
    };
    let machine = M::from_rows(level, rows.by_ref(), header.end.index);
    if let Some(fault) = rows.fault {
        return Err(fault.into());
    }
    let machine = machine.map_err(|source| VerifyError::State(Box::new(source)))?;
    let position = header.end.position();
    let position = position.ok_or(ReadError::Damaged("state hash of the header"))?;
    compare_rows(&machine, position)?;
    Ok(Replay::new(machine, position))
}

/// Refuses an increment that does not begin where the one before it ended.
fn follows(cluster_id: &str, end: Position, header: &Header) -> Result<(), VerifyError> {
    if header.cluster_id != cluster_id {
        return Err(VerifyError::OtherCluster {
            expected: cluster_id.to_owned(),
            actual: header.cluster_id.clone(),
        });
    }
    let after = header.after.clone().unwrap_or_default();
    let index = after.index;
    if index > end.index {
        return Err(VerifyError::Gap {
            first: end.index + 1,
            last: index,
        });
    }
    if index < end.index {
        return Err(VerifyError::Overlap {
            after: index,
            end: end.index,
        });
    }
    let what = match (after.term == end.term, after.hash() == Some(end.hash)) {
        (false, _) => "term",
        (true, false) => "state",
        (true, true) => return Ok(()),
    };
    Err(VerifyError::OtherHistory { index, what })
}

/// Compares where a replay has come with where a file states that it ends.
fn compare(reached: Position, header: &Header) -> Result<(), VerifyError> {
    let index = reached.index;
    let stated = header.end.hash().unwrap_or_default();
    if reached.hash != stated {
        return Err(VerifyError::Hash {
            index,
            actual: reached.hash,
            stated,
        });
    }
    compare_count(index, reached.rows, header.end.rows)
}

/// Compares a state with what is stated of it.
fn compare_rows<M: Machine>(machine: &M, stated: Position) -> Result<(), VerifyError> {
    let index = stated.index;
    let mut count = 0;
    let rows = machine.rows().inspect(|_| count += 1);
    let actual = StateHash::of_rows(rows);
    if actual != stated.hash {
        return Err(VerifyError::Hash {
            index,
            actual,
            stated: stated.hash,
        });
    }
    compare_count(index, count, stated.rows)
}

fn compare_count(index: u64, actual: u64, stated: u64) -> Result<(), VerifyError> {
    match actual == stated {
        true => Ok(()),
        false => Err(VerifyError::Rows {
            index,
            actual,
            stated,
        }),
    }
}
