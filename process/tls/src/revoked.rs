//! The certificates that the cluster has revoked: none of them is accepted, whichever authority
//! issued it and whatever its validity.
//!
//! Not here: who revokes them and where that is stored. A program passes on what its cluster lists.
//!
//! Invariant: what was listed by a later revision is not undone by an earlier list, as that of a member
//! that lags behind.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use sha2::{Digest as _, Sha256};

/// Why such a certificate is refused.
pub(crate) const IT_IS_REVOKED: &str =
    "it is revoked (berth cluster revoked-certificates lists them)";

/// A list of revoked certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revoked {
    /// The cluster whose list it is.
    pub cluster: String,
    /// Grows with each change of the list in the cluster.
    pub revision: u64,
    /// The SHA-256 of each certificate in DER form.
    pub fingerprints: BTreeSet<[u8; 32]>,
}

/// The current list. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct RevokedList(Arc<RwLock<Arc<Revoked>>>);

impl RevokedList {
    pub(crate) fn get(&self) -> Arc<Revoked> {
        // Replacing one pointer cannot be left half done.
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Replaces the list by a later one, or that of another cluster; returns whether it is one.
    pub(crate) fn replace(&self, revoked: Revoked) -> bool {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let is_other = revoked.cluster != current.cluster;
        let is_later = is_other || revoked.revision > current.revision;
        if is_later {
            *current = Arc::new(revoked);
        }
        is_later
    }

    /// Checks that no certificate of a chain is revoked.
    ///
    /// # Errors
    ///
    /// That one is.
    pub(crate) fn check(&self, chain: &[CertificateDer<'_>]) -> Result<(), String> {
        match self.has_any_of(chain.iter()) {
            true => Err(IT_IS_REVOKED.to_owned()),
            false => Ok(()),
        }
    }

    fn has_any_of<'a>(&self, mut chain: impl Iterator<Item = &'a CertificateDer<'a>>) -> bool {
        let revoked = self.get();
        let is_revoked = |der: &CertificateDer<'_>| {
            let fingerprint: [u8; 32] = Sha256::digest(der).into();
            revoked.fingerprints.contains(&fingerprint)
        };
        !revoked.fingerprints.is_empty() && chain.any(is_revoked)
    }
}

/// Verifies clients as another verifier does, and refuses revoked certificates in the handshake, so that
/// the client is sent the reason.
#[derive(Debug)]
pub(crate) struct NotRevoked {
    pub(crate) verifier: Arc<dyn ClientCertVerifier>,
    pub(crate) revoked: RevokedList,
}

impl ClientCertVerifier for NotRevoked {
    fn client_auth_mandatory(&self) -> bool {
        self.verifier.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.verifier.verify_client_cert(own, between, now)?;
        match self.revoked.has_any_of(between.iter().chain([own])) {
            true => Err(Error::InvalidCertificate(CertificateError::Revoked)),
            false => Ok(verified),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier
            .verify_tls12_signature(message, own, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier
            .verify_tls13_signature(message, own, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}
