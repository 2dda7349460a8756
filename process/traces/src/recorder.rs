//! Where spans go: a bounded queue, from which `export` sends them. One for each process.
//!
//! Which traces are recorded follows from their ids, as OpenTelemetry's consistent sampling has it: the
//! last 56 bits of an id are random, also those of a UUID, and are compared with a threshold. So all
//! programs with one ratio record the same operations, whichever of them begins.
//!
//! Invariant: sending never waits. What the queue does not take is counted.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::connector;
use crate::export::{self, Exporter};
use crate::span::Finished;

/// How long a program that stops waits for its last spans to be sent.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// The random bits of a trace id.
const RANDOM_BITS: u32 = 56;

/// Where traces are sent, and how many.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The URL of the collector.
    pub endpoint: String,
    /// The part of all traces that is recorded, from 0 to 1.
    pub sample_ratio: f64,
    /// Spans that wait to be sent at most.
    pub queue_max: usize,
    /// The authorities that are trusted for a collector with https; those of the system if absent.
    pub ca: Option<PathBuf>,
}

/// Which program it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its name, as `berth-conductor`.
    pub name: &'static str,
    /// Which of several.
    pub instance: String,
    /// Its version.
    pub version: &'static str,
}

#[derive(Debug)]
struct Recorder {
    queue: mpsc::Sender<Finished>,
    /// Random parts of ids from here on are recorded.
    threshold: u64,
}

static RECORDER: OnceLock<Recorder> = OnceLock::new();

/// What became of spans since the process started.
#[derive(Debug, Default)]
pub struct Counts {
    exported: AtomicU64,
    queue_full: AtomicU64,
    export_failed: AtomicU64,
}

/// The counts of this process.
pub static COUNTS: Counts = Counts {
    exported: AtomicU64::new(0),
    queue_full: AtomicU64::new(0),
    export_failed: AtomicU64::new(0),
};

impl Counts {
    /// Returns how many a collector has accepted.
    #[must_use]
    pub fn exported(&self) -> u64 {
        self.exported.load(Ordering::Relaxed)
    }

    /// Returns how many found the queue full.
    #[must_use]
    pub fn queue_full(&self) -> u64 {
        self.queue_full.load(Ordering::Relaxed)
    }

    /// Returns how many a collector did not accept, or not in time.
    #[must_use]
    pub fn export_failed(&self) -> u64 {
        self.export_failed.load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self, spans: usize, are_exported: bool) {
        let count = match are_exported {
            true => &self.exported,
            false => &self.export_failed,
        };
        count.fetch_add(spans as u64, Ordering::Relaxed);
    }
}

/// Returns whether spans are recorded.
#[must_use]
pub fn is_on() -> bool {
    RECORDER.get().is_some()
}

/// Returns whether the spans of a trace that begins here are recorded.
#[must_use]
pub fn is_sampled(trace: u128) -> bool {
    let recorder = RECORDER.get();
    recorder.is_some_and(|recorder| random_part(trace) >= recorder.threshold)
}

/// Sends a span.
pub(crate) fn send(span: Finished) {
    if let Some(recorder) = RECORDER.get()
        && recorder.queue.try_send(span).is_err()
    {
        COUNTS.queue_full.fetch_add(1, Ordering::Relaxed);
    }
}

/// The task that sends spans.
#[derive(Debug)]
pub struct Running {
    stopping: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    /// Sends what is left, for a short time.
    pub async fn stop(self) {
        self.stopping.cancel();
        let abort = self.task.abort_handle();
        if tokio::time::timeout(STOP_TIMEOUT, self.task).await.is_err() {
            tracing::warn!("the last spans were not sent in time");
            abort.abort();
        }
    }
}

/// Begins to record spans, in a task of this runtime. Where this process does so already, as one that
/// embeds several programs, nothing happens.
///
/// # Errors
///
/// What is wrong with the settings, as far as only their use shows it.
pub fn start(settings: &Settings, service: &Service) -> Result<Option<Running>, String> {
    if is_on() {
        return Ok(None);
    }
    let channel = connector::channel(&settings.endpoint, settings.ca.as_deref())?;
    let exporter = Exporter::new(channel, service)?;
    let (queue, spans) = mpsc::channel(settings.queue_max.max(1));
    let recorder = Recorder {
        queue,
        threshold: threshold(settings.sample_ratio),
    };
    if RECORDER.set(recorder).is_err() {
        return Ok(None);
    }
    tracing::info!(
        endpoint = settings.endpoint,
        sample_ratio = settings.sample_ratio,
        "traces are recorded"
    );
    let stopping = CancellationToken::new();
    let task = tokio::spawn(export::run(exporter, spans, stopping.clone()));
    Ok(Some(Running { stopping, task }))
}

fn random_part(trace: u128) -> u64 {
    let mask = (1 << RANDOM_BITS) - 1;
    u64::try_from(trace & mask).unwrap_or(0)
}

fn threshold(ratio: f64) -> u64 {
    let all = (1_u64 << RANDOM_BITS) as f64;
    // A float becomes the nearest number that there is.
    ((1.0 - ratio.clamp(0.0, 1.0)) * all) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a ratio is the part of the traces that is recorded, and a greater ratio records what a
    /// smaller one records.
    #[test]
    fn ratios_hold_for_ids_that_are_random() {
        let ids: Vec<u128> = (0..20_000).map(|_| rand::random()).collect();
        let sampled = |ratio: f64| -> Vec<u128> {
            let threshold = threshold(ratio);
            let ids = ids.iter().copied();
            ids.filter(|id| random_part(*id) >= threshold).collect()
        };
        assert_eq!(sampled(1.0).len(), ids.len());
        assert_eq!(sampled(0.0).len(), 0);
        let (tenth, half) = (sampled(0.1), sampled(0.5));
        assert!((1_700..2_300).contains(&tenth.len()), "{}", tenth.len());
        assert!((9_500..10_500).contains(&half.len()), "{}", half.len());
        assert!(tenth.iter().all(|id| half.contains(id)));
    }
}
