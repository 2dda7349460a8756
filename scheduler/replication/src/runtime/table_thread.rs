//! The thread that writes the table, behind the acknowledgements.
//!
//! Changes of the same row between two writes cost one write. The description (index and hash)
//! goes into the same atomic batch as the rows that lead to it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use berth_store::{Membership, TableMeta, TableStore, table};
use bytes::Bytes;

use crate::effects::{AppliedBatch, Position, Replaced};
use crate::machine::Machine;

const REBUILD_ROWS: usize = 4096;

/// What the thread is asked to do.
pub(super) enum TableJob<M: Machine> {
    /// Follow these commands.
    Applied(Arc<AppliedBatch<M>>),
    /// Start over with this state.
    Rebuild(Arc<Replaced<M>>),
}

/// When the table is written.
pub(super) struct Pace {
    pub(super) every: Duration,
    pub(super) changes: usize,
}

/// Starts the thread. `failed` is called with what ended it.
pub(super) fn start<M: Machine, T: TableStore>(
    table: T,
    cluster_id: String,
    pace: Pace,
    failed: impl Fn(table::Error) + Send + 'static,
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
            if let Err(error) = run(&mut writer, &jobs, &pace) {
                failed(error);
            }
        })?;
    Ok((jobs_in, thread))
}

fn run<M: Machine, T: TableStore>(
    writer: &mut Writer<T>,
    jobs: &Receiver<TableJob<M>>,
    pace: &Pace,
) -> Result<(), table::Error> {
    let mut due: Option<Instant> = None;
    loop {
        let job = match due {
            None => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(due) => jobs.recv_timeout(due.saturating_duration_since(Instant::now())),
        };
        match job {
            Ok(TableJob::Applied(batch)) => {
                writer.follow(&batch);
                due = due.or_else(|| Some(Instant::now() + pace.every));
            }
            Ok(TableJob::Rebuild(replaced)) => {
                writer.rebuild(&replaced)?;
                due = None;
            }
            Err(RecvTimeoutError::Timeout) => {}
            // The owner has ended: what it applied last is written too, so that the next start
            // replays nothing.
            Err(RecvTimeoutError::Disconnected) => return writer.write(),
        }
        let late = due.is_some_and(|due| due <= Instant::now());
        if late || writer.changes.len() >= pace.changes {
            writer.write()?;
            due = None;
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

    /// Writes a whole state. The description comes last, so an interrupted rebuild leaves a table
    /// that is known to be unfinished.
    fn rebuild<M: Machine>(&mut self, replaced: &Replaced<M>) -> Result<(), table::Error> {
        self.changes.clear();
        self.reached = None;
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
