//! One operator as a whole.
//!
//! ```text
//!   lease ─▶ active? ─▶ watches, schedulers ─▶ queue ─▶ one pass at a time
//! ```
//!
//! While another operator is active, this one only looks at the lease. All passes are made by one task, so
//! two never meet on one object.
//!
//! Invariant: when it is not active any more, it begins no write, and the pass that it was in ends.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_process::http1::{self, Limits};
use berth_process::{BoxFuture, Faults, Shutdown, error_chain};
use berth_tls::Incoming;
use berth_tls::Role;
use berth_tls::material::Protocol;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request as HttpRequest, Response, StatusCode};
use http_body_util::Full;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::deployment::{Operator, Settings};
use crate::lease::Holder;
use crate::metrics::{self, Metrics};
use crate::permit::Permit;
use crate::queue::{Outcome, Queue};
use crate::reconcile::{ApiServer, Error as RequestError};
use crate::resource::Request;
use crate::schedulers::{Cache, Schedulers};
use crate::watches::{self, Trigger};

/// How many triggers may wait while a pass is made; a watch waits when there are more.
const TRIGGERS_MAX: usize = 1024;
/// How soon schedulers of which nothing is known are read.
const UNREAD_INTERVAL: Duration = Duration::from_millis(200);
/// How long the end of the process waits for the release of the lease.
const RELEASE_TIME: Duration = Duration::from_secs(2);
/// The container of the operator in its own pod.
const CONTAINER: &str = "operator";
/// The environment variable with the name of the own pod.
const POD_NAME: &str = "POD_NAME";

/// Why an operator cannot start, or stopped by itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] Faults),
    /// It is not known where the API server is.
    #[error("the API server is not configured: {0}; hint: set KUBECONFIG, or run in a pod")]
    Infer(Box<kube::config::InferConfigError>),
    /// There can be no connection to the API server.
    #[error("the client of the API server cannot be made")]
    Client(#[source] Box<kube::Error>),
    /// The own pod cannot be read.
    #[error("the own pod cannot be read: {0}; hint: set image in the configuration")]
    Pod(Box<kube::Error>),
    /// It is not known what to deploy.
    #[error("no image is configured, and {0}; hint: set image in the configuration")]
    NoImage(String),
    /// Nothing can listen for readers of metrics.
    #[error("cannot listen on {address} for readers of metrics")]
    Listen {
        /// Where.
        address: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A part of the program ended that never should.
    #[error("{0} ended unexpectedly")]
    Task(&'static str),
}

/// Runs one operator until `shutdown` is ready.
///
/// # Errors
///
/// Why it cannot start, or had to stop.
pub fn run(config: Config, shutdown: Shutdown) -> BoxFuture<'static, Result<(), Error>> {
    Box::pin(serve(config, shutdown))
}

async fn serve(config: Config, mut shutdown: Shutdown) -> Result<(), Error> {
    let tls = config.encryption.open_client(Role::Reader)?;
    let (client, namespace) = connect(&config).await?;
    let image = match &config.image {
        Some(image) => image.clone(),
        None => own_image(&client, &namespace).await?,
    };
    let server = ApiServer {
        client,
        deadline: Duration::from_millis(config.request_timeout_ms),
        permit: Permit::new(),
    };
    tracing::info!(namespace, image, "started");
    let (leading, is_leading) = watch::channel(false);
    let duration = Duration::from_millis(config.lease_ms);
    let mut holder = Holder::new(server.clone(), &namespace, &own_name(), duration, leading);
    let operator = Arc::new(Operator {
        server,
        settings: Settings {
            namespace,
            image,
            schedulers: config.schedulers.clone(),
            validity: Duration::from_secs(config.certificate_days * 24 * 60 * 60),
        },
        schedulers: Schedulers::new(tls.clone()),
        cache: Cache::default(),
        metrics: Metrics::default(),
    });
    let stopping = CancellationToken::new();
    let mut tasks = JoinSet::new();
    if let Some(tls) = tls {
        tasks.spawn(tls.follow(stopping.clone()));
    }
    if let Some(address) = &config.metrics_listen {
        let listener = listen(address).await?;
        tasks.spawn(serve_metrics(listener, operator.clone(), stopping.clone()));
    }
    let ended = tokio::select! {
        () = &mut shutdown => Ok(()),
        () = boxed(holder.run()) => Err(Error::Task("the lease")),
        () = boxed(lead_while_elected(operator, config, is_leading)) => Err(Error::Task("the passes")),
        Some(_) = tasks.join_next() => Err(Error::Task("a part of the operator")),
    };
    if tokio::time::timeout(RELEASE_TIME, holder.release())
        .await
        .is_err()
    {
        tracing::warn!("the lease was not released in time");
    }
    stopping.cancel();
    tasks.shutdown().await;
    tracing::info!("stopped");
    ended
}

/// The compiler cannot prove of some futures within others that they can be sent to another thread.
fn boxed<'a, T>(future: impl Future<Output = T> + Send + 'a) -> BoxFuture<'a, T> {
    Box::pin(future)
}

