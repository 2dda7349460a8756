//! The connections of the REST API: how many there are, and how slow their other ends may be.
//!
//! Invariant: whoever connects and then does nothing, or too little, loses the connection by
//! himself. What one connection can hold up is its own.

use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use berth_tls::Incoming;
use berth_tls::server::Stream;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep};
use tokio_util::sync::CancellationToken;

use super::face::Face;

/// What the other ends are granted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections at a time.
    pub(super) connections_max: usize,
    /// How long the head of a request may take to come, counted from the end of the answer before
    /// it; and for how long the other end may take nothing of an answer.
    pub(super) patience: Duration,
}

/// Answers who connects, at most so many at a time, until `stop` is cancelled. Who comes then
/// waits for a place in the kernel's queue.
pub(super) async fn listen(
    mut incoming: Incoming,
    face: Arc<Face>,
    limits: Limits,
    stop: CancellationToken,
) {
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
            let (face, stop) = (face.clone(), stop.clone());
            conversations.spawn(async move {
                converse(stream, face, limits.patience, stop).await;
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
async fn converse(stream: Stream, face: Arc<Face>, patience: Duration, stop: CancellationToken) {
    let peer = stream.peer().clone();
    let service = service_fn(|mut request: hyper::Request<hyper::body::Incoming>| {
        let face = face.clone();
        request.extensions_mut().insert(peer.clone());
        async move { Ok::<_, Infallible>(face.answer(request.map(Body::new)).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(patience)
        .serve_connection(TokioIo::new(Patient::new(stream, patience)), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to the REST API broke");
    }
}

/// A stream that breaks when the other end takes nothing for too long.
struct Patient<S> {
    stream: S,
    patience: Duration,
    /// Runs while the other end takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    fn new(stream: S, patience: Duration) -> Self {
        Self {
            stream,
            patience,
            stalled: None,
        }
    }

    /// Passes on how far a write got, unless it has been stuck for too long.
    fn judged(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let patience = self.patience;
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, buffer);
        self.judged(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, buffers);
        self.judged(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::{TcpListener, TcpStream};

    /// Goal: who asks and does not take the answer is let go. Method: a peer that does not read.
    #[tokio::test]
    async fn a_peer_that_takes_nothing_is_let_go() {
        let patience = Duration::from_millis(200);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (_peer, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let mut patient = Patient::new(accepted.unwrap().0, patience);
        let begun = tokio::time::Instant::now();
        let piece = vec![0; 1 << 20];
        let stuck = loop {
            if let Err(error) = patient.write_all(&piece).await {
                break error;
            }
        };
        assert_eq!(stuck.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() >= patience);
    }
}
