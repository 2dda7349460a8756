//! The erases of a simulated host: what has become due is done with the next call.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::command;
use crate::config::Configured;
use crate::discovery::Record;
use crate::holders::Holder;
use crate::memory::{Error, Failure, Mark, Order, Progress, State};

use super::PARALLEL;
use super::world::{Faults, World};

/// After how long a program that hangs is killed.
const HANGS_FOR: Duration = Duration::from_secs(600);

const NANOS_PER_S: u128 = 1_000_000_000;

/// The erases that were started in this process.
#[derive(Debug, Default)]
pub(super) struct Erases {
    jobs: BTreeMap<String, Job>,
    /// Grows with each start: first come, first served.
    started: u64,
    /// Until when everything is done.
    at: Duration,
}

#[derive(Debug)]
struct Job {
    progress: Progress,
    resume: Option<Mark>,
    position: u64,
    /// From when on, and from which byte on, it has been going at the world's speed.
    since: Duration,
    from_bytes: u64,
    device: String,
}

/// What ends an erase that goes on.
enum Ending {
    Done,
    Fails,
    Hangs,
}

impl Erases {
    pub(super) fn start(&mut self, order: &Order) -> Result<(), Error> {
        let mut resume = order.resume.clone();
        let mut progress = Progress::new(order);
        if let Some(job) = self.jobs.get(&order.namespace) {
            let known = &job.progress;
            let is_same = known.id == order.id;
            match &known.state {
                State::Queued | State::Erasing if !is_same => {
                    let namespace = order.namespace.clone();
                    let by = known.id;
                    return Err(Error::Busy { namespace, by });
                }
                State::Queued | State::Erasing => return Ok(()),
                State::Done if is_same => return Ok(()),
                State::Failed(_) | State::Aborted if is_same => {
                    resume = known.mark().or(resume);
                    progress = known.clone();
                    progress.state = State::Queued;
                }
                State::Done | State::Failed(_) | State::Aborted => {}
            }
        }
        self.started += 1;
        let job = Job {
            progress,
            resume,
            position: self.started,
            since: self.at,
            from_bytes: 0,
            device: String::new(),
        };
        self.jobs.insert(order.namespace.clone(), job);
        Ok(())
    }

    pub(super) fn abort(&mut self, namespace: &str) {
        if let Some(job) = self.jobs.get_mut(namespace)
            && job.progress.state.is_active()
        {
            job.progress.state = State::Aborted;
        }
    }

    pub(super) fn all(&self) -> Vec<Progress> {
        self.jobs.values().map(|job| job.progress.clone()).collect()
    }

    pub(super) fn progress(&self, namespace: &str) -> Option<Progress> {
        self.jobs.get(namespace).map(|job| job.progress.clone())
    }

    pub(super) fn next_event(&self, world: &World) -> Option<Duration> {
        let running = self.running();
        running.filter_map(|job| job.ends_at(world)).min()
    }

    /// Does what has become due, in the order in which it did.
    pub(super) fn settle(&mut self, world: &World, configured: &Configured, now: Duration) {
        loop {
            self.employ(world, configured);
            match self.next_event(world).filter(|due| *due <= now) {
                Some(due) => {
                    self.go_on_until(world, due.max(self.at));
                    self.end_due(world, configured);
                }
                None => return self.go_on_until(world, now.max(self.at)),
            }
        }
    }

    fn running(&self) -> impl Iterator<Item = &Job> {
        let jobs = self.jobs.values();
        jobs.filter(|job| job.progress.state == State::Erasing)
    }

    /// Begins with those that have waited longest.
    fn employ(&mut self, world: &World, configured: &Configured) {
        while self.running().count() < PARALLEL {
            let at = self.at;
            let queued = self.jobs.values_mut();
            let queued = queued.filter(|job| job.progress.state == State::Queued);
            let Some(job) = queued.min_by_key(|job| job.position) else {
                return;
            };
            job.begin(world, configured, at);
        }
    }

    fn go_on_until(&mut self, world: &World, at: Duration) {
        self.at = at;
        let running = self.jobs.values_mut();
        for job in running.filter(|job| job.progress.state == State::Erasing) {
            let done = job.done_at(world, at);
            let begin = job.progress.done_bytes;
            if done > begin {
                world.write(&job.progress.namespace, begin, done - begin, 0);
                job.progress.done_bytes = done;
            }
        }
    }

    fn end_due(&mut self, world: &World, configured: &Configured) {
        let at = self.at;
        let running = self.jobs.values_mut();
        for job in running.filter(|job| job.progress.state == State::Erasing) {
            if job.ends_at(world).is_some_and(|due| due <= at) {
                job.end(world, configured);
            }
        }
    }
}

