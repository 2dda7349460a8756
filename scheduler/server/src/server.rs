//! One member as a whole: its replica, its services, and the tasks beside them.
//!
//! ```text
//!   clients, conductors, agents ─▶ ┌──────────┐ ─▶ replica (own task) ─▶ log, table, checkpoints
//!   other members               ─▶ │ listener │ ◀─ answers
//!                                  └──────────┘
//!   beside them: the feed for watches, the duties of the leader, health, who leads
//! ```
//!
//! Invariant: whatever ends the replica ends the member, and a member that ends has answered the
//! clients that still wait.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use berth_domain::version::ServiceVersion;
use berth_page::host_header::Names;
use berth_process::metrics::{self, Program};
use berth_process::server::{self, Reflection};
use berth_process::{BoxFuture, Faults, Shutdown, bounds, listening, service_manager, traces};
use berth_proto::audit::v1::audit_service_server;
use berth_proto::client::Dialer;
use berth_proto::cluster::v1::cluster_service_server;
use berth_proto::event::v1::event_service_server;
use berth_proto::host::v1::host_service_server;
use berth_proto::operation::v1::operation_service_server;
use berth_proto::placement::v1::catalog_service_server;
use berth_proto::placement::v1::import_service_server;
use berth_proto::placement::v1::placement_service_server;
use berth_proto::planner::v1::planner_service_server;
use berth_proto::policy::v1::aggregate_service_server;
use berth_proto::policy::v1::policy_service_server;
use berth_proto::policy::v1::server_group_service_server;
use berth_proto::raft::v1::raft_service_server;
use berth_proto::scheduler::v1::move_service_server;
use berth_proto::scheduler::v1::power_service_server;
use berth_proto::scheduler::v1::scheduler_service_server;
use berth_proto::volume::v1::volume_service_server;
use berth_replication::runtime::{Ended, Handle, Runtime, Settings, StopError, SyncObserver};
use berth_replication::transport::{self, Forwarder};
use berth_store::{FileDisk, Identity};
use berth_tls::material::Protocol;
use berth_tls::{Role, Tls};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use crate::addresses::Recorder;
use crate::backup::content::Origin;
use crate::backup::schedule::{self, Schedule};
use crate::backup::status::SharedStatus;
use crate::backup::store::BackupStore;
use crate::config::{Config, settings};
use crate::contact::Contacts;
use crate::error::Error;
use crate::expelled::Others;
use crate::feed::{Feed, Limits};
use crate::machine::Machine;
use crate::metrics::{Failover, Metrics, Watched};
use crate::page::PageAccess;
use crate::service::{Context, Setup, StaleReads, Urls, revoked_since};
use crate::{
    dead_members, duties, expelled, freshness, health, invariants, leadership, member,
    operation_spans, other_cluster, outdated, page, past, placement, routes,
};

/// The descriptors are those of all programs; only what is served here is listed.
const REFLECTION: Reflection = Reflection {
    descriptors: berth_proto::DESCRIPTOR_SET,
    served: &[
        aggregate_service_server::SERVICE_NAME,
        audit_service_server::SERVICE_NAME,
        catalog_service_server::SERVICE_NAME,
        cluster_service_server::SERVICE_NAME,
        event_service_server::SERVICE_NAME,
        host_service_server::SERVICE_NAME,
        berth_log_service::SERVICE_NAME,
        import_service_server::SERVICE_NAME,
        move_service_server::SERVICE_NAME,
        power_service_server::SERVICE_NAME,
        operation_service_server::SERVICE_NAME,
        placement_service_server::SERVICE_NAME,
        planner_service_server::SERVICE_NAME,
        policy_service_server::SERVICE_NAME,
        server_group_service_server::SERVICE_NAME,
        raft_service_server::SERVICE_NAME,
        scheduler_service_server::SERVICE_NAME,
        volume_service_server::SERVICE_NAME,
    ],
};

/// A member that listens and has its state, but does not serve yet.
pub struct Scheduler {
    config: Config,
    listener: TcpListener,
    address: SocketAddr,
    /// Where OpenStack Placement's REST API is served, and how.
    placement: Option<(TcpListener, berth_placement_api::Options)>,
    /// Where metrics and health are served.
    watch: Option<TcpListener>,
    /// Where the page is served, and for which names.
    page: Option<(TcpListener, Names)>,
    metrics: Arc<Metrics>,
    advertise: String,
    tls: Option<Tls>,
    runtime: Runtime<Machine, FileDisk>,
}

