//! One request for an image to one server, and what its response leads to.
//!
//! Not here: redirections, which `download` follows, and the bytes of the image. No proxy of the environment
//! is used: it would connect to addresses that are not checked here.
//!
//! Invariant: a response is taken only where its end is known, so that no part of an image counts as all of
//! it; and nothing of a URL but its server is in any message.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use berth_domain::image::{ImageUrl, Scheme};
use berth_domain::refusal::Refusal;
use bytes::Bytes;
use http_body_util::Empty;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper::header::{self, HeaderMap, HeaderName};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::{address, failed, refused};
use crate::config::images::Settings;

/// How much is read at once. hyper refuses a head that is not complete with as much in its buffer, so that a
/// head has less than twice that.
const READ_BYTES_MAX: usize = 32 << 10;

/// How many addresses of a name are tried.
const ADDRESSES_MAX: usize = 8;

/// How long a server may take.
#[derive(Clone, Copy, Debug)]
pub(in crate::images) struct Limits {
    /// To accept a connection, at each of its addresses; as long for its name, and for TLS.
    pub(in crate::images) connect: Duration,
    /// To send anything.
    pub(in crate::images) idle: Duration,
    /// For all of the image, and all redirections.
    pub(in crate::images) total: Duration,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// What a response leads to.
#[derive(Debug)]
pub(super) enum Answer {
    /// The image.
    File(Box<FileBody>),
    /// To this reference.
    Redirection(String),
}

/// The body of a response that is the image.
#[derive(Debug)]
pub(super) struct FileBody {
    pub(super) body: Incoming,
    /// How long it is; absent where its end is marked instead.
    pub(super) length: Option<u64>,
    /// The connection, which ends with it.
    _connection: JoinSet<()>,
}

/// Sends a request, and returns what its response leads to.
pub(super) async fn get(
    settings: &Settings,
    limits: &Limits,
    url: &ImageUrl,
    has_checksum: bool,
) -> Result<Answer, Refusal> {
    let stream = connect(settings, limits, url).await?;
    let stream: Box<dyn Stream> = match url.scheme() {
        Scheme::Http => Box::new(stream),
        Scheme::Https => Box::new(encrypt(settings, limits, url, stream).await?),
    };
    let mut builder = http1::Builder::new();
    builder.max_buf_size(READ_BYTES_MAX);
    let (mut sender, connection) = builder
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| failed(url, &error_chain(&error)))?;
    let mut connections = JoinSet::new();
    connections.spawn(async move {
        // Its error is that of the request or of the body too.
        let _ = connection.await;
    });
    let request = request(url)?;
    let response = timeout(limits.idle, sender.send_request(request)).await;
    let response = response
        .map_err(|_| failed(url, "it does not answer"))?
        .map_err(|error| failed(url, &error_chain(&error)))?;
    let (head, body) = response.into_parts();
    if let Some(reference) = redirection(url, head.status, &head.headers)? {
        return Ok(Answer::Redirection(reference));
    }
    let length = body.size_hint().exact();
    check_head(url, head.status, &head.headers, length, has_checksum)?;
    Ok(Answer::File(Box::new(FileBody {
        body,
        length,
        _connection: connections,
    })))
}

/// Connects to the first address of a server that is allowed and accepts.
async fn connect(
    settings: &Settings,
    limits: &Limits,
    url: &ImageUrl,
) -> Result<TcpStream, Refusal> {
    let resolving = tokio::net::lookup_host((url.host(), url.port()));
    let resolved = timeout(limits.connect, resolving).await;
    let resolved = resolved
        .map_err(|_| failed(url, "its name is not resolved in time"))?
        .map_err(|error| failed(url, &format!("its name is not resolved: {error}")))?;
    let addresses: Vec<SocketAddr> = resolved.take(ADDRESSES_MAX).collect();
    let mut not_allowed = None;
    let mut why = None;
    for address in addresses {
        if let Some(rule) = address::refusal(settings, address.ip()) {
            not_allowed = Some(refused(url, &format!("{}: {rule}", address.ip())));
            continue;
        }
        // To the address itself: the name may have others by now.
        match timeout(limits.connect, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => why = Some(failed(url, &format!("{address}: {error}"))),
            Err(_) => why = Some(failed(url, &format!("{address} does not accept in time"))),
        }
    }
    Err(why
        .or(not_allowed)
        .unwrap_or_else(|| failed(url, "its name has no address")))
}

