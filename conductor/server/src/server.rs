//! One conductor as a whole: its service, its supervisor, and its registration.
//!
//! Invariant: when it ends, nothing of it goes on: no call, no lease, no listener.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use berth_domain::name::ServiceName;
use berth_domain::version::ServiceVersion;
use berth_proto::client::SchedulerChannel;
use berth_proto::conductor::v1::conductor_service_server::ConductorServiceServer;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use crate::agents::{Agents, Timeouts};
use crate::config::{Config, Faults};
use crate::driver::Tools;
use crate::error::Error;
use crate::registration;
use crate::scheduler::Scheduler;
use crate::service::ConductorApi;
use crate::supervisor::{self, Settings};

/// How long connections may take to end after everything else has.
const GOODBYE: Duration = Duration::from_secs(2);
/// Connections that are silent for so long are probed, and given up without an answer.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// A conductor that listens, but does not serve yet.
#[derive(Debug)]
pub struct Conductor {
    config: Config,
    listener: TcpListener,
    address: SocketAddr,
    /// What others dial.
    advertise: String,
    name: ServiceName,
    scheduler: SchedulerChannel,
}

/// Runs one conductor until `shutdown` is ready.
///
/// # Errors
///
/// Why it cannot start, or had to stop.
pub async fn run(config: Config, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
    Conductor::start(config).await?.run(shutdown).await
}

impl Conductor {
    /// Listens as the configuration says.
    ///
    /// # Errors
    ///
    /// Why it cannot start.
    pub async fn start(config: Config) -> Result<Self, Error> {
        let listen = config.validate()?;
        let cannot_listen = |source| Error::Listen {
            address: listen.to_string(),
            source,
        };
        let listener = TcpListener::bind(listen).await.map_err(cannot_listen)?;
        let address = listener.local_addr().map_err(cannot_listen)?;
        let advertise = match &config.advertise {
            Some(advertise) => advertise.clone(),
            None => address.to_string(),
        };
        let name = match &config.name {
            Some(name) => ServiceName::new(name),
            None => ServiceName::new(&name_of(&advertise)),
        };
        let name = name.map_err(|error| Faults(vec![error.to_string()]))?;
        let scheduler = SchedulerChannel::new(config.scheduler_urls())
            .map_err(|error| Faults(vec![error.to_string()]))?;
        Ok(Self {
            config,
            listener,
            address,
            advertise,
            name,
            scheduler,
        })
    }

    /// Returns the address that it listens on, with the port that was given where 0 was asked
    /// for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns what it is called in the cluster.
    #[must_use]
    pub fn name(&self) -> &ServiceName {
        &self.name
    }

    /// Serves until `shutdown` is ready.
    ///
    /// Operations that are under way are left where they are: their leases run out, and another
    /// conductor, or this one when it comes back, carries them on.
    ///
    /// # Errors
    ///
    /// Why it had to stop.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
        let stopping = CancellationToken::new();
        let tools = self.tools();
        let settings = Settings {
            takeover_interval: Duration::from_millis(self.config.takeover_interval_ms),
            operations_max: usize::try_from(self.config.operations_max).unwrap_or(usize::MAX),
        };
        let (handle, supervising) = supervisor::new(tools.clone(), settings, stopping.clone());
        let (health, health_service) = tonic_health::server::health_reporter();
        let registering = registration::run(
            tools.scheduler.clone(),
            format!("http://{}", self.advertise),
            health,
            stopping.clone(),
        );
        let api = ConductorApi {
            tools,
            supervisor: handle,
            stopping: stopping.clone(),
        };
        let server = Server::builder()
            .http2_keepalive_interval(Some(KEEP_ALIVE))
            .http2_keepalive_timeout(Some(KEEP_ALIVE))
            .tcp_nodelay(true)
            .add_service(ConductorServiceServer::new(api))
            .add_service(health_service)
            .add_service(reflection::v1())
            .add_service(reflection::v1alpha());
        let incoming = TcpIncoming::from(self.listener).with_nodelay(Some(true));
        let closing = stopping.clone().cancelled_owned();
        let mut server = tokio::spawn(server.serve_with_incoming_shutdown(incoming, closing));
        let mut supervisor = tokio::spawn(supervising);
        let registration = tokio::spawn(registering);
        tracing::info!(address = %self.address, name = %self.name, "serving");

        let mut shutdown = pin!(shutdown);
        let ended = tokio::select! {
            () = &mut shutdown => Ok(()),
            ended = &mut server => Err(match ended {
                Ok(Err(error)) => Error::Serve(error),
                Ok(Ok(())) | Err(_) => Error::Task("the server"),
            }),
            _ = &mut supervisor => Err(Error::Task("the supervisor")),
        };
        stopping.cancel();
        if !supervisor.is_finished() && supervisor.await.is_err() {
            tracing::error!("the supervisor failed while it stopped");
        }
        if registration.await.is_err() {
            tracing::error!("the registration failed");
        }
        if !server.is_finished() && tokio::time::timeout(GOODBYE, &mut server).await.is_err() {
            // Somebody keeps a connection busy who had time enough to notice.
            server.abort();
        }
        tracing::info!("stopped");
        ended
    }

    fn tools(&self) -> Tools {
        let config = &self.config;
        let scheduler = Scheduler::new(
            self.scheduler.clone(),
            self.name.clone(),
            Duration::from_millis(config.lease_ttl_ms),
            ServiceVersion(config.service_version),
        );
        let agents = Agents::new(Timeouts {
            question: Duration::from_millis(config.call_timeout_ms),
            work: Duration::from_millis(config.slow_call_timeout_ms),
        });
        let calls = usize::try_from(config.calls_max).unwrap_or(Semaphore::MAX_PERMITS);
        Tools {
            scheduler,
            agents,
            calls: Arc::new(Semaphore::new(calls.min(Semaphore::MAX_PERMITS))),
        }
    }
}

/// Makes a name out of an address: as no two conductors share one, no two share a name.
fn name_of(advertise: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '.' {
            c
        } else {
            '-'
        }
    };
    format!(
        "conductor-{}",
        advertise.chars().map(plain).collect::<String>()
    )
}

/// What clients without our files ask the server about itself.
mod reflection {
    use berth_proto::conductor::v1::conductor_service_server::SERVICE_NAME;
    use tonic_reflection::server::{Builder, v1, v1alpha};

    fn described() -> Builder<'static> {
        // The descriptors are those of all programs; only what is served here is listed.
        Builder::configure()
            .register_encoded_file_descriptor_set(berth_proto::DESCRIPTOR_SET)
            .with_service_name(SERVICE_NAME)
    }

    pub(super) fn v1() -> v1::ServerReflectionServer<impl v1::ServerReflection> {
        described()
            .build_v1()
            .expect("our own descriptors are sound")
    }

    pub(super) fn v1alpha() -> v1alpha::ServerReflectionServer<impl v1alpha::ServerReflection> {
        let built = described().build_v1alpha();
        built.expect("our own descriptors are sound")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_make_names() {
        assert_eq!(name_of("127.0.0.1:7200"), "conductor-127.0.0.1-7200");
        assert_eq!(name_of("[::1]:7200"), "conductor----1--7200");
        for address in ["127.0.0.1:7200", "[::1]:7200", "h1.example:1"] {
            assert!(ServiceName::new(&name_of(address)).is_ok());
        }
    }
}
