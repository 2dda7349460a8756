//! The server for what Kubernetes calls: HTTPS, and how slow and how many the other ends may be.
//!
//! Invariant: whoever connects and then does nothing, or too little, loses the connection by
//! himself. No body longer than is allowed is held, and of long ones only a few at a time.

pub(crate) mod body;
pub(crate) mod certificate;
mod patient;

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use patient::Patient;

/// What the other ends are granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Connections at a time.
    pub(crate) connections_max: usize,
    /// How long a handshake may take, and for how long the other end may take nothing of an answer.
    pub(crate) patience: Duration,
    /// How long the head of a request may take to come, counted from the end of the answer before it.
    pub(crate) idle: Duration,
}

/// The pause where no connection can be taken, as for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// An answer.
pub(crate) type Answer = Response<Full<Bytes>>;

/// Answers who connects, at most so many at a time, until `stop` is cancelled. Who comes then
/// waits for a place in the kernel's queue.
pub(crate) async fn listen<F, A>(
    listener: TcpListener,
    tls: TlsAcceptor,
    answer: F,
    limits: Limits,
    stop: CancellationToken,
) where
    F: Fn(Request<Incoming>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Answer> + Send + 'static,
{
    let room = Arc::new(Semaphore::new(limits.connections_max));
    let mut conversations = JoinSet::new();
    let work = async {
        loop {
            let place = room.clone().acquire_owned().await;
            let place = place.expect("nobody closes it");
            while conversations.try_join_next().is_some() {}
            match listener.accept().await {
                Ok((stream, _)) => {
                    let (tls, answer, stop) = (tls.clone(), answer.clone(), stop.clone());
                    conversations.spawn(async move {
                        converse(stream, tls, answer, limits, stop).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a call of Kubernetes cannot be taken");
                    sleep(PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = work => {}
    }
    drop(listener);
    while conversations.join_next().await.is_some() {}
}

/// Answers the requests of one connection, one after the other.
async fn converse<F, A>(
    stream: TcpStream,
    tls: TlsAcceptor,
    answer: F,
    limits: Limits,
    stop: CancellationToken,
) where
    F: Fn(Request<Incoming>) -> A,
    A: Future<Output = Answer>,
{
    // An answer is small and is waited for. Without it answers come late, no more.
    let _ = stream.set_nodelay(true);
    let handshake = timeout(limits.patience, tls.accept(stream));
    let stream = tokio::select! {
        biased;
        () = stop.cancelled() => return,
        stream = handshake => stream,
    };
    let stream = match stream {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "a handshake failed"),
        Err(_) => return tracing::debug!("a handshake took too long"),
    };
    let stream = TokioIo::new(Patient::new(stream, limits.patience));
    let service = service_fn(|request| {
        let answer = answer(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle)
        .serve_connection(stream, service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection of Kubernetes broke");
    }
}
