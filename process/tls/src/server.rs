//! Connections that come in, encrypted or not.
//!
//! ```text
//!   listener ─▶ accept ─▶ handshake (a task each, with a time limit) ─▶ ready ─▶ server
//! ```
//!
//! Invariant: accepting goes on while others shake hands, whatever they do, each for a bounded time and
//! each address up to a bound (`room`); whoever was turned away because of what he has shown is
//! told why, and so is the log. A connection lives as long as what it rests on (`standing`).

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

use crate::identity::Identity;
use crate::live::Tls;
use crate::material::Face;
use crate::refusals::{self, Refusals};
use crate::room::{Place, Room};
use crate::standing::{Side, Standing};
use crate::stream::Either;
use crate::told;

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

/// What those are granted who have not shown yet who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long a handshake may take.
    pub handshake: Duration,
    /// How many handshakes go on at once. Each holds a file descriptor.
    pub handshakes_max: usize,
    /// How many of one address; who comes then is turned away.
    pub handshakes_each_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(5),
            handshakes_max: 512,
            handshakes_each_max: 256,
        }
    }
}

/// What is spoken on the connections of a listener.
#[derive(Clone, Debug)]
pub enum Speaks {
    /// Plain text.
    Plain,
    /// TLS, and both ends show who they are.
    Mutual(Tls, Face),
    /// TLS, and nobody is asked who he is.
    Shown(Arc<ServerConfig>),
}

/// Who is on the other end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Where it came from.
    pub address: Option<SocketAddr>,
    /// Who it is; absent where nothing is encrypted.
    pub identity: Option<Arc<Identity>>,
    /// What that rests on.
    pub standing: Option<Arc<Standing>>,
}

impl Peer {
    /// Returns somebody of whom nothing is known but where he is.
    #[must_use]
    pub fn unknown(address: Option<SocketAddr>) -> Self {
        Self {
            address,
            identity: None,
            standing: None,
        }
    }

    /// Checks that the authorities of now stand behind what was shown when the connection was made.
    ///
    /// # Errors
    ///
    /// Why they do not.
    pub fn check(&self) -> Result<(), String> {
        self.standing
            .as_ref()
            .map_or(Ok(()), |standing| standing.check())
    }

