//! A server of images on loopback that does what each test has it do, over plain TCP or TLS.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use berth_tls::Role;
use berth_tls::authority::{self, Authority, CertificateSpec};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// What a server does next on a connection. After the last of them it closes it.
#[derive(Clone, Debug)]
pub(super) enum Act {
    Send(Vec<u8>),
    /// Sends the bytes again and again, with a pause.
    Repeat(Vec<u8>, Duration),
    /// Does nothing more, and leaves the connection open.
    Stall,
}

/// A server, which ends when it is dropped.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    _accepting: JoinSet<()>,
}

impl Server {
    /// Starts a server that acts by the path of a request.
    pub(super) async fn start(
        tls: Option<ServerConfig>,
        acts: impl Fn(&str, SocketAddr) -> Vec<Act> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (count, acts) = (connections.clone(), Arc::new(acts));
        let acceptor = tls.map(|tls| TlsAcceptor::from(Arc::new(tls)));
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut serving = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let (acts, acceptor) = (acts.clone(), acceptor.clone());
                serving.spawn(async move {
                    let acts = |path: &str| acts(path, address);
                    match acceptor {
                        None => serve(stream, acts).await,
                        // A client that does not trust the server ends the handshake.
                        Some(acceptor) => match acceptor.accept(stream).await {
                            Ok(stream) => serve(stream, acts).await,
                            Err(_) => None,
                        },
                    }
                });
            }
        });
        Self {
            address,
            connections,
            _accepting: accepting,
        }
    }

    /// Returns how many connections were made.
    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

/// Reads a request, and does what is to be done; ends early where the client has disconnected.
async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    acts: impl Fn(&str) -> Vec<Act>,
) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).ok()?;
    let path = head.split(' ').nth(1)?;
    for act in acts(path) {
        match act {
            Act::Send(bytes) => stream.write_all(&bytes).await.ok()?,
            Act::Repeat(bytes, pause) => loop {
                stream.write_all(&bytes).await.ok()?;
                stream.flush().await.ok()?;
                tokio::time::sleep(pause).await;
            },
            Act::Stall => {
                stream.flush().await.ok()?;
                // Until the client disconnects.
                let _ = stream.read_u8().await;
            }
        }
    }
    stream.shutdown().await.ok()
}

/// Makes an authority in a directory, and a server's certificate of it for a name; returns the file of the
/// authority too.
pub(super) fn certified(directory: &Path, name: &str) -> (ServerConfig, std::path::PathBuf) {
    let made = authority::init(directory, "images", 1).unwrap();
    let spec = CertificateSpec {
        role: Role::Agent,
        name: "images".to_owned(),
        dns: Vec::from_iter(
            name.parse::<std::net::IpAddr>()
                .is_err()
                .then(|| name.to_owned()),
        ),
        ips: Vec::from_iter(name.parse()),
        validity: Duration::from_secs(3_600),
    };
    let authority = Authority::open(&made.cert, &made.key).unwrap();
    let (cert, key) = authority.sign(&spec).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        );
    (config.unwrap(), made.cert)
}
