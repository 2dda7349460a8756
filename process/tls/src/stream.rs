//! A connection, encrypted or not.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;

use crate::standing::Standing;
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

/// What a client of HTTP/2 says first.
const HELLO: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How much of what a server says first is kept until it is asked for.
const HEARD_MAX: usize = 1024;

/// A connection that goes out, of HTTP/2. What breaks it is told in sentences.
#[derive(Debug)]
pub struct Outgoing<T> {
    stream: Either<T>,
    /// Whom it goes to, as it was dialled.
    host: String,
    /// What the connection rests on; absent in plain text.
    standing: Option<Arc<Standing>>,
    /// Whether nothing has come yet.
    fresh: bool,
    /// What was said already of what is still to be written.
    said: &'static [u8],
    /// What has come and was not read yet.
    heard: VecDeque<u8>,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Outgoing<T> {
    pub(crate) fn new(stream: Either<T>, host: String, standing: Option<Arc<Standing>>) -> Self {
        Self {
            stream,
            host,
            standing,
            fresh: true,
            said: &[],
            heard: VecDeque::new(),
        }
    }

    /// Says hello and hears what the server says first, which is settings, or why it lets nobody in.
    /// Without it that would come after the connection was made, and who has something to send then
    /// would often find no more than that it is closed.
    pub(crate) async fn greet(&mut self) -> io::Result<()> {
        self.stream.write_all(HELLO).await?;
        self.stream.flush().await?;
        self.said = HELLO;
        let mut heard = [0; HEARD_MAX];
        let count = self.read(&mut heard).await?;
        if count == 0 {
            let why = format!("{} closed the connection without a word", self.host);
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
        }
        self.heard.extend(&heard[..count]);
        Ok(())
    }

    /// Returns how much of what is to be written was said before.
    fn said_before(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let count = buffer.len().min(self.said.len());
        let (said, rest) = self.said.split_at(count);
        if buffer[..count] != *said {
            return Err(io::Error::other("only HTTP/2 is spoken here"));
        }
        self.said = rest;
        Ok(count)
    }

    fn broken(&self) -> Option<io::Error> {
        self.standing.as_ref()?.broken()
    }
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

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Outgoing<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(broken) = self.broken() {
            return Poll::Ready(Err(broken));
        }
        if !self.heard.is_empty() {
            let count = self.heard.len().min(buffer.remaining());
            let (front, _) = self.heard.as_slices();
            let count = count.min(front.len());
            buffer.put_slice(&front[..count]);
            self.heard.drain(..count);
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if read.is_pending()
            && let Some(standing) = &self.standing
            && let Some(broken) = standing.wait(context)
        {
            return Poll::Ready(Err(broken));
        }
        let read = ready!(read);
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

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Outgoing<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(broken) = self.broken() {
            return Poll::Ready(Err(broken));
        }
        if !self.said.is_empty() {
            return Poll::Ready(self.said_before(buffer));
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
        if !self.said.is_empty() {
            let first = buffers.iter().find(|buffer| !buffer.is_empty());
            let first: &[u8] = first.map_or(&[], |buffer| buffer);
            return Poll::Ready(self.said_before(first));
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
