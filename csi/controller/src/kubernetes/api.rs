//! The client of the API server: one GET at a time.
//!
//! Kubernetes gives each pod a token and the authority of its API server as files, and replaces
//! both while the pod runs. They are read again after a minute, and at once when the token is
//! refused.
//!
//! Invariant: the token is a header and nothing else; no message repeats it. What others name goes
//! into a path only if it can be a name.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use berth_process::error_chain;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, HeaderValue, USER_AGENT};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::object::{Claim, Class, List};
use super::options::Options;

/// How often one request is sent.
const ATTEMPTS_MAX: u32 = 3;
/// The wait before it is repeated; it doubles.
const WAIT_MIN: Duration = Duration::from_millis(100);
/// How long one answer may take.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest answer that is read: a page of the largest objects.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// How much of a server's own message is quoted, in characters.
const DETAIL_MAX: usize = 300;
/// How many requests are in progress at a time.
const REQUESTS_MAX: usize = 32;
/// After which time token and authorities are read again.
const FILES_AGE_MAX: Duration = Duration::from_secs(60);
/// How many classes are on a page, and how many pages are read.
const PAGE: usize = 500;
const PAGES_MAX: usize = 40;
/// The environment variables with the API server's address that Kubernetes sets for pods.
const HOST: &str = "KUBERNETES_SERVICE_HOST";
const PORT: &str = "KUBERNETES_SERVICE_PORT";

/// Why a query of the API server failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that it takes to talk to it cannot be used.
    #[error("{} cannot be used: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Its address is unknown.
    #[error(
        "the address of the API server is neither in the configuration (kubernetes.api_server) nor in \
         the environment ({HOST}, {PORT})"
    )]
    Unknown,
    /// It did not answer.
    #[error("GET {url}: {why}")]
    Silent {
        /// The request.
        url: String,
        /// What happened instead.
        why: String,
    },
    /// It refused.
    #[error("GET {url}: {status}: {detail}{}", hint(*status))]
    Refused {
        /// The request.
        url: String,
        /// How.
        status: StatusCode,
        /// Its message.
        detail: String,
    },
    /// Its answer is malformed.
    #[error("GET {url}: malformed answer: {why}")]
    Answer {
        /// The request.
        url: String,
        /// What is wrong with it.
        why: String,
    },
}

/// Returns what helps against a refusal.
fn hint(status: StatusCode) -> &'static str {
    match status {
        StatusCode::FORBIDDEN => {
            "; the service account needs get and list on persistentvolumeclaims and storageclasses"
        }
        StatusCode::UNAUTHORIZED => "; the service account's token is not accepted",
        _ => "",
    }
}

type Https = Client<HttpsConnector<HttpConnector>, Empty<Bytes>>;

/// The client of the API server.
#[derive(Debug)]
pub struct Api {
    base: String,
    token_file: PathBuf,
    ca_file: PathBuf,
    session: Mutex<Option<Session>>,
    permits: Semaphore,
}

/// What came out of the files.
#[derive(Clone, Debug)]
struct Session {
    https: Https,
    token: HeaderValue,
    ca: Bytes,
    read: Instant,
}

impl Api {
    /// Returns a client; nothing is dialled yet.
    ///
    /// # Errors
    ///
    /// When it is not known where the API server is, or when the files cannot be used.
    pub fn new(options: &Options) -> Result<Self, Error> {
        let base = match &options.api_server {
            Some(server) => server.trim_end_matches('/').to_owned(),
            None => from_environment().ok_or(Error::Unknown)?,
        };
        let api = Self {
            base,
            token_file: options.token_file.clone(),
            ca_file: options.ca_file.clone(),
            session: Mutex::new(None),
            permits: Semaphore::new(REQUESTS_MAX),
        };
        api.session(false)?;
        Ok(api)
    }

