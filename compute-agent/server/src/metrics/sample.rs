//! What is read of the hypervisor and the host for metrics: guests by state, free pages, CPUs.
//!
//! Invariant: one thread at a time reads, and a scrape waits for none.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use berth_domain::agent::DomainState;
use berth_domain::topology::HostTopology;
use berth_driver::{Driver, FreePages, Known};
use berth_process::metrics::{Definition, Exposition, Label};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::Metrics;

static CONNECTED: Definition = Definition::gauge(
    "berth_driver_connected",
    &[],
    "Whether the hypervisor answered when it was read last.",
);
static AGE: Definition = Definition::gauge(
    "berth_driver_sample_age_seconds",
    &[],
    "Time since the hypervisor was read; it grows while the hypervisor does not answer.",
);
static GUESTS: Definition =
    Definition::gauge("berth_guests", &["state"], "Guests of this host by state.");
static FREE_PAGES: Definition = Definition::gauge(
    "berth_host_free_memory_bytes",
    &["numa_node", "page_size"],
    "Free memory of a NUMA node of this host, by the size of its pages in KiB.",
);
static CPUS: Definition = Definition::gauge(
    "berth_host_cpus",
    &["numa_node", "use"],
    "CPUs of a NUMA node of this host: dedicated ones that are free or pinned, and shared ones.",
);

/// The pause between two readings.
const INTERVAL: Duration = Duration::from_secs(10);
/// How old a reading of an agent that is ready may be.
const AGE_MAX: Duration = Duration::from_secs(60);

berth_process::label! {
    /// The state of a guest.
    enum GuestState {
        Absent = "absent",
        Starting = "starting",
        Running = "running",
        Paused = "paused",
        MigratingOut = "migrating_out",
        MigratingIn = "migrating_in",
        Prepared = "prepared",
        Stopped = "stopped",
        PostCopyBroken = "post_copy_broken",
    }
}

impl From<DomainState> for GuestState {
    fn from(state: DomainState) -> Self {
        match state {
            DomainState::Absent => Self::Absent,
            DomainState::Starting => Self::Starting,
            DomainState::Running => Self::Running,
            DomainState::Paused => Self::Paused,
            DomainState::MigratingOut => Self::MigratingOut,
            DomainState::MigratingIn => Self::MigratingIn,
            DomainState::Prepared => Self::Prepared,
            DomainState::Stopped => Self::Stopped,
            DomainState::PostCopyBroken => Self::PostCopyBroken,
        }
    }
}

/// What was read.
#[derive(Clone, Debug)]
struct Sample {
    at: Instant,
    /// Why the hypervisor did not answer, if it did not.
    connected: Result<(), String>,
    guests: Vec<u64>,
    free_pages: FreePages,
    /// Pinned CPUs by position of the node.
    pinned: Vec<usize>,
}

/// Reads, and holds what was read last.
#[derive(Clone)]
pub(super) struct Sampler {
    driver: Arc<dyn Driver>,
    topology: Arc<HostTopology>,
    latest: Arc<Mutex<Option<Sample>>>,
}

impl Sampler {
    pub(super) fn new(driver: Arc<dyn Driver>, topology: Arc<HostTopology>) -> Self {
        Self {
            driver,
            topology,
            latest: Arc::default(),
        }
    }

    /// Reads until `stopping`.
    pub(super) async fn run(self, stopping: CancellationToken) {
        let reading = async {
            loop {
                let reader = self.clone();
                // It may hang with the hypervisor; the next reading waits for it.
                if let Ok(sample) = spawn_blocking(move || reader.read()).await {
                    // It is replaced as a whole.
                    *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(sample);
                }
                tokio::time::sleep(INTERVAL).await;
            }
        };
        tokio::select! {
            () = stopping.cancelled() => {}
            () = reading => {}
        }
    }

