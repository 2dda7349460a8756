//! Connections that come in, encrypted or not.
//!
//! ```text
//!   listener ─▶ accept ─▶ handshake (a task each, with a time limit) ─▶ ready ─▶ server
//! ```
//!
//! Invariant: accepting goes on while others shake hands, up to a bound and each for a bounded time;
//! whoever was turned away is told why, unless the end of the connection is quicker.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use crate::identity::Identity;
use crate::live::Tls;
use crate::material::Face;
use crate::stream::Either;
use crate::told;

/// How long a handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// How many handshakes go on at once; who comes then waits in the kernel's queue.
const HANDSHAKES_MAX: usize = 256;
/// How many connections may wait for the server.
const READY_MAX: usize = 64;
/// The pause where no connection can be taken, as for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// How long it is waited for somebody who was turned away to have read it, and how much of what he
/// still sends is thrown away.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES_MAX: u64 = 64 << 10;
/// The first byte of whatever TLS begins with.
const HANDSHAKE: u8 = 0x16;
/// What somebody is told in TLS who does not speak it: a fatal alert about the version.
const NOT_TLS: [u8; 7] = [0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 70];

/// Who is on the other end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Where it came from.
    pub address: Option<SocketAddr>,
    /// Who it is; absent where nothing is encrypted.
    pub identity: Option<Arc<Identity>>,
}

/// A connection that came in.
#[derive(Debug)]
pub struct Stream {
    stream: Either<TlsStream<TcpStream>>,
    peer: Peer,
}

impl Stream {
    /// Returns who is on the other end.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }
}

impl Connected for Stream {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stream {
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
        buffers: &[io::IoSlice<'_>],
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

/// What comes in through a listener, ready to be served.
#[derive(Debug)]
pub struct Incoming(mpsc::Receiver<io::Result<Stream>>);

impl Incoming {
    /// Begins to accept: encrypted connections alone with `tls`, and plain ones alone without. It ends
    /// when this is dropped.
    #[must_use]
    pub fn new(listener: TcpListener, tls: Option<Tls>, face: Face) -> Self {
        let (ready, incoming) = mpsc::channel(READY_MAX);
        tokio::spawn(accept(listener, tls, face, ready));
        Self(incoming)
    }

    /// Returns the next connection; nothing once it has ended.
    pub async fn next(&mut self) -> Option<Stream> {
        self.0.recv().await?.ok()
    }
}

impl tokio_stream::Stream for Incoming {
    type Item = io::Result<Stream>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}

async fn accept(
    listener: TcpListener,
    tls: Option<Tls>,
    face: Face,
    ready: mpsc::Sender<io::Result<Stream>>,
) {
    let room = Arc::new(Semaphore::new(HANDSHAKES_MAX));
    let turned_away = Arc::new(TurnedAway::default());
    loop {
        let accepted = tokio::select! {
            () = ready.closed() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be taken");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        // Without it answers come late, no more.
        let _ = stream.set_nodelay(true);
        let Some(tls) = &tls else {
            let peer = Peer {
                address: Some(address),
                identity: None,
            };
            let stream = Either::Plain(stream);
            if ready.send(Ok(Stream { stream, peer })).await.is_err() {
                return;
            }
            continue;
        };
        let place = room.clone().acquire_owned().await;
        let (tls, ready, turned_away) = (tls.clone(), ready.clone(), turned_away.clone());
        tokio::spawn(async move {
            match tokio::time::timeout(HANDSHAKE_MAX, shake(stream, address, &tls, face)).await {
                // The server may have ended meanwhile.
                Ok(Ok(stream)) => drop(ready.send(Ok(stream)).await),
                Ok(Err(why)) => turned_away.tell(address, &why),
                Err(_) => turned_away.tell(address, "the handshake took too long"),
            }
            drop(place);
        });
    }
}

/// Finds out who came.
async fn shake(
    mut stream: TcpStream,
    address: SocketAddr,
    tls: &Tls,
    face: Face,
) -> Result<Stream, String> {
    let mut first = [0];
    let seen = stream.peek(&mut first).await;
    match seen.map_err(|error| error.to_string())? {
        // As whoever looks whether somebody listens.
        0 => return Err("it said nothing".to_owned()),
        _ if first[0] != HANDSHAKE => {
            let _ = stream.write_all(&NOT_TLS).await;
            linger(stream).await;
            return Err(
                "it does not speak TLS; clients need --tls-ca, --tls-cert and --tls-key".to_owned(),
            );
        }
        _ => {}
    }
    let config = tls.current().server(face).clone();
    let accepting = TlsAcceptor::from(config).accept(stream).into_fallible();
    let stream = match accepting.await {
        Ok(stream) => stream,
        Err((error, stream)) => {
            linger(stream).await;
            let inner = error
                .get_ref()
                .and_then(|e| e.downcast_ref::<rustls::Error>());
            return Err(inner.map_or_else(|| error.to_string(), told::of_client));
        }
    };
    let shown = stream.get_ref().1.peer_certificates();
    let identity = match shown.and_then(|chain| chain.first()) {
        None => None,
        Some(certificate) => match Identity::of(certificate) {
            Ok(identity) => Some(Arc::new(identity)),
            // It is of an authority of ours, and of nobody that we know: each request says so.
            Err(why) => {
                linger_encrypted(stream).await;
                return Err(format!("its certificate names nobody: {why}"));
            }
        },
    };
    let peer = Peer {
        address: Some(address),
        identity,
    };
    Ok(Stream {
        stream: Either::Encrypted(Box::new(stream)),
        peer,
    })
}

/// Lets somebody read why he is turned away: a connection that is closed while something of his is
/// unread is cut, and what was said to him may be lost.
async fn linger(mut stream: TcpStream) {
    let _ = stream.shutdown().await;
    let mut rest = stream.take(LINGER_BYTES_MAX);
    let mut nowhere = tokio::io::sink();
    let _ = tokio::time::timeout(LINGER, tokio::io::copy(&mut rest, &mut nowhere)).await;
}

async fn linger_encrypted(mut stream: TlsStream<TcpStream>) {
    let _ = stream.shutdown().await;
    linger(stream.into_inner().0).await;
}

/// How many different refusals are told in the log: anybody who reaches the port can make new ones.
const TURNED_AWAY_MAX: usize = 256;

/// Who was turned away and why, as far as it was told: somebody with a wrong certificate knocks for
/// as long as it runs.
#[derive(Debug, Default)]
struct TurnedAway(Mutex<BTreeSet<(IpAddr, String)>>);

impl TurnedAway {
    fn tell(&self, address: SocketAddr, why: &str) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < TURNED_AWAY_MAX && told.insert((address.ip(), why.to_owned())) {
            tracing::warn!(from = %address, why, "a connection was turned away");
        }
    }
}
