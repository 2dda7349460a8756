//! One agent as a whole: its machine, its hypervisor, its service, and its registration.
//!
//! Invariant: it takes no call before it knows what runs on its host; when it ends, its guests
//! and what the hypervisor does for them go on.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use berth_domain::host::HostReport;
use berth_domain::id::Incarnation;
use berth_domain::name::HostName;
use berth_domain::version::ServiceVersion;
use berth_driver::{Driver, Known};
use berth_proto::agent::v1::compute_agent_service_server::ComputeAgentServiceServer;
use berth_proto::client::SchedulerChannel;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use uuid::Uuid;

use crate::config::{Config, Faults, Valid};
use crate::core::{Agent, Facts};
use crate::error::Error;
use crate::registration::Registration;
use crate::service::AgentApi;
use crate::{hypervisor, shell};

/// How long connections may take to end after everything else has.
const GOODBYE: Duration = Duration::from_secs(2);
/// Connections that are silent for so long are probed, and given up without an answer.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// An agent that knows its host and listens, but does not serve yet.
pub struct ComputeAgent {
    listener: TcpListener,
    address: SocketAddr,
    facts: Facts,
    report: HostReport,
    known: Vec<Known>,
    driver: Arc<dyn Driver>,
    scheduler: SchedulerChannel,
}

/// Runs one agent until `shutdown` is ready.
///
/// # Errors
///
/// Why it cannot start, or had to stop.
pub async fn run(config: Config, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
    ComputeAgent::start(config).await?.run(shutdown).await
}

impl ComputeAgent {
    /// Discovers the machine, asks the hypervisor what runs, and listens.
    ///
    /// # Errors
    ///
    /// Why it cannot start.
    pub async fn start(config: Config) -> Result<Self, Error> {
        let valid = config.validate()?;
        let scheduler = SchedulerChannel::new(config.scheduler_urls())
            .map_err(|error| Faults(vec![error.to_string()]))?;
        let cannot_listen = |source| Error::Listen {
            address: valid.listen.to_string(),
            source,
        };
        let bound = TcpListener::bind(valid.listen).await;
        let listener = bound.map_err(cannot_listen)?;
        let address = listener.local_addr().map_err(cannot_listen)?;
        let waking = move || wake(config, &valid, address);
        let woken = tokio::task::spawn_blocking(waking).await;
        let (facts, report, known, driver) = woken.map_err(|_| Error::Task("the start"))??;
        Ok(Self {
            listener,
            address,
            facts,
            report,
            known,
            driver,
            scheduler,
        })
    }

    /// Returns the address that it listens on, with the port that was given where 0 was asked
    /// for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
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
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
        let stopping = CancellationToken::new();
        let agent = Agent::new(self.facts.clone(), self.known);
        let (core, shell) = shell::new(agent, self.driver.clone());
        let (health, health_service) = tonic_health::server::health_reporter();
        let registration = Registration {
            scheduler: self.scheduler,
            host: self.facts.host.clone(),
            report: self.report,
        };
        let api = AgentApi {
            core,
            facts: self.facts.clone(),
            driver: self.driver.clone(),
            stopping: stopping.clone(),
        };
        let server = Server::builder()
            .http2_keepalive_interval(Some(KEEP_ALIVE))
            .http2_keepalive_timeout(Some(KEEP_ALIVE))
            .tcp_nodelay(true)
            .add_service(ComputeAgentServiceServer::new(api))
            .add_service(health_service)
            .add_service(reflection::v1())
            .add_service(reflection::v1alpha());
        let incoming = TcpIncoming::from(self.listener).with_nodelay(Some(true));
        let closing = stopping.clone().cancelled_owned();
        let mut server = tokio::spawn(server.serve_with_incoming_shutdown(incoming, closing));
        let mut shell = tokio::spawn(shell.run(stopping.clone()));
        let registering = tokio::spawn(registration.run(health, stopping.clone()));
        tracing::info!(address = %self.address, host = %self.facts.host, "serving");

        let mut shutdown = pin!(shutdown);
        let ended = tokio::select! {
            () = &mut shutdown => Ok(()),
            ended = &mut server => Err(match ended {
                Ok(Err(error)) => Error::Serve(error),
                Ok(Ok(())) | Err(_) => Error::Task("the server"),
            }),
            _ = &mut shell => Err(Error::Task("the core")),
        };
        stopping.cancel();
        if !shell.is_finished() && shell.await.is_err() {
            tracing::error!("the core failed while it stopped");
        }
        if registering.await.is_err() {
            tracing::error!("the registration failed");
        }
        if !server.is_finished() && tokio::time::timeout(GOODBYE, &mut server).await.is_err() {
            // Somebody keeps a connection busy who had time enough to notice.
            server.abort();
        }
        self.driver.close();
        tracing::info!("stopped");
        ended
    }
}

type Woken = (Facts, HostReport, Vec<Known>, Arc<dyn Driver>);

/// Does what blocks at the start.
fn wake(config: Config, valid: &Valid, address: SocketAddr) -> Result<Woken, Error> {
    let topology = hypervisor::discover(&config)?;
    let driver = hypervisor::driver(&config, valid, &topology)?;
    let info = driver.info()?;
    let known = driver.domains()?;
    tracing::info!(
        hypervisor = info.hypervisor,
        guests = known.len(),
        "the hypervisor is there"
    );
    let advertise = config.advertise.unwrap_or_else(|| address.to_string());
    let storage_id = config
        .storage_id
        .unwrap_or_else(|| format!("host:{}", valid.name));
    let incarnation = Incarnation(Uuid::new_v4());
    let version = ServiceVersion(config.service_version);
    let facts = Facts {
        host: valid.name.clone(),
        incarnation,
        version,
        driver: info.driver.clone(),
        migration_uri: info.migration_uri.clone(),
        storage_id: storage_id.clone(),
        topology: topology.clone(),
        transfer_ms_max: config.transfer_timeout_ms,
    };
    let report = HostReport {
        agent_address: format!("http://{advertise}"),
        incarnation,
        service_version: version,
        driver: info.driver,
        migration_uri: info.migration_uri,
        memory_reserved_mib: config.memory_reserved_mib.min(topology.memory_mib()),
        topology,
        disk_gib: config.disk_gib,
        storage_id,
    };
    Ok((facts, report, known, driver))
}

/// What clients without our files ask the server about itself.
mod reflection {
    use berth_proto::agent::v1::compute_agent_service_server::SERVICE_NAME;
    use tonic_reflection::server::{Builder, v1, v1alpha};

    fn described() -> Builder<'static> {
        // The descriptors are those of all programs; only what is served here is listed.
        Builder::configure()
            .register_encoded_file_descriptor_set(berth_proto::DESCRIPTOR_SET)
            .with_service_name(SERVICE_NAME)
    }

    pub(super) fn v1() -> v1::ServerReflectionServer<impl v1::ServerReflection> {
        let built = described().build_v1();
        built.expect("our own descriptors are sound")
    }

    pub(super) fn v1alpha() -> v1alpha::ServerReflectionServer<impl v1alpha::ServerReflection> {
        let built = described().build_v1alpha();
        built.expect("our own descriptors are sound")
    }
}
