//! Requests to another Placement over HTTP: one GET at a time, with retries.
//!
//! Invariant: the token is a header and nothing else; no message and no error repeats it.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use berth_domain::refusal::{Code, Refusal};
use berth_process::error_chain;
use bytes::Bytes;
use http::header::{ACCEPT, HeaderName, HeaderValue, LOCATION, RETRY_AFTER};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The maximum number of attempts of one request.
const ATTEMPTS_MAX: u32 = 4;
/// The wait before the second attempt; it doubles with every further one.
const WAIT_MIN: Duration = Duration::from_millis(250);
/// The longest wait that a server may request.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// The timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer that is read: a list of a few hundred thousand providers.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// The maximum length of a server's explanation in a message, in characters.
const DETAIL_MAX: usize = 300;

const TOKEN: HeaderName = HeaderName::from_static("x-auth-token");
const VERSION: HeaderName = HeaderName::from_static("openstack-api-version");

/// No server answered.
pub const SOURCE_UNREACHABLE: &str = "SOURCE_UNREACHABLE";
/// The answer was a refusal.
pub const SOURCE_REFUSED: &str = "SOURCE_REFUSED";
/// The answer was not Placement's.
pub const SOURCE_ANSWER: &str = "SOURCE_ANSWER";

/// A client of one server.
pub struct Http {
    client: Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
    base: String,
    token: Option<HeaderValue>,
    timeout: Duration,
}

/// The failure of one attempt.
struct Failure {
    refusal: Refusal,
    /// Whether a retry can help, and the wait that the server requests.
    retry: Option<Option<Duration>>,
}

impl Http {
    /// Returns a client of the server at this URL; nothing is dialled yet.
    ///
    /// # Errors
    ///
    /// When the URL is invalid, or when certificates cannot be read.
    pub fn new(
        url: &str,
        token: Option<HeaderValue>,
        ca_file: Option<&Path>,
        timeout: Duration,
    ) -> anyhow::Result<Self> {
        let base = base(url)?;
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let roots = if base.starts_with("https://") {
            roots(ca_file)?
        } else {
            RootCertStore::empty()
        };
        let provider = rustls::crypto::ring::default_provider();
        let tls = rustls::ClientConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .context("failed to set TLS up")?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            base,
            token,
            timeout,
        })
    }

    /// Returns the URL without a slash at its end.
    #[must_use]
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Returns whether a token would travel unencrypted over a network.
    #[must_use]
    pub fn exposes_token(&self) -> bool {
        let host = self.base.strip_prefix("http://").unwrap_or_default();
        let loopback = ["127.", "localhost", "[::1]"];
        self.token.is_some() && !host.is_empty() && !loopback.iter().any(|l| host.starts_with(l))
    }

    /// Returns the resource at a path, at a microversion; nothing if it does not exist.
    ///
    /// # Errors
    ///
    /// When no server answered, or not with what was requested.
    pub async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        version: Option<&str>,
    ) -> Result<Option<T>, Refusal> {
        let url = format!("{}{path}", self.base);
        let mut wait = WAIT_MIN;
        let mut attempt = 1;
        loop {
            let outcome = tokio::time::timeout(self.timeout, self.once(&url, version)).await;
            let failure = match outcome {
                Ok(Ok(None)) => return Ok(None),
                Ok(Ok(Some(body))) => return read(&url, &body).map(Some),
                Ok(Err(failure)) => failure,
                Err(_) => Failure::silent(
                    &url,
                    &format!("no answer within {} s", self.timeout.as_secs()),
                ),
            };
            let Some(retry_after) = failure.retry.filter(|_| attempt < ATTEMPTS_MAX) else {
                let refusal = failure.refusal;
                return Err(refusal.with("attempts", attempt));
            };
            tokio::time::sleep(retry_after.unwrap_or(wait).min(WAIT_MAX)).await;
            wait *= 2;
            attempt += 1;
        }
    }

    async fn once(&self, url: &str, version: Option<&str>) -> Result<Option<Bytes>, Failure> {
        let mut request = Request::get(url).header(ACCEPT, "application/json");
        if let Some(token) = &self.token {
            request = request.header(TOKEN, token);
        }
        if let Some(version) = version {
            request = request.header(VERSION, format!("placement {version}"));
        }
        let request = request.body(Empty::new());
        let request =
            request.map_err(|error| Failure::for_good(unreachable(url, &error.to_string())))?;
        let response = self.client.request(request).await;
        let response = response.map_err(|error| Failure::silent(url, &error_chain(&error)))?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| Failure::silent(url, &error_chain(&*error)))?;
        let body = body.to_bytes();
        match head.status {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => Ok(Some(body)),
            _ => Err(refused(url, &Response::from_parts(head, body))),
        }
    }
}

impl Failure {
    fn silent(url: &str, why: &str) -> Self {
        Self {
            refusal: unreachable(url, why),
            retry: Some(None),
        }
    }

    fn for_good(refusal: Refusal) -> Self {
        Self {
            refusal,
            retry: None,
        }
    }
}

fn unreachable(url: &str, why: &str) -> Refusal {
    let message = format!("GET {url}: {why}");
    Refusal::new(Code::Unavailable, SOURCE_UNREACHABLE, message).with("url", url)
}