/// Returns a client, and the namespace of the objects.
async fn connect(config: &Config) -> Result<(Client, String), Error> {
    let inferred = kube::Config::infer().await;
    let inferred = inferred.map_err(|error| Error::Infer(Box::new(error)))?;
    let namespace = config.namespace.clone();
    let namespace = namespace.unwrap_or_else(|| inferred.default_namespace.clone());
    let client = Client::try_from(inferred).map_err(|error| Error::Client(Box::new(error)))?;
    Ok((client, namespace))
}

/// Returns the image of the own container.
async fn own_image(client: &Client, namespace: &str) -> Result<String, Error> {
    let name = std::env::var(POD_NAME)
        .map_err(|_| Error::NoImage(format!("the environment has no {POD_NAME}")))?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pod = pods.get(&name).await;
    let pod = pod.map_err(|error| Error::Pod(Box::new(error)))?;
    let containers = pod.spec.map(|spec| spec.containers).unwrap_or_default();
    let own = containers.into_iter().find(|one| one.name == CONTAINER);
    own.and_then(|container| container.image)
        .ok_or_else(|| Error::NoImage(format!("pod {name} has no container {CONTAINER}")))
}

/// Returns a name that no other operator has, nor this one after a restart.
fn own_name() -> String {
    let pod = std::env::var(POD_NAME).unwrap_or_else(|_| "berth-csi-operator".to_owned());
    format!("{pod}_{}", uuid::Uuid::new_v4())
}

