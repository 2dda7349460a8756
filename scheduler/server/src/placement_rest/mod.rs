//! OpenStack Placement's REST API: a second face of the same state.
//!
//! ```text
//!   request ─▶ face (who, version, path, policy) ─▶ endpoints (read, ask, tell) ─▶ answer
//! ```
//!
//! | room | what |
//! |---|---|
//! | [`budget`] | how much all connections hold; how many and how slow is `berth_process::http1` |
//! | [`face`] | the order in which everything is judged |
//! | [`route`] | paths, methods, since when, and for whom |
//! | [`caller`], [`tokens`], [`policy`], [`cors`] | who calls and what they may |
//! | [`microversion`], [`accept`], [`query`], [`uuids`] | what a request says |
//! | [`schema`], [`schemas`], [`forms`], [`groups`] | what it must look like |
//! | [`filter`], [`names`] | from what was sent to what the state knows |
//! | [`wire`] | from a query to the gRPC message of the same meaning |
//! | [`call`] | one call: the state, commands, the body |
//! | [`endpoints`] | one resource per file |
//! | [`reply`], [`fault`], [`refused`] | yes and no as HTTP |
//!
//! Invariant: nothing here decides. A write is one command of the log, whichever member it was
//! asked of; a read is a state that is as new as anything that anybody was told. What hosts of
//! Berth report and what its claims hold can be read here and not changed.

mod accept;
mod budget;
mod call;
mod caller;
mod cors;
mod endpoints;
mod face;
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
use berth_tls::material::Face as Speaks;
use berth_tls::{Incoming, Tls};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::service::Context;
use face::Face;

pub use policy::Profile;
pub(crate) use tokens::Tokens;
pub use wire::candidates_request;

/// How the face is shown.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// What callers may do.
    pub(crate) profile: Profile,
    /// Who they are; absent, they are believed.
    pub(crate) tokens: Option<Tokens>,
    /// The longest body that is read.
    pub(crate) body_bytes_max: usize,
    /// How long a body may take to arrive, and how long the other end may be silent.
    pub(crate) timeout: Duration,
    /// Connections at a time.
    pub(crate) connections_max: usize,
}

/// Serves until `stop` is cancelled.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<Tls>,
    context: Context,
    options: Options,
    stop: CancellationToken,
) {
    // Who is let in is answered: while a member starts, connections wait in the backlog until
    // somebody leads. If nobody does for long they are told so.
    let mut leader = context.handle().watch_leader();
    let led = leader.wait_for(|leader| leader.role.leader.is_some());
    tokio::select! {
        biased;
        () = stop.cancelled() => return,
        _ = tokio::time::timeout(context.leader_wait(), led) => {}
    }
    let limits = Limits {
        connections_max: options.connections_max,
        patience: options.timeout,
        idle: options.timeout,
    };
    let face = Arc::new(Face::new(context, options));
    let incoming = Incoming::new(listener, tls, Speaks::Http);
    let answer = move |request: axum::http::Request<_>| face.clone().answer(request.map(Body::new));
    http1::listen(incoming, answer, limits, stop).await;
}
