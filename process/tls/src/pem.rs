//! Certificates and keys as PEM in memory: checked for programs that keep them elsewhere than in files.
//!
//! Not here: files ([`crate::material`]), and making certificates ([`crate::authority`]).
//!
//! Invariant: what is accepted here, a program accepts when it reads the same bytes from files.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::CertifiedKey;

use crate::explain;
use crate::identity::Identity;
use crate::material::server_name;

/// A certificate with its key, and the authorities that it is to be trusted by.
#[derive(Clone, Copy)]
pub struct Bundle<'a> {
    /// The authorities' certificates.
    pub ca: &'a [u8],
    /// The certificate, and those between it and the authority, if any.
    pub cert: &'a [u8],
    /// Its key.
    pub key: &'a [u8],
}

impl Bundle<'_> {
    /// Checks that the parts match and others would accept the certificate now; returns its identity.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<Identity, String> {
        let chain = certificates(self.cert, "the certificate")?;
        let identity = Identity::of(&chain[0])
            .map_err(|error| format!("the certificate carries no identity: {error}"))?;
        self.check_valid()?;
        Ok(identity)
    }

    /// As [`Self::check`], for a certificate that carries no identity.
    pub(crate) fn check_valid(&self) -> Result<(), String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain = certificates(self.cert, "the certificate")?;
        let key = PrivateKeyDer::from_pem_slice(self.key)
            .map_err(|_| "the key is no private key in PEM form".to_owned())?;
        CertifiedKey::from_der(chain.clone(), key, &provider)
            .map_err(|error| format!("the key is not that of the certificate: {error}"))?;
        let clients = WebPkiClientVerifier::builder_with_provider(self.roots()?, provider).build();
        let clients = clients.map_err(|error| format!("the authority is damaged: {error}"))?;
        clients
            .verify_client_cert(&chain[0], &chain[1..], UnixTime::now())
            .map_err(|error| format!("the certificate is not valid: {}", explain::own(&error)))?;
        Ok(())
    }

    /// Checks that clients which connect to this name or address would accept the certificate.
    ///
    /// # Errors
    ///
    /// Why they would not.
    pub fn check_serves(&self, host: &str) -> Result<(), String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain = certificates(self.cert, "the certificate")?;
        let name = server_name(host)?;
        let servers = WebPkiServerVerifier::builder_with_provider(self.roots()?, provider).build();
        let servers = servers.map_err(|error| format!("the authority is damaged: {error}"))?;
        servers
            .verify_server_cert(&chain[0], &chain[1..], &name, &[], UnixTime::now())
            .map(|_| ())
            .map_err(|error| explain::of_server(&error, host, None))
    }

    fn roots(&self) -> Result<Arc<RootCertStore>, String> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(self.ca, "the authority")? {
            roots
                .add(certificate)
                .map_err(|error| format!("the authority is damaged: {error}"))?;
        }
        Ok(Arc::new(roots))
    }
}

/// Returns the certificates of a text, of which there is at least one.
pub(crate) fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let parsed = parsed.map_err(|error| format!("{what} is damaged: {error}"))?;
    match parsed.is_empty() {
        true => Err(format!("{what} is no certificate in PEM form")),
        false => Ok(parsed),
    }
}