/// Makes passes whenever this operator is the active one.
async fn lead_while_elected(
    operator: Arc<Operator>,
    config: Config,
    mut is_leading: watch::Receiver<bool>,
) {
    loop {
        // Closed only when the process ends.
        if is_leading.wait_for(|leading| *leading).await.is_err() {
            return;
        }
        let ended = tokio::select! {
            biased;
            _ = lost(&mut is_leading) => None,
            why = boxed(lead(operator.clone(), config.clone())) => Some(why),
        };
        if let Some(why) = ended {
            tracing::error!(why, "starting all watches again");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

async fn lost(is_leading: &mut watch::Receiver<bool>) {
    // Closed only when the process ends.
    let _ = is_leading.wait_for(|leading| !*leading).await;
}

/// Makes passes until something ends that should not; returns what.
async fn lead(operator: Arc<Operator>, config: Config) -> &'static str {
    let (sender, mut triggers) = mpsc::channel(TRIGGERS_MAX);
    let mut tasks = JoinSet::new();
    let namespace = &operator.settings.namespace;
    watches::start(&mut tasks, &operator.server, namespace, &sender);
    let mut queue = Queue::new(Duration::from_millis(config.resync_ms));
    tasks.spawn(poll(operator.clone(), config, sender));
    let begun = Instant::now();
    loop {
        while let Ok(trigger) = triggers.try_recv() {
            record(&mut queue, trigger, begun.elapsed());
        }
        if let Some(request) = queue.take(begun.elapsed()) {
            let outcome = boxed(pass(&operator, &request)).await;
            queue.record(&request, outcome, begun.elapsed(), rand::random());
            continue;
        }
        let due = queue.next_due();
        let wait = due.map_or(Duration::MAX, |due| due.saturating_sub(begun.elapsed()));
        tokio::select! {
            trigger = triggers.recv() => match trigger {
                Some(trigger) => record(&mut queue, trigger, begun.elapsed()),
                None => return "all watches ended",
            },
            () = tokio::time::sleep(wait) => {}
            Some(_) = tasks.join_next() => return "a watch ended",
        }
    }
}

fn record(queue: &mut Queue<Request>, trigger: Trigger, now: Duration) {
    match trigger {
        Trigger::One(request) => queue.trigger(request, now),
        Trigger::All => queue.trigger_all(now),
    }
}

async fn pass(operator: &Operator, request: &Request) -> Outcome {
    let (kind, name) = (request.kind.as_str(), &request.name);
    match operator.pass(request).await {
        Ok(outcome) => {
            tracing::debug!(kind, name, ?outcome, "pass");
            outcome
        }
        Err(RequestError::Inactive) => Outcome::Failed,
        Err(error) => {
            let error = error_chain(&error);
            tracing::warn!(kind, name, error, "a pass failed, and is repeated");
            Outcome::Failed
        }
    }
}

/// Reads the schedulers of all deployments, for ever.
async fn poll(operator: Arc<Operator>, config: Config, triggers: mpsc::Sender<Trigger>) {
    let interval = Duration::from_millis(config.poll_ms);
    // A deployment has a pass at least once in the resync period.
    let unused_max = Duration::from_millis(config.resync_ms) * 2;
    let mut last = Instant::now();
    loop {
        let (all, unread) = operator.cache.addresses(unused_max);
        let is_due = last.elapsed() >= interval;
        for addresses in if is_due { all } else { unread } {
            let read = operator.schedulers.read(&addresses).await;
            if let Err(why) = &read {
                tracing::debug!(?addresses, why, "schedulers");
            }
            if operator.cache.put(&addresses, read) && triggers.send(Trigger::All).await.is_err() {
                return;
            }
        }
        if is_due {
            last = Instant::now();
        }
        tokio::time::sleep(UNREAD_INTERVAL.min(interval)).await;
    }
}

async fn listen(address: &str) -> Result<tokio::net::TcpListener, Error> {
    let failed = |source| Error::Listen {
        address: address.to_owned(),
        source,
    };
    let resolved = address.to_socket_addrs().map_err(failed)?.next();
    let unresolved = || failed(std::io::Error::other("it resolves to no address"));
    let resolved: SocketAddr = resolved.ok_or_else(unresolved)?;
    tokio::net::TcpListener::bind(resolved)
        .await
        .map_err(failed)
}

async fn serve_metrics(
    listener: tokio::net::TcpListener,
    operator: Arc<Operator>,
    stop: CancellationToken,
) {
    let limits = Limits {
        connections_max: 64,
        write_timeout: Duration::from_secs(10),
        idle_timeout: Duration::from_secs(60),
    };
    let incoming = Incoming::new(listener, None, Protocol::Http);
    let answer = move |request: HttpRequest<hyper::body::Incoming>| {
        let response = respond(&operator.metrics, request.uri().path());
        async move { response }
    };
    http1::listen(incoming, answer, limits, stop).await;
}

type Answer = Response<Full<bytes::Bytes>>;

/// `/metrics`, and `/healthz` for the kubelet; bodies of requests are not read.
fn respond(metrics: &Metrics, path: &str) -> Answer {
    let (status, content_type, text) = match path {
        "/metrics" => (StatusCode::OK, metrics::CONTENT_TYPE, metrics.render()),
        "/healthz" => (StatusCode::OK, "text/plain", "ok".to_owned()),
        _ => (StatusCode::NOT_FOUND, "text/plain", "not found".to_owned()),
    };
    let mut response: Answer = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
