//! The thread that writes the table, behind the acknowledgements.
//!
//! Changes of the same row between two writes cost one write. The description (index and hash)
//! goes into the same atomic batch as the rows that lead to it.
//!
//! sled spends some microseconds of processor time per row, which is more than replicating the
//! command that changed it. So writing takes at most a tenth of the time; under a load that
//! changes more rows than that, the table is left behind and rebuilt when things have calmed
//! down. A table that is behind costs nothing but a longer replay at the next start.
//!
//! Invariant: what waits for the thread is bounded, however long its disk takes: while more rows
//! than it may have wait, it is handed none and is left behind.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use berth_store::{Membership, TableMeta, TableStore, table};
use bytes::Bytes;

use crate::effects::{AppliedBatch, Position, Replaced};
use crate::machine::Machine;
use crate::retained::Retained;
use crate::runtime::panic_message;

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
    /// The thread panicked with this message.
    Panicked(String),
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

/// What the thread and its owner both know of the jobs between them.
#[derive(Default)]
struct Backlog {
    /// How many rows wait for the thread.
    rows: AtomicUsize,
    /// How many batches were not handed to it.
    skipped: AtomicU64,
}

/// The thread has ended.
#[derive(Debug)]
pub(super) struct Gone;

/// The jobs for the thread, from the side of its owner.
pub(super) struct TableQueue<M: Machine> {
    jobs: Sender<TableJob<M>>,
    backlog: Arc<Backlog>,
    rows_max: usize,
    /// Set from the moment a batch was skipped until the whole state is sent.
    is_skipping: bool,
}

impl<M: Machine> TableQueue<M> {
    /// Hands a job to the thread, which never waits. A batch is skipped when too much waits already.
    pub(super) fn send(&mut self, job: TableJob<M>) -> Result<(), Gone> {
        match &job {
            TableJob::Applied(batch) => {
                let waiting = self.backlog.rows.load(Ordering::Relaxed);
                if self.is_skipping || waiting > self.rows_max {
                    self.is_skipping = true;
                    self.backlog.skipped.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                self.backlog.rows.fetch_add(rows(batch), Ordering::Relaxed);
            }
            TableJob::Rebuild(_) => self.is_skipping = false,
        }
        self.jobs.send(job).map_err(|_| Gone)
    }

    /// Returns how many rows wait for the thread.
    pub(super) fn retained(&self) -> Retained {
        let waiting = self.backlog.rows.load(Ordering::Relaxed);
        Retained::counted("table_rows_waiting", waiting, self.rows_max)
    }
}

fn rows<M: Machine>(batch: &AppliedBatch<M>) -> usize {
    batch.commands.iter().map(|c| c.changes.len()).sum()
}

/// Starts the thread.
pub(super) fn start<M: Machine, T: TableStore>(
    table: T,
    cluster_id: String,
    pace: Pace,
    note: impl Fn(TableNote) + Send + 'static,
) -> std::io::Result<(TableQueue<M>, JoinHandle<()>)> {
    let (jobs_in, jobs) = channel();
    let backlog = Arc::<Backlog>::default();
    let queue = TableQueue {
        jobs: jobs_in,
        backlog: backlog.clone(),
        rows_max: pace.changes,
        is_skipping: false,
    };
    let thread = thread::Builder::new()
        .name("berth-table".into())
        .spawn(move || {
            let mut writer = Writer {
                table,
                cluster_id,
                changes: BTreeMap::new(),
                reached: None,
            };
            match catch_unwind(AssertUnwindSafe(|| {
                run(&mut writer, &jobs, &backlog, &pace, &note)
            })) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => note(TableNote::Failed(error)),
                Err(payload) => note(TableNote::Panicked(panic_message(&*payload))),
            }
        })?;
    Ok((queue, thread))
}

