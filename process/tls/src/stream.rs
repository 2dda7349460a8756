//! A connection, encrypted or not.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::told;

/// A connection, encrypted or not, `T` being the encrypted kind.
#[derive(Debug)]
pub enum Either<T> {
    /// Not encrypted.
    Plain(TcpStream),
    /// Encrypted.
    Encrypted(Box<T>),
}

macro_rules! each {
    ($self:ident, $stream:ident => $do:expr) => {
        match $self.get_mut() {
            Either::Plain($stream) => {
                let $stream = Pin::new($stream);
                $do
            }
            Either::Encrypted($stream) => {
                let $stream = Pin::new(&mut **$stream);
                $do
            }
        }
    };
}

impl<T: AsyncRead + Unpin> AsyncRead for Either<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(self, stream => stream.poll_read(context, buffer))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Either<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        each!(self, stream => stream.poll_write(context, buffer))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self, stream => stream.poll_write_vectored(context, buffers))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Encrypted(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => stream.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => stream.poll_shutdown(context))
    }
}

/// The first bytes of an answer in TLS to what is not TLS: an alert.
const ALERT: [u8; 2] = [0x15, 0x03];

/// A connection that goes out. What breaks it is told in sentences.
#[derive(Debug)]
pub struct Outgoing<T> {
    pub(crate) stream: Either<T>,
    /// Whom it goes to, as it was dialled.
    pub(crate) host: String,
    /// Whether nothing has come yet.
    pub(crate) fresh: bool,
}

impl<T> Outgoing<T> {
    fn explain(&self, error: io::Error) -> io::Error {
        let inner = error
            .get_ref()
            .and_then(|e| e.downcast_ref::<rustls::Error>());
        match inner {
            Some(inner) => io::Error::new(error.kind(), told::of_connection(inner, &self.host)),
            None => error,
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Outgoing<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, buffer));
        let came = &buffer.filled()[before..];
        if self.fresh && !came.is_empty() {
            self.fresh = false;
            if matches!(self.stream, Either::Plain(_)) && came.starts_with(&ALERT) {
                let why = format!(
                    "the server at {} speaks TLS only: give --tls-ca, --tls-cert and --tls-key",
                    self.host
                );
                // Whoever reads must not find something beside an error.
                buffer.set_filled(before);
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
            }
        }
        Poll::Ready(read.map_err(|error| self.explain(error)))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Outgoing<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, buffer)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, buffers)
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
