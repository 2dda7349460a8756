//! Incoming connections, encrypted or not.
//!
//! ```text
//!   listener ─▶ accept ─▶ handshake (a task each, with a time limit) ─▶ ready ─▶ server
//! ```
//!
//! Invariant: handshakes never block accepting; each takes a bounded time, and each address has a
//! bounded number of them (`handshakes`). A client whose certificate is refused gets the reason, and so
//! does the log. A connection is closed when its peer is no longer trusted (`trust`).

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use crate::explain;
use crate::handshakes::{HandshakeLimiter, Permit};
use crate::identity::Identity;
use crate::live::Tls;
use crate::material::Protocol;
use crate::refusals::{self, Refusals};
use crate::stream::Either;
use crate::trust::{Side, Trust};

/// How many accepted connections may wait for the server.
const READY_MAX: usize = 64;
/// The pause after a failed accept, as without file descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a refused client has to read the reason, and how much of what it still sends is discarded.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES_MAX: u64 = 64 << 10;
/// The first byte of a TLS handshake.
const HANDSHAKE: u8 = 0x16;
/// The response to a client without TLS: a fatal alert about the protocol version.
const NOT_TLS: [u8; 7] = [0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 70];

/// The limits of clients that are not authenticated yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long a handshake may take.
    pub handshake: Duration,
    /// How many handshakes are in progress at once. Each holds a file descriptor.
    pub handshakes_max: usize,
    /// How many of one address; further clients of it are refused.
    pub handshakes_per_source_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(5),
            handshakes_max: 512,
            handshakes_per_source_max: 256,
        }
    }
}

/// The transport of a listener's connections.
#[derive(Clone, Debug)]
pub enum Transport {
    /// Plain text.
    Plain,
    /// TLS, and both ends present certificates, but for clients of [`Protocol::HttpWithLogin`].
    MutualTls(Tls, Protocol),
    /// TLS without client certificates.
    ServerOnly(Arc<ServerConfig>),
}

/// The other end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its address.
    pub address: Option<SocketAddr>,
    /// Its identity; absent where nothing is encrypted, and of a client that may have no certificate.
    pub identity: Option<Arc<Identity>>,
    /// The trust in that identity.
    pub trust: Option<Arc<Trust>>,
}

impl Peer {
    /// Returns a peer without an identity.
    #[must_use]
    pub fn unknown(address: Option<SocketAddr>) -> Self {
        Self {
            address,
            identity: None,
            trust: None,
        }
    }

    /// Checks that the current authorities trust the certificate of the connection.
    ///
    /// # Errors
    ///
    /// Why they do not.
    pub fn check(&self) -> Result<(), String> {
        self.trust.as_ref().map_or(Ok(()), |trust| trust.check())
    }

    fn broken(&self) -> Option<io::Error> {
        self.trust.as_ref()?.broken()
    }
}

/// An incoming connection.
#[derive(Debug)]
pub struct Stream {
    stream: Either<TlsStream<TcpStream>>,
    peer: Peer,
}

