//! One agent as a whole: its machine, its hypervisor, its service, and its registration.
//!
//! Invariant: it takes no call before it knows what runs on its host; when it ends, its guests
//! and what the hypervisor does for them go on.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use berth_agent_core::{Agent, Event, Facts};
use berth_domain::host::HostReport;
use berth_domain::host_check::{CheckOutcome, HostFinding};
use berth_domain::id::{Incarnation, TimeMs};
use berth_domain::name::HostName;
use berth_domain::version::{Feature, ServiceVersion};
use berth_driver::{Driver, Known};
use berth_process::metrics::{self, Program};
use berth_process::server::{self, Reflection};
use berth_process::{
    BoxFuture, Faults, Shutdown, Traces, listening, schedulers, service_manager, traces,
};
use berth_proto::agent::v1::compute_agent_service_server::{self, ComputeAgentServiceServer};
use berth_proto::agent::v1::volume_agent_service_server;
use berth_proto::client::members::{Learner, learn_until};
use berth_proto::client::{Dialer, SchedulerChannel};
use berth_tls::material::Protocol;
use berth_tls::{Role, Tls};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use uuid::Uuid;

use crate::config::images::Settings;
use crate::config::networks::mappings;
use crate::config::{Config, DriverKind, Valid};
use crate::console::Consoles;
use crate::disks::{Fetches, Readers};
use crate::error::Error;
use crate::grants::Grants;
use crate::guest_volumes::{GuestVolumes, NoVolumes};
use crate::host_check::{Checks, Sources, WatchdogState};
use crate::images::collect::Collector;
use crate::images::{ImageStore, Images};
use crate::metrics::{Metrics, Watched};
use crate::networks::{self, Networks};
use crate::pmem::{self, Memories};
use crate::reality::Messenger;
use crate::registration::Registration;
use crate::self_fencing::SelfFencing;
use crate::service::AgentApi;
use crate::signals::{Newest, Sampler};
use crate::volumes::{Managed, Running};
use crate::watchdog::Watchdog;
use crate::{hypervisor, shell, traits};

/// The descriptors are those of all programs; only what is served here is listed.
const REFLECTION: Reflection = Reflection {
    descriptors: berth_proto::DESCRIPTOR_SET,
    served: &[
        compute_agent_service_server::SERVICE_NAME,
        berth_log_service::SERVICE_NAME,
        volume_agent_service_server::SERVICE_NAME,
    ],
};

/// An agent that knows its host and listens, but does not serve yet.
pub struct ComputeAgent {
    listener: TcpListener,
    address: SocketAddr,
    /// Where metrics and health are served.
    watch: Option<TcpListener>,
    service_version: u32,
    facts: Facts,
    report: HostReport,
    known: Vec<Known>,
    driver: Arc<dyn Driver>,
    guest_volumes: GuestVolumes,
    scheduler: SchedulerChannel,
    learner: Learner,
    fencing: SelfFencing,
    memories: Option<Memories>,
    watchdog: Option<Watchdog>,
    sampler: Option<Sampler>,
    signals: Newest,
    volumes: Option<Managed>,
    tls: Option<Tls>,
    grants: Grants,
    checks: Checks,
    images: Option<ImageStore>,
    image_settings: Settings,
    image_retention: Duration,
    traces: Traces,
}

/// Returns the certificates, if it has any.
fn certificates(
    config: &Config,
    host: &HostName,
    address: SocketAddr,
) -> Result<Option<Tls>, Faults> {
    let listening = &config.listening;
    let advertise = listening.advertised(address);
    listening
        .encryption
        .open(Role::Agent, &advertise, |identity| {
            if identity.is_agent_of(host.as_str()) {
                return Ok(());
            }
            Err(identity.not_of_host(host.as_str()))
        })
}

/// Runs one agent until `shutdown` is ready.
///
/// # Errors
///
/// Why it cannot start, or had to stop.
pub fn run(config: Config, shutdown: Shutdown) -> BoxFuture<'static, Result<(), Error>> {
    Box::pin(async {
        ComputeAgent::open(config)
            .await?
            .serve_until(shutdown)
            .await
    })
}

