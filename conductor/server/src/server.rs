//! One conductor as a whole: its service, its supervisor, and its registration.
//!
//! Invariant: when it ends, it leaves nothing running: no call, no lease, no listener.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use berth_domain::name::ServiceName;
use berth_domain::version::ServiceVersion;
use berth_process::encryption::scheme;
use berth_process::metrics::{self, Program};
use berth_process::server::{self, Reflection};
use berth_process::{BoxFuture, Faults, Shutdown, listening, schedulers, service_manager, traces};
use berth_proto::client::members::{Learner, learn_until};
use berth_proto::client::{Dialer, SchedulerChannel};
use berth_proto::conductor::v1::conductor_service_server::{self, ConductorServiceServer};
use berth_tls::Tls;
use berth_tls::material::Protocol;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use crate::agents::{Agents, Timeouts};
use crate::config::Config;
use crate::driver::Tools;
use crate::error::Error;
use crate::fence::FenceCommand;
use crate::host_check::Checks;
use crate::metrics::{Metrics, Watched};
use crate::registration;
use crate::restarts;
use crate::scheduler::Scheduler;
use crate::service::ConductorApi;
use crate::supervisor::{self, Settings};

/// The descriptors are those of all programs; only what is served here is listed.
const REFLECTION: Reflection = Reflection {
    descriptors: berth_proto::DESCRIPTOR_SET,
    served: &[
        conductor_service_server::SERVICE_NAME,
        berth_log_service::SERVICE_NAME,
    ],
};

/// A conductor that listens, but does not serve yet.
#[derive(Debug)]
pub struct Conductor {
    config: Config,
    listener: TcpListener,
    address: SocketAddr,
    /// Where metrics and health are served.
    watch: Option<TcpListener>,
    /// What others dial.
    advertise: String,
    name: ServiceName,
    scheduler: SchedulerChannel,
    tls: Option<Tls>,
}

/// Runs one conductor until `shutdown` is ready.
///
/// # Errors
///
/// Why it cannot start, or had to stop.
pub fn run(config: Config, shutdown: Shutdown) -> BoxFuture<'static, Result<(), Error>> {
    Box::pin(async { Conductor::open(config).await?.serve_until(shutdown).await })
}