impl Stream {
    /// Returns the other end.
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
        if let Some(broken) = self.peer.broken() {
            return Poll::Ready(Err(broken));
        }
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        match &self.peer.trust {
            Some(trust) if read.is_pending() => trust
                .wait(context)
                .map_or(Poll::Pending, |broken| Poll::Ready(Err(broken))),
            Some(_) | None => read,
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(broken) = self.peer.broken() {
            return Poll::Ready(Err(broken));
        }
        Pin::new(&mut self.stream).poll_write(context, buffer)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Some(broken) = self.peer.broken() {
            return Poll::Ready(Err(broken));
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

/// The connections of a listener, ready to be served.
#[derive(Debug)]
pub struct Incoming(mpsc::Receiver<io::Result<Stream>>);

impl Incoming {
    /// Starts accepting: only encrypted connections with `tls`, and only plain ones without. It stops
    /// when this is dropped.
    #[must_use]
    pub fn new(listener: TcpListener, tls: Option<Tls>, protocol: Protocol) -> Self {
        let transport = tls.map_or(Transport::Plain, |tls| Transport::MutualTls(tls, protocol));
        Self::bounded(listener, transport, Limits::default())
    }

    /// As [`Self::new`], with any transport and other limits.
    #[must_use]
    pub fn bounded(listener: TcpListener, transport: Transport, limits: Limits) -> Self {
        let (ready, incoming) = mpsc::channel(READY_MAX);
        tokio::spawn(accept(listener, transport, limits, ready));
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

/// Accepts connections and runs each handshake in a task of its own.
async fn accept(
    listener: TcpListener,
    transport: Transport,
    limits: Limits,
    ready: mpsc::Sender<io::Result<Stream>>,
) {
    let limiter = HandshakeLimiter::new(limits.handshakes_max, limits.handshakes_per_source_max);
    let refusal_log = Arc::new(RefusalLog::default());
    let mut log_interval = interval(refusals::PERIOD);
    log_interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let accepted = tokio::select! {
            () = ready.closed() => return,
            _ = log_interval.tick() => {
                refusal_log.log_due();
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "accepting a connection failed");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        // Without it responses are late, nothing else.
        let _ = stream.set_nodelay(true);
        if matches!(transport, Transport::Plain) {
            let peer = Peer::unknown(Some(address));
            let stream = Either::Plain(stream);
            if ready.send(Ok(Stream { stream, peer })).await.is_err() {
                return;
            }
            continue;
        }
        match limiter.acquire(address.ip()) {
            Err(full) => refusal_log.record(address, &full.to_string()),
            Ok(permit) => {
                let client = Client {
                    address,
                    permit,
                    refusal_log: refusal_log.clone(),
                };
                let admit = admit(stream, client, transport.clone(), limits, ready.clone());
                tokio::spawn(admit);
            }
        }
    }
}

/// A client that is not authenticated yet.
struct Client {
    address: SocketAddr,
    permit: Permit,
    refusal_log: Arc<RefusalLog>,
}

/// Hands a connection to the server once its handshake is done.
async fn admit(
    stream: TcpStream,
    client: Client,
    transport: Transport,
    limits: Limits,
    ready: mpsc::Sender<io::Result<Stream>>,
) {
    let result = tokio::select! {
        biased;
        () = client.permit.revoked() => Err("revoked for another address: its address had most handshakes".to_owned()),
        result = timeout(limits.handshake, handshake(stream, client.address, &transport)) => {
            result.unwrap_or_else(|_| Err("the handshake timed out".to_owned()))
        }
    };
    match result {
        // The server may have ended meanwhile.
        Ok(stream) => drop(ready.send(Ok(stream)).await),
        Err(why) => client.refusal_log.record(client.address, &why),
    }
}

/// Runs the handshake of a client and reads its identity.
async fn handshake(
    mut stream: TcpStream,
    address: SocketAddr,
    transport: &Transport,
) -> Result<Stream, String> {
    let (config, verifier) = match transport {
        Transport::Plain => {
            let (stream, peer) = (Either::Plain(stream), Peer::unknown(Some(address)));
            return Ok(Stream { stream, peer });
        }
        Transport::MutualTls(tls, protocol) => {
            let version = tls.trust_version();
            (
                tls.current().server(*protocol).clone(),
                Some((tls, version, *protocol)),
            )
        }
        Transport::ServerOnly(config) => (config.clone(), None),
    };
    let mut first = [0];
    let seen = stream.peek(&mut first).await;
    match seen.map_err(|error| error.to_string())? {
        // As a probe whether the port is open.
        0 => return Err("it sent nothing".to_owned()),
        _ if first[0] != HANDSHAKE => {
            let _ = stream.write_all(&NOT_TLS).await;
            linger(stream).await;
            return Err(
                "it does not speak TLS; clients need --tls-ca, --tls-cert and --tls-key".to_owned(),
            );
        }
        _ => {}
    }
    let accepting = TlsAcceptor::from(config).accept(stream).into_fallible();
    let stream = match accepting.await {
        Ok(stream) => stream,
        Err((error, stream)) => {
            linger(stream).await;
            let inner = error
                .get_ref()
                .and_then(|e| e.downcast_ref::<rustls::Error>());
            return Err(inner.map_or_else(|| error.to_string(), explain::of_client));
        }
    };
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let identified = match verifier {
        Some((_, _, Protocol::HttpWithLogin)) if chain.is_empty() => {
            Ok(Peer::unknown(Some(address)))
        }
        Some((tls, version, _)) => identify(tls, version, chain, address),
        None => Ok(Peer::unknown(Some(address))),
    };
    match identified {
        Ok(peer) => Ok(Stream {
            stream: Either::Encrypted(Box::new(stream)),
            peer,
        }),
        Err(why) => {
            linger_encrypted(stream).await;
            Err(why)
        }
    }
}

/// Returns the peer that presented this chain, which was verified when the trust had that version.
fn identify(
    tls: &Tls,
    trust_version: u64,
    chain: &[CertificateDer<'static>],
    address: SocketAddr,
) -> Result<Peer, String> {
    let own = chain.first().ok_or("no certificate was presented")?;
    // It may be of a trusted authority and still carry no identity.
    let identity =
        Identity::of(own).map_err(|why| format!("its certificate carries no identity: {why}"))?;
    let trust = Trust::new(tls, trust_version, chain, Side::Client)
        .map_err(|why| format!("its certificate is refused: {why}"))?;
    Ok(Peer {
        address: Some(address),
        identity: Some(Arc::new(identity)),
        trust: Some(trust),
    })
}

/// Lets a refused client read the reason: closing a connection with unread data resets it, and the
/// reason may be lost.
async fn linger(mut stream: TcpStream) {
    let _ = stream.shutdown().await;
    let mut rest = stream.take(LINGER_BYTES_MAX);
    let mut nowhere = tokio::io::sink();
    let _ = timeout(LINGER, tokio::io::copy(&mut rest, &mut nowhere)).await;
}

async fn linger_encrypted(mut stream: TlsStream<TcpStream>) {
    let _ = stream.shutdown().await;
    linger(stream.into_inner().0).await;
}

/// The refusals that are to be logged.
#[derive(Debug, Default)]
struct RefusalLog(Mutex<Refusals>);

impl RefusalLog {
    fn record(&self, address: SocketAddr, why: &str) {
        let mut refusals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let line = refusals.record(Instant::now(), address.ip(), why);
        drop(refusals);
        if let Some(line) = line {
            line.log();
        }
    }

    fn log_due(&self) {
        let mut refusals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = refusals.due(Instant::now());
        drop(refusals);
        for line in lines {
            line.log();
        }
    }
}
