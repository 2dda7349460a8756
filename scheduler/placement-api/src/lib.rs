//! OpenStack Placement's REST API: a second API of the same state.
//!
//! ```text
//!   request ─▶ api (caller, version, path, policy) ─▶ endpoints (parse, execute, render) ─▶ response
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `backend` | what is needed of the member that serves it |
//! | `budget` | memory limits of all connections; their number and timeouts are in `berth_process::http1` |
//! | `api` | the order of all checks |
//! | `route` | paths, methods, their versions and permissions |
//! | `caller`, `tokens`, `policy`, `cors` | callers and their permissions |
//! | `microversion`, `accept`, `query`, `uuids` | parts of a request |
//! | `schema`, `schemas`, `forms`, `groups` | their validation |
//! | `filter`, `names` | from parameters to objects of the state |
//! | `wire` | from a query to the gRPC message of the same meaning |
//! | `call` | one call: the state, commands, the body |
//! | `requests` | how many requests were answered, by route and status |
//! | `endpoints` | one resource per file |
//! | `reply`, `fault`, `refused` | responses and errors as HTTP |
//!
//! Invariant: nothing here decides. A write is one command of the log, whichever member receives
//! it; a read is linearizable. What hosts of
//! Berth report and what its claims hold can be read here and not changed.

mod accept;
mod api;
mod backend;
mod budget;
mod call;
mod caller;
mod cors;
mod endpoints;
mod fault;
mod filter;
mod forms;
mod groups;
mod microversion;
mod names;
mod policy;
mod query;
mod refused;
mod reply;
mod requests;
mod route;
mod schema;
mod schemas;
mod tokens;
mod uuids;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use berth_process::http1::{self, Limits};
use berth_process::server;
use berth_tls::Tls;
use berth_tls::material::Protocol;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use api::Api;

pub use backend::{Backend, Search};
pub use policy::Profile;
pub use requests::Requests;
pub use tokens::Tokens;
pub use wire::candidates_request;

/// The options of the API.
#[derive(Clone, Debug)]
pub struct Options {
    /// The permissions of callers.
    pub profile: Profile,
    /// The tokens of callers; if absent, callers are not authenticated.
    pub tokens: Option<Tokens>,
    /// The longest body that is read.
    pub body_bytes_max: usize,
    /// How long a body may take to arrive, and how long the other end may be silent.
    pub timeout: Duration,
    /// Connections at a time.
    pub connections_max: usize,
    /// Where requests are counted.
    pub requests: Arc<Requests>,
}

/// Serves until `stop` is cancelled.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Tls>,
    backend: Arc<dyn Backend>,
    options: Options,
    stop: CancellationToken,
) {
    let limits = Limits {
        connections_max: options.connections_max,
        write_timeout: options.timeout,
        idle_timeout: options.timeout,
    };
    let api = Arc::new(Api::new(backend, options));
    let incoming = server::incoming(listener, tls, Protocol::Http);
    let answer = move |request: axum::http::Request<_>| api.clone().answer(request.map(Body::new));
    http1::listen(incoming, answer, limits, stop).await;
}
