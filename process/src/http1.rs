//! HTTP/1.1 for clients outside the cluster: how many connections there are, and how slow their
//! clients may be.
//!
//! Not here: the responses, and the size limit of bodies.
//!
//! Invariant: a client that sends or reads too slowly loses its connection, and delays no other one. One
//! caller never has all connections ([`crate::bounds`]): more than its own are refused.

mod write_timeout;

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
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::bounds::{self, Bounds, Key, OpenFiles, Refused, Resource};
use berth_tls::Incoming;
use write_timeout::WriteTimeout;

/// How long a refused client has to read the reason, and how much of what it still sends is discarded.
const REFUSAL_TIME: Duration = Duration::from_secs(1);
const REFUSED_BYTES_MAX: u64 = 64 << 10;

/// The limits of clients.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time.
    pub connections_max: usize,
    /// For how long a client may read nothing of a response.
    pub write_timeout: Duration,
    /// How long the head of a request may take, counted from the end of the response before it.
    pub idle_timeout: Duration,
}

/// Serves connections, at most `connections_max` at a time and as many as the limit of open files
/// permits, until `stop` is cancelled; requests that are being answered then are finished. Further
/// connections wait, and those of a caller that has as many as it may are refused. Each request carries
/// its `berth_tls::Peer` as an extension.
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
    let files = usize::try_from(OpenFiles::of_process().http1).unwrap_or(usize::MAX);
    let connections_max = limits.connections_max.min(files);
    let permits = Arc::new(Semaphore::new(connections_max));
    let bounds = Bounds::new(bounds::Limits::new(connections_max as u64));
    let mut connections = JoinSet::new();
    let work = async {
        loop {
            let permit = permits.clone().acquire_owned().await;
            let permit = permit.expect("the semaphore is never closed");
            while connections.try_join_next().is_some() {}
            let Some(stream) = incoming.next().await else {
                return;
            };
            let (answer, stop) = (answer.clone(), stop.clone());
            let caller = bounds.caller(Key::of(stream.peer()));
            let own = caller.acquire(Resource::Connections, 1);
            connections.spawn(async move {
                match own {
                    Ok(_own) => serve_connection(stream, answer, limits, stop).await,
                    Err(refused) => {
                        caller.log(&refused.to_status());
                        refuse(stream, &refused).await;
                    }
                }
                drop(permit);
            });
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = work => {}
    }
    drop(incoming);
    while connections.join_next().await.is_some() {}
}

/// Answers a connection of a caller that has as many as it may.
async fn refuse(mut stream: Stream, refused: &Refused) {
    let status = refused.to_status();
    let why = status.message();
    let response = format!(
        "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-type: \
         text/plain\r\ncontent-length: {}\r\n\r\n{why}",
        why.len()
    );
    // Its request is discarded: closing a connection with unread data resets it, and the reason may be
    // lost. What it costs is bounded in time and bytes.
    let answered = async {
        stream.write_all(response.as_bytes()).await?;
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(REFUSED_BYTES_MAX), &mut tokio::io::sink()).await
    };
    // The client may be gone.
    let _ = timeout(REFUSAL_TIME, answered).await;
}

/// Serves the requests of one connection, one after the other.
async fn serve_connection<F, A, B>(
    stream: Stream,
    answer: F,
    limits: Limits,
    stop: CancellationToken,
) where
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
        .header_read_timeout(limits.idle_timeout)
        .serve_connection(
            TokioIo::new(WriteTimeout::new(stream, limits.write_timeout)),
            service,
        );
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection failed");
    }
}
