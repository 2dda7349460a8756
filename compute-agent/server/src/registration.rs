//! Tells the scheduler what this host has, then that it is alive, and health checks that it can
//! serve.
//!
//! Invariant: it serves, in the eyes of a health check, once the scheduler knows this run of it.

use std::sync::Arc;
use std::time::Duration;

use berth_domain::host::HostReport;
use berth_domain::id::TimeMs;
use berth_domain::name::HostName;
use berth_domain::pmem::PmemNamespace;
use berth_domain::refusal::Refusal;
use berth_domain::volume::Region;
use berth_proto::client::SchedulerChannel;
use berth_proto::convert::{ResourceName as _, field};
use berth_proto::host::v1 as wire;
use berth_proto::host::v1::host_service_client::HostServiceClient;
use berth_proto::status::from_status;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use uuid::Uuid;

use crate::core::Event;
use crate::pmem;
use crate::self_fencing::SelfFencing;
use crate::shell;
use crate::signals::Newest;
use crate::volumes;
use crate::watchdog::Standing;

/// The services that clients ask about, and the empty name for the whole.
const SERVICES: [&str; 2] = ["", "berth.agent.v1.ComputeAgentService"];
/// The waits between attempts.
const WAIT_MIN: Duration = Duration::from_millis(200);
const WAIT_MAX: Duration = Duration::from_secs(5);
/// How often it reports unless the scheduler says, and within which bounds.
const INTERVAL_DEFAULT: Duration = Duration::from_secs(3);
const INTERVAL_MIN: Duration = Duration::from_millis(50);
const INTERVAL_MAX: Duration = Duration::from_secs(60);
/// How long the watchdog may take to be armed.
const ARMING: Duration = Duration::from_secs(10);
/// How long it is tried to take back what was promised, when the agent stops.
const TAKING_BACK: Duration = Duration::from_secs(5);
/// How long a registration waits until it is known which volumes of the host the leader knows: as soon as
/// it answers at all, and where it does not a registration is not answered either.
const COMPARING: Duration = Duration::from_secs(2);
/// After how many reports it registers again while the scheduler refuses the host's shape. Guests
/// that stand in its way may have gone meanwhile; each attempt is an entry of the log.
const REPORTS_PER_RETRY: u32 = 10;

/// The reason of a refusal for a configuration that takes away namespaces that VMs use.
const NAMESPACE_IN_USE: &str = "PMEM_NAMESPACE_IN_USE";

/// What the scheduler said to a registration.
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
    /// Tells the core when the scheduler heard of this agent.
    pub(crate) news: mpsc::Sender<Event>,
    /// The namespaces of persistent memory as they were looked at last.
    pub(crate) namespaces: watch::Receiver<Vec<PmemNamespace>>,
    /// The regions of persistent memory as they were looked at last, where there are volumes.
    pub(crate) regions: Option<watch::Receiver<Vec<Region>>>,
    /// Has the volumes looked at, where there are any.
    pub(crate) volumes: Option<Arc<Notify>>,
    /// What is promised of the guests when nobody hears of this agent.
    pub(crate) fencing: SelfFencing,
    /// When the report was sent that was answered last; before the first, that of an earlier run.
    pub(crate) heard_at: Option<TimeMs>,
    /// How the watchdog is, where there is one; a promise needs it.
    pub(crate) standing: Option<watch::Receiver<Standing>>,
    /// Whether a registration was sent and not answered: it may still arrive.
    pub(crate) is_unanswered: bool,
    /// What was measured of the host's memory last.
    pub(crate) signals: Newest,
}

impl Registration {
    /// Registers and reports until `stopping`, or until it is told that this agent must not run as it
    /// is configured.
    pub(crate) async fn run(
        mut self,
        reporter: HealthReporter,
        stopping: CancellationToken,
    ) -> Option<Refusal> {
        show(&reporter, ServingStatus::NotServing).await;
        let refused = tokio::select! {
            refused = self.keep(&reporter) => Some(refused),
            () = stopping.cancelled() => None,
        };
        if self.standing.is_some() {
            self.take_back().await;
        }
        show(&reporter, ServingStatus::NotServing).await;
        refused
    }

