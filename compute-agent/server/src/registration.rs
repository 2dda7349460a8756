//! Registers this host with the scheduler, then sends heartbeats, and reports to health checks that
//! it can serve.
//!
//! Invariant: a health check sees it as serving once the scheduler knows this run of it.

use std::sync::Arc;
use std::time::Duration;

use berth_agent_core::Event;
use berth_domain::host::HostReport;
use berth_domain::id::TimeMs;
use berth_domain::name::HostName;
use berth_domain::network::HostNetwork;
use berth_domain::pmem::PmemNamespace;
use berth_domain::refusal::Refusal;
use berth_domain::volume::Region;
use berth_proto::client::SchedulerChannel;
use berth_proto::convert::{ResourceName as _, field};
use berth_proto::host::v1 as wire;
use berth_proto::host::v1::host_service_client::HostServiceClient;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use uuid::Uuid;

use crate::grants::Grants;
use crate::metrics::{Heartbeat, Metrics};
use crate::pmem;
use crate::self_fencing::SelfFencing;
use crate::shell;
use crate::signals::Newest;
use crate::volumes;
use crate::watchdog::Standing;

/// The least time that a member has to answer a report.
const ANSWER_MIN: Duration = Duration::from_secs(1);

/// The services that health checks may name, and the empty name for the whole.
const SERVICES: [&str; 2] = ["", "berth.agent.v1.ComputeAgentService"];
/// The waits between attempts.
const WAIT_MIN: Duration = Duration::from_millis(200);
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Heartbeat interval unless the scheduler sets one, and its bounds.
const INTERVAL_DEFAULT: Duration = Duration::from_secs(3);
const INTERVAL_MIN: Duration = Duration::from_millis(50);
const INTERVAL_MAX: Duration = Duration::from_secs(60);
/// How long the watchdog may take to be armed.
const ARMING: Duration = Duration::from_secs(10);
/// How long it is tried to take back what was promised, when the agent stops.
const TAKING_BACK: Duration = Duration::from_secs(5);
/// How long a registration waits until it is known which volumes of the host the leader knows. A leader
/// that does not reply to that does not reply to a registration either.
const COMPARING: Duration = Duration::from_secs(2);
/// Heartbeats between attempts to register again while the scheduler refuses the host's shape. Guests
/// that conflict with it may have left meanwhile; each attempt is an entry of the log.
const HEARTBEATS_PER_RETRY: u32 = 10;

/// The reason of a refusal for a configuration that takes away namespaces that VMs use.
const NAMESPACE_IN_USE: &str = "PMEM_NAMESPACE_IN_USE";

/// The scheduler's reply to a registration.
struct Registered {
    /// How often to report.
    interval: Duration,
    /// Why it did not take over the host's shape.
    shape_refused: Option<String>,
}

/// What is registered.
pub(crate) struct Registration {
    pub(crate) scheduler: SchedulerChannel,
    pub(crate) host: HostName,
    pub(crate) report: HostReport,
    /// Sends acknowledged heartbeats to the core.
    pub(crate) events: mpsc::Sender<Event>,
    /// The namespaces of persistent memory as they were looked at last.
    pub(crate) namespaces: watch::Receiver<Vec<PmemNamespace>>,
    /// The regions of persistent memory as they were looked at last, where there are volumes.
    pub(crate) regions: Option<watch::Receiver<Vec<Region>>>,
    /// The physical networks as they were looked at last.
    pub(crate) networks: watch::Receiver<Vec<HostNetwork>>,
    /// Has the volumes looked at, where there are any.
    pub(crate) volumes: Option<Arc<Notify>>,
    /// The self-fencing promise of this agent.
    pub(crate) fencing: SelfFencing,
    /// When the report was sent that was answered last; before the first, that of an earlier run.
    pub(crate) last_heartbeat: Option<TimeMs>,
    /// How the watchdog is, where there is one; a promise needs it.
    pub(crate) standing: Option<watch::Receiver<Standing>>,
    /// Whether a registration was sent and not answered: it may still arrive.
    pub(crate) is_unacknowledged: bool,
    /// What was measured of the host's memory last.
    pub(crate) signals: Newest,
    /// Learns with what grants are checked.
    pub(crate) grants: Grants,
    /// What is counted.
    pub(crate) metrics: Arc<Metrics>,
}