/// Runs one member until `shutdown` is ready.
///
/// # Errors
///
/// Why it cannot start, or had to stop.
pub fn run(config: Config, shutdown: Shutdown) -> BoxFuture<'static, Result<(), Error>> {
    Box::pin(start_and_run(config, shutdown))
}

async fn start_and_run(config: Config, mut shutdown: Shutdown) -> Result<(), Error> {
    let scheduler = tokio::select! {
        scheduler = Scheduler::open(config) => scheduler?,
        () = &mut shutdown => return Ok(()),
    };
    scheduler.serve_until(shutdown).await
}

impl Scheduler {
    /// Listens, and opens the member's directory or creates it as configured.
    ///
    /// # Errors
    ///
    /// Why it cannot start.
    pub fn start(config: Config) -> BoxFuture<'static, Result<Self, Error>> {
        Box::pin(Self::open(config))
    }

    async fn open(config: Config) -> Result<Self, Error> {
        let addresses = config.validate()?;
        let (listener, address) = listening::bind(addresses.grpc).await?;
        let metrics = Arc::new(Metrics::new(REFLECTION.served));
        let placement = match addresses.placement {
            Some(listen) => Some((
                listening::bind(listen).await?.0,
                placement_options(&config, &metrics)?,
            )),
            None => None,
        };
        let watch = match addresses.metrics {
            Some(listen) => Some(listening::bind(listen).await?.0),
            None => None,
        };
        let page = match addresses.page {
            Some(listen) => {
                let (listener, address) = listening::bind(listen).await?;
                let names = page_names(&config, address);
                Some((listener, names))
            }
            None => None,
        };
        let advertise = config.listening.advertised(address);
        let encryption = &config.listening.encryption;
        let tls = encryption.open(Role::Scheduler, &advertise, |_| Ok(()));
        let tls = tls.map_err(Error::Certificates)?;
        let dialer = Dialer::new(tls.clone());
        let settings = replica_settings(&config, &metrics);
        let runtime = member::open(&config, settings, &advertise, &dialer).await?;
        let identity = runtime.identity();
        tracing::info!(
            member = identity.member_id,
            cluster = %identity.cluster_id,
            directory = %config.data_dir.display(),
            "{}",
            runtime.recovery()
        );
        for repair in &runtime.recovery().repairs {
            tracing::warn!("{repair}");
        }
        if runtime.recovery().torn_bytes > 0 {
            tracing::info!(
                bytes = runtime.recovery().torn_bytes,
                "the last record of the Raft log was not completely written before the process                  ended; it was never acknowledged"
            );
        }
        Ok(Self {
            config,
            listener,
            address,
            placement,
            watch,
            page,
            metrics,
            advertise,
            tls,
            runtime,
        })
    }

    /// Returns the address that it listens on, with the port that was assigned where 0 was configured
    /// for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns where OpenStack Placement's REST API listens, if it is served.
    #[must_use]
    pub fn placement_address(&self) -> Option<SocketAddr> {
        let (listener, _) = self.placement.as_ref()?;
        listener.local_addr().ok()
    }

    /// Returns where metrics and health are served, if they are.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.watch.as_ref()?.local_addr().ok()
    }

    /// Returns where the page is served, if it is.
    #[must_use]
    pub fn page_address(&self) -> Option<SocketAddr> {
        let (listener, _) = self.page.as_ref()?;
        listener.local_addr().ok()
    }

    /// Returns how browsers get to the page, if it is served.
    fn page_access(&self) -> Option<PageAccess> {
        let address = self.page_address()?;
        let is_encrypted = self.tls.is_some();
        let scheme = if is_encrypted { "https" } else { "http" };
        let listen = self.config.page_listen.as_deref().unwrap_or_default();
        let host = match self.config.page_hosts.first() {
            Some(name) => name.clone(),
            None if address.ip().is_unspecified() => host_of(&self.advertise).to_owned(),
            None => host_of(listen).to_owned(),
        };
        Some(PageAccess {
            url: format!("{scheme}://{host}:{}/", address.port()),
            is_encrypted,
            logins: self.config.page_login.then(Arc::default),
        })
    }

    /// Returns what opening the directory found, in sentences.
    #[must_use]
    pub fn recovery(&self) -> Vec<String> {
        let recovery = self.runtime.recovery();
        let mut sentences = vec![recovery.to_string()];
        sentences.extend(recovery.repairs.iter().cloned());
        sentences
    }

    /// Returns the handle to its replica for use within this process.
    #[must_use]
    pub fn handle(&self) -> Handle<Machine> {
        self.runtime.handle()
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

    async fn serve_until(self, shutdown: Shutdown) -> Result<(), Error> {
        let handle = self.runtime.handle();
        let member = self.runtime.identity().member_id.to_string();
        let spans = self.config.traces.start("berth-scheduler", &member)?;
        let ended_operations = spans
            .is_some()
            .then(|| operation_spans::run(handle.clone()));
        let ended_operations = ended_operations.map(spawn);
        let machine = self.runtime.machine();
        if let (Some(tls), Some(machine)) = (&self.tls, machine)
            && let Some(revoked) = revoked_since(machine.state(), 0)
        {
            // Before the first connection is accepted.
            tls.revoke(revoked);
        }
        let feed = Feed::new(
            machine.map_or(0, |machine| machine.state().revision()),
            Limits {
                changes: self.config.watch_history_max,
                bytes: self.config.watch_history_bytes_max,
            },
        );
        let stopping = CancellationToken::new();
        let known = transport::Known::default();
        let level = ServiceVersion(self.config.service_version);
        let transport_options = transport::Options {
            version: level.0,
            dialer: Dialer::new(self.tls.clone()),
            ..transport::Options::default()
        };
        let backups = SharedStatus::default();
        let page_access = self.page_access();
        let logins = page_access.as_ref().and_then(|page| page.logins.clone());
        let context = Context::new(Setup {
            handle: handle.clone(),
            scheduled_backups: self
                .config
                .backups
                .directory
                .is_some()
                .then(|| backups.clone()),
            archive: self.runtime.archive(),
            feed: feed.clone(),
            cluster_id: self.runtime.identity().cluster_id.clone(),
            liveness_limit_ms: self.config.liveness_limit_ms,
            request_timeout: Duration::from_millis(self.config.request_timeout_ms),
            forwarder: Forwarder::new(
                &self.runtime.inbox(),
                self.advertise.clone(),
                known.addresses.clone(),
                transport_options.clone(),
            ),
            leader_wait: two_elections(&self.config),
            stopping: stopping.clone(),
            level,
            versions: known.versions.clone(),
            urls: Urls::new(self.tls.is_some()),
            dialer: Dialer::new(self.tls.clone()),
            page: page_access,
            contacts: Contacts::default(),
            addresses: known.addresses.clone(),
            settings: settings::settings(&self.config),
            metrics: self.metrics.clone(),
        });
        let feed = spawn(feed.follow(handle.watch()));
        let duties = duties::run(context.clone(), self.tls.clone(), stopping.clone());
        let duties = spawn(duties);
        let freshness = context.freshness().clone();
        let freshness = freshness::run(freshness, handle.clone(), stopping.clone());
        let freshness = spawn(freshness);
        let identity = self.runtime.identity();
        let schedule = schedule_of(&self.config, identity, handle.clone(), backups);
        let schedule = schedule.map(|schedule| spawn(schedule::run(schedule, stopping.clone())));
        let leadership =
            leadership::log_changes(handle.clone(), self.metrics.clone(), stopping.clone());
        let leadership = spawn(leadership);
        let dialer = Dialer::new(self.tls.clone());
        let recorder = Recorder {
            context: context.clone(),
            advertise: self.advertise.clone(),
            introductions: self.config.start.peers().to_vec(),
        };
        let recorder = spawn(recorder.run());
        let dead_members = spawn(dead_members::run(context.clone()));
        let expelled = expelled::wait(
            handle.clone(),
            Others {
                addresses: known.addresses.clone(),
                introductions: self.config.start.peers().to_vec(),
                dialer: dialer.clone(),
            },
            self.runtime.identity().cluster_id.clone(),
            two_elections(&self.config),
        );
        let outdated = outdated::wait(
            handle.clone(),
            dialer,
            self.runtime.identity().cluster_id.clone(),
            level,
        );
        let interval = Duration::from_millis(self.config.invariant_check_interval_ms);
        let invariants = invariants::watch(context.clone(), interval);
        let (health, health_service) = tonic_health::server::health_reporter();
        let health = spawn(health::report(health, handle.clone(), stopping.clone()));

        let (network, raft_service) = transport::grpc(
            self.runtime.inbox(),
            self.advertise.clone(),
            transport_options,
            Some(Arc::new(context.clone())),
            known,
        );
        let replica_stop = CancellationToken::new();
        let replica = self
            .runtime
            .run(network, replica_stop.clone().cancelled_owned());
        let mut replica = spawn(replica);

        let closing = CancellationToken::new();
        let placement = serve_placement(self.placement, self.tls.clone(), &context, &closing);
        let certificates = self.tls.clone();
        let certificates = certificates.map(|tls| spawn(tls.follow(stopping.clone())));

        let routes = routes::client_services(&context, self.config.request_bytes_max)
            .add_service(raft_service)
            .add_service(health_service)
            .add_service(berth_log_service::service())
            .add_service(REFLECTION.v1())
            .add_service(REFLECTION.v1alpha());
        let server = server::new(self.tls.as_ref(), grpc_limits(&self.config));
        let server = server.counted(self.metrics.grpc.clone());
        let failover = Failover::default();
        let verifies = self.watch.is_some() || self.page.is_some();
        let verifying = verifies.then(|| spawn(failover.clone().run(context.clone())));
        let page = self.page.map(|(listener, names)| {
            let read = (context.clone(), failover.clone());
            let tls = self.tls.clone();
            let served = page::serve(listener, tls, read, names, logins, closing.clone());
            spawn(served)
        });
        let watch = self.watch.map(|listener| {
            let watched = Watched::new(context.clone(), server.bounds().clone(), failover);
            watch(listener, self.tls.clone(), watched, &self.config, &closing)
        });
        let past = past::Layer::new(context.clone());
        let of_cluster = other_cluster::Layer::new(context.cluster_id());
        let routes = routes.into_axum_router().layer(StaleReads(context));
        let routes = routes.layer(past).layer(of_cluster);
        let routes = Routes::from(routes);
        let incoming = server::incoming(self.listener, self.tls, Protocol::Grpc);
        let closed = closing.clone().cancelled_owned();
        let mut server = spawn(server.serve(routes, incoming, closed));
        tracing::info!(address = %self.address, advertise = %self.advertise, "serving");
        service_manager::notify_ready();

        let ended = tokio::select! {
            () = shutdown => None,
            () = expelled => Some(Err(Error::Removed)),
            cluster = outdated => Some(Err(Error::Outdated { cluster, level })),
            broken = invariants => Some(Err(Error::of_invariant(broken))),
            ended = &mut replica.0 => Some(of_replica(ended)),
            ended = &mut server.0 => Some(of_server(ended)),
        };
        stopping.cancel();
        // The replica ends first: a leader hands leadership over, for which it needs the server.
        replica_stop.cancel();
        let ended = match ended {
            Some(ended) if replica.0.is_finished() => ended,
            Some(ended) => ended.and(of_replica((&mut replica.0).await)),
            None => of_replica((&mut replica.0).await),
        };
        closing.cancel();
        server::join_or_abort(&mut server.0).await;
        if let Some(mut placement) = placement {
            server::join_or_abort(&mut placement.0).await;
        }
        if let Some(mut page) = page {
            server::join_or_abort(&mut page.0).await;
        }
        let beside = [
            feed,
            duties,
            freshness,
            leadership,
            health,
            recorder,
            dead_members,
        ];
        let beside = beside.into_iter().chain(certificates).chain(schedule);
        let beside = beside.chain(ended_operations).chain(verifying);
        for task in beside.chain(watch.into_iter().flatten()) {
            end(task).await;
        }
        traces::stop(spans).await;
        tracing::info!("stopped");
        ended
    }
}

