//! One connection of a gRPC server.
//!
//! ```text
//!   ACCEPTED ─the preface of HTTP/2─▶ SERVED ─no request for long─▶ going away ─▶ CLOSED
//!       └─────────── nothing of it in time, or the server ends ────────────────────▲
//! ```
//!
//! Invariant: a connection whose client says nothing ends, and one that is to end does, though its
//! client reads nothing.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use berth_tls::Peer;
use berth_tls::server::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::time::{Sleep, sleep};
use tokio_util::sync::{CancellationToken, DropGuard, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

use crate::bounds::Permit;

/// The preface of HTTP/2.
const PREFACE_BYTES: usize = 24;

/// What a server accepts.
pub(super) trait Accepted: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Returns the other end.
    fn peer(&self) -> Peer;
}

impl Accepted for Stream {
    fn peer(&self) -> Peer {
        Self::peer(self).clone()
    }
}

impl Accepted for UnixStream {
    fn peer(&self) -> Peer {
        Peer::unknown(None)
    }
}

/// One connection.
pub(super) struct Connection<S> {
    stream: S,
    peer: Peer,
    /// How much of the preface was read, and until when it must have been.
    preface: Option<(usize, Pin<Box<Sleep>>)>,
    /// Ends it, whatever its client does.
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Cancels when it has ended.
    _ended: DropGuard,
    /// Held as long as it is open; absent for one that is refused.
    _permit: Option<Permit>,
}

impl<S: Accepted> Connection<S> {
    /// Returns a connection that ends when `closed` is cancelled, and cancels `ended` then.
    pub(super) fn new(
        stream: S,
        preface_time: Duration,
        permit: Option<Permit>,
        closed: CancellationToken,
        ended: CancellationToken,
    ) -> Self {
        Self {
            peer: stream.peer(),
            stream,
            preface: Some((0, Box::pin(sleep(preface_time)))),
            closed: Box::pin(closed.cancelled_owned()),
            _ended: ended.drop_guard(),
            _permit: permit,
        }
    }

    /// Fails once it is to be closed.
    fn check_open(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.closed.as_mut().poll(context).is_pending() {
            return Ok(());
        }
        let what = "the connection is closed by the server";
        Err(io::Error::new(io::ErrorKind::ConnectionAborted, what))
    }

    /// Fails once the preface is late.
    fn check_preface(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let Some((_, late)) = &mut self.preface else {
            return Ok(());
        };
        if late.as_mut().poll(context).is_pending() {
            return Ok(());
        }
        let what = "the client did not send the preface of HTTP/2 in time";
        Err(io::Error::new(io::ErrorKind::TimedOut, what))
    }
}

impl<S> Connected for Connection<S> {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl<S: Accepted> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check_open(context)?;
        self.check_preface(context)?;
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Some((read, _)) = &mut self.preface {
            *read += buffer.filled().len() - before;
            if *read >= PREFACE_BYTES {
                self.preface = None;
            }
        }
        read
    }
}

impl<S: Accepted> AsyncWrite for Connection<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check_open(context)?;
        Pin::new(&mut self.stream).poll_write(context, buffer)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check_open(context)?;
        Pin::new(&mut self.stream).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_open(context)?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