fn run<M: Machine, T: TableStore>(
    writer: &mut Writer<T>,
    jobs: &Receiver<TableJob<M>>,
    backlog: &Backlog,
    pace: &Pace,
    note: &dyn Fn(TableNote),
) -> Result<(), table::Error> {
    let mut due: Option<Instant> = None;
    let mut rested = Instant::now();
    let mut behind = false;
    // Of the batches that were skipped, those after which this thread has waited.
    let mut skipped_seen = 0;
    loop {
        let job = match due {
            None => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(due) => jobs.recv_timeout(due.saturating_duration_since(Instant::now())),
        };
        match job {
            Ok(TableJob::Applied(batch)) if behind => {
                backlog.rows.fetch_sub(rows(&batch), Ordering::Relaxed);
                due = Some(Instant::now() + pace.every * 2);
            }
            Ok(TableJob::Applied(batch)) => {
                backlog.rows.fetch_sub(rows(&batch), Ordering::Relaxed);
                writer.follow(&batch);
                due = due.or_else(|| Some(rested.max(Instant::now() + pace.every)));
                let skipped = backlog.skipped.load(Ordering::Relaxed);
                if writer.changes.len() > pace.changes || skipped != skipped_seen {
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
                let skipped = backlog.skipped.load(Ordering::Relaxed);
                let is_calm = skipped == skipped_seen;
                skipped_seen = skipped;
                due = (!is_calm).then(|| Instant::now() + pace.every * 2);
                if is_calm {
                    note(TableNote::Behind);
                }
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

    fn whole(last: u64) -> TableJob<Rows> {
        TableJob::Rebuild(Arc::new(Replaced {
            machine: Rows((1..=last).map(row).collect()),
            position: position(last),
            membership: Arc::default(),
        }))
    }

    fn memory_disk() -> MemoryDisk {
        MemoryDisk::new(Identity {
            cluster_id: "c".into(),
            member_id: 1,
            disk_id: "d".into(),
        })
    }

    fn run_with(changes: usize, jobs: Vec<TableJob<Rows>>) -> (MemoryDisk, Option<TableNote>) {
        let disk = memory_disk();
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
        let (mut sender, thread) = start(table, "c".into(), pace, note).expect("start");
        for job in jobs {
            sender.send(job).expect("it runs");
        }
        let behind = changes < 10;
        let note = behind.then(|| notes.recv().expect("it reports"));
        if behind {
            sender.send(whole(20)).expect("it runs");
            sender.send(applied(21)).expect("it runs");
        }
        drop(sender);
        thread.join().expect("no panic");
        (disk, note)
    }

    /// A table whose disk does not answer until it may.
    struct Held<T> {
        table: T,
        may_go_on: mpsc::Receiver<()>,
    }

    impl<T: TableStore> TableStore for Held<T> {
        fn meta(&self) -> Result<Option<TableMeta>, table::Error> {
            self.table.meta()
        }

        fn rows(&self) -> Box<dyn Iterator<Item = Result<berth_store::Row, table::Error>> + '_> {
            self.table.rows()
        }

        fn write(
            &mut self,
            batch: table::TableBatch,
            meta: Option<&TableMeta>,
        ) -> Result<(), table::Error> {
            // Dropping the sender lets it go on for good.
            let _ = self.may_go_on.recv();
            self.table.write(batch, meta)
        }

        fn flush(&mut self) -> Result<(), table::Error> {
            self.table.flush()
        }

        fn clear(&mut self) -> Result<(), table::Error> {
            self.table.clear()
        }
    }

    /// Goal: however long the disk of the table takes, no more waits for it than may, and the table
    /// holds everything in the end.
    #[test]
    fn what_waits_for_a_slow_table_is_bounded() {
        const ROWS_MAX: usize = 20;
        let disk = memory_disk();
        let (let_go_on, may_go_on) = mpsc::channel();
        let table = Held {
            table: disk.clone().split().table,
            may_go_on,
        };
        let pace = Pace {
            every: Duration::from_millis(10),
            changes: ROWS_MAX,
        };
        let (noted, notes) = mpsc::channel();
        let note = move |note| {
            // The test may have ended.
            let _ = noted.send(note);
        };
        let (mut queue, thread) = start(table, "c".into(), pace, note).expect("start");
        queue.send(applied(1)).expect("it runs");
        // The thread takes the first row, and waits for its disk from then on.
        while queue.retained().count > 0 {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(50));
        for index in 2..=1000 {
            queue.send(applied(index)).expect("it runs");
            assert!(queue.retained().count <= ROWS_MAX as u64 + 1, "{index}");
        }
        drop(let_go_on);
        assert!(matches!(notes.recv(), Ok(TableNote::Behind)));
        queue.send(whole(1000)).expect("it runs");
        queue.send(applied(1001)).expect("it runs");
        drop(queue);
        thread.join().expect("no panic");
        assert_eq!(content(disk), (1001, 1001));
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
