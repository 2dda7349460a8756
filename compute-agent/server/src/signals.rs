//! Measures the memory of the host and of its guests periodically, for the heartbeats.
//!
//! ```text
//! every interval ─▶ machine (kernel's files, on a thread of the runtime)  ─┐
//!                └▶ guests (driver, on a thread of its own, at most one)  ─┴▶ newest sample ─▶ report
//! ```
//!
//! A report takes the newest sample as it is and never waits for one. A hypervisor that hangs costs
//! the signals of the guests and nothing else.
//!
//! Invariant: bounded; at most one query of the guests is under way, however long it takes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use berth_domain::id::TimeMs;
use berth_domain::name::VmName;
use berth_domain::signals::{GuestMemory, GuestsMemory, Measured, MemorySignals};
use berth_driver::Driver;
use berth_host::signals;
use berth_process::error_chain;
use tokio::sync::{oneshot, watch};
use tokio::task::spawn_blocking;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::shell;

/// How long a look at the guests may take before they are left out of a sample.
const GUESTS_TIMEOUT: Duration = Duration::from_secs(2);

/// What was measured, and when.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    at: TimeMs,
    signals: Arc<MemorySignals>,
}

/// The newest sample.
pub(crate) type Newest = watch::Receiver<Option<Sample>>;

impl Sample {
    /// Returns what was measured, with its age.
    pub(crate) fn to_measured(&self, now: TimeMs) -> Measured {
        Measured {
            age_ms: now.0.saturating_sub(self.at.0),
            signals: self.signals.clone(),
        }
    }
}

type Guests = Result<BTreeMap<VmName, GuestMemory>, String>;
type QueryGuests = Arc<dyn Fn() -> Guests + Send + Sync>;
type MeasureMachine = Arc<dyn Fn() -> (MemorySignals, Vec<String>) + Send + Sync>;

/// Measures.
pub(crate) struct Sampler {
    interval: Duration,
    guests_timeout: Duration,
    machine: MeasureMachine,
    guests: QueryGuests,
    /// The look at the guests that is out.
    pending_query: Option<oneshot::Receiver<Guests>>,
    /// What could not be measured the last time: logged once, until it changes.
    logged: BTreeSet<String>,
    newest: watch::Sender<Option<Sample>>,
}

impl Sampler {
    /// Returns what measures the machine whose files are below `root`, or the one that the driver
    /// simulates, and the driver's guests; nothing where the interval is zero.
    pub(crate) fn new(
        interval: Duration,
        root: PathBuf,
        driver: &Arc<dyn Driver>,
    ) -> (Option<Self>, Newest) {
        let pretended = driver.clone();
        let machine = move || match pretended.machine_memory() {
            Some(signals) => (signals, Vec::new()),
            None => {
                let (signals, faults) = signals::read(&root);
                (
                    signals,
                    faults.iter().map(|fault| error_chain(fault)).collect(),
                )
            }
        };
        let driver = driver.clone();
        let guests = move || driver.guest_memory().map_err(|error| error_chain(&error));
        let (sampler, newest) = Self::of(interval, Arc::new(machine), Arc::new(guests));
        (Some(sampler).filter(|_| !interval.is_zero()), newest)
    }

    fn of(interval: Duration, machine: MeasureMachine, guests: QueryGuests) -> (Self, Newest) {
        let (newest, receiver) = watch::channel(None);
        let sampler = Self {
            interval,
            guests_timeout: GUESTS_TIMEOUT,
            machine,
            guests,
            pending_query: None,
            logged: BTreeSet::new(),
            newest,
        };
        (sampler, receiver)
    }