    fn read(&self) -> Sample {
        let at = Instant::now();
        let domains = self.driver.domains();
        let connected = domains.as_ref().map(|_| ()).map_err(ToString::to_string);
        let domains = domains.unwrap_or_default();
        let mut guests = vec![0; GuestState::ALL.len()];
        for known in &domains {
            guests[GuestState::from(known.state).index()] += 1;
        }
        Sample {
            at,
            connected,
            guests,
            free_pages: self.driver.free_pages().unwrap_or_default(),
            pinned: self.pinned(&domains),
        }
    }

    /// Returns how many dedicated CPUs guests have on each node.
    fn pinned(&self, domains: &[Known]) -> Vec<usize> {
        let mut taken: BTreeMap<usize, usize> = BTreeMap::new();
        let cells = domains
            .iter()
            .flat_map(|known| &known.domain.assignment.cells);
        for cell in cells {
            if let Some(at) = self.topology.position(cell.host_cell) {
                *taken.entry(at).or_default() += cell.pins.len() + cell.idle.len();
            }
        }
        let nodes = 0..self.topology.cells().len();
        nodes
            .map(|at| taken.get(&at).copied().unwrap_or(0))
            .collect()
    }

    /// Counts the guests that arrived since the last time.
    pub(super) fn count_arrivals(&self, metrics: &Metrics) {
        metrics.count_arrivals(&*self.driver);
    }

    /// Checks that the hypervisor answered lately.
    pub(super) fn answers(&self) -> Result<(), String> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sample) = &*latest else {
            return Err("the hypervisor was not read yet".to_owned());
        };
        let age = sample.at.elapsed();
        if age > AGE_MAX {
            return Err(format!(
                "the hypervisor has not answered for {} s",
                age.as_secs()
            ));
        }
        sample.connected.clone()
    }

    pub(super) fn expose(&self, out: &mut Exposition) {
        for definition in [&CONNECTED, &AGE, &GUESTS, &FREE_PAGES, &CPUS] {
            out.declare(definition);
        }
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sample) = latest.clone() else {
            return;
        };
        drop(latest);
        sample.expose(&self.topology, out);
    }
}

impl Sample {
    fn expose(&self, topology: &HostTopology, out: &mut Exposition) {
        out.set(&CONNECTED, self.connected.is_ok());
        out.set(&AGE, self.at.elapsed());
        if self.connected.is_err() {
            // Nothing is known of guests; a zero would say that there are none.
            return;
        }
        for (state, count) in GuestState::ALL.iter().zip(&self.guests) {
            out.add(&GUESTS, [state.as_str()], *count);
        }
        for (node, sizes) in &self.free_pages {
            for (size_kib, pages) in sizes {
                let labels = [node.0.to_string().into(), size_kib.to_string().into()];
                out.add_named(&FREE_PAGES, labels, pages * size_kib * 1_024);
            }
        }
        for (cell, pinned) in topology.cells().iter().zip(&self.pinned) {
            let node = || cell.id.0.to_string().into();
            let free = cell.dedicated.len().saturating_sub(*pinned);
            out.add_named(&CPUS, [node(), "dedicated_free".into()], free);
            out.add_named(&CPUS, [node(), "dedicated_pinned".into()], *pinned);
            out.add_named(&CPUS, [node(), "shared".into()], cell.shared.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a hypervisor that cannot be read has no zeros for what is not known of it.
    #[test]
    fn what_was_not_read_is_absent() {
        let text = |connected| {
            let sample = Sample {
                at: Instant::now(),
                connected,
                guests: vec![0; GuestState::ALL.len()],
                free_pages: FreePages::default(),
                pinned: Vec::new(),
            };
            let mut out = Exposition::default();
            sample.expose(&HostTopology::default(), &mut out);
            out.to_open_metrics()
        };
        let read = text(Ok(()));
        assert!(read.contains("berth_driver_connected 1\n"), "{read}");
        assert!(
            read.contains("berth_guests{state=\"running\"} 0\n"),
            "{read}"
        );
        let refused = text(Err("refused".to_owned()));
        assert!(refused.contains("berth_driver_connected 0\n"), "{refused}");
        assert!(!refused.contains("berth_guests{"), "{refused}");
    }
}