/// Returns what a status that is no success means.
fn refused(url: &str, response: &Response<Bytes>) -> Failure {
    let status = response.status();
    let header = |name| response.headers().get(name)?.to_str().ok();
    let mut message = format!("GET {url}: {status}");
    if let Some(location) = header(LOCATION).filter(|_| status.is_redirection()) {
        message += &format!(" to {location}");
    } else if let Some(detail) = detail(response.body()) {
        message += &format!(": {detail}");
    }
    let (code, hint) = match status {
        StatusCode::UNAUTHORIZED => (
            Code::PermissionDenied,
            "put a token that is still good into the environment variable OS_TOKEN, or into the \
             file of --token-file (openstack token issue -f value -c id)",
        ),
        StatusCode::FORBIDDEN => (
            Code::PermissionDenied,
            "the token's user needs the role admin or service to read everything",
        ),
        _ if status.is_redirection() => (
            Code::FailedPrecondition,
            "give the URL that it names with --from",
        ),
        _ => (Code::FailedPrecondition, "check the log of that Placement"),
    };
    let refusal = Refusal::new(code, SOURCE_REFUSED, message)
        .with_hint(hint)
        .with("url", url)
        .with("status", status.as_u16());
    let passing = [429, 500, 502, 503, 504].contains(&status.as_u16());
    let retry_after = header(RETRY_AFTER).and_then(|text| text.parse().ok());
    Failure {
        refusal,
        retry: passing.then_some(retry_after.map(Duration::from_secs)),
    }
}

/// Returns the server's explanation of a refusal, in one line.
fn detail(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Fault {
        detail: String,
    }
    #[derive(Deserialize)]
    struct Faults {
        #[serde(default)]
        errors: Vec<Fault>,
        message: Option<String>,
    }
    let faults: Faults = serde_json::from_slice(body).ok()?;
    let detail = faults.errors.into_iter().next().map(|fault| fault.detail);
    let words = detail.or(faults.message)?;
    // Some servers write for browsers.
    let words = words.replace("<br />", " ");
    let line = words.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(line.chars().take(DETAIL_MAX).collect())
}

fn read<T: DeserializeOwned>(url: &str, body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| invalid_response(url, &error.to_string()))
}

/// Returns the refusal for an invalid response.
#[must_use]
pub fn invalid_response(url: &str, why: &str) -> Refusal {
    let message = format!("GET {url}: the answer is not that of OpenStack Placement: {why}");
    Refusal::new(Code::FailedPrecondition, SOURCE_ANSWER, message)
        .with_hint(
            "--from takes the URL of the API's root: openstack endpoint list --service placement",
        )
        .with("url", url)
}

/// Checks a URL and returns it without a slash at its end.
fn base(url: &str) -> anyhow::Result<String> {
    // It would be shown with every error.
    anyhow::ensure!(
        !url.contains('@'),
        "the URL must hold no user and no password: a token is read from the environment or a file"
    );
    let uri: Uri = url.parse().with_context(|| format!("{url:?} is no URL"))?;
    let scheme = uri.scheme_str().unwrap_or_default();
    anyhow::ensure!(
        ["http", "https"].contains(&scheme) && uri.host().is_some_and(|host| !host.is_empty()),
        "{url:?} is no URL like http://controller/placement"
    );
    anyhow::ensure!(uri.query().is_none(), "{url:?} must have no query");
    Ok(url.trim_end_matches('/').to_owned())
}

/// Returns the certificates that are trusted: the system's, and those of a file.
fn roots(file: Option<&Path>) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    // Some of the system's may be odd; whether the others do shows with the first connection.
    let system = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(system.certs);
    if let Some(file) = file {
        let failed = || format!("failed to read certificates from {}", file.display());
        let before = roots.len();
        for certificate in CertificateDer::pem_file_iter(file).with_context(failed)? {
            let certificate = certificate.with_context(failed)?;
            roots.add(certificate).with_context(failed)?;
        }
        let added = roots.len() > before;
        anyhow::ensure!(added, "{} holds no PEM certificate", file.display());
    }
    anyhow::ensure!(
        !roots.is_empty(),
        "no certificates are trusted: install ca-certificates, or give --ca-file"
    );
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a URL that holds a password is refused before anything shows it.
    #[test]
    fn only_urls_of_servers_are_taken() {
        assert_eq!(base("http://c/placement/").unwrap(), "http://c/placement");
        assert_eq!(base("https://c:8778").unwrap(), "https://c:8778");
        for bad in [
            "c/placement",
            "ftp://c",
            "http://",
            "http://u:secret@c",
            "http://c/?a=b",
        ] {
            let error = base(bad).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_token_is_exposed_on_networks_only() {
        let token = || Some(HeaderValue::from_static("t"));
        let exposes = |url: &str, token| {
            let http = Http::new(url, token, None, WAIT_MAX).unwrap();
            http.exposes_token()
        };
        assert!(exposes("http://controller/placement", token()));
        assert!(!exposes("http://controller/placement", None));
        assert!(!exposes("http://127.0.0.1:8778", token()));
    }

    #[test]
    fn what_a_server_says_is_one_line() {
        let body = br#"{"errors": [{"status": 404, "detail": "gone\n\n  away "}]}"#;
        assert_eq!(detail(body).as_deref(), Some("gone away"));
        assert_eq!(detail(br#"{"message": "no"}"#).as_deref(), Some("no"));
        assert_eq!(detail(b"<html>"), None);
    }
}
