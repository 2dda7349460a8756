//! The listener of a program for those who watch it: metrics and health, over HTTP/1.1.
//!
//! ```text
//!   GET /metrics                 all metrics
//!   GET /livez, /readyz          health; ?verbose shows each check
//! ```
//!
//! Not here: slow clients and the number of connections ([`crate::http1`]).
//!
//! Invariant: it changes nothing, reads no body, and computes a bounded number of answers at a time. With
//! certificates only operators and readers get one.

use std::sync::Arc;
use std::time::Duration;

use berth_tls::Tls;
use berth_tls::material::Protocol;
use hyper::body::Incoming as Sent;
use hyper::{Method, Request, Response, StatusCode};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tonic::codegen::http::header::{ALLOW, CONTENT_TYPE};
use tonic::codegen::http::{HeaderMap, HeaderValue};

use super::accept::prefers_open_metrics;
use super::definition::Definition;
use super::exposition::{CLASSIC, Exposition, OPEN_METRICS};
use super::health::{self, Check};
use super::process::Process;
use crate::http1::{self, Limits};
use crate::run::BoxFuture;
use crate::{access, server};

/// Connections at a time.
const CONNECTIONS_MAX: usize = 64;
/// How long a client may take to send the head of a request, and to read a response.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);
/// How many answers are computed at a time.
const ANSWERS_MAX: usize = 4;
/// How long an answer may take, with the wait for its turn.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

static CERTIFICATE: Definition = Definition::gauge(
    "berth_certificate_not_after_seconds",
    &[],
    "When the certificate of the program ends, in seconds since 1970; absent without certificates.",
);

static SPANS_EXPORTED: Definition = Definition::counter(
    "berth_traces_exported_spans_total",
    &[],
    "Spans that the collector of traces has accepted.",
);
static SPANS_DROPPED: Definition = Definition::counter(
    "berth_traces_dropped_spans_total",
    &["reason"],
    "Spans that were dropped: the queue was full, or the collector did not accept them in time.",
);

const TEXT: &str = "text/plain; charset=utf-8";

/// A program as those who watch it see it.
pub trait Observed: Send + Sync + 'static {
    /// Adds all its metrics but those that every process has.
    fn expose<'a>(&'a self, out: &'a mut Exposition) -> BoxFuture<'a, ()>;

    /// Checks whether it works at all: one that does not should be restarted.
    fn live(&self) -> BoxFuture<'_, Vec<Check>>;

    /// Checks whether it can do its work now.
    fn ready(&self) -> BoxFuture<'_, Vec<Check>>;
}

/// What a program is called and at which service version it runs, for its information about the build.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its name, as `berth-scheduler`.
    pub name: &'static str,
    /// Its service version.
    pub service_version: u32,
}

/// Serves until `stop` is cancelled.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Tls>,
    program: Program,
    observed: Arc<dyn Observed>,
    stop: CancellationToken,
) {
    let limits = Limits {
        connections_max: CONNECTIONS_MAX,
        write_timeout: CLIENT_TIMEOUT,
        idle_timeout: CLIENT_TIMEOUT,
    };
    let shared = Arc::new(Shared {
        observed,
        process: Process::new(program.name, program.service_version),
        tls: tls.clone(),
        turns: Semaphore::new(ANSWERS_MAX),
    });
    let incoming = server::incoming(listener, tls, Protocol::Http);
    let answer = move |request: Request<Sent>| {
        let shared = shared.clone();
        async move { shared.answer(&request).await }
    };
    http1::listen(incoming, answer, limits, stop).await;
}

struct Shared {
    observed: Arc<dyn Observed>,
    process: Process,
    tls: Option<Tls>,
    turns: Semaphore,
}

impl Shared {
    async fn answer(&self, request: &Request<Sent>) -> Response<String> {
        if let Err(why) = access::check_watcher(request.extensions(), berth_tls::identity::now()) {
            return text(StatusCode::FORBIDDEN, why);
        }
        let path = request.uri().path();
        if !matches!(path, "/metrics" | "/livez" | "/readyz") {
            let what = "nothing is here: the paths are /metrics, /livez and /readyz\n";
            return text(StatusCode::NOT_FOUND, what.to_owned());
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let what = "only GET and HEAD are answered\n".to_owned();
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, what);
            let allowed = HeaderValue::from_static("GET, HEAD");
            response.headers_mut().insert(ALLOW, allowed);
            return response;
        }
        let answered = async {
            // It is closed nowhere.
            let _turn = self.turns.acquire().await;
            match path {
                "/metrics" => self.metrics(request.headers()).await,
                "/livez" => health("livez", request, self.observed.live()).await,
                _ => health("readyz", request, self.observed.ready()).await,
            }
        };
        let answered = tokio::time::timeout(ANSWER_TIMEOUT, answered).await;
        answered.unwrap_or_else(|_| {
            let what = "no answer in time: too many requests at once, or the program is busy\n";
            text(StatusCode::SERVICE_UNAVAILABLE, what.to_owned())
        })
    }

    async fn metrics(&self, headers: &HeaderMap) -> Response<String> {
        let mut out = Exposition::default();
        self.process.expose(&mut out);
        out.declare(&CERTIFICATE);
        if let Some(tls) = &self.tls {
            let ends = u64::try_from(tls.identity().not_after).unwrap_or(0);
            out.set(&CERTIFICATE, ends);
        }
        expose_traces(&mut out);
        self.observed.expose(&mut out).await;
        let (content_type, body) = match prefers_open_metrics(headers) {
            true => (OPEN_METRICS, out.to_open_metrics()),
            false => (CLASSIC, out.to_classic()),
        };
        response(StatusCode::OK, content_type, body)
    }
}

/// Adds what became of the spans of this process.
fn expose_traces(out: &mut Exposition) {
    let counts = &berth_traces::recorder::COUNTS;
    out.set(&SPANS_EXPORTED, counts.exported());
    for (reason, count) in [
        ("queue_full", counts.queue_full()),
        ("export_failed", counts.export_failed()),
    ] {
        out.add(&SPANS_DROPPED, [reason], count);
    }
}

async fn health(
    endpoint: &str,
    request: &Request<Sent>,
    checks: BoxFuture<'_, Vec<Check>>,
) -> Response<String> {
    let checks = health::bounded(health::TIMEOUT, checks).await;
    let (status, body) = health::render(endpoint, &checks, is_verbose(request.uri().query()));
    text(status, body)
}

fn is_verbose(query: Option<&str>) -> bool {
    let mut parameters = query.unwrap_or_default().split('&');
    parameters.any(|parameter| parameter.split('=').next() == Some("verbose"))
}

fn text(status: StatusCode, body: String) -> Response<String> {
    response(status, TEXT, body)
}

fn response(status: StatusCode, content_type: &'static str, body: String) -> Response<String> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let value = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, value);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_shown_on_request() {
        for (query, expected) in [
            (None, false),
            (Some(""), false),
            (Some("verbose"), true),
            (Some("exclude=x&verbose=1"), true),
            (Some("verbosely"), false),
        ] {
            assert_eq!(is_verbose(query), expected, "{query:?}");
        }
    }
}
