//! HTTP/1.1 for whoever is no part of the cluster: how many connections there are, and how slow their
//! other ends may be.
//!
//! Not here: what is answered, and how long bodies may be.
//!
//! Invariant: whoever connects and then does nothing, or too little, loses the connection by
//! himself. What one connection can hold up is its own.

mod patient;

use std::convert::Infallible;
use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use berth_tls::server::Stream;
use hyper::body::{Body, Incoming as Sent};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use berth_tls::Incoming;
use patient::Patient;

/// What the other ends are granted.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time.
    pub connections_max: usize,
    /// For how long the other end may take nothing of an answer.
    pub patience: Duration,
    /// How long the head of a request may take to come, counted from the end of the answer before it.
    pub idle: Duration,
}

/// Answers who connects, at most so many at a time, until `stop` is cancelled; what is being answered
/// then is answered. Who is too many waits. Each request carries who sent it, as a `berth_tls::Peer`.
pub async fn listen<F, A, B>(
    mut incoming: Incoming,
    answer: F,
    limits: Limits,
    stop: CancellationToken,
) where
    F: Fn(Request<Sent>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Response<B>> + Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let room = Arc::new(Semaphore::new(limits.connections_max));
    let mut conversations = JoinSet::new();
    let work = async {
        loop {
            let place = room.clone().acquire_owned().await;
            let place = place.expect("nobody closes it");
            while conversations.try_join_next().is_some() {}
            let Some(stream) = incoming.next().await else {
                return;
            };
            let (answer, stop) = (answer.clone(), stop.clone());
            conversations.spawn(async move {
                converse(stream, answer, limits, stop).await;
                drop(place);
            });
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = work => {}
    }
    drop(incoming);
    while conversations.join_next().await.is_some() {}
}

/// Answers the requests of one connection, one after the other.
async fn converse<F, A, B>(stream: Stream, answer: F, limits: Limits, stop: CancellationToken)
where
    F: Fn(Request<Sent>) -> A,
    A: Future<Output = Response<B>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let peer = stream.peer().clone();
    let service = service_fn(|mut request: Request<Sent>| {
        request.extensions_mut().insert(peer.clone());
        let answer = answer(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle)
        .serve_connection(TokioIo::new(Patient::new(stream, limits.patience)), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke");
    }
}