    async fn keep(&mut self, reporter: &HealthReporter) -> Refusal {
        let mut told = None;
        loop {
            let registered = match self.register().await {
                Ok(registered) => registered,
                Err(refused) => return refused,
            };
            let mut interval = registered.interval;
            let is_refused = registered.shape_refused.is_some();
            if registered.shape_refused != told {
                tell_shape(&self.host, registered.shape_refused.as_deref());
                told = registered.shape_refused;
            }
            show(reporter, ServingStatus::Serving).await;
            // A scheduler that cannot be reached does not make the agent unable to serve: the
            // hypervisor is here, and conductors have their own way.
            let mut reports = 0;
            while !self.is_outdated() && (!is_refused || reports < REPORTS_PER_RETRY) {
                tokio::time::sleep(interval).await;
                reports += u32::from(is_refused);
                match self.say_alive().await {
                    Ok(Some(next)) => interval = next,
                    Ok(None) => {
                        tracing::warn!("the scheduler does not know this run of the agent");
                        break;
                    }
                    Err(status) => {
                        tracing::warn!(%status, "not heard by the scheduler");
                        interval = interval.min(WAIT_MAX);
                    }
                }
            }
        }
    }

    /// Returns whether what is registered is not so any more.
    fn is_outdated(&self) -> bool {
        let regions = self.regions.as_ref();
        self.fencing.differs()
            || self.namespaces.has_changed().unwrap_or(false)
            || regions.is_some_and(|regions| regions.has_changed().unwrap_or(false))
    }

    /// Takes back what was promised, since this agent stops and its guests go on. Where that fails the
    /// promise stands, and the watchdog with it.
    async fn take_back(&mut self) {
        if self.fencing.kept_ms() == 0 {
            return;
        }
        // One that is out may arrive after this, and would count.
        let taken_back = !self.is_unanswered
            && tokio::time::timeout(TAKING_BACK, self.register_without())
                .await
                .is_ok();
        if !taken_back {
            tracing::error!(
                "what is promised of the guests could not be taken back from the scheduler, and stands"
            );
        }
    }