impl ComputeAgent {
    /// Discovers the machine, lists the hypervisor's guests, and listens.
    ///
    /// # Errors
    ///
    /// Why it cannot start.
    pub fn start(config: Config) -> BoxFuture<'static, Result<Self, Error>> {
        Box::pin(Self::open(config))
    }

    async fn open(config: Config) -> Result<Self, Error> {
        let valid = config.validate()?;
        let (listener, address) = listening::bind(valid.listen).await?;
        let watch = match config.listening.metrics_address() {
            Some(listen) => Some(listening::bind(listen).await?.0),
            None => None,
        };
        let service_version = config.service_version;
        let tls = certificates(&config, &valid.name, address)?;
        let scheduler = SchedulerChannel::new(schedulers::urls(&config.schedulers, tls.as_ref()))
            .map_err(|error| Faults(vec![error.to_string()]))?
            .with_dialer(Dialer::new(tls.clone()));
        let learner = Learner::new(scheduler.clone(), config.data_dir.clone());
        let (directory, host) = (config.data_dir.clone(), valid.name.clone());
        let grants = Grants::open(host, directory, tls.is_some());
        let root = config.root.clone();
        let interval = Duration::from_millis(config.signals_interval_ms);
        let traces = config.traces.clone();
        let image_retention = Duration::from_millis(config.image_retention_ms);
        let image_settings = config.images.clone();
        let waking = move || wake(config, &valid, address);
        let woken = tokio::task::spawn_blocking(waking).await;
        let (
            facts,
            report,
            known,
            driver,
            fencing,
            memories,
            watchdog,
            (mut volumes, guest_volumes),
            checks,
            images,
        ) = woken.map_err(|_| Error::Task("the start"))??;
        if let Some(volumes) = &mut volumes {
            volumes.listen()?;
        }
        let (sampler, signals) = Sampler::new(interval, root, &driver);
        Ok(Self {
            listener,
            address,
            watch,
            service_version,
            facts,
            report,
            known,
            driver,
            guest_volumes,
            scheduler,
            learner,
            fencing,
            memories,
            watchdog,
            sampler,
            signals,
            volumes,
            tls,
            grants,
            checks,
            images,
            image_settings,
            image_retention,
            traces,
        })
    }

    /// Returns the address that it listens on, with the assigned port where the configured one is
    /// 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns where metrics and health are served, if they are.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.watch.as_ref()?.local_addr().ok()
    }

    /// Returns the host's name in the cluster.
    #[must_use]
    pub fn host(&self) -> &HostName {
        &self.facts.host
    }

    /// Returns what it will report of its host.
    #[must_use]
    pub fn report(&self) -> &HostReport {
        &self.report
    }

    /// Serves until `shutdown` is ready.
    ///
    /// # Errors
    ///
    /// Why it had to stop.
    pub fn run(
        self,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> BoxFuture<'static, Result<(), Error>> {
        let shutdown: Shutdown = Box::pin(shutdown);
        self.serve(shutdown)
    }

    fn serve(self, shutdown: Shutdown) -> BoxFuture<'static, Result<(), Error>> {
        Box::pin(self.serve_until(shutdown))
    }

    async fn serve_until(self, mut shutdown: Shutdown) -> Result<(), Error> {
        let host = self.facts.host.as_str();
        let spans = self.traces.start("berth-compute-agent", host)?;
        let stopping = CancellationToken::new();
        let mut agent = Agent::new(self.facts.clone(), self.known);
        let (fencing, last_heartbeat) = take_up(self.fencing, &mut agent)?;
        let mut watchdog = self.watchdog;
        if let Some(watchdog) = &mut watchdog {
            agent = agent.guarded();
            // Where an earlier run's promise holds, the watchdog may have to go unfed: the core decides.
            if last_heartbeat.is_none() {
                watchdog.test_disarm()?;
            }
        }
        let standing = watchdog.as_ref().map(Watchdog::standing);
        let dialer = self.scheduler.dialer().clone();
        let (fetches, readers) = (Fetches::new(dialer), Readers::default());
        let travel = (fetches.clone(), readers.clone());
        let driver = (self.driver.clone(), self.guest_volumes);
        let metrics = Metrics::new(REFLECTION.served);
        let (core, shell, link) = shell::new(agent, driver, watchdog, travel, metrics.clone());
        let messenger = Messenger {
            scheduler: self.scheduler.clone(),
            host: self.facts.host.clone(),
            incarnation: self.facts.incarnation,
            driver: self.driver.clone(),
            grants: self.grants.clone(),
        };
        let (health, health_service) = tonic_health::server::health_reporter();
        let namespaces = self.facts.topology.pmem().to_vec();
        let (found, looked) = watch::channel(namespaces.clone());
        let watching = self.memories.map(|memories| {
            let events = link.events.clone();
            tokio::spawn(memories.watch(namespaces, events, found, stopping.clone()))
        });
        let incarnation = self.facts.incarnation.to_string();
        let volumes = self.volumes.map(|volumes| {
            let scheduler = self.scheduler.clone();
            let requests = metrics.grpc.clone();
            volumes.begin(
                scheduler,
                &self.facts.host,
                incarnation,
                requests,
                &stopping,
            )
        });
        let bridges = self.facts.bridges.clone();
        let networks = self.report.networks.clone();
        let (networks, reached) = Networks::new(self.driver.clone(), bridges, networks);
        let looking = tokio::spawn(networks.watch(stopping.clone()));
        let scheduler = self.scheduler.clone();
        let registration = Registration {
            namespaces: looked,
            regions: volumes.as_ref().map(|volumes| volumes.regions.clone()),
            volumes: volumes.as_ref().map(Running::trigger),
            scheduler: self.scheduler,
            host: self.facts.host.clone(),
            report: self.report,
            events: link.events.clone(),
            fencing,
            last_heartbeat,
            standing,
            is_unacknowledged: false,
            signals: self.signals,
            networks: reached,
            grants: self.grants.clone(),
            metrics: metrics.clone(),
        };
        let sampling = self.sampler;
        let sampling = sampling.map(|sampler| tokio::spawn(sampler.run(stopping.clone())));
        let consoles = Consoles::new(
            self.facts.clone(),
            self.driver.clone(),
            self.grants.clone(),
            stopping.clone(),
        );
        let retention = self.image_retention;
        let collected = self.images.clone().filter(|_| !retention.is_zero());
        let collecting = collected.map(|store| {
            let collector = Collector {
                store,
                scheduler: scheduler.clone(),
                retention,
            };
            tokio::spawn(collector.run(stopping.clone()))
        });
        let images = Images::new(
            self.facts.clone(),
            self.images,
            self.image_settings,
            self.grants.clone(),
            scheduler.dialer().clone(),
            stopping.clone(),
        );
        let api = AgentApi {
            core,
            facts: self.facts.clone(),
            driver: self.driver.clone(),
            stopping: stopping.clone(),
            fetches,
            readers,
            grants: self.grants,
            checks: self.checks,
            consoles,
            images,
        };
        let certificates = self.tls.clone();
        let certificates = certificates.map(|tls| tokio::spawn(tls.follow(stopping.clone())));
        let routes = Routes::new(ComputeAgentServiceServer::new(api))
            .add_service(health_service)
            .add_service(berth_log_service::service())
            .add_service(REFLECTION.v1())
            .add_service(REFLECTION.v1alpha());
        let routes = match volumes.as_ref().map(Running::service) {
            Some(service) => routes.add_service(service),
            None => routes,
        };
        let server = server::new(self.tls.as_ref(), server::limits()).counted(metrics.grpc.clone());
        let observing = self.watch.map(|listener| {
            let held = server.bounds().clone();
            let (driver, topology) = (self.driver.clone(), self.facts.topology.clone());
            let watched = Watched::new(metrics, held, driver, topology);
            let program = Program {
                name: "berth-compute-agent",
                service_version: self.service_version,
            };
            let sampling = watched.work(stopping.clone());
            let (tls, stop) = (self.tls.clone(), stopping.clone());
            let served = metrics::serve(listener, tls, program, Arc::new(watched), stop);
            tokio::spawn(async move {
                tokio::join!(sampling, served);
            })
        });
        let incoming = server::incoming(self.listener, self.tls, Protocol::Grpc);
        let closing = stopping.clone().cancelled_owned();
        let mut server = tokio::spawn(server.serve(routes, incoming, closing));
        // The core runs until it is known whether the promise could be withdrawn.
        let ending = CancellationToken::new();
        let mut shell = tokio::spawn(shell.run(ending.clone()));
        let closing = stopping.clone().cancelled_owned();
        let mut learner = self.learner;
        learner.begin().await;
        let learning = tokio::spawn(learn_until(learner, closing));
        let mut registering = tokio::spawn(registration.run(health, stopping.clone()));
        let comparing = tokio::spawn(messenger.run(link, stopping.clone()));
        tracing::info!(address = %self.address, host = %self.facts.host, "serving");
        service_manager::notify_ready();

        let ended = tokio::select! {
            () = &mut shutdown => Ok(()),
            ended = &mut server => Err(match ended {
                Ok(Err(error)) => Error::Serve(error),
                Ok(Ok(())) | Err(_) => Error::Task("the server"),
            }),
            _ = &mut shell => Err(Error::Task("the core")),
            ended = &mut registering => Err(match ended {
                Ok(Some(refusal)) => Error::Refused(refusal),
                Ok(None) | Err(_) => Error::Task("the registration"),
            }),
        };
        stopping.cancel();
        if !registering.is_finished() && registering.await.is_err() {
            tracing::error!("the registration failed");
        }
        if let Some(certificates) = certificates
            && certificates.await.is_err()
        {
            tracing::error!("following the certificates failed");
        }
        if learning.await.is_err() {
            tracing::error!("learning the schedulers failed");
        }
        if comparing.await.is_err() {
            tracing::error!("the comparison with the scheduler failed");
        }
        if let Some(watching) = watching
            && watching.await.is_err()
        {
            tracing::error!("discovery of persistent memory failed");
        }
        if let Some(sampling) = sampling
            && sampling.await.is_err()
        {
            tracing::error!("measuring memory failed");
        }
        if looking.await.is_err() {
            tracing::error!("looking at bridges failed");
        }
        if let Some(collecting) = collecting
            && collecting.await.is_err()
        {
            tracing::error!("deleting images failed");
        }
        if let Some(volumes) = volumes {
            volumes.end().await;
        }
        ending.cancel();
        if !shell.is_finished() && shell.await.is_err() {
            tracing::error!("the core failed while it stopped");
        }
        server::join_or_abort(&mut server).await;
        if let Some(mut observing) = observing {
            server::join_or_abort(&mut observing).await;
        }
        self.driver.close();
        traces::stop(spans).await;
        tracing::info!("stopped");
        ended
    }
}

