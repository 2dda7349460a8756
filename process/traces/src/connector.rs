//! The connection to the collector. Unlike a connection in the cluster, it proves no identity of ours,
//! and trusts the authorities of the system, or those of a file.
//!
//! Invariant: it is made when it is first needed, and again after it was lost; a call over it ends in
//! time, also where the collector does not answer.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint, Uri};
use tower_service::Service;

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a collector may take to accept a batch.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the channel to a collector.
pub(crate) fn channel(endpoint: &str, ca: Option<&Path>) -> Result<Channel, String> {
    let url = Endpoint::from_shared(endpoint.to_owned());
    let url = url.map_err(|error| format!("traces.endpoint = {endpoint:?}: {error}"))?;
    let tls = match url.uri().scheme_str() {
        Some("https") => Some(client_config(ca)?),
        _ => None,
    };
    let url = url.timeout(CALL_TIMEOUT);
    Ok(url.connect_with_connector_lazy(Connector { tls }))
}

fn client_config(ca: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let roots = match ca {
        Some(path) => {
            let read = berth_tls::material::authorities(path);
            read.map_err(|fault| format!("traces.collector_ca: {fault}"))?
        }
        None => of_the_system()?,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

/// Returns the authorities that the system trusts.
fn of_the_system() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let certificates = rustls_native_certs::load_native_certs().certs;
    match roots.add_parsable_certificates(certificates) {
        (0, _) => Err(
            "the system has no certificate of an authority to trust for traces.endpoint: set \
             traces.collector_ca to a PEM file of those that sign the collector's certificate"
                .to_owned(),
        ),
        _ => Ok(roots),
    }
}

/// Makes connections.
#[derive(Clone, Debug)]
struct Connector {
    tls: Option<Arc<ClientConfig>>,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Connector {
    async fn connect(self, uri: Uri) -> io::Result<TokioIo<Box<dyn Stream>>> {
        let host = uri.host().unwrap_or_default();
        let bare = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let port = uri.port_u16();
        let port = port.unwrap_or(if self.tls.is_some() { 443 } else { 80 });
        let stream = TcpStream::connect((bare.as_str(), port)).await?;
        stream.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match self.tls {
            None => Box::new(stream),
            Some(tls) => {
                let name = ServerName::try_from(bare).map_err(io::Error::other)?;
                Box::new(TlsConnector::from(tls).connect(name, stream).await?)
            }
        };
        Ok(TokioIo::new(stream))
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Box<dyn Stream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.clone().connect(uri);
        Box::pin(async {
            let connected = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
            connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        })
    }
}
