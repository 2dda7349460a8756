//! Outgoing connections, and which servers they accept.
//!
//! The server's first frame is read before a connection is handed out, so that the reason of a refusal
//! is the error of connecting.
//!
//! Invariant: nothing is sent before the server is verified: by the dialled host, by its role, and by
//! its name where that is known.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::Uri;
use tower_service::Service;

use crate::explain;
use crate::identity::Identity;
use crate::inside::Inside;
use crate::live::Tls;
use crate::material::server_name;
use crate::role::Role;
use crate::stream::{Either, Outgoing};
use crate::trust::{Side, Trust};

/// Which server is expected.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Expected {
    /// Any member of the scheduler.
    Scheduler,
    /// A conductor, of this name if one is given.
    Conductor(Option<String>),
    /// The agent of this host.
    Agent(String),
    /// Any server of the cluster, for a client that only queries its role.
    AnyServer,
}

impl Expected {
    /// Checks the identity of a server.
    ///
    /// # Errors
    ///
    /// Which server was reached instead.
    pub fn check(&self, host: &str, peer: &Identity) -> Result<(), String> {
        let (matches, meant) = match self {
            Self::AnyServer => (peer.role.serves(), "a server".to_owned()),
            Self::Scheduler => (peer.role == Role::Scheduler, "a scheduler".to_owned()),
            Self::Conductor(None) => (peer.role == Role::Conductor, "a conductor".to_owned()),
            Self::Conductor(Some(name)) => {
                let matches = peer.role == Role::Conductor && peer.name == *name;
                (matches, format!("conductor {name}"))
            }
            Self::Agent(name) => (peer.is_agent_of(name), format!("the agent of host {name}")),
        };
        if matches {
            return Ok(());
        }
        Err(format!(
            "the server at {host} is not {meant}: its certificate is that of {}",
            peer.principal()
        ))
    }
}

/// Makes connections: encrypted ones alone with certificates, and plain ones alone without.
#[derive(Clone, Debug)]
pub struct Connector {
    tls: Option<Tls>,
    /// Where all connections lead, if they stay in this process.
    inside: Option<Inside>,
    expected: Expected,
    timeout: Duration,
}

impl Connector {
    /// Returns a connector to the expected server; `timeout` bounds connection and handshake together.
    #[must_use]
    pub fn new(tls: Option<Tls>, expected: Expected, timeout: Duration) -> Self {
        Self {
            tls,
            inside: None,
            expected,
            timeout,
        }
    }

    /// Returns a connector to a server of this process, whatever the address.
    #[must_use]
    pub fn inside(inside: Inside, timeout: Duration) -> Self {
        Self {
            tls: None,
            inside: Some(inside),
            expected: Expected::AnyServer,
            timeout,
        }
    }

    async fn connect_in_time(self, uri: Uri) -> io::Result<Connection> {
        let host = uri.authority().map(ToString::to_string);
        let timeout = self.timeout;
        let connected = tokio::time::timeout(timeout, self.connect(uri)).await;
        connected.unwrap_or_else(|_| {
            let host = host.unwrap_or_default();
            let what = format!("no connection to {host} within {} ms", timeout.as_millis());
            Err(io::Error::new(io::ErrorKind::TimedOut, what))
        })
    }

    async fn connect(self, uri: Uri) -> io::Result<Connection> {
        let host = uri.host().unwrap_or_default().to_owned();
        let is_https = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        let shown = format!("{host}:{port}");
        if let Some(inside) = &self.inside {
            let stream = Either::Inside(inside.connect().await?);
            let mut outgoing = Outgoing::new(stream, shown, None);
            outgoing.exchange_preface().await?;
            return Ok(TokioIo::new(outgoing));
        }
        if is_https && self.tls.is_none() {
            let why = format!(
                "https://{shown} is dialled with certificates only: give --tls-ca, --tls-cert and \
                 --tls-key, or an address with http"
            );
            return Err(io::Error::other(why));
        }
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((bare, port)).await?;
        stream.set_nodelay(true)?;
        let (stream, trust) = match &self.tls {
            None => (Either::Plain(stream), None),
            Some(tls) => {
                let (stream, trust) = self.handshake(stream, tls, &host, &shown).await?;
                (Either::Encrypted(Box::new(stream)), Some(trust))
            }
        };
        let mut outgoing = Outgoing::new(stream, shown, trust);
        outgoing.exchange_preface().await?;
        Ok(TokioIo::new(outgoing))
    }

    async fn handshake(
        &self,
        stream: TcpStream,
        tls: &Tls,
        host: &str,
        shown: &str,
    ) -> io::Result<(TlsStream<TcpStream>, Arc<Trust>)> {
        let name = server_name(host).map_err(io::Error::other)?;
        let version = tls.trust_version();
        let connecting = TlsConnector::from(tls.current().client().clone());
        let connected = connecting.connect(name.clone(), stream).await;
        let stream = connected.map_err(|error| {
            let inner = error
                .get_ref()
                .and_then(|e| e.downcast_ref::<rustls::Error>());
            match inner {
                Some(inner) => io::Error::new(error.kind(), explain::of_server(inner, shown, None)),
                None => io::Error::new(
                    error.kind(),
                    format!("no TLS connection to {shown}: {error}; does it speak TLS?"),
                ),
            }
        })?;
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let peer = chain
            .first()
            .ok_or_else(|| io::Error::other(format!("the server at {shown} has no certificate")))?;
        let peer = Identity::of(peer).map_err(|why| {
            io::Error::other(format!(
                "the certificate of the server at {shown} carries no identity: {why}"
            ))
        })?;
        self.expected
            .check(shown, &peer)
            .map_err(io::Error::other)?;
        let side = Side::Server(name);
        let trust = Trust::new(tls, version, chain, side).map_err(|why| {
            io::Error::other(format!(
                "the certificate of the server at {shown} is refused: {why}"
            ))
        })?;
        Ok((stream, trust))
    }
}

/// An outgoing connection.
pub type Connection = TokioIo<Outgoing<TlsStream<TcpStream>>>;

impl Service<Uri> for Connector {
    type Response = Connection;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Connection>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().connect_in_time(uri))
    }
}
