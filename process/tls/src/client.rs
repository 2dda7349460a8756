//! Connections that go out, and to whom.
//!
//! Whoever is let in has heard the server's first word before the connection is given on: so what a
//! server says to those whom it turns away is why no connection is made.
//!
//! Invariant: nothing is sent before the server is known to be the one that is meant: by the host
//! that was dialled, by its role, and by its name where that is known.

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

use crate::identity::Identity;
use crate::live::Tls;
use crate::material::server_name;
use crate::role::Role;
use crate::standing::{Side, Standing};
use crate::stream::{Either, Outgoing};
use crate::told;

/// Who is meant to be on the other end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Expected {
    /// Any member of the scheduler.
    Scheduler,
    /// A conductor: of this name, where one is meant.
    Conductor(Option<String>),
    /// The agent of this host.
    Agent(String),
    /// Any server of the cluster, by whoever asks it only what it is.
    Anybody,
}

impl Expected {
    /// Checks who is there.
    ///
    /// # Errors
    ///
    /// Who is there instead, and what that means.
    pub fn check(&self, host: &str, found: &Identity) -> Result<(), String> {
        let (right, meant) = match self {
            Self::Anybody => (found.role.serves(), "a server".to_owned()),
            Self::Scheduler => (found.role == Role::Scheduler, "a scheduler".to_owned()),
            Self::Conductor(None) => (found.role == Role::Conductor, "a conductor".to_owned()),
            Self::Conductor(Some(name)) => {
                let right = found.role == Role::Conductor && found.name == *name;
                (right, format!("conductor {name}"))
            }
            Self::Agent(name) => (found.is_agent_of(name), format!("the agent of host {name}")),
        };
        if right {
            return Ok(());
        }
        Err(format!(
            "the server at {host} is not {meant}: its certificate is that of {}",
            found.principal()
        ))
    }
}

/// Makes connections: encrypted ones alone with certificates, and plain ones alone without.
#[derive(Clone, Debug)]
pub struct Connector {
    tls: Option<Tls>,
    expected: Expected,
    timeout: Duration,
}

impl Connector {
    /// Returns a connector to whoever is expected; a connection is made and both ends are known
    /// within a time.
    #[must_use]
    pub fn new(tls: Option<Tls>, expected: Expected, timeout: Duration) -> Self {
        Self {
            tls,
            expected,
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
        if is_https && self.tls.is_none() {
            let why = format!(
                "the server at {shown} speaks TLS: give --tls-ca, --tls-cert and --tls-key"
            );
            return Err(io::Error::other(why));
        }
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((bare, port)).await?;
        stream.set_nodelay(true)?;
        let (stream, standing) = match &self.tls {
            None => (Either::Plain(stream), None),
            Some(tls) => {
                let (stream, standing) = self.shake(stream, tls, &host, &shown).await?;
                (Either::Encrypted(Box::new(stream)), Some(standing))
            }
        };
        let mut outgoing = Outgoing::new(stream, shown, standing);
        outgoing.greet().await?;
        Ok(TokioIo::new(outgoing))
    }

    async fn shake(
        &self,
        stream: TcpStream,
        tls: &Tls,
        host: &str,
        shown: &str,
    ) -> io::Result<(TlsStream<TcpStream>, Arc<Standing>)> {
        let name = server_name(host).map_err(io::Error::other)?;
        let material = tls.current();
        let connecting = TlsConnector::from(material.client().clone());
        let connected = connecting.connect(name.clone(), stream).await;
        let stream = connected.map_err(|error| {
            let inner = error
                .get_ref()
                .and_then(|e| e.downcast_ref::<rustls::Error>());
            match inner {
                Some(inner) => io::Error::new(error.kind(), told::of_server(inner, shown, None)),
                None => io::Error::new(
                    error.kind(),
                    format!("no TLS connection to {shown}: {error}; does it speak TLS?"),
                ),
            }
        })?;
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let found = chain
            .first()
            .ok_or_else(|| io::Error::other(format!("the server at {shown} has no certificate")))?;
        let found = Identity::of(found).map_err(|why| {
            io::Error::other(format!(
                "the certificate of the server at {shown} names nobody: {why}"
            ))
        })?;
        self.expected
            .check(shown, &found)
            .map_err(io::Error::other)?;
        let side = Side::Server(name);
        let standing = Standing::new(tls, material.generation(), chain, side).map_err(|why| {
            io::Error::other(format!(
                "the certificate of the server at {shown} is refused: {why}"
            ))
        })?;
        Ok((stream, standing))
    }
}

/// A connection that goes out.
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