impl Registration {
    /// Registers and sends heartbeats until `stopping`, or until the scheduler replies that this agent
    /// must not run as it is configured.
    pub(crate) async fn run(
        mut self,
        reporter: HealthReporter,
        stopping: CancellationToken,
    ) -> Option<Refusal> {
        set_health(&reporter, ServingStatus::NotServing).await;
        let refused = tokio::select! {
            refused = self.register_and_report(&reporter) => Some(refused),
            () = stopping.cancelled() => None,
        };
        if self.standing.is_some() {
            self.withdraw_promise().await;
        }
        set_health(&reporter, ServingStatus::NotServing).await;
        refused
    }

    async fn register_and_report(&mut self, reporter: &HealthReporter) -> Refusal {
        let mut reported = None;
        loop {
            let registered = match self.register().await {
                Ok(registered) => registered,
                Err(refused) => return refused,
            };
            let mut interval = registered.interval;
            let is_refused = registered.shape_refused.is_some();
            if registered.shape_refused != reported {
                log_shape_change(&self.host, registered.shape_refused.as_deref());
                reported = registered.shape_refused;
            }
            set_health(reporter, ServingStatus::Serving).await;
            self.metrics.set_registered(true);
            // A scheduler that cannot be reached does not make the agent unable to serve: the
            // hypervisor is here, and conductors have their own way.
            let mut reports = 0;
            while !self.is_outdated() && (!is_refused || reports < HEARTBEATS_PER_RETRY) {
                tokio::time::sleep(interval).await;
                reports += u32::from(is_refused);
                match self.send_heartbeat(interval).await {
                    Ok(Some(next)) => {
                        self.metrics.heartbeat(Heartbeat::Acknowledged);
                        interval = next;
                    }
                    Ok(None) => {
                        self.metrics.heartbeat(Heartbeat::Unknown);
                        tracing::warn!(
                            "the scheduler does not know this incarnation, registering again"
                        );
                        break;
                    }
                    Err(status) => {
                        self.metrics.heartbeat(Heartbeat::Failed);
                        tracing::warn!(%status, "heartbeat not acknowledged");
                        interval = interval.min(WAIT_MAX);
                    }
                }
            }
        }
    }

    /// Returns whether what is registered is out of date.
    fn is_outdated(&self) -> bool {
        let regions = self.regions.as_ref();
        self.fencing.differs()
            || self.namespaces.has_changed().unwrap_or(false)
            || self.networks.has_changed().unwrap_or(false)
            || regions.is_some_and(|regions| regions.has_changed().unwrap_or(false))
    }

    /// Takes back what was promised, since this agent stops and its guests go on. Where that fails the
    /// promise stands, and the watchdog with it.
    async fn withdraw_promise(&mut self) {
        if self.fencing.kept_ms() == 0 {
            return;
        }
        // One that is out may arrive after this, and would count.
        let taken_back = !self.is_unacknowledged
            && tokio::time::timeout(TAKING_BACK, self.register_without())
                .await
                .is_ok();
        if !taken_back {
            tracing::error!("self-fencing promise could not be withdrawn, it stands");
        }
    }

    async fn register_without(&mut self) {
        loop {
            self.fencing.set_requested_limit(0);
            let sent_at = shell::now();
            let scheduler = self.scheduler.clone();
            if self.register_once(&scheduler).await.is_ok() {
                self.record_heartbeat(sent_at, (None, None)).await;
                return;
            }
            tokio::time::sleep(WAIT_MIN).await;
        }
    }

