//! What observes the members while decisions are made: scrapes of metrics, an open page, a collector of traces.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use berth_tests::processes::{Collector, Manner, scrape};

/// How often each member is scraped: far more often than Prometheus does by default.
const SCRAPE_INTERVAL: Duration = Duration::from_secs(1);
/// The script of the page loads a view again after so long at the earliest,
const PAGE_PAUSE: Duration = Duration::from_millis(100);
/// and not before so many times as long as the last load took.
const PAGE_PAUSE_FACTOR: u32 = 4;

/// What observes the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Observed {
    /// Nothing.
    No,
    /// A scrape of each member every second.
    Metrics,
    /// A collector has the spans of every operation.
    Traces,
    /// One browser follows the view of all hosts at the first member.
    Page,
    /// All of these.
    All,
}

impl Observed {
    /// In the order in which they are measured.
    pub(crate) const ALL: [Self; 5] =
        [Self::No, Self::Metrics, Self::Traces, Self::Page, Self::All];

    /// How the table names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::No => "observed by nothing",
            Self::Metrics => "metrics, each second",
            Self::Traces => "traces of everything",
            Self::Page => "one page of all hosts",
            Self::All => "all of these",
        }
    }

    fn has(self, one: Self) -> bool {
        self == one || self == Self::All
    }

    /// Returns what a member is started with, the ports of its metrics and its page being these; its
    /// configuration is written to the folder.
    pub(crate) fn arguments(
        self,
        (metrics, page): (u16, u16),
        collector: &Collector,
        folder: &Path,
    ) -> std::io::Result<Vec<OsString>> {
        let mut arguments = Vec::new();
        let mut listen = |flag: &str, port: u16| {
            arguments.extend([flag.into(), format!("127.0.0.1:{port}").into()]);
        };
        if self.has(Self::Metrics) {
            listen("--metrics-listen", metrics);
        }
        if self.has(Self::Page) {
            listen("--page-listen", page);
        }
        if self.has(Self::Traces) {
            let file = folder.join("observed.toml");
            let text = format!("[traces]\nendpoint = \"{}\"\n", collector.url());
            std::fs::write(&file, text)?;
            arguments.extend(["--config".into(), file.into()]);
        }
        Ok(arguments)
    }

    /// Begins to observe the members whose metrics and pages are at these ports.
    pub(crate) fn begin(self, ports: &[(u16, u16)]) -> Observers {
        let ended = Arc::<AtomicBool>::default();
        let mut threads = Vec::new();
        if self.has(Self::Metrics) {
            for (metrics, _) in ports {
                let (ended, at) = (ended.clone(), format!("127.0.0.1:{metrics}"));
                threads.push(std::thread::spawn(move || {
                    repeat(&ended, &at, "/metrics", |_| SCRAPE_INTERVAL);
                }));
            }
        }
        if self.has(Self::Page)
            && let Some((_, page)) = ports.first()
        {
            let (ended, at) = (ended.clone(), format!("127.0.0.1:{page}"));
            threads.push(std::thread::spawn(move || {
                repeat(&ended, &at, "/hosts", |took| {
                    PAGE_PAUSE.max(took * PAGE_PAUSE_FACTOR)
                });
            }));
        }
        Observers { ended, threads }
    }
}

/// Requests a path again and again, with a pause that follows from the time of the last request.
fn repeat(ended: &AtomicBool, at: &str, path: &str, pause: impl Fn(Duration) -> Duration) {
    while !ended.load(Ordering::Relaxed) {
        let begun = Instant::now();
        match scrape::get(at, path) {
            Ok(response) if response.status == 200 => {}
            Ok(response) => eprintln!("{at}{path}: status {}", response.status),
            Err(error) => eprintln!("{at}{path}: {error}"),
        }
        std::thread::park_timeout(pause(begun.elapsed()));
    }
}

/// Threads that observe members until they are dropped.
pub(crate) struct Observers {
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Observers {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// Starts what accepts the spans.
pub(crate) fn collector() -> Collector {
    Collector::start(Manner::Accepts)
}
