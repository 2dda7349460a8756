//! The server for Kubernetes' calls: HTTPS, with a certificate of its own and none that is required
//! for.
//!
//! Not here: how slow and how many the other ends may be. That is `berth_process::http1`.
//!
//! Invariant: no body longer than is allowed is held, and of long ones only a few at a time.

pub(crate) mod body;
pub(crate) mod certificate;

use std::future::Future;
use std::sync::Arc;

use berth_process::http1::{self, Limits};
use berth_tls::Incoming;
use berth_tls::server::{self, Transport};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming as Sent;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// An answer.
pub(crate) type Answer = Response<Full<Bytes>>;

/// Serves connections until `stop` is cancelled. A handshake may take as long as the client may
/// read nothing of a response.
pub(crate) async fn listen<F, A>(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    answer: F,
    limits: Limits,
    stop: CancellationToken,
) where
    F: Fn(Request<Sent>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Answer> + Send + 'static,
{
    let handshakes = server::Limits {
        handshake: limits.write_timeout,
        ..berth_process::server::handshakes()
    };
    let incoming = Incoming::bounded(listener, Transport::ServerOnly(tls), handshakes);
    http1::listen(incoming, answer, limits, stop).await;
}