    fn broken(&self) -> Option<io::Error> {
        self.standing.as_ref()?.broken()
    }
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
        if let Some(broken) = self.peer.broken() {
            return Poll::Ready(Err(broken));
        }
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        match &self.peer.standing {
            Some(standing) if read.is_pending() => standing
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

/// What comes in through a listener, ready to be served.
#[derive(Debug)]
pub struct Incoming(mpsc::Receiver<io::Result<Stream>>);

impl Incoming {
    /// Begins to accept: encrypted connections alone with `tls`, and plain ones alone without. It ends
    /// when this is dropped.
    #[must_use]
    pub fn new(listener: TcpListener, tls: Option<Tls>, face: Face) -> Self {
        let speaks = tls.map_or(Speaks::Plain, |tls| Speaks::Mutual(tls, face));
        Self::bounded(listener, speaks, Limits::default())
    }

    /// As [`Self::new`], of whatever is spoken, within other limits.
    #[must_use]
    pub fn bounded(listener: TcpListener, speaks: Speaks, limits: Limits) -> Self {
        let (ready, incoming) = mpsc::channel(READY_MAX);
        tokio::spawn(accept(listener, speaks, limits, ready));
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

/// Takes connections and has each shake hands by itself.
async fn accept(
    listener: TcpListener,
    speaks: Speaks,
    limits: Limits,
    ready: mpsc::Sender<io::Result<Stream>>,
) {
    let room = Room::new(limits.handshakes_max, limits.handshakes_each_max);
    let turned_away = Arc::new(TurnedAway::default());
    let mut telling = interval(refusals::PERIOD);
    telling.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let accepted = tokio::select! {
            () = ready.closed() => return,
            _ = telling.tick() => {
                turned_away.tell_due();
                continue;
            }
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
        if matches!(speaks, Speaks::Plain) {
            let peer = Peer::unknown(Some(address));
            let stream = Either::Plain(stream);
            if ready.send(Ok(Stream { stream, peer })).await.is_err() {
                return;
            }
            continue;
        }
        match room.enter(address.ip()) {
            Err(full) => turned_away.note(address, &full.to_string()),
            Ok(place) => {
                let guest = Guest {
                    address,
                    place,
                    turned_away: turned_away.clone(),
                };
                let welcome = welcome(stream, guest, speaks.clone(), limits, ready.clone());
                tokio::spawn(welcome);
            }
        }
    }
}

/// Somebody who came and has not shown yet who he is.
struct Guest {
    address: SocketAddr,
    place: Place,
    turned_away: Arc<TurnedAway>,
}

/// Passes somebody on to the server once he has shown who he is.
async fn welcome(
    stream: TcpStream,
    guest: Guest,
    speaks: Speaks,
    limits: Limits,
    ready: mpsc::Sender<io::Result<Stream>>,
) {
    let shaken = tokio::select! {
        biased;
        () = guest.place.given_up() => Err("others came, and its address had most handshakes".to_owned()),
        shaken = timeout(limits.handshake, shake(stream, guest.address, &speaks)) => {
            shaken.unwrap_or_else(|_| Err("the handshake took too long".to_owned()))
        }
    };
    match shaken {
        // The server may have ended meanwhile.
        Ok(stream) => drop(ready.send(Ok(stream)).await),
        Err(why) => guest.turned_away.note(guest.address, &why),
    }
}

/// Finds out who came.
async fn shake(
    mut stream: TcpStream,
    address: SocketAddr,
    speaks: &Speaks,
) -> Result<Stream, String> {
    let (config, judge) = match speaks {
        Speaks::Plain => {
            let (stream, peer) = (Either::Plain(stream), Peer::unknown(Some(address)));
            return Ok(Stream { stream, peer });
        }
        Speaks::Mutual(tls, face) => {
            let material = tls.current();
            let config = material.server(*face).clone();
            (config, Some((tls, material.generation())))
        }
        Speaks::Shown(config) => (config.clone(), None),
    };
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
    let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let judged = match judge {
        Some((tls, generation)) => known(tls, generation, shown, address),
        None => Ok(Peer::unknown(Some(address))),
    };
    match judged {
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

/// Returns who has shown these certificates, which were verified with the files of a generation.
fn known(
    tls: &Tls,
    generation: u64,
    shown: &[CertificateDer<'static>],
    address: SocketAddr,
) -> Result<Peer, String> {
    let own = shown.first().ok_or("no certificate was shown")?;
    // It may be of an authority of ours, and of nobody that we know.
    let identity =
        Identity::of(own).map_err(|why| format!("its certificate names nobody: {why}"))?;
    let standing = Standing::new(tls, generation, shown, Side::Client)
        .map_err(|why| format!("its certificate is refused: {why}"))?;
    Ok(Peer {
        address: Some(address),
        identity: Some(Arc::new(identity)),
        standing: Some(standing),
    })
}

/// Lets somebody read why he is turned away: a connection that is closed while something of his is
/// unread is cut, and what was said to him may be lost.
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

/// Who was turned away and why.
#[derive(Debug, Default)]
struct TurnedAway(Mutex<Refusals>);

impl TurnedAway {
    fn note(&self, address: SocketAddr, why: &str) {
        let mut refusals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let line = refusals.note(Instant::now(), address.ip(), why);
        drop(refusals);
        if let Some(line) = line {
            line.tell();
        }
    }

    fn tell_due(&self) {
        let mut refusals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = refusals.due(Instant::now());
        drop(refusals);
        for line in lines {
            line.tell();
        }
    }
}