    async fn register_without(&mut self) {
        loop {
            self.fencing.want(0);
            let sent_at = shell::now();
            if self.register_once().await.is_ok() {
                self.tell_heard(sent_at, (None, None)).await;
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
        loop {
            let namespaces = self.namespaces.borrow_and_update().clone();
            if let Ok(topology) = pmem::with(&self.report.topology, namespaces) {
                self.report.topology = Arc::new(topology);
            }
            if let Some(regions) = &mut self.regions {
                // Regions of which nobody knows yet what is free are closed for a whole interval.
                let compared = regions.wait_for(|regions| volumes::are_compared(regions));
                drop(tokio::time::timeout(COMPARING, compared).await);
                self.report.regions = regions.borrow_and_update().clone();
            }
            let sent_at = shell::now();
            match self.register_once().await {
                Ok(response) => {
                    let promises_ms = self.report.self_fence_ms;
                    tracing::info!(host = %self.host, promises_ms, "registered");
                    let told = (response.lease, response.self_fence);
                    self.tell_heard(sent_at, told).await;
                    let why = response.host.map(|host| host.shape_refused);
                    return Ok(Registered {
                        interval: bounded(response.report_interval),
                        shape_refused: why.filter(|why| !why.is_empty()),
                    });
                }
                Err(status) => {
                    let refusal = from_status(&status);
                    if refusal.reason == NAMESPACE_IN_USE {
                        return Err(refusal);
                    }
                    tracing::warn!(
                        status = status.message(),
                        "not registered with the scheduler"
                    );
                }
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(WAIT_MAX);
        }
    }

    /// Asks once. What is promised is on record when this succeeds, and may be when it does not.
    async fn register_once(&mut self) -> Result<wire::RegisterHostResponse, Status> {
        self.report.self_fence_ms = self.promise().await;
        let request = wire::RegisterHostRequest {
            name: self.host.resource_name(),
            report: Some((&self.report).into()),
            request_id: Uuid::new_v4().to_string(),
        };
        self.is_unanswered = true;
        let asked = self.scheduler.call(|channel| {
            let request = request.clone();
            async move { HostServiceClient::new(channel).register_host(request).await }
        });
        let answer = asked.await;
        if answer.is_ok() {
            self.is_unanswered = false;
            self.fencing.registered();
        }
        answer
    }

    /// Begins to keep what the scheduler wants, and returns what may be promised.
    async fn promise(&mut self) -> u64 {
        let mut promise = self.fencing.begin();
        if let Some(at) = self.heard_at
            && let Err(error) = self.fencing.note(at)
        {
            tracing::warn!(%error, "what is promised cannot be written down, so nothing is");
            self.fencing.want(0);
            promise = self.fencing.begin();
        }
        self.tell_limit().await;
        if promise > 0
            && let Some(why) = self.lacks_watchdog().await
        {
            tracing::warn!(why, "nothing is promised of the guests");
            self.fencing.want(0);
            promise = self.fencing.begin();
            self.tell_limit().await;
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

    async fn tell_limit(&self) {
        let limit_ms = self.fencing.kept_ms();
        // The shell ends before this does.
        let _ = self.news.send(Event::SelfFence { limit_ms }).await;
    }

    /// A report that was sent then was answered, with these times for which it counts and after which
    /// the guests are to be stopped.
    async fn tell_heard(
        &mut self,
        sent_at: TimeMs,
        (lease, self_fence): (Option<prost_types::Duration>, Option<prost_types::Duration>),
    ) {
        let ms = |told, field| {
            let told = field::optional_duration_ms(told, field);
            told.ok().flatten().unwrap_or(0)
        };
        let lease_ms = ms(lease, "lease");
        let wanted_ms = ms(self_fence, "self_fence");
        let is_broken = self.is_broken();
        self.fencing.want(if is_broken { 0 } else { wanted_ms });
        self.heard_at = Some(sent_at);
        if let Err(error) = self.fencing.note(sent_at) {
            // What is written there is stricter.
            tracing::warn!(%error, "what is promised cannot be written down");
        }
        // The shell ends before this does.
        let _ = self.news.send(Event::Heard { sent_at, lease_ms }).await;
        self.tell_limit().await;
    }

    fn memory_signals(&self) -> Option<wire::MemorySignals> {
        let newest = self.signals.borrow();
        let measured = newest.as_ref().map(|sample| sample.told(shell::now()));
        measured.as_ref().map(Into::into)
    }

    /// Returns when to report next; nothing when the scheduler does not know this run.
    async fn say_alive(&mut self) -> Result<Option<Duration>, Status> {
        let request = wire::ReportHostRequest {
            name: self.host.resource_name(),
            incarnation: self.report.incarnation.to_string(),
            memory_signals: self.memory_signals(),
        };
        // Counted from before it is sent: the scheduler heard of it later than that.
        let sent_at = shell::now();
        let response = self
            .scheduler
            .call(|channel| {
                let request = request.clone();
                async move { HostServiceClient::new(channel).report_host(request).await }
            })
            .await?;
        if response.known {
            let told = (response.lease, response.self_fence);
            self.tell_heard(sent_at, told).await;
        }
        if response.volumes_waiting
            && let Some(volumes) = &self.volumes
        {
            volumes.notify_one();
        }
        Ok(response.known.then(|| bounded(response.report_interval)))
    }
}

/// Says what became of the host's shape, when that changes.
fn tell_shape(host: &HostName, refused: Option<&str>) {
    match refused {
        Some(why) => tracing::warn!(
            %host,
            why,
            "the scheduler keeps the shape that the host had before, and places nothing new on it"
        ),
        None => tracing::info!(%host, "the scheduler took over the shape of the host"),
    }
}

fn bounded(interval: Option<prost_types::Duration>) -> Duration {
    interval
        .and_then(|d| Duration::try_from(d).ok())
        .filter(|d| !d.is_zero())
        .unwrap_or(INTERVAL_DEFAULT)
        .clamp(INTERVAL_MIN, INTERVAL_MAX)
}

async fn show(reporter: &HealthReporter, status: ServingStatus) {
    for service in SERVICES {
        reporter.set_service_status(service, status).await;
    }
}