    /// Registers, however long it takes. What is promised of the guests is kept from before.
    ///
    /// # Errors
    ///
    /// The configuration takes away what VMs use.
    async fn register(&mut self) -> Result<Registered, Refusal> {
        let mut wait = WAIT_MIN;
        let mut attempts = 0_u32;
        loop {
            let namespaces = self.namespaces.borrow_and_update().clone();
            if let Ok(topology) = pmem::with(&self.report.topology, namespaces) {
                self.report.topology = Arc::new(topology);
            }
            self.report.networks = self.networks.borrow_and_update().clone();
            if let Some(regions) = &mut self.regions {
                // Regions whose free space is not known yet are closed for a whole interval.
                let compared = regions.wait_for(|regions| volumes::are_compared(regions));
                drop(tokio::time::timeout(COMPARING, compared).await);
                self.report.regions = regions.borrow_and_update().clone();
            }
            let sent_at = shell::now();
            // A wrong address is reported at once; one at which nothing listens yet is waited for later.
            let scheduler = match attempts {
                0 => self.scheduler.clone().without_patience(),
                _ => self.scheduler.clone(),
            };
            attempts = attempts.saturating_add(1);
            match self.register_once(&scheduler).await {
                Ok(response) => {
                    self.grants.learn(response.grant_terms);
                    let promises_ms = self.report.self_fence_ms;
                    tracing::info!(host = %self.host, promises_ms, "registered");
                    let terms = (response.lease, response.self_fence);
                    self.record_heartbeat(sent_at, terms).await;
                    let why = response.host.map(|host| host.shape_refused);
                    return Ok(Registered {
                        interval: bounded(response.report_interval),
                        shape_refused: why.filter(|why| !why.is_empty()),
                    });
                }
                Err(status) => {
                    let refusal = scheduler.not_registered(&status);
                    if refusal.reason == NAMESPACE_IN_USE {
                        return Err(refusal);
                    }
                    let hint = refusal.hint.as_deref();
                    tracing::warn!(%refusal, hint, "registration failed");
                }
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(WAIT_MAX);
        }
    }

    /// Registers once. The promise is on record when this succeeds, and may be when it does not.
    async fn register_once(
        &mut self,
        scheduler: &SchedulerChannel,
    ) -> Result<wire::RegisterHostResponse, Status> {
        self.report.self_fence_ms = self.promise().await;
        let request = wire::RegisterHostRequest {
            name: self.host.resource_name(),
            report: Some((&self.report).into()),
            request_id: Uuid::new_v4().to_string(),
        };
        self.is_unacknowledged = true;
        let response = scheduler.call(|channel| {
            let request = request.clone();
            async move { HostServiceClient::new(channel).register_host(request).await }
        });
        let result = response.await;
        if result.is_ok() {
            self.is_unacknowledged = false;
            self.fencing.registered();
        }
        result
    }

    /// Applies the limit that the scheduler requests, and returns what may be promised.
    async fn promise(&mut self) -> u64 {
        let mut promise = self.fencing.begin();
        if let Some(at) = self.last_heartbeat
            && let Err(error) = self.fencing.persist(at)
        {
            tracing::warn!(%error, "self-fencing promise cannot be persisted, promising nothing");
            self.fencing.set_requested_limit(0);
            promise = self.fencing.begin();
        }
        self.send_limit().await;
        if promise > 0
            && let Some(why) = self.lacks_watchdog().await
        {
            tracing::warn!(why, "no self-fencing promise");
            self.fencing.set_requested_limit(0);
            promise = self.fencing.begin();
            self.send_limit().await;
        }
        promise
    }

    /// Waits until the watchdog runs, where a promise needs one; returns why it does not.
    async fn lacks_watchdog(&mut self) -> Option<&'static str> {
        let standing = self.standing.as_mut()?;
        let settled = standing.wait_for(|standing| *standing != Standing::Off);
        let settled = tokio::time::timeout(ARMING, settled).await;
        let settled = settled.ok().and_then(Result::ok);
        match settled.map(|standing| *standing) {
            Some(Standing::Armed) => None,
            Some(Standing::Broken) => Some("the watchdog has failed"),
            Some(Standing::Off) | None => Some("the watchdog is not armed"),
        }
    }

