//! OpenStack Placement's REST API: a second face of the same state.
//!
//! ```text
//!   request ─▶ face (who, version, path, policy) ─▶ endpoints (read, ask, tell) ─▶ answer
//! ```
//!
//! | room | what |
//! |---|---|
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

use axum::Router;
use axum::extract::{Request, State};
use axum::serve::ListenerExt as _;
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
    /// How long a body may take to arrive.
    pub(crate) timeout: Duration,
}

/// Serves until `stop` is cancelled.
pub(crate) async fn serve(
    listener: TcpListener,
    context: Context,
    options: Options,
    stop: CancellationToken,
) -> std::io::Result<()> {
    // Who is let in is answered: until somebody leads, connections wait in the backlog.
    let mut leader = context.handle().watch_leader();
    tokio::select! {
        biased;
        () = stop.cancelled() => return Ok(()),
        _ = leader.wait_for(|leader| leader.role.leader.is_some()) => {}
    }
    let face = Arc::new(Face::new(context, options));
    let answer = |State(face): State<Arc<Face>>, request: Request| face.answer(request);
    let router = Router::new().fallback(answer).with_state(face);
    let listener = listener.tap_io(|stream| {
        // An answer is small and is waited for. Without it answers come late, no more.
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, router)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
}