fn placement_options(
    config: &Config,
    metrics: &Metrics,
) -> Result<berth_placement_api::Options, Error> {
    let tokens = config.placement_tokens.as_deref();
    let tokens = tokens.map(berth_placement_api::Tokens::read).transpose();
    Ok(berth_placement_api::Options {
        profile: config
            .placement_profile
            .unwrap_or(berth_placement_api::Profile::Default),
        tokens: tokens.map_err(|faults| Error::Tokens(Faults(faults)))?,
        body_bytes_max: config.request_bytes_max,
        timeout: Duration::from_millis(config.request_timeout_ms),
        connections_max: config.placement_connections_max,
        requests: metrics.placement.clone(),
    })
}

/// Returns the host of an address with a port.
fn host_of(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

/// Returns the names that the page is served for: besides the configured ones that of its own address, as it
/// was written.
fn page_names(config: &Config, address: SocketAddr) -> Names {
    let listen = config.page_listen.as_deref();
    let own = listen.and_then(|listen| listen.rsplit_once(':'));
    let own = own.map(|(host, _)| host.trim_matches(['[', ']']).to_owned());
    let own = own.filter(|host| host.parse::<std::net::IpAddr>().is_err());
    Names::new(address, config.page_hosts.iter().cloned().chain(own))
}

/// Returns the schedule of backups, if there is one.
fn schedule_of(
    config: &Config,
    identity: &Identity,
    handle: Handle<Machine>,
    status: SharedStatus,
) -> Option<Schedule> {
    let backups = &config.backups;
    Some(Schedule {
        interval: Duration::from_secs(backups.interval_s),
        store: BackupStore {
            directory: backups.directory.clone()?,
            origin: Origin {
                cluster_id: identity.cluster_id.clone(),
                member_id: identity.member_id,
            },
            full_every: backups.full_every,
            keep: backups.keep,
        },
        handle,
        status,
    })
}

/// Returns the limits of the gRPC server.
fn grpc_limits(config: &Config) -> bounds::Limits {
    let streams = u32::try_from(config.requests_per_connection_max).unwrap_or(u32::MAX);
    bounds::Limits {
        streams,
        watches: config.watches_max as u64,
        ..server::limits().with_messages(config.request_bytes_max as u64)
    }
}

/// Returns twice the longest time until an election.
fn two_elections(config: &Config) -> Duration {
    Duration::from_millis(config.raft_tick_ms)
        * u32::try_from(config.raft_election_ticks * 4).unwrap_or(u32::MAX)
}

fn replica_settings(config: &Config, metrics: &Metrics) -> Settings {
    let syncs = metrics.log_syncs.clone();
    let mut settings = Settings {
        tick: Duration::from_millis(config.raft_tick_ms),
        sync_observer: SyncObserver::new(move |took| syncs.observe(took)),
        ..Settings::default()
    };
    let ticks = |ticks: u64| usize::try_from(ticks).unwrap_or(usize::MAX);
    settings.replica.election_ticks = ticks(config.raft_election_ticks);
    settings.replica.heartbeat_ticks = ticks(config.raft_heartbeat_ticks);
    settings.replica.checkpoint_entries = config.checkpoint_entries;
    settings
}

type Joined<T> = Result<T, tokio::task::JoinError>;

fn of_replica(ended: Joined<Result<Ended, StopError>>) -> Result<(), Error> {
    match ended {
        Ok(Ok(Ended::Shutdown)) => Ok(()),
        Ok(Ok(Ended::Removed)) => Err(Error::Removed),
        Ok(Err(error)) => Err(error.into()),
        Err(error) => Err(Error::of_task("the replica", error)),
    }
}

fn of_server(ended: Joined<Result<(), tonic::transport::Error>>) -> Result<(), Error> {
    match ended {
        Ok(Ok(())) => Err(Error::Ended("the server")),
        Ok(Err(error)) => Err(error.into()),
        Err(error) => Err(Error::of_task("the server", error)),
    }
}

/// A task that ends with its owner.
struct Task<T>(JoinHandle<T>);

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn spawn<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Task<T> {
    Task(tokio::spawn(work))
}

/// Serves the REST API, if it is to be served.
fn serve_placement(
    placement: Option<(TcpListener, berth_placement_api::Options)>,
    tls: Option<Tls>,
    context: &Context,
    closing: &CancellationToken,
) -> Option<Task<()>> {
    let (listener, options) = placement?;
    let served = placement::serve(listener, tls, context.clone(), options, closing.clone());
    Some(spawn(served))
}

/// Serves metrics and health, and does the work that they need.
fn watch(
    listener: TcpListener,
    tls: Option<Tls>,
    watched: Watched,
    config: &Config,
    closing: &CancellationToken,
) -> Vec<Task<()>> {
    let program = Program {
        name: "berth-scheduler",
        service_version: config.service_version,
    };
    let mut tasks: Vec<_> = watched
        .work(config.data_dir.clone())
        .into_iter()
        .map(spawn)
        .collect();
    let watched = Arc::new(watched);
    tasks.push(spawn(metrics::serve(
        listener,
        tls,
        program,
        watched,
        closing.clone(),
    )));
    tasks
}

/// Ends a task that has nothing to lose.
async fn end(mut task: Task<()>) {
    task.0.abort();
    if let Err(error) = (&mut task.0).await
        && error.is_panic()
    {
        tracing::error!(%error, "a task beside the replica failed");
    }
}