/// Has the core keep what an earlier run has promised of the guests, and returns since when.
fn take_up(
    mut fencing: SelfFencing,
    agent: &mut Agent,
) -> Result<(SelfFencing, Option<TimeMs>), Error> {
    let taken_up = fencing.take_up().map_err(|error| {
        let what = format!(
            "the self-fencing promise of an earlier run cannot be read: {error}; if no guest of it \
             was started elsewhere, remove the file"
        );
        Error::Config(Faults(vec![what]))
    })?;
    let Some((sent_at, limit_ms)) = taken_up else {
        return Ok((fencing, None));
    };
    let lease_ms = limit_ms;
    // Nothing is to be done before it knows what time it is.
    let _ = agent.step(Event::HeartbeatAcknowledged { sent_at, lease_ms });
    let _ = agent.step(Event::SelfFence { limit_ms });
    Ok((fencing, Some(sent_at)))
}

type Woken = (
    Facts,
    HostReport,
    Vec<Known>,
    Arc<dyn Driver>,
    SelfFencing,
    Option<Memories>,
    Option<Watchdog>,
    (Option<Managed>, GuestVolumes),
    Checks,
    Option<ImageStore>,
);

/// Does what blocks at the start.
fn wake(config: Config, valid: &Valid, address: SocketAddr) -> Result<Woken, Error> {
    let (topology, processor) = hypervisor::discover(&config)?;
    let traits = traits::traits(&config, &processor);
    let platform = traits::platform(&config);
    let machine = hypervisor::description(&config)?;
    // An agent that behaves like an older one does not know what only newer ones know.
    let knows_pmem = ServiceVersion(config.service_version) >= ServiceVersion::PMEM;
    let mut memories = Memories::of(&config, &valid.pmem, machine.as_ref());
    if !knows_pmem && memories.take().is_some() {
        tracing::warn!("persistent memory is not available to guests at this service version");
    }
    let found = memories.as_ref().map(Memories::at_start).transpose()?;
    let topology = Arc::new(pmem::with(&topology, found.unwrap_or_default())?);
    let watchdog = Watchdog::configured(&config.watchdog, &config.root)?;
    let fencing = hypervisor::self_fencing(&config, watchdog.as_ref().map(Watchdog::device));
    let driver = hypervisor::driver(&config, valid, &topology, memories.as_ref())?;
    let info = driver.info()?;
    let topology = match &mut memories {
        Some(memories) => {
            memories.with_hypervisor(&info.hypervisor);
            Arc::new(pmem::with(&topology, memories.at_start()?)?)
        }
        None => topology,
    };
    let cpu = hypervisor::cpu(&*driver, ServiceVersion(config.service_version));
    let bridges = match ServiceVersion(config.service_version).can(Feature::Networks) {
        true => mappings(&config.physical_networks),
        false => Vec::new(),
    };
    let reached = networks::at_start(&*driver, &bridges);
    let volumes = Managed::open(&config.volumes, &config.pmem)?;
    let known = driver.domains()?;
    let guest_volumes = GuestVolumes::new(match &volumes {
        Some(volumes) => volumes.for_guests(hypervisor::volumes_dir(&config)),
        None => Arc::new(NoVolumes),
    });
    // Without a driver the list of guests is unknown rather than empty: earlier marks stay.
    if config.driver != DriverKind::None {
        guest_volumes.adopt(&known);
    }
    tracing::info!(
        hypervisor = info.hypervisor,
        guests = known.len(),
        "connected to the hypervisor"
    );
    let advertise = config.listening.advertised(address);
    let images = hypervisor::images(&config, valid);
    let sources = Sources::of(&config);
    let storage_id = config
        .storage_id
        .unwrap_or_else(|| format!("host:{}", valid.name));
    let tls = config
        .migration
        .policy(config.listening.encryption.is_configured());
    let incarnation = Incarnation(Uuid::new_v4());
    let version = ServiceVersion(config.service_version);
    let facts = Facts {
        host: valid.name.clone(),
        incarnation,
        version,
        driver: info.driver.clone(),
        migration_uri: info.migration_uri.clone(),
        storage_id: storage_id.clone(),
        tls,
        topology: topology.clone(),
        bridges,
        transfer_ms_max: config.transfer_timeout_ms,
        compare_ms: match config.driver {
            DriverKind::Libvirt | DriverKind::Sim => config.compare_interval_ms,
            DriverKind::None => 0,
        },
    };
    let state = watchdog.as_ref().map(WatchdogState::of);
    let checks = Checks::new(facts.clone(), driver.clone(), sources, state);
    if config.driver != DriverKind::None {
        let checks = checks.clone();
        // A file system that hangs does not hold the agent up.
        std::thread::spawn(move || log_findings(&checks.own()));
    }
    let report = HostReport {
        agent_address: match config.listening.encryption.is_configured() {
            true => format!("https://{advertise}"),
            false => format!("http://{advertise}"),
        },
        incarnation,
        service_version: version,
        driver: info.driver,
        migration_uri: info.migration_uri,
        memory_reserved_mib: config.memory_reserved_mib.min(topology.memory_mib()),
        topology,
        disk_gib: match config.driver {
            DriverKind::Libvirt | DriverKind::Sim => config.disk_gib,
            DriverKind::None => 0,
        },
        storage_id,
        traits,
        platform,
        self_fence_ms: 0,
        regions: volumes
            .as_ref()
            .map_or_else(Vec::new, |v| v.regions().to_vec()),
        cpu,
        networks: reached,
    };
    Ok((
        facts,
        report,
        known,
        driver,
        fencing,
        memories,
        watchdog,
        (volumes, guest_volumes),
        checks,
        images,
    ))
}

/// Logs what guests will not find on this host, which starts nevertheless: other guests may need less.
fn log_findings(findings: &[HostFinding]) {
    let bad = findings.iter().filter(|f| f.outcome != CheckOutcome::Ok);
    for finding in bad {
        let hint = finding.hint.as_deref().unwrap_or_default();
        tracing::warn!(check = finding.check, hint, "{}", finding.message);
    }
}
