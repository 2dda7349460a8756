//! The erases of this process: a queue, a few workers, and what each does to a device.
//!
//! Invariant: a namespace has at most one worker. A worker checks who holds the device before it
//! writes and after it wrote the last byte.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::Host;
use crate::command;
use crate::discovery::{PathKind, Record};
use crate::holders::{Holder, holders};
use crate::memory::{Error, Failure, Mark, Order, Progress, State};

/// How often it is looked whether an eraser that was left behind has ended.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// The erases that were started in this process.
#[derive(Debug)]
pub(super) struct Erases {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    host: Arc<Host>,
    table: Mutex<Table>,
    /// Notified whenever an erase stops running, or a worker ends.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Table {
    jobs: BTreeMap<String, Job>,
    /// Grows with each start: first come, first served.
    started: u64,
    workers: usize,
    is_closed: bool,
}

#[derive(Debug)]
struct Job {
    progress: Progress,
    resume: Option<Mark>,
    position: u64,
    stop: Arc<AtomicBool>,
}

impl Erases {
    pub(super) fn new(host: Arc<Host>) -> Self {
        let shared = Shared {
            host,
            table: Mutex::default(),
            changed: Condvar::new(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    pub(super) fn start(&self, order: &Order) -> Result<Progress, Error> {
        let mut table = self.shared.table();
        let mut resume = order.resume.clone();
        let mut progress = Progress::new(order);
        if let Some(job) = table.jobs.get(&order.namespace) {
            let known = &job.progress;
            let is_same = known.id == order.id;
            match &known.state {
                State::Queued | State::Erasing if !is_same => {
                    return Err(Error::Busy {
                        namespace: order.namespace.clone(),
                        by: known.id,
                    });
                }
                State::Queued | State::Erasing => return Ok(known.clone()),
                State::Done if is_same => return Ok(known.clone()),
                // What this process knows of it is newer than the record passed in.
                State::Failed(_) | State::Aborted if is_same => {
                    resume = known.mark().or(resume);
                    progress = known.clone();
                    progress.state = State::Queued;
                }
                State::Done | State::Failed(_) | State::Aborted => {}
            }
        }
        table.started += 1;
        let job = Job {
            progress: progress.clone(),
            resume,
            position: table.started,
            stop: Arc::default(),
        };
        table.jobs.insert(order.namespace.clone(), job);
        self.shared.clone().employ(&mut table);
        Ok(progress)
    }

    pub(super) fn all(&self) -> Vec<Progress> {
        let table = self.shared.table();
        table
            .jobs
            .values()
            .map(|job| job.progress.clone())
            .collect()
    }

    /// Stops it, and waits until nothing writes any more.
    pub(super) fn abort(&self, namespace: &str) {
        let mut table = self.shared.table();
        let Some(job) = table.jobs.get_mut(namespace) else {
            return;
        };
        let id = job.progress.id;
        job.stop.store(true, Ordering::Release);
        if job.progress.state == State::Queued {
            job.progress.state = State::Aborted;
        }
        let goes_on = |table: &mut Table| {
            let job = table.jobs.get(namespace);
            job.is_some_and(|job| job.progress.id == id && job.progress.state.is_active())
        };
        let waited = self.shared.changed.wait_while(table, goes_on);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Erases {
    fn drop(&mut self) {
        let mut table = self.shared.table();
        table.is_closed = true;
        for job in table.jobs.values() {
            job.stop.store(true, Ordering::Release);
        }
        let waited = self.shared.changed.wait_while(table, |t| t.workers > 0);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        // A worker that panicked leaves a table that is whole: each change is one assignment.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes on another worker, if one is missing.
    fn employ(self: Arc<Self>, table: &mut Table) {
        if table.workers >= self.host.settings.parallel.max(1) {
            return;
        }
        let worker = self.clone();
        let spawned = thread::Builder::new()
            .name("pmem-erase".into())
            .spawn(move || worker.work());
        match spawned {
            Ok(_) => table.workers += 1,
            // It stays queued until the next start takes on a worker.
            Err(error) => tracing::warn!(%error, "no thread can be started to erase namespaces"),
        }
    }

    fn work(&self) {
        loop {
            let mut table = self.table();
            let is_closed = table.is_closed;
            let next = table
                .jobs
                .values_mut()
                .filter(|job| job.progress.state == State::Queued && !is_closed)
                .min_by_key(|job| job.position);
            let Some(job) = next else {
                table.workers -= 1;
                self.changed.notify_all();
                return;
            };
            job.progress.state = State::Erasing;
            let task = Task {
                namespace: job.progress.namespace.clone(),
                resume: job.resume.take(),
                stop: job.stop.clone(),
            };
            drop(table);
            let ended = self.carry_out(&task);
            self.update(&task, |progress| progress.state = ended);
            self.changed.notify_all();
        }
    }

    fn update(&self, task: &Task, change: impl FnOnce(&mut Progress)) {
        if let Some(job) = self.table().jobs.get_mut(&task.namespace) {
            change(&mut job.progress);
        }
    }

    /// Erases, and returns how it ended.
    fn carry_out(&self, task: &Task) -> State {
        match self.erase(task) {
            Ok(()) => State::Done,
            Err(_) if task.stop.load(Ordering::Acquire) => State::Aborted,
            Err(failure) => State::Failed(failure),
        }
    }

    fn erase(&self, task: &Task) -> Result<(), Failure> {
        let record = self.record(task)?;
        let mut done = 0;
        self.update(task, |progress| {
            let uuid = record.uuid.as_deref();
            progress.begin(uuid, record.size_bytes, task.resume.as_ref());
            done = progress.done_bytes;
        });
        let settings = &self.host.settings;
        let device = record.path.as_path();
        self.wait_for_erasers(device, task)?;
        let piece_bytes = settings.piece_bytes.max(1);
        let piece_bytes = piece_bytes
            .checked_next_multiple_of(record.align_bytes)
            .unwrap_or(record.align_bytes);
        while done < record.size_bytes {
            let length = piece_bytes.min(record.size_bytes - done);
            self.overwrite(device, done, length, task)?;
            done += length;
            self.update(task, |progress| progress.done_bytes = done);
        }
        self.check_unheld(device, task)
    }

    /// Looks up which device the namespace is now.
    fn record(&self, task: &Task) -> Result<Record, Failure> {
        let discovery = self.host.discover(&task.stop);
        let discovery = discovery.map_err(Failure::Unlisted)?;
        let namespace = &task.namespace;
        discovery.record(namespace).cloned().ok_or_else(|| {
            let refusal = discovery.refusal(namespace);
            Failure::Unusable {
                namespace: namespace.clone(),
                why: refusal.map_or_else(String::new, |refused| refused.reason.to_string()),
            }
        })
    }

    /// Checks that no process has the device. What a killed agent left behind writes zeros,
    /// and not for long: it is waited for, since it would go on writing when a guest has the device.
    fn wait_for_erasers(&self, path: &Path, task: &Task) -> Result<(), Failure> {
        let deadline = Instant::now() + self.host.settings.piece_limit;
        loop {
            let holders = self.holders(path)?;
            if !holders.iter().all(|holder| holder.is_eraser) {
                return Err(self.distrust(path, holders, task));
            }
            if holders.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline || task.stop.load(Ordering::Acquire) {
                let device = path.display().to_string();
                return Err(Failure::Held { device, holders });
            }
            thread::sleep(LOOK_AGAIN_AFTER);
        }
    }

    fn check_unheld(&self, path: &Path, task: &Task) -> Result<(), Failure> {
        let holders = self.holders(path)?;
        if holders.is_empty() {
            return Ok(());
        }
        Err(self.distrust(path, holders, task))
    }

    /// Another process may have written to what is overwritten already, so that all of it is to be
    /// overwritten again.
    fn distrust(&self, path: &Path, holders: Vec<Holder>, task: &Task) -> Failure {
        self.update(task, |progress| progress.done_bytes = 0);
        let device = path.display().to_string();
        Failure::Held { device, holders }
    }

    fn holders(&self, path: &Path) -> Result<Vec<Holder>, Failure> {
        holders(&self.host.settings.proc, path).map_err(|why| Failure::Unseen {
            device: path.display().to_string(),
            why,
        })
    }

    fn overwrite(
        &self,
        path: &Path,
        offset: u64,
        requested: u64,
        task: &Task,
    ) -> Result<(), Failure> {
        let settings = &self.host.settings;
        let device = path.display().to_string();
        // Missing by now, it would be made as a plain file; see above.
        if super::path_kind(path) != PathKind::Device {
            return Err(Failure::Unusable {
                namespace: task.namespace.clone(),
                why: format!("its character device {device} is missing"),
            });
        }
        let (seek, length) = (offset.to_string(), requested.to_string());
        let arguments = [
            "--zero", "--output", &device, "--seek", &seek, "--len", &length,
        ];
        let output = command::run(
            &settings.daxio,
            &arguments,
            settings.piece_limit,
            &task.stop,
        );
        let output = output.map_err(|error| Failure::Program {
            device: device.clone(),
            offset,
            error,
        })?;
        let said = String::from_utf8_lossy(&output.stderr);
        if copied(&said) == Some(requested) {
            return Ok(());
        }
        Err(Failure::Unclear {
            device,
            offset,
            requested,
            said: said.trim().chars().take(200).collect(),
        })
    }
}

/// What a worker is to do.
struct Task {
    namespace: String,
    resume: Option<Mark>,
    stop: Arc<AtomicBool>,
}

/// Reads how much was written out of `daxio: copied 1048576 bytes to device "/dev/dax0.0"`.
fn copied(said: &str) -> Option<u64> {
    let (_, rest) = said.rsplit_once("copied ")?;
    let (count, rest) = rest.split_once(' ')?;
    rest.starts_with("bytes").then(|| count.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_daxio_says_is_read() {
        let said = "daxio: copied 130023424 bytes to device \"/dev/dax0.0\"\n";
        assert_eq!(copied(said), Some(130_023_424));
        for said in [
            "",
            "copied",
            "copied x bytes",
            "copied 5 pages",
            "copied -1 bytes",
        ] {
            assert_eq!(copied(said), None, "{said:?}");
        }
    }
}