    /// Measures until `stopping`.
    pub(crate) async fn run(mut self, stopping: CancellationToken) {
        let mut ticks = tokio::time::interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stopping.cancelled() => return,
                () = async {
                    ticks.tick().await;
                    self.sample().await;
                } => {}
            }
        }
    }

    async fn sample(&mut self) {
        let guests = self.query_or_await_guests().await;
        let at = shell::now();
        let machine = self.machine.clone();
        let machine = spawn_blocking(move || machine()).await;
        let (mut signals, mut why) = machine.unwrap_or_else(|_| {
            let why = "measuring the machine's memory failed".to_owned();
            (MemorySignals::default(), vec![why])
        });
        match guests {
            Ok(each) => signals.guests = Some(GuestsMemory::of(each)),
            Err(reason) => why.push(format!("the guests' memory is unknown: {reason}")),
        }
        self.log_missing(why.into_iter().collect());
        let signals = Arc::new(signals);
        self.newest.send_replace(Some(Sample { at, signals }));
    }

    /// Logs why something is absent, once.
    fn log_missing(&mut self, why: BTreeSet<String>) {
        for reason in why.difference(&self.logged) {
            tracing::warn!(reason, "memory signal unavailable");
        }
        if why.is_empty() && !self.logged.is_empty() {
            tracing::info!("all memory signals available again");
        }
        self.logged = why;
    }

    /// Looks at the guests, or waits for the look that is out still.
    async fn query_or_await_guests(&mut self) -> Guests {
        let mut pending_query = match self.pending_query.take() {
            Some(pending_query) => pending_query,
            None => query_guests(self.guests.clone())?,
        };
        let Ok(looked) = tokio::time::timeout(self.guests_timeout, &mut pending_query).await else {
            self.pending_query = Some(pending_query);
            let waited = self.guests_timeout.as_millis();
            return Err(format!("the hypervisor does not reply within {waited} ms"));
        };
        looked.unwrap_or_else(|_| Err("the driver panicked".to_owned()))
    }
}

/// Queries the guests on a detached thread, which the agent's end does not wait for.
fn query_guests(guests: QueryGuests) -> Result<oneshot::Receiver<Guests>, String> {
    let (sender, pending_query) = oneshot::channel();
    let work = move || {
        // The receiver is gone once the agent has stopped.
        let _ = sender.send(guests());
    };
    let named = std::thread::Builder::new().name("guest-memory".to_owned());
    match named.spawn(work) {
        Ok(_) => Ok(pending_query),
        Err(error) => Err(format!("no thread can be started: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use berth_domain::signals::Swap;

    const SHORT: Duration = Duration::from_millis(1);

    fn machine() -> (MemorySignals, Vec<String>) {
        let signals = MemorySignals {
            swap: Some(Swap::default()),
            ..MemorySignals::default()
        };
        (signals, Vec::new())
    }

    /// Waits for a sample that is so.
    async fn sampled(newest: &mut Newest, wanted: impl Fn(&MemorySignals) -> bool) {
        let is_it = |sample: &Option<Sample>| sample.as_ref().is_some_and(|s| wanted(&s.signals));
        newest.wait_for(is_it).await.expect("it goes on");
    }

    /// Goal: a hypervisor that hangs costs the guests' signals alone, is queried once, and counts again
    /// when it answers. Method: a look that waits for a word.
    #[tokio::test]
    async fn a_hypervisor_that_hangs_is_left_out_and_not_asked_again() {
        let (word, words) = mpsc::channel();
        let words = Mutex::new(words);
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let guests = move || {
            count.fetch_add(1, Ordering::SeqCst);
            let words = words.lock().map_err(|error| error.to_string())?;
            words.recv().map_err(|error| error.to_string())?
        };
        let (mut sampler, mut newest) = Sampler::of(SHORT, Arc::new(machine), Arc::new(guests));
        sampler.guests_timeout = SHORT;
        let stopping = CancellationToken::new();
        let running = tokio::spawn(sampler.run(stopping.clone()));
        for _ in 0..3 {
            newest.changed().await.unwrap();
            let sample = newest.borrow_and_update().clone().unwrap();
            assert!(sample.signals.swap.is_some() && sample.signals.guests.is_none());
        }
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        let vm = VmName::new("web1").unwrap();
        let memory = GuestMemory {
            resident_kib: 7,
            ..GuestMemory::default()
        };
        word.send(Ok(BTreeMap::from([(vm, memory)]))).unwrap();
        sampled(&mut newest, |s| s.non_discardable_kib() == Some(7)).await;
        sampled(&mut newest, |s| s.guests.is_none()).await;
        stopping.cancel();
        running.await.unwrap();
    }

    #[tokio::test]
    async fn a_look_that_panics_or_fails_is_absence() {
        for fails in [(|| panic!("as was told")) as fn() -> Guests, || {
            Err("no".to_owned())
        }] {
            let (mut sampler, newest) = Sampler::of(SHORT, Arc::new(machine), Arc::new(fails));
            sampler.sample().await;
            assert_eq!(sampler.logged.len(), 1);
            let sample = newest.borrow().clone().unwrap();
            assert!(sample.signals.swap.is_some() && sample.signals.guests.is_none());
        }
    }

    #[test]
    fn age_counts_from_the_measurement() {
        let sample = Sample {
            at: TimeMs(100),
            signals: Arc::default(),
        };
        assert_eq!(sample.to_measured(TimeMs(350)).age_ms, 250);
        assert_eq!(sample.to_measured(TimeMs(50)).age_ms, 0);
    }
}
