//! One controller as a whole.
//!
//! Invariant: when it ends, it leaves nothing running.

use std::sync::Arc;
use std::time::Duration;

use berth_domain::version::ServiceVersion;
use berth_process::access::table;
use berth_process::metrics::{self, GrpcRequests, Program, grpc};
use berth_process::server::{self, Reflection};
use berth_process::{BoxFuture, Faults, Shutdown, listening, schedulers, service_manager, socket};
use berth_proto::client::members::{Learner, learn_until};
use berth_proto::client::{Dialer, SchedulerChannel};
use berth_proto::csi::v1::controller_server::{self, ControllerServer};
use berth_proto::csi::v1::identity_server::{self, IdentityServer};
use berth_tls::Role;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use crate::config::Config;
use crate::controller::{ControllerApi, IdentityApi, Settings};
use crate::error::Error;
use crate::kubernetes;
use crate::metrics::Watched;
use crate::reach;

/// The descriptors are those of all programs; only what is served here is listed.
const REFLECTION: Reflection = Reflection {
    descriptors: berth_proto::DESCRIPTOR_SET,
    served: &[
        identity_server::SERVICE_NAME,
        controller_server::SERVICE_NAME,
        berth_log_service::SERVICE_NAME,
    ],
};

/// It behaves alike at every service version.
const PROGRAM: Program = Program {
    name: "berth-csi-controller",
    service_version: ServiceVersion::CURRENT.0,
};

/// Runs one controller until `shutdown` is ready.
///
/// # Errors
///
/// Why it cannot start, or had to stop.
pub fn run(config: Config, shutdown: Shutdown) -> BoxFuture<'static, Result<(), Error>> {
    Box::pin(serve(config, shutdown))
}

async fn serve(config: Config, mut shutdown: Shutdown) -> Result<(), Error> {
    let path = config.validate()?;
    let tls = config.encryption.open_client(Role::CsiController)?;
    let scheduler = SchedulerChannel::new(schedulers::urls(&config.schedulers, tls.as_ref()))
        .map_err(|error| Faults(vec![error.to_string()]))?
        .with_dialer(Dialer::new(tls.clone()));
    let mut learner = Learner::new(scheduler.clone(), config.data_dir.clone());
    learner.begin().await;
    let answering = match config.kubernetes.listen {
        None => None,
        Some(_) => {
            let (options, driver) = (&config.kubernetes, &config.driver_name);
            Some(kubernetes::bind(options, driver, scheduler.clone()).await?)
        }
    };
    let watch = match config.metrics_address() {
        Some(listen) => Some(listening::bind(listen).await?.0),
        None => None,
    };
    let mut socket = socket::listen(&path)?;
    let (watched_scheduler, called) = (scheduler.clone(), scheduler.clone());
    let api = ControllerApi::new(
        scheduler,
        Settings {
            driver: config.driver_name.clone(),
            create_timeout: Duration::from_millis(config.create_timeout_ms),
            usage_timeout: Duration::from_millis(config.usage_timeout_ms),
            publishes: config.controller_publish,
        },
    );
    let stopping = CancellationToken::new();
    let encryption = tls.clone();
    let certificates = tls.map(|tls| tokio::spawn(tls.follow(stopping.clone())));
    let closing = stopping.clone().cancelled_owned();
    let mut learning = tokio::spawn(learn_until(learner, closing));
    let reaching = Some(tokio::spawn(reach::run(called, stopping.clone())));
    // The permissions of its directory say which users may connect.
    let routes = Routes::new(IdentityServer::new(IdentityApi::new(&config.driver_name)))
        .add_service(ControllerServer::new(api))
        .add_service(berth_log_service::service())
        .add_service(REFLECTION.v1())
        .add_service(REFLECTION.v1alpha());
    let closing = stopping.clone().cancelled_owned();
    let incoming = socket.incoming();
    let of_csi = grpc::CSI.iter().copied().filter(is_served);
    let of_log = table::methods_of(&[berth_log_service::SERVICE_NAME]);
    let requests = GrpcRequests::new(of_csi.chain(of_log));
    let server = server::new(None, server::limits()).counted(requests.clone());
    let watched = Watched {
        requests,
        held: server.bounds().clone(),
        scheduler: watched_scheduler,
    };
    let watching = watch.map(|listener| {
        let stop = stopping.clone();
        let watched = Arc::new(watched);
        tokio::spawn(metrics::serve(listener, encryption, PROGRAM, watched, stop))
    });
    let mut server = tokio::spawn(server.serve_socket(routes, incoming, closing));
    tracing::info!(endpoint = config.csi_endpoint, "serving");
    service_manager::notify_ready();
    let stopped = stopping.clone().cancelled_owned();
    let mut answering = answering.map(|answering| tokio::spawn(answering.run(stopped)));
    let ended = tokio::select! {
        () = &mut shutdown => Ok(()),
        ended = &mut server => Err(match ended {
            Ok(Err(error)) => Error::Serve(error),
            Ok(Ok(())) | Err(_) => Error::Task("the server"),
        }),
        () = ended_early(&mut answering) => Err(Error::Task("the extender")),
    };
    stopping.cancel();
    server::join_or_abort(&mut server).await;
    server::join_or_abort(&mut learning).await;
    for task in [answering, watching, reaching].into_iter().flatten() {
        let mut task = task;
        server::join_or_abort(&mut task).await;
    }
    if let Some(mut certificates) = certificates {
        server::join_or_abort(&mut certificates).await;
    }
    tracing::info!("stopped");
    ended
}

/// Returns whether a method is one of this program.
fn is_served((service, _): &(&str, &str)) -> bool {
    REFLECTION.served.contains(service)
}

/// Waits for the end of a task that should not end; for ever where there is none.
async fn ended_early(task: &mut Option<JoinHandle<()>>) {
    match task {
        // Why it ended is in the log.
        Some(task) => drop(task.await),
        None => std::future::pending().await,
    }
}
