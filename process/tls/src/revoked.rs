//! The certificates that the cluster has revoked: none of them is accepted, whoever issued it and
//! whatever its validity.
//!
//! Not here: who revokes them and where that is stored. A program passes on what its cluster lists.
//!
//! Invariant: what was listed by a later revision is not undone by an earlier list, as that of a member
//! that lags behind.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};

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

/// The current list.
#[derive(Debug, Default)]
pub(crate) struct RevokedList(RwLock<Arc<Revoked>>);

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
        let revoked = self.get();
        let is_revoked = |der: &CertificateDer<'_>| {
            let fingerprint: [u8; 32] = Sha256::digest(der).into();
            revoked.fingerprints.contains(&fingerprint)
        };
        match !revoked.fingerprints.is_empty() && chain.iter().any(is_revoked) {
            true => Err("it is revoked (berth cluster revoked-certificates lists them)".to_owned()),
            false => Ok(()),
        }
    }
}
