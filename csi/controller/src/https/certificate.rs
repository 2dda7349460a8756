//! The certificate that Kubernetes is shown. It is read again when its files change, so that it can
//! be renewed while the program runs.
//!
//! Invariant: what is shown is whole: a chain and the key that belongs to it. Files that do not go
//! together, as halfway through a renewal, leave the certificate as it was.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_util::sync::CancellationToken;

/// How often the files are looked at.
pub(crate) const INTERVAL: Duration = Duration::from_secs(10);

/// Why there is no certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} cannot be used: {why}", path.display())]
pub struct Unusable {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: String,
}

/// The certificate of a server.
#[derive(Debug)]
pub(crate) struct Certificate {
    certificate: PathBuf,
    key: PathBuf,
    shown: RwLock<Shown>,
}

#[derive(Debug)]
struct Shown {
    /// What the files held.
    files: [Vec<u8>; 2],
    certified: Arc<CertifiedKey>,
}

impl Certificate {
    /// Reads a certificate and its key.
    pub(crate) fn read(certificate: &Path, key: &Path) -> Result<Self, Unusable> {
        let files = [contents(certificate)?, secret(key)?];
        let certified = certified(certificate, key, &files)?;
        Ok(Self {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            shown: RwLock::new(Shown { files, certified }),
        })
    }

    /// Returns the TLS configuration with it: TLS 1.2 or 1.3, no client certificates, one
    /// request after the other.
    pub(crate) fn server(self: &Arc<Self>) -> ServerConfig {
        let provider = Arc::new(ring::default_provider());
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring has what both versions take")
            .with_no_client_auth()
            .with_cert_resolver(self.clone());
        server.alpn_protocols = vec![b"http/1.1".to_vec()];
        server
    }

    /// Reads the files again every so often, until `stop` is cancelled.
    pub(crate) async fn renew(self: Arc<Self>, interval: Duration, stop: CancellationToken) {
        let mut last_error = None;
        let mut ticks = tokio::time::interval(interval);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let certificate = self.clone();
            let read = tokio::task::spawn_blocking(move || certificate.read_again()).await;
            match read {
                Ok(Ok(true)) => {
                    tracing::info!("certificate for Kubernetes reloaded");
                    last_error = None;
                }
                Ok(Ok(false)) | Err(_) => {}
                Ok(Err(error)) if last_error.as_ref() == Some(&error) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, "new certificate for Kubernetes rejected");
                    last_error = Some(error);
                }
            }
        }
    }

    /// Reads the files again; returns whether they have changed.
    fn read_again(&self) -> Result<bool, Unusable> {
        let files = [contents(&self.certificate)?, secret(&self.key)?];
        let shown = self.shown.read().unwrap_or_else(PoisonError::into_inner);
        if shown.files == files {
            return Ok(false);
        }
        drop(shown);
        let certified = certified(&self.certificate, &self.key, &files)?;
        let mut shown = self.shown.write().unwrap_or_else(PoisonError::into_inner);
        *shown = Shown { files, certified };
        Ok(true)
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let shown = self.shown.read().unwrap_or_else(PoisonError::into_inner);
        Some(shown.certified.clone())
    }
}

fn contents(path: &Path) -> Result<Vec<u8>, Unusable> {
    std::fs::read(path).map_err(|error| unusable(path, &error))
}

fn secret(path: &Path) -> Result<Vec<u8>, Unusable> {
    let mut file = berth_files::open_secret(path).map_err(|error| unusable(path, &error))?;
    let mut bytes = Vec::new();
    let read = file.read_to_end(&mut bytes);
    read.map_err(|error| unusable(path, &error))?;
    Ok(bytes)
}

fn certified(
    certificate: &Path,
    key: &Path,
    files: &[Vec<u8>; 2],
) -> Result<Arc<CertifiedKey>, Unusable> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&files[0]).collect();
    let chain = chain.map_err(|error| unusable(certificate, &error))?;
    if chain.is_empty() {
        return Err(unusable(certificate, &"it holds no certificate"));
    }
    let secret = PrivateKeyDer::from_pem_slice(&files[1]).map_err(|error| unusable(key, &error))?;
    let secret = ring::sign::any_supported_type(&secret).map_err(|error| unusable(key, &error))?;
    let certified = CertifiedKey::new(chain, secret);
    certified
        .keys_match()
        .map_err(|error| unusable(key, &error))?;
    Ok(Arc::new(certified))
}

fn unusable(path: &Path, why: &dyn std::fmt::Display) -> Unusable {
    Unusable {
        path: path.to_owned(),
        why: why.to_string(),
    }
}
