//! The thread that writes the table, behind the acknowledgements.
//!
//! Changes of the same row between two writes cost one write. The description (index and hash)
//! goes into the same atomic batch as the rows that lead to it.
//!
//! sled spends some microseconds of processor time per row, which is more than replicating the
//! command that changed it. So writing takes at most a tenth of the time; under a load that
//! changes more rows than that, the table is left behind and rebuilt when things have calmed
//! down. A table that is behind costs nothing but a longer replay at the next start.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use berth_store::{Membership, TableMeta, TableStore, table};
use bytes::Bytes;

use crate::effects::{AppliedBatch, Position, Replaced};
use crate::machine::Machine;

const REBUILD_ROWS: usize = 4096;

/// A request to the thread.
pub(super) enum TableJob<M: Machine> {
    /// Follow these commands.
    Applied(Arc<AppliedBatch<M>>),
    /// Start over with this state.
    Rebuild(Arc<Replaced<M>>),
}

/// What the thread reports.
pub(super) enum TableNote {
    /// The table cannot be written.
    Failed(table::Error),
    /// The thread panicked.
    Panicked,
    /// The table was left behind, and there is time to rebuild it now.
    Behind,
}

/// When the table is written.
pub(super) struct Pace {
    /// At most this often.
    pub(super) every: Duration,
    /// Left behind when so many rows wait.
    pub(super) changes: usize,
}

/// How many times longer than a write the pause after it is.
const REST: u32 = 9;

/// Starts the thread.
pub(super) fn start<M: Machine, T: TableStore>(
    table: T,
    cluster_id: String,
    pace: Pace,
    note: impl Fn(TableNote) + Send + 'static,
) -> std::io::Result<(Sender<TableJob<M>>, JoinHandle<()>)> {
    let (jobs_in, jobs) = channel();
    let thread = thread::Builder::new()
        .name("berth-table".into())
        .spawn(move || {
            let mut writer = Writer {
                table,
                cluster_id,
                changes: BTreeMap::new(),
                reached: None,
            };
            match catch_unwind(AssertUnwindSafe(|| run(&mut writer, &jobs, &pace, &note))) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => note(TableNote::Failed(error)),
                Err(_) => note(TableNote::Panicked),
            }
        })?;
    Ok((jobs_in, thread))
}

fn run<M: Machine, T: TableStore>(
    writer: &mut Writer<T>,
    jobs: &Receiver<TableJob<M>>,
    pace: &Pace,
    note: &dyn Fn(TableNote),
) -> Result<(), table::Error> {
    let mut due: Option<Instant> = None;
    let mut rested = Instant::now();
    let mut behind = false;
    loop {
        let job = match due {
            None => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(due) => jobs.recv_timeout(due.saturating_duration_since(Instant::now())),
        };
        match job {
            Ok(TableJob::Applied(_)) if behind => due = Some(Instant::now() + pace.every * 2),
            Ok(TableJob::Applied(batch)) => {
                writer.follow(&batch);
                due = due.or_else(|| Some(rested.max(Instant::now() + pace.every)));
                if writer.changes.len() > pace.changes {
                    tracing::debug!("table falls behind: more rows change than it can write");
                    writer.forget();
                    behind = true;
                }
            }
            Ok(TableJob::Rebuild(replaced)) => {
                writer.rebuild(&replaced)?;
                behind = false;
                due = None;
            }
            Err(RecvTimeoutError::Timeout) if behind => {
                note(TableNote::Behind);
                due = None;
            }
            Err(RecvTimeoutError::Timeout) => {
                let began = Instant::now();
                writer.write()?;
                rested = Instant::now() + began.elapsed() * REST;
                due = None;
            }
            // The owner has ended: what it applied last is written too, so that the next start
            // replays nothing.
            Err(RecvTimeoutError::Disconnected) => return writer.write(),
        }
    }
}

struct Writer<T: TableStore> {
    table: T,
    cluster_id: String,
    changes: BTreeMap<Bytes, Option<Bytes>>,
    /// Where the changes lead to; `None` when there is nothing to write.
    reached: Option<(Position, Arc<Membership>)>,
}

impl<T: TableStore> Writer<T> {
    fn follow<M: Machine>(&mut self, batch: &AppliedBatch<M>) {
        for command in &batch.commands {
            for change in &command.changes {
                self.changes.insert(change.key.clone(), change.new.clone());
            }
        }
        self.reached = Some((batch.position, batch.membership.clone()));
    }

    fn write(&mut self) -> Result<(), table::Error> {
        let Some((position, membership)) = self.reached.take() else {
            return Ok(());
        };
        let batch = std::mem::take(&mut self.changes).into_iter().collect();
        let meta = self.meta(position, &membership);
        self.table.write(batch, Some(&meta))?;
        self.table.flush()
    }

    fn forget(&mut self) {
        self.changes.clear();
        self.reached = None;
    }