impl Conductor {
    /// Listens on the configured address.
    ///
    /// # Errors
    ///
    /// Why it cannot start.
    pub fn start(config: Config) -> BoxFuture<'static, Result<Self, Error>> {
        Box::pin(Self::open(config))
    }

    async fn open(config: Config) -> Result<Self, Error> {
        let listen = config.validate()?;
        let (listener, address) = listening::bind(listen).await?;
        let watch = match config.listening.metrics_address() {
            Some(listen) => Some(listening::bind(listen).await?.0),
            None => None,
        };
        let advertise = config.listening.advertised(address);
        let tls = config.open_certificates(&advertise)?;
        let name = match (&config.name, &tls) {
            (Some(name), _) => ServiceName::new(name),
            (None, Some(tls)) => ServiceName::new(&tls.identity().name),
            (None, None) => ServiceName::new(&name_of(&advertise)),
        };
        let name = name.map_err(|error| Faults(vec![error.to_string()]))?;
        let scheduler = SchedulerChannel::new(schedulers::urls(&config.schedulers, tls.as_ref()))
            .map_err(|error| Faults(vec![error.to_string()]))?
            .with_dialer(Dialer::new(tls.clone()));
        Ok(Self {
            config,
            listener,
            address,
            watch,
            advertise,
            name,
            scheduler,
            tls,
        })
    }

    /// Returns the address that it listens on, with the port that the kernel chose where 0 was configured
    /// for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns where metrics and health are served, if they are.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.watch.as_ref()?.local_addr().ok()
    }

    /// Returns what it is called in the cluster.
    #[must_use]
    pub fn name(&self) -> &ServiceName {
        &self.name
    }

    /// Serves until `shutdown` is ready.
    ///
    /// Operations in progress are left where they are: their leases expire, and another
    /// conductor, or this one when it comes back, carries them on.
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
        let spans = self
            .config
            .traces
            .start("berth-conductor", self.name.as_str())?;
        let stopping = CancellationToken::new();
        let tools = self.tools();
        let settings = Settings {
            takeover_interval: Duration::from_millis(self.config.takeover_interval_ms),
            operations_max: usize::try_from(self.config.operations_max).unwrap_or(usize::MAX),
        };
        let (handle, supervising) = supervisor::new(tools.clone(), settings, stopping.clone());
        let mut learner = Learner::new(self.scheduler.clone(), self.config.data_dir.clone());
        learner.begin().await;
        let learning = tokio::spawn(learn_until(learner, stopping.clone().cancelled_owned()));
        let (health, health_service) = tonic_health::server::health_reporter();
        let registering = registration::run(
            tools.scheduler.clone(),
            format!("{}://{}", scheme(self.tls.as_ref()), self.advertise),
            (health, tools.metrics.clone()),
            stopping.clone(),
        );
        let (metrics, scheduler) = (tools.metrics.clone(), tools.scheduler.clone());
        let supervisor_handle = handle.clone();
        let api = ConductorApi {
            tools,
            supervisor: handle,
            stopping: stopping.clone(),
            checks: Checks::new(),
        };
        let mut restarting = tokio::spawn(restarts::run(
            api.clone(),
            settings.takeover_interval,
            stopping.clone(),
        ));
        let certificates = self.tls.clone();
        let certificates = certificates.map(|tls| tokio::spawn(tls.follow(stopping.clone())));
        let routes = Routes::new(ConductorServiceServer::new(api))
            .add_service(health_service)
            .add_service(berth_log_service::service())
            .add_service(REFLECTION.v1())
            .add_service(REFLECTION.v1alpha());
        let server = server::new(self.tls.as_ref(), server::limits()).counted(metrics.grpc.clone());
        let watched = Watched {
            metrics,
            held: server.bounds().clone(),
            supervisor: supervisor_handle,
            scheduler,
            stopping: stopping.clone(),
        };
        let watching = self.watch.map(|listener| {
            let program = Program {
                name: "berth-conductor",
                service_version: self.config.service_version,
            };
            let (tls, stop) = (self.tls.clone(), stopping.clone());
            tokio::spawn(metrics::serve(
                listener,
                tls,
                program,
                Arc::new(watched),
                stop,
            ))
        });
        let incoming = server::incoming(self.listener, self.tls, Protocol::Grpc);
        let closing = stopping.clone().cancelled_owned();
        let mut server = tokio::spawn(server.serve(routes, incoming, closing));
        let mut supervisor = tokio::spawn(supervising);
        let registration = tokio::spawn(registering);
        tracing::info!(address = %self.address, name = %self.name, "serving");
        service_manager::notify_ready();

        let ended = tokio::select! {
            () = &mut shutdown => Ok(()),
            ended = &mut server => Err(match ended {
                Ok(Err(error)) => Error::Serve(error),
                Ok(Ok(())) | Err(_) => Error::Task("the server"),
            }),
            _ = &mut supervisor => Err(Error::Task("the supervisor")),
            _ = &mut restarting => Err(Error::Task("restarts by policy")),
        };
        stopping.cancel();
        if !supervisor.is_finished() && supervisor.await.is_err() {
            tracing::error!("the supervisor failed while it stopped");
        }
        if let Some(certificates) = certificates
            && certificates.await.is_err()
        {
            tracing::error!("following the certificates failed");
        }
        if registration.await.is_err() {
            tracing::error!("the registration failed");
        }
        if !restarting.is_finished() && restarting.await.is_err() {
            tracing::error!("restarting by policy failed");
        }
        if learning.await.is_err() {
            tracing::error!("learning the schedulers failed");
        }
        server::join_or_abort(&mut server).await;
        if let Some(mut watching) = watching {
            server::join_or_abort(&mut watching).await;
        }
        traces::stop(spans).await;
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
        let timeouts = Timeouts {
            question: Duration::from_millis(config.call_timeout_ms),
            work: Duration::from_millis(config.slow_call_timeout_ms),
        };
        let agents = Agents::new(self.scheduler.dialer().clone(), timeouts);
        let calls = usize::try_from(config.calls_max).unwrap_or(Semaphore::MAX_PERMITS);
        Tools {
            scheduler,
            agents,
            metrics: Metrics::new(REFLECTION.served),
            calls: Arc::new(Semaphore::new(calls.min(Semaphore::MAX_PERMITS))),
            fence: Arc::new(FenceCommand::new(
                config.fence_command.clone(),
                Duration::from_millis(config.fence_timeout_ms),
            )),
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
