//! The thread that writes the log: everything that is ready goes out with one synchronisation.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use berth_store::{CheckpointSink, LogBatch, LogStore};

use super::handle::LogError;
use super::{SyncObserver, panic_message};

/// A request to the thread.
pub(super) enum LogJob {
    /// Make this durable and report the number.
    Persist {
        number: u64,
        batch: LogBatch,
        /// A received checkpoint that takes the place of the log before it.
        install: Option<(u64, Box<dyn CheckpointSink>)>,
    },
    /// Forget what is before this index.
    Compact(u64),
}

/// Starts the thread. `done` is called with the number of the last durable batch, or with what
/// ended the thread.
///
/// raft-engine panics when a synchronisation fails, since what is durable is unknown then. That is
/// an end like any other here, and must be reported: no other task waits for a thread that has ended.
pub(super) fn start<L: LogStore>(
    log: L,
    observer: SyncObserver,
    done: impl Fn(Result<u64, LogError>) + Send + 'static,
) -> std::io::Result<(Sender<LogJob>, JoinHandle<()>)> {
    let (jobs_in, jobs) = channel();
    let thread = thread::Builder::new()
        .name("berth-log".into())
        .spawn(move || {
            let ended = catch_unwind(AssertUnwindSafe(|| run(log, &jobs, &observer, &done)));
            if let Err(payload) = ended {
                done(Err(LogError::Panicked(panic_message(&*payload))));
            }
        })?;
    Ok((jobs_in, thread))
}

fn run<L: LogStore>(
    mut log: L,
    jobs: &Receiver<LogJob>,
    observer: &SyncObserver,
    done: &dyn Fn(Result<u64, LogError>),
) {
    while let Ok(first) = jobs.recv() {
        let mut durable = None;
        let mut compact = None;
        let mut next = Some(first);
        // Whatever queued up while the last synchronisation ran becomes one batch.
        while let Some(job) = next {
            if let Err(error) = take(&mut log, job, &mut durable, &mut compact) {
                return done(Err(error));
            }
            next = jobs.try_recv().ok();
        }
        let begun = Instant::now();
        if let Err(error) = log.sync() {
            return done(Err(error.into()));
        }
        observer.observe(begun.elapsed());
        if let Some(number) = durable {
            done(Ok(number));
        }
        if let Some(first_kept) = compact
            && let Err(error) = log.compact(first_kept)
        {
            return done(Err(error.into()));
        }
    }
}

fn take<L: LogStore>(
    log: &mut L,
    job: LogJob,
    durable: &mut Option<u64>,
    compact: &mut Option<u64>,
) -> Result<(), LogError> {
    match job {
        LogJob::Persist {
            number,
            batch,
            install,
        } => {
            if let Some((index, sink)) = install {
                // The checkpoint first: a crash between the two leaves an old log beside a newer
                // checkpoint, which opening understands. The older checkpoints go, since no log
                // continues them any more.
                log.sync()?;
                sink.commit(index, 1)?;
                *compact = None;
            }
            log.append(batch)?;
            *durable = Some(number);
        }
        LogJob::Compact(first_kept) => *compact = Some(first_kept),
    }
    Ok(())
}