impl Job {
    fn begin(&mut self, world: &World, configured: &Configured, at: Duration) {
        let resume = self.resume.take();
        let record = match self.record(world, configured) {
            Ok(record) => record,
            Err(failure) => {
                self.progress.state = State::Failed(failure);
                return;
            }
        };
        let uuid = record.uuid.as_deref();
        self.progress
            .begin(uuid, record.size_bytes, resume.as_ref());
        self.device = record.path.display().to_string();
        self.since = at;
        self.from_bytes = self.progress.done_bytes;
        self.check_unheld(world);
    }

    fn record(&self, world: &World, configured: &Configured) -> Result<Record, Failure> {
        let discovery = world.discover(configured).map_err(Failure::Unlisted)?;
        let namespace = &self.progress.namespace;
        discovery.record(namespace).cloned().ok_or_else(|| {
            let refusal = discovery.refusal(namespace);
            Failure::Unusable {
                namespace: namespace.clone(),
                why: refusal.map_or_else(String::new, |refused| refused.reason.to_string()),
            }
        })
    }

    /// A process that has it open may have written to what is overwritten already.
    fn check_unheld(&mut self, world: &World) {
        let faults = world.faults(&self.progress.namespace).unwrap_or_default();
        if let Some(pid) = faults.holder {
            self.progress.done_bytes = 0;
            self.progress.state = State::Failed(Failure::Held {
                device: self.device.clone(),
                holders: vec![Holder {
                    pid,
                    program: "simulated".to_owned(),
                    is_eraser: false,
                }],
            });
        }
    }

    /// Returns what ends it, and at which byte.
    fn ending(&self, faults: &Faults) -> (Ending, u64) {
        let size_bytes = self.progress.size_bytes;
        let within = |at: Option<u64>| at.filter(|at| *at < size_bytes);
        let from = self.from_bytes;
        match (within(faults.fails_at), within(faults.hangs_at)) {
            (Some(fails), Some(hangs)) if hangs < fails => (Ending::Hangs, hangs.max(from)),
            (Some(fails), _) => (Ending::Fails, fails.max(from)),
            (None, Some(hangs)) => (Ending::Hangs, hangs.max(from)),
            (None, None) => (Ending::Done, size_bytes),
        }
    }

    /// Returns when it ends; never, at no speed.
    fn ends_at(&self, world: &World) -> Option<Duration> {
        let Some(faults) = world.faults(&self.progress.namespace) else {
            // Its memory is missing, which is noticed at once.
            return Some(self.since);
        };
        let (ending, bytes) = self.ending(&faults);
        let after = self.time_for(world, bytes - self.from_bytes)?;
        let hangs = match ending {
            Ending::Hangs => HANGS_FOR,
            Ending::Done | Ending::Fails => Duration::ZERO,
        };
        Some(self.since + after + hangs)
    }

    fn time_for(&self, world: &World, bytes: u64) -> Option<Duration> {
        let nanos = (u128::from(bytes) * NANOS_PER_S).checked_div(u128::from(world.speed()));
        // Rounded up, so that all of it is done by then.
        let nanos = nanos.map(|nanos| nanos + 1).filter(|_| bytes > 0);
        match (bytes, nanos) {
            (0, _) => Some(Duration::ZERO),
            (_, None) => None,
            (_, Some(nanos)) => {
                let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
                Some(Duration::from_nanos(nanos))
            }
        }
    }

    fn done_at(&self, world: &World, at: Duration) -> u64 {
        let Some(faults) = world.faults(&self.progress.namespace) else {
            return self.progress.done_bytes;
        };
        let nanos = at.saturating_sub(self.since).as_nanos();
        let bytes = nanos * u128::from(world.speed()) / NANOS_PER_S;
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let (_, end) = self.ending(&faults);
        self.from_bytes.saturating_add(bytes).min(end)
    }

    fn end(&mut self, world: &World, configured: &Configured) {
        let Some(faults) = world.faults(&self.progress.namespace) else {
            let gone = self.record(world, configured).err();
            self.progress.state = gone.map_or(State::Aborted, State::Failed);
            return;
        };
        let program = "daxio".to_owned();
        let error = match self.ending(&faults).0 {
            Ending::Done => {
                self.progress.state = State::Done;
                return self.check_unheld(world);
            }
            Ending::Fails => command::Error::Failed {
                program,
                how: "ended with exit status 1".to_owned(),
                said: "daxio: failed to perform I/O".to_owned(),
            },
            Ending::Hangs => command::Error::TimedOut {
                program,
                seconds: HANGS_FOR.as_secs(),
            },
        };
        self.progress.state = State::Failed(Failure::Program {
            device: self.device.clone(),
            offset: self.progress.done_bytes,
            error,
        });
    }
}