    fn is_broken(&self) -> bool {
        let standing = self.standing.as_ref().map(|standing| *standing.borrow());
        standing == Some(Standing::Broken)
    }

    async fn send_limit(&self) {
        let limit_ms = self.fencing.kept_ms();
        // The shell ends before this does.
        let _ = self.events.send(Event::SelfFence { limit_ms }).await;
    }

    /// A report that was sent then was answered, with these times for which it counts and after which
    /// the guests are to be stopped.
    async fn record_heartbeat(
        &mut self,
        sent_at: TimeMs,
        (lease, self_fence): (Option<prost_types::Duration>, Option<prost_types::Duration>),
    ) {
        let ms = |duration, field| {
            let duration = field::optional_duration_ms(duration, field);
            duration.ok().flatten().unwrap_or(0)
        };
        let lease_ms = ms(lease, "lease");
        let limit_ms = ms(self_fence, "self_fence");
        let is_broken = self.is_broken();
        self.fencing
            .set_requested_limit(if is_broken { 0 } else { limit_ms });
        self.last_heartbeat = Some(sent_at);
        if let Err(error) = self.fencing.persist(sent_at) {
            // What is written there is stricter.
            tracing::warn!(%error, "self-fencing promise cannot be persisted");
        }
        // The shell ends before this does.
        let _ = self
            .events
            .send(Event::HeartbeatAcknowledged { sent_at, lease_ms })
            .await;
        self.send_limit().await;
    }

    fn memory_signals(&self) -> Option<wire::MemorySignals> {
        let newest = self.signals.borrow();
        let measured = newest
            .as_ref()
            .map(|sample| sample.to_measured(shell::now()));
        measured.as_ref().map(Into::into)
    }

    /// Returns when to report next; nothing when the scheduler does not know this run.
    ///
    /// A member that does not answer, as a leader that hangs, has the time between two reports for its first
    /// answer, and a quarter more for each further attempt, as one that is only slow needs: guests are not to be
    /// stopped because of it while another one leads. The others still name it until they have elected one.
    async fn send_heartbeat(&mut self, interval: Duration) -> Result<Option<Duration>, Status> {
        let mut patience = interval.max(ANSWER_MIN);
        let request = wire::ReportHostRequest {
            name: self.host.resource_name(),
            incarnation: self.report.incarnation.to_string(),
            memory_signals: self.memory_signals(),
        };
        // Counted from before it is sent: the scheduler received it later than that.
        let sent_at = shell::now();
        let response = self
            .scheduler
            .call(|channel| {
                let request = request.clone();
                let within = patience;
                patience = patience * 5 / 4;
                async move {
                    let mut client = HostServiceClient::new(channel);
                    let answer = tokio::time::timeout(within, client.report_host(request));
                    let silent = |_| Err(Status::unavailable("no answer in time"));
                    answer.await.unwrap_or_else(silent)
                }
            })
            .await?;
        self.grants.learn(response.grant_terms);
        if response.known {
            let terms = (response.lease, response.self_fence);
            self.record_heartbeat(sent_at, terms).await;
        }
        if response.volumes_waiting
            && let Some(volumes) = &self.volumes
        {
            volumes.notify_one();
        }
        Ok(response.known.then(|| bounded(response.report_interval)))
    }
}

/// Logs a change of whether the host's shape is accepted.
fn log_shape_change(host: &HostName, refused: Option<&str>) {
    match refused {
        Some(why) => tracing::warn!(
            %host,
            why,
            "host shape refused: the scheduler keeps the former one and places no new VMs"
        ),
        None => tracing::info!(%host, "host shape accepted"),
    }
}

fn bounded(interval: Option<prost_types::Duration>) -> Duration {
    interval
        .and_then(|d| Duration::try_from(d).ok())
        .filter(|d| !d.is_zero())
        .unwrap_or(INTERVAL_DEFAULT)
        .clamp(INTERVAL_MIN, INTERVAL_MAX)
}

async fn set_health(reporter: &HealthReporter, status: ServingStatus) {
    for service in SERVICES {
        reporter.set_service_status(service, status).await;
    }
}
