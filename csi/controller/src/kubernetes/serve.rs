//! Extender and webhook over HTTPS: the paths, and the responses to other requests.
//!
//! | path | what |
//! |---|---|
//! | `/filter`, `/prioritize` | the extender |
//! | `/pod/mutate` | the webhook |
//! | `/status` | `ok` |
//!
//! GET and POST are the same, as in PMEM-CSI; any other method is 405, any other path 404.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use berth_process::http1::Limits;
use berth_proto::client::SchedulerChannel;
use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::api::{self, Api};
use super::lookup::Lookup;
use super::options::Options;
use crate::extender::Extender;
use crate::https::body::{Bodies, Body, Unread};
use crate::https::certificate::{self, Certificate};
use crate::https::{self, Answer};
use crate::webhook::Webhook;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Why extender and webhook do not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address to listen on is missing or none.
    #[error("kubernetes.listen is no address to listen on")]
    NoAddress,
    /// Nothing can listen there.
    #[error("failed to listen on {address} for Kubernetes")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// There is no usable certificate.
    #[error("kubernetes.certificate or kubernetes.key is wrong")]
    Certificate(#[from] certificate::Unusable),
    /// The API server cannot be queried.
    #[error("the API server cannot be queried")]
    Api(#[from] api::Error),
}

/// Extender and webhook, listening.
#[derive(Debug)]
pub struct Serving {
    listener: TcpListener,
    address: SocketAddr,
    certificate: Arc<Certificate>,
    renewal: Duration,
    limits: Limits,
    router: Arc<Router>,
}

/// Routes requests to the extender and the webhook.
#[derive(Debug)]
struct Router {
    extender: Extender,
    webhook: Webhook,
    lookup: Lookup,
    bodies: Bodies,
    timeout: Duration,
}

/// Makes everything ready and listens; nothing is answered yet.
///
/// # Errors
///
/// When certificate, token or authorities cannot be used, or the address is not to be had.
pub async fn bind(
    options: &Options,
    driver: &str,
    scheduler: SchedulerChannel,
) -> Result<Serving, Error> {
    let certificate = Certificate::read(&options.certificate, &options.key)?;
    let api = Api::new(options)?;
    let address = options.address().ok_or(Error::NoAddress)?;
    let failed = |source| Error::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let timeout = options.answer_timeout();
    let limits = Limits {
        connections_max: usize::try_from(options.connections_max).unwrap_or(usize::MAX),
        write_timeout: options.client_timeout(),
        idle_timeout: options.idle(),
    };
    let router = Router {
        extender: Extender::new(driver.to_owned(), scheduler.with_deadline(timeout)),
        webhook: Webhook::new(driver.to_owned(), options.resource.clone()),
        lookup: Lookup::new(api),
        bodies: Bodies::new(options.body_max(), options.client_timeout()),
        timeout,
    };
    Ok(Serving {
        listener,
        address,
        certificate: Arc::new(certificate),
        renewal: certificate::INTERVAL,
        limits,
        router: Arc::new(router),
    })
}

/// As [`bind`] and [`Serving::run`].
///
/// # Errors
///
/// As [`bind`].
pub async fn serve(
    options: &Options,
    driver: &str,
    scheduler: SchedulerChannel,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Error> {
    let serving = bind(options, driver, scheduler).await?;
    serving.run(shutdown).await;
    Ok(())
}

impl Serving {
    /// Returns where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Has it look for a new certificate this often.
    #[must_use]
    pub fn with_renewal(mut self, interval: Duration) -> Self {
        self.renewal = interval;
        self
    }

    /// Serves until `shutdown` completes; requests in progress are finished.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        tracing::info!(address = %self.address, "listening for Kubernetes");
        let stop = CancellationToken::new();
        let tls = Arc::new(self.certificate.server());
        let renewing = tokio::spawn(self.certificate.renew(self.renewal, stop.clone()));
        let router = self.router;
        let answer = move |request| {
            let router = router.clone();
            async move { router.answer(request).await }
        };
        let listening = https::listen(self.listener, tls, answer, self.limits, stop.clone());
        let ending = async {
            shutdown.await;
            stop.cancel();
        };
        tokio::join!(listening, ending);
        // It only reads files.
        let _ = renewing.await;
    }
}

/// What a path is for.
#[derive(Clone, Copy)]
enum Path {
    Filter,
    Prioritize,
    Mutate,
    Status,
}

impl Path {
    fn parse(path: &str) -> Option<Self> {
        Some(match path {
            "/filter" => Self::Filter,
            "/prioritize" => Self::Prioritize,
            "/pod/mutate" => Self::Mutate,
            "/status" => Self::Status,
            _ => return None,
        })
    }
}

impl Router {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let (head, body) = request.into_parts();
        if head.method != Method::GET && head.method != Method::POST {
            let message = format!("{} is not supported, only GET and POST are", head.method);
            let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, message);
            let allow = HeaderValue::from_static("GET, POST");
            answer.headers_mut().insert(ALLOW, allow);
            return answer;
        }
        let Some(path) = Path::parse(head.uri.path()) else {
            return text(StatusCode::NOT_FOUND, "not found".to_owned());
        };
        let read = self.bodies.read(&head.headers, body);
        match path {
            Path::Status => text(StatusCode::OK, "ok".to_owned()),
            Path::Filter => match read.await {
                Ok(Body { ref bytes, .. }) => {
                    let extender = &self.extender;
                    json(extender.filter(bytes, &self.lookup, self.timeout).await)
                }
                Err(unread) => json(Extender::filter_error(&unread.to_string())),
            },
            Path::Prioritize => match read.await {
                Ok(body) => self.prioritize(&body).await,
                Err(unread) => refused(unread),
            },
            Path::Mutate => match read.await {
                Ok(body) => self.mutate(&body).await,
                Err(unread) => refused(unread),
            },
        }
    }

    async fn prioritize(&self, body: &Body) -> Answer {
        use crate::extender::Error;
        let extender = &self.extender;
        match extender
            .prioritize(&body.bytes, &self.lookup, self.timeout)
            .await
        {
            Ok(answer) => json(answer),
            Err(error) => {
                let status = match &error {
                    Error::Malformed(_) | Error::Incomplete => StatusCode::BAD_REQUEST,
                    Error::TooManyVolumes(_) | Error::TooManyNodes(_) | Error::Need(_) => {
                        StatusCode::UNPROCESSABLE_ENTITY
                    }
                    Error::Scheduler(_) | Error::Late(_) => StatusCode::SERVICE_UNAVAILABLE,
                };
                let message = error.chain();
                tracing::warn!(why = message, "prioritize request failed");
                text(status, message)
            }
        }
    }

    async fn mutate(&self, body: &Body) -> Answer {
        match self
            .webhook
            .mutate(&body.bytes, &self.lookup, self.timeout)
            .await
        {
            Ok(answer) => json(answer),
            Err(error) => {
                let message = error.chain();
                tracing::warn!(why = message, "admission review failed");
                text(StatusCode::BAD_REQUEST, message)
            }
        }
    }
}

fn refused(unread: Unread) -> Answer {
    let status = match unread {
        Unread::TooLong { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        Unread::TooSlow => StatusCode::REQUEST_TIMEOUT,
        Unread::Busy => StatusCode::SERVICE_UNAVAILABLE,
        Unread::Broken => StatusCode::BAD_REQUEST,
    };
    text(status, unread.to_string())
}

fn json(body: Vec<u8>) -> Answer {
    answer(StatusCode::OK, JSON, Bytes::from(body))
}

fn text(status: StatusCode, message: String) -> Answer {
    answer(status, TEXT, Bytes::from(message))
}

fn answer(status: StatusCode, kind: HeaderValue, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}