/// Makes the connection encrypted, with a server that proves its name.
async fn encrypt(
    settings: &Settings,
    limits: &Limits,
    url: &ImageUrl,
    stream: TcpStream,
) -> Result<impl Stream + use<>, Refusal> {
    let ca = settings.download_ca.clone();
    // Read for each connection: the files may be replaced while the agent runs.
    let made = tokio::task::spawn_blocking(move || client_config(ca.as_deref())).await;
    let config = made
        .unwrap_or_else(|_| Err("reading the CAs panicked".to_owned()))
        .map_err(|why| failed(url, &why))?;
    let name = ServerName::try_from(url.host().to_owned());
    let name = name.map_err(|_| failed(url, "no certificate can have its name"))?;
    let handshake = TlsConnector::from(config).connect(name, stream);
    timeout(limits.connect, handshake)
        .await
        .map_err(|_| failed(url, "it does not complete the TLS handshake in time"))?
        .map_err(|error| failed(url, &error.to_string()))
}

fn client_config(ca: Option<&std::path::Path>) -> Result<Arc<ClientConfig>, String> {
    let roots = match ca {
        Some(path) => {
            let read = berth_tls::material::authorities(path);
            read.map_err(|fault| format!("images.download_ca of the agent: {fault}"))?
        }
        None => {
            let mut roots = RootCertStore::empty();
            let certificates = rustls_native_certs::load_native_certs().certs;
            if roots.add_parsable_certificates(certificates).0 == 0 {
                return Err(
                    "the host trusts no authority: install ca-certificates, or set \
                     images.download_ca of its agent"
                        .to_owned(),
                );
            }
            roots
        }
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    Ok(Arc::new(config))
}

/// The bytes as they are stored: what a server compresses for the way has no end that is known, and another
/// checksum.
fn request(url: &ImageUrl) -> Result<Request<Empty<Bytes>>, Refusal> {
    let request = Request::get(url.target())
        .header(header::HOST, url.authority())
        .header(header::USER_AGENT, "berth-compute-agent")
        .header(header::ACCEPT, "*/*")
        .header(header::ACCEPT_ENCODING, "identity")
        .header(header::CONNECTION, "close")
        .body(Empty::new());
    request.map_err(|error| failed(url, &format!("no request can be made: {error}")))
}

/// Returns where a response redirects to; nothing where it does not.
fn redirection(
    url: &ImageUrl,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<Option<String>, Refusal> {
    if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let location = headers.get(header::LOCATION);
    let location = location.and_then(|location| location.to_str().ok());
    match location {
        Some(location) => Ok(Some(location.to_owned())),
        None => Err(failed(url, &format!("it answers {status} without a URL"))),
    }
}

/// Refuses a response that is not all of a file as it is stored.
fn check_head(
    url: &ImageUrl,
    status: StatusCode,
    headers: &HeaderMap,
    length: Option<u64>,
    has_checksum: bool,
) -> Result<(), Refusal> {
    if status != StatusCode::OK {
        return Err(failed(url, &format!("it answers {status}")));
    }
    let is_only = |name: HeaderName, value: &str| {
        let mut all = headers.get_all(name).iter();
        all.all(|one| one.as_bytes().eq_ignore_ascii_case(value.as_bytes()))
    };
    if !is_only(header::CONTENT_ENCODING, "identity") {
        let why = "it sends the image compressed (Content-Encoding), although that is not accepted";
        return Err(failed(url, why));
    }
    if !is_only(header::TRANSFER_ENCODING, "chunked") {
        return Err(failed(
            url,
            "it sends the image in an encoding that is not known",
        ));
    }
    let has_end = length.is_some() || headers.contains_key(header::TRANSFER_ENCODING);
    if !has_end && !has_checksum {
        let why = "it does not say how long the image is, so that whether all of it came would not be known";
        return Err(failed(url, why).with_hint("state what it has to be: --sha256"));
    }
    Ok(())
}

/// Returns an error with its causes, as those of hyper are in its sources.
pub(super) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
