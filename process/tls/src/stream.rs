//! A connection, encrypted or not.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::explain;
use crate::trust::Trust;

/// A connection, encrypted or not, `T` being the encrypted kind.
#[derive(Debug)]
pub enum Either<T> {
    /// Not encrypted.
    Plain(TcpStream),
    /// Within this process.
    Inside(UnixStream),
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
            Either::Inside($stream) => {
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
            Self::Inside(stream) => stream.is_write_vectored(),
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

/// The first bytes of a TLS alert, the response to anything that is not TLS.
const ALERT: [u8; 2] = [0x15, 0x03];

/// The connection preface of an HTTP/2 client.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How many of the server's first bytes are buffered until they are read.
const READ_AHEAD_MAX: usize = 1024;

/// An outgoing HTTP/2 connection. Its errors are explained in sentences.
#[derive(Debug)]
pub struct Outgoing<T> {
    stream: Either<T>,
    /// The host as it was dialled.
    host: String,
    /// The trust in the server; absent in plain text.
    trust: Option<Arc<Trust>>,
    /// Whether nothing has been received yet.
    fresh: bool,
    /// The part of the preface that was sent already and is still to be written by the HTTP/2 client.
    preface_left: &'static [u8],
    /// Bytes that were received and not read yet.
    read_ahead: VecDeque<u8>,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Outgoing<T> {
    pub(crate) fn new(stream: Either<T>, host: String, trust: Option<Arc<Trust>>) -> Self {
        Self {
            stream,
            host,
            trust,
            fresh: true,
            preface_left: &[],
            read_ahead: VecDeque::new(),
        }
    }

    /// Sends the preface and reads the server's first bytes, which are its settings or an alert.
    /// Without this an alert would arrive after the connection was handed out, and a client that
    /// sends then would often only see that it is closed.
    pub(crate) async fn exchange_preface(&mut self) -> io::Result<()> {
        self.stream.write_all(PREFACE).await?;
        self.stream.flush().await?;
        self.preface_left = PREFACE;
        let mut read_ahead = [0; READ_AHEAD_MAX];
        let count = self.read(&mut read_ahead).await?;
        if count == 0 {
            let why = format!("{} closed the connection without a response", self.host);
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
        }
        self.read_ahead.extend(&read_ahead[..count]);
        Ok(())
    }

    /// Returns how many of the bytes to write belong to the preface that was sent already.
    fn skip_preface(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let count = buffer.len().min(self.preface_left.len());
        let (preface_left, rest) = self.preface_left.split_at(count);
        if buffer[..count] != *preface_left {
            return Err(io::Error::other("only HTTP/2 is supported here"));
        }
        self.preface_left = rest;
        Ok(count)
    }

    fn broken(&self) -> Option<io::Error> {
        self.trust.as_ref()?.broken()
    }
}

impl<T> Outgoing<T> {
    fn explain(&self, error: io::Error) -> io::Error {
        let inner = error
            .get_ref()
            .and_then(|e| e.downcast_ref::<rustls::Error>());
        match inner {
            Some(inner) => io::Error::new(error.kind(), explain::of_connection(inner, &self.host)),
            None => error,
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Outgoing<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(broken) = self.broken() {
            return Poll::Ready(Err(broken));
        }
        if !self.read_ahead.is_empty() {
            let count = self.read_ahead.len().min(buffer.remaining());
            let (front, _) = self.read_ahead.as_slices();
            let count = count.min(front.len());
            buffer.put_slice(&front[..count]);
            self.read_ahead.drain(..count);
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if read.is_pending()
            && let Some(trust) = &self.trust
            && let Some(broken) = trust.wait(context)
        {
            return Poll::Ready(Err(broken));
        }
        let read = ready!(read);
        let received = &buffer.filled()[before..];
        if self.fresh && !received.is_empty() {
            self.fresh = false;
            if matches!(self.stream, Either::Plain(_)) && received.starts_with(&ALERT) {
                let why = format!(
                    "the server at {} speaks TLS only: give --tls-ca, --tls-cert and --tls-key",
                    self.host
                );
                // An error must not come with data.
                buffer.set_filled(before);
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
            }
        }
        Poll::Ready(read.map_err(|error| self.explain(error)))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Outgoing<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(broken) = self.broken() {
            return Poll::Ready(Err(broken));
        }
        if !self.preface_left.is_empty() {
            return Poll::Ready(self.skip_preface(buffer));
        }
        Pin::new(&mut self.stream).poll_write(context, buffer)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Some(broken) = self.broken() {
            return Poll::Ready(Err(broken));
        }
        if !self.preface_left.is_empty() {
            let first = buffers.iter().find(|buffer| !buffer.is_empty());
            let first: &[u8] = first.map_or(&[], |buffer| buffer);
            return Poll::Ready(self.skip_preface(first));
        }
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