    /// Returns a claim, if there is such.
    ///
    /// # Errors
    ///
    /// When the API server does not answer.
    pub async fn claim(&self, namespace: &str, name: &str) -> Result<Option<Claim>, Error> {
        let path = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}");
        self.get(&path).await
    }

    /// Returns a class, if there is such.
    ///
    /// # Errors
    ///
    /// When the API server does not answer.
    pub async fn class(&self, name: &str) -> Result<Option<Class>, Error> {
        let path = format!("/apis/storage.k8s.io/v1/storageclasses/{name}");
        self.get(&path).await
    }

    /// Returns all classes.
    ///
    /// # Errors
    ///
    /// When the API server does not answer, or has too many.
    pub async fn classes(&self) -> Result<Vec<Class>, Error> {
        let path = format!("/apis/storage.k8s.io/v1/storageclasses?limit={PAGE}");
        let mut classes = Vec::new();
        let mut next = String::new();
        for _ in 0..PAGES_MAX {
            let page = match next.as_str() {
                "" => path.clone(),
                token => {
                    let token = utf8_percent_encode(token, NON_ALPHANUMERIC);
                    format!("{path}&continue={token}")
                }
            };
            let Some(list) = self.get::<List<Class>>(&page).await? else {
                break;
            };
            classes.extend(list.items);
            next = list.metadata.next;
            if next.is_empty() {
                return Ok(classes);
            }
        }
        let url = format!("{}{path}", self.base);
        let why = format!(
            "there are more than {} classes, or no list of them",
            PAGE * PAGES_MAX
        );
        Err(Error::Answer { url, why })
    }

    /// Returns what is at a path; nothing if there is nothing.
    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, Error> {
        let _permit = self
            .permits
            .acquire()
            .await
            .expect("the semaphore is never closed");
        let url = format!("{}{path}", self.base);
        let mut wait = WAIT_MIN;
        let mut attempt = 1;
        let mut is_new = false;
        loop {
            let session = self.session(is_new)?;
            let answer = match tokio::time::timeout(TIMEOUT, once(&session, &url)).await {
                Ok(answer) => answer,
                Err(_) => Err(Error::Silent {
                    url: url.clone(),
                    why: format!("no answer within {} s", TIMEOUT.as_secs()),
                }),
            };
            match answer {
                Ok(None) => return Ok(None),
                Ok(Some(body)) => return read(url, &body).map(Some),
                Err(error) if attempt == ATTEMPTS_MAX || !is_passing(&error, attempt) => {
                    return Err(error);
                }
                Err(error) => is_new = is_unauthorized(&error),
            }
            if !is_new {
                tokio::time::sleep(wait).await;
                wait *= 2;
            }
            attempt += 1;
        }
    }

    /// Returns what is in the files, read again where that is due.
    fn session(&self, is_new: bool) -> Result<Session, Error> {
        let mut kept = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = &*kept
            && !is_new
            && session.read.elapsed() < FILES_AGE_MAX
        {
            return Ok(session.clone());
        }
        let token = self.token()?;
        let ca = Bytes::from(contents(&self.ca_file)?);
        let https = match &*kept {
            Some(session) if session.ca == ca => session.https.clone(),
            Some(_) | None => https(&self.ca_file, &ca)?,
        };
        let session = Session {
            https,
            token,
            ca,
            read: Instant::now(),
        };
        *kept = Some(session.clone());
        Ok(session)
    }

    fn token(&self) -> Result<HeaderValue, Error> {
        let token = contents(&self.token_file)?;
        let value = [b"Bearer ", token.trim_ascii()].concat();
        let mut value = HeaderValue::from_bytes(&value)
            .ok()
            .filter(|_| !token.trim_ascii().is_empty())
            .ok_or_else(|| Error::File {
                path: self.token_file.clone(),
                why: "it holds no token".to_owned(),
            })?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// Sends one request.
async fn once(session: &Session, url: &str) -> Result<Option<Bytes>, Error> {
    let silent = |why: String| Error::Silent {
        url: url.to_owned(),
        why,
    };
    let request = Request::get(url)
        .header(ACCEPT, "application/json")
        .header(
            USER_AGENT,
            concat!("berth-csi-controller/", env!("CARGO_PKG_VERSION")),
        )
        .header(AUTHORIZATION, session.token.clone())
        .body(Empty::new())
        .map_err(|error| silent(error.to_string()))?;
    let answer = session.https.request(request).await;
    let (head, body) = answer
        .map_err(|error| silent(error_chain(&error)))?
        .into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let body = body
        .map_err(|error| silent(error_chain(&*error)))?
        .to_bytes();
    match head.status {
        status if status.is_success() => Ok(Some(body)),
        StatusCode::NOT_FOUND => Ok(None),
        status => Err(Error::Refused {
            url: url.to_owned(),
            status,
            detail: detail(&body),
        }),
    }
}

fn read<T: DeserializeOwned>(url: String, body: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|error| Error::Answer {
        url,
        why: error.to_string(),
    })
}

/// Returns whether another attempt can help.
fn is_passing(error: &Error, attempt: u32) -> bool {
    match error {
        Error::Silent { .. } => true,
        // Once with the token that the file holds by now.
        Error::Refused { status, .. } if *status == StatusCode::UNAUTHORIZED => attempt == 1,
        Error::Refused { status, .. } => {
            status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS
        }
        Error::File { .. } | Error::Unknown | Error::Answer { .. } => false,
    }
}

fn is_unauthorized(error: &Error) -> bool {
    matches!(error, Error::Refused { status, .. } if *status == StatusCode::UNAUTHORIZED)
}

/// Returns the message in the API server's status object, or else its body.
fn detail(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Status {
        message: String,
    }
    let message = match serde_json::from_slice::<Status>(body) {
        Ok(status) => status.message,
        Err(_) => String::from_utf8_lossy(body).into_owned(),
    };
    let is_plain = |c: &char| !c.is_control();
    message
        .trim()
        .chars()
        .filter(is_plain)
        .take(DETAIL_MAX)
        .collect()
}

fn contents(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|error| Error::File {
        path: path.to_owned(),
        why: error.to_string(),
    })
}

/// Returns a client that trusts these authorities and no others.
fn https(path: &Path, ca: &[u8]) -> Result<Https, Error> {
    let unusable = |why: String| Error::File {
        path: path.to_owned(),
        why,
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca) {
        let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| unusable(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(unusable("it holds no certificate".to_owned()));
    }
    let provider = rustls::crypto::ring::default_provider();
    let tls = rustls::ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_only()
        .enable_http1()
        .wrap_connector(connector);
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}

fn from_environment() -> Option<String> {
    let host = std::env::var(HOST).ok().filter(|host| !host.is_empty())?;
    let port = std::env::var(PORT).ok().filter(|port| !port.is_empty())?;
    Some(match host.contains(':') {
        true => format!("https://[{host}]:{port}"),
        false => format!("https://{host}:{port}"),
    })
}
