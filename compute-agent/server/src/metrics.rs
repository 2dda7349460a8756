//! The metrics and the health of an agent.
//!
//! ```text
//!   calls to the driver, heartbeats ──counted where they are made──┐
//!   guests, free pages, CPUs        ──read every ten seconds───────┴▶ scrape
//!
//!   livez    the core has ticked within the last ten seconds
//!   readyz   the driver answers, and the scheduler knows this run of the agent
//! ```
//!
//! Not here: the listener and the text (`berth_process::metrics`).
//!
//! Invariant: a hypervisor that hangs delays neither a scrape nor a probe: one thread reads it, and what it
//! read last has an age. Guests are counted by state, and named nowhere.

mod calls;
mod sample;

use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_domain::topology::HostTopology;
use berth_driver::{Driver, Kind};
use berth_process::BoxFuture;
use berth_process::access::table;
use berth_process::bounds::Bounds as Held;
use berth_process::metrics::{
    Bounds, Check, Count, Counts, Definition, Durations, DurationsBy, Exposition, GrpcRequests,
    Observed, Pairs, grpc,
};
use tokio_util::sync::CancellationToken;

pub(crate) use calls::{CallEnd, CallKind};
use sample::Sampler;

static CALLS: Definition = Definition::counter(
    "berth_driver_calls_total",
    &["kind", "result"],
    "Calls to the hypervisor's driver, by kind and by how they ended.",
);
static CALL_DURATION: Definition = Definition::histogram(
    "berth_driver_call_duration_seconds",
    &["kind"],
    "Time of a call to the hypervisor's driver.",
);
static ARRIVED: Definition = Definition::counter(
    "berth_migrations_arrived_total",
    &[],
    "Guests that arrived on this host by live migration, and of whose transfer the hypervisor has figures.",
);
static TRANSFERRED: Definition = Definition::counter(
    "berth_migration_transferred_bytes_total",
    &[],
    "Bytes of memory and disks that were transferred for them, those that were sent again among them.",
);
static ITERATIONS: Definition = Definition::counter(
    "berth_migration_iterations_total",
    &[],
    "How often the memory of guests that arrived was gone over: one each, and more where guests wrote.",
);
static DOWNTIME: Definition = Definition::histogram(
    "berth_migration_downtime_seconds",
    &[],
    "Time for which a guest that arrived ran on neither host.",
);
static HEARTBEATS: Definition = Definition::counter(
    "berth_heartbeats_total",
    &["result"],
    "Heartbeats to the scheduler: acknowledged, of a run that the scheduler does not know, or failed.",
);
static REGISTERED: Definition = Definition::gauge(
    "berth_agent_registered",
    &[],
    "Whether the scheduler knows this run of the agent, as it was heard last.",
);
static TICK_AGE: Definition = Definition::gauge(
    "berth_agent_tick_age_seconds",
    &[],
    "Time since the core of the agent was last at work; it ticks every second.",
);

/// For how long the core of an agent that is alive may not have ticked.
const TICK_AGE_MAX: Duration = Duration::from_secs(10);

berth_process::label! {
    /// What became of a heartbeat.
    pub(crate) enum Heartbeat {
        Acknowledged = "acknowledged",
        /// The scheduler does not know this run of the agent.
        Unknown = "unknown",
        Failed = "failed",
    }
}

/// What is counted while an agent works.
#[derive(Debug)]
pub(crate) struct Metrics {
    calls: Pairs<CallKind, CallEnd>,
    took: DurationsBy<CallKind>,
    heartbeats: Counts<Heartbeat>,
    arrived: Count,
    transferred_bytes: Count,
    iterations: Count,
    downtime: Durations,
    /// 1 while the scheduler knows this run.
    registered: Count,
    begun: Instant,
    /// When the core ticked last, in milliseconds since `begun`.
    ticked_ms: Count,
    pub(crate) grpc: Arc<GrpcRequests>,
}