    /// Writes a whole state. The description comes last, so an interrupted rebuild leaves a table
    /// that is known to be unfinished.
    fn rebuild<M: Machine>(&mut self, replaced: &Replaced<M>) -> Result<(), table::Error> {
        self.forget();
        self.table.clear()?;
        let mut batch = Vec::with_capacity(REBUILD_ROWS);
        for row in replaced.machine.rows() {
            batch.push((row.key, Some(row.value)));
            if batch.len() == REBUILD_ROWS {
                self.table.write(std::mem::take(&mut batch), None)?;
            }
        }
        let meta = self.meta(replaced.position, &replaced.membership);
        self.table.write(batch, None)?;
        // Two flushes: the description must not become durable before the rows.
        self.table.flush()?;
        self.table.write(Vec::new(), Some(&meta))?;
        self.table.flush()
    }

    fn meta(&self, position: Position, membership: &Membership) -> TableMeta {
        TableMeta {
            index: position.index,
            term: position.term,
            state_hash: position.hash.to_bytes().into(),
            rows: position.rows,
            membership: membership.clone(),
            cluster_id: self.cluster_id.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::mpsc;

    use berth_store::{Disk as _, Identity, MemoryDisk, StateHash};

    use super::*;
    use crate::effects::AppliedCommand;
    use crate::machine::{Applied, Row, RowChange};

    /// Rows and nothing that changes them.
    #[derive(Clone)]
    struct Rows(Vec<Row>);

    impl Machine for Rows {
        type Command = ();
        type Outcome = ();
        type Level = ();
        type Error = Infallible;

        fn encode(_command: &()) -> Bytes {
            Bytes::from_static(b"-")
        }

        fn decode(&self, _bytes: &[u8]) -> Result<(), Infallible> {
            Ok(())
        }

        fn apply(&mut self, _index: u64, _command: &()) -> Applied<()> {
            Applied {
                outcome: (),
                changes: Vec::new(),
            }
        }

        fn speculate(&mut self, _index: u64, _command: &()) {}

        fn rows(&self) -> impl Iterator<Item = Row> {
            self.0.iter().cloned()
        }

        fn from_rows(
            (): (),
            rows: impl Iterator<Item = Row>,
            _applied: u64,
        ) -> Result<Self, Infallible> {
            Ok(Self(rows.collect()))
        }

        fn check(&self) -> Result<(), String> {
            Ok(())
        }
    }

    fn row(n: u64) -> Row {
        Row {
            key: format!("{n}").into(),
            value: "value".into(),
        }
    }

    fn position(index: u64) -> Position {
        Position {
            index,
            ..Position::default()
        }
    }

    fn applied(index: u64) -> TableJob<Rows> {
        let row = row(index);
        let change = RowChange {
            key: row.key,
            old: None,
            new: Some(row.value),
        };
        TableJob::Applied(Arc::new(AppliedBatch {
            commands: vec![AppliedCommand {
                index,
                outcome: (),
                changes: vec![change],
            }],
            position: position(index),
            membership: Arc::default(),
        }))
    }

    fn run_with(changes: usize, jobs: Vec<TableJob<Rows>>) -> (MemoryDisk, Option<TableNote>) {
        let disk = MemoryDisk::new(Identity {
            cluster_id: "c".into(),
            member_id: 1,
            disk_id: "d".into(),
        });
        let pace = Pace {
            every: Duration::from_millis(10),
            changes,
        };
        let (noted, notes) = mpsc::channel();
        let note = move |note| {
            // The test may have ended.
            let _ = noted.send(note);
        };
        let table = disk.clone().split().table;
        let (sender, thread) = start(table, "c".into(), pace, note).expect("start");
        for job in jobs {
            sender.send(job).expect("it runs");
        }
        let behind = changes < 10;
        let note = behind.then(|| notes.recv().expect("it reports"));
        if behind {
            let replaced = Replaced {
                machine: Rows((1..=20).map(row).collect()),
                position: position(20),
                membership: Arc::default(),
            };
            sender
                .send(TableJob::Rebuild(Arc::new(replaced)))
                .expect("it runs");
            sender.send(applied(21)).expect("it runs");
        }
        drop(sender);
        thread.join().expect("no panic");
        (disk, note)
    }

    fn content(disk: MemoryDisk) -> (u64, usize) {
        let table = disk.split().table;
        let meta = table.meta().expect("meta").expect("a description");
        assert_eq!(meta.hash(), Some(StateHash::EMPTY));
        (meta.index, table.rows().count())
    }

    #[test]
    fn what_was_applied_is_written_at_the_end() {
        let (disk, _) = run_with(100, (1..=20).map(applied).collect());
        // What was not flushed would not survive this.
        disk.crash(0, 0);
        assert_eq!(content(disk), (20, 20));
    }

    #[test]
    fn a_table_that_was_left_behind_is_rebuilt_when_there_is_time() {
        let (disk, note) = run_with(5, (1..=20).map(applied).collect());
        assert!(matches!(note, Some(TableNote::Behind)));
        disk.crash(0, 0);
        assert_eq!(content(disk), (21, 21));
    }
}