impl Metrics {
    /// Returns those of an agent that serves these services, and a plug-in for volumes.
    pub(crate) fn new(services: &'static [&'static str]) -> Arc<Self> {
        let methods = table::methods_of(services).chain(grpc::CSI.iter().copied());
        Arc::new(Self {
            calls: Pairs::default(),
            took: DurationsBy::new(Bounds::LONG),
            heartbeats: Counts::default(),
            arrived: Count::default(),
            transferred_bytes: Count::default(),
            iterations: Count::default(),
            downtime: Durations::new(Bounds::SHORT),
            registered: Count::default(),
            begun: Instant::now(),
            ticked_ms: Count::default(),
            grpc: GrpcRequests::new(methods),
        })
    }

    /// Counts a call to the driver.
    pub(crate) fn called<T>(
        &self,
        kind: Kind,
        took: Duration,
        result: &Result<T, berth_driver::Error>,
    ) {
        let kind = kind.into();
        self.calls.of(kind, result.into()).increment();
        self.took.of(kind).observe(took);
    }

    /// Counts the guests that arrived since the last time.
    pub(crate) fn count_arrivals(&self, driver: &dyn Driver) {
        for arrival in driver.take_arrivals() {
            self.arrived.increment();
            self.transferred_bytes.add(arrival.bytes);
            self.iterations.add(arrival.iterations);
            if let Some(downtime) = arrival.downtime {
                self.downtime.observe(downtime);
            }
        }
    }

    /// Counts a heartbeat.
    pub(crate) fn heartbeat(&self, heartbeat: Heartbeat) {
        self.heartbeats.of(heartbeat).increment();
        match heartbeat {
            Heartbeat::Unknown => self.set_registered(false),
            Heartbeat::Acknowledged | Heartbeat::Failed => {}
        }
    }

    /// Records whether the scheduler knows this run.
    pub(crate) fn set_registered(&self, registered: bool) {
        self.registered.set(registered.into());
    }

    /// Records that the core ticked.
    pub(crate) fn ticked(&self) {
        let ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.ticked_ms.set(ms);
    }

    fn tick_age(&self) -> Duration {
        let ticked = Duration::from_millis(self.ticked_ms.get());
        self.begun.elapsed().saturating_sub(ticked)
    }
}

/// An agent as those who watch it see it.
pub(crate) struct Watched {
    metrics: Arc<Metrics>,
    held: Arc<Held>,
    sampler: Sampler,
}

impl Watched {
    /// Returns the agent of this driver and host, whose gRPC server has these bounds.
    pub(crate) fn new(
        metrics: Arc<Metrics>,
        held: Arc<Held>,
        driver: Arc<dyn Driver>,
        topology: Arc<HostTopology>,
    ) -> Self {
        Self {
            metrics,
            held,
            sampler: Sampler::new(driver, topology),
        }
    }

    /// Returns the work that its metrics need, which ends when `stopping` is cancelled.
    pub(crate) fn work(&self, stopping: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.sampler.clone().run(stopping))
    }
}

impl Observed for Watched {
    fn expose<'a>(&'a self, out: &'a mut Exposition) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let metrics = &self.metrics;
            out.set(&REGISTERED, metrics.registered.get());
            out.set(&TICK_AGE, metrics.tick_age());
            metrics.heartbeats.expose(&HEARTBEATS, out);
            self.sampler.count_arrivals(metrics);
            out.set(&ARRIVED, metrics.arrived.get());
            out.set(&TRANSFERRED, metrics.transferred_bytes.get());
            out.set(&ITERATIONS, metrics.iterations.get());
            out.set(&DOWNTIME, metrics.downtime.read());
            metrics.calls.expose_nonzero(&CALLS, out);
            metrics.took.expose_nonempty(&CALL_DURATION, out);
            self.sampler.expose(out);
            metrics.grpc.expose(out);
            grpc::expose_held(&self.held, out);
        })
    }

    fn live(&self) -> BoxFuture<'_, Vec<Check>> {
        Box::pin(async move {
            let works = self.metrics.tick_age() <= TICK_AGE_MAX;
            vec![Check::holds(
                "core",
                works,
                "the core has not ticked for more than 10 s",
            )]
        })
    }

    fn ready(&self) -> BoxFuture<'_, Vec<Check>> {
        Box::pin(async move {
            let registered = self.metrics.registered.get() == 1;
            let reason = "the scheduler does not know this run of the agent yet";
            vec![
                Check::new("driver", self.sampler.answers()),
                Check::holds("registered", registered, reason),
            ]
        })
    }
}
