//! Certificates that are revoked and reinstated. Those that have expired meanwhile leave the list when
//! another one is revoked: no program accepts them anyway.

use berth_domain::refusal::Refusal;
use berth_domain::revocation::{Fingerprint, REVOKED_MAX, RevokedCertificate};
use berth_domain::version::ServiceVersion;

use crate::refusals::{cluster_too_old, precondition};
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

/// What refusals call it.
const KIND: &str = "revoked_certificate";

impl<J: Journal> Transaction<'_, J> {
    /// One that is revoked already keeps its time; the rest is what was said last.
    pub(super) fn revoke_certificate(
        &mut self,
        certificate: &RevokedCertificate,
    ) -> Result<Reply, Refusal> {
        if !self.may_write(ServiceVersion::REVOCATION) {
            let present = self.state.header.cluster_version;
            return Err(cluster_too_old(
                "the revocation of certificates",
                present,
                ServiceVersion::REVOCATION,
            ));
        }
        let now = self.now();
        let listed = &self.state.revoked_certificates;
        let earlier = listed.get(&certificate.fingerprint).cloned();
        let has_expired =
            |listed: &RevokedCertificate| listed.expires_at.is_some_and(|at| at < now);
        let expired: Vec<Fingerprint> = listed
            .values()
            .filter(|listed| has_expired(listed))
            .map(|listed| listed.fingerprint)
            .collect();
        if earlier.is_none() && listed.len() - expired.len() >= REVOKED_MAX {
            let message = format!("{REVOKED_MAX} certificates are revoked already");
            let hint = "replace the authority: its certificates are then refused altogether";
            return Err(precondition("TOO_MANY_REVOKED_CERTIFICATES", message).with_hint(hint));
        }
        for fingerprint in &expired {
            self.remove_revoked_certificate(fingerprint);
        }
        let certificate = RevokedCertificate {
            revoked_at: earlier.as_ref().map_or(now, |earlier| earlier.revoked_at),
            ..certificate.clone()
        };
        if expired.is_empty() && earlier.as_deref() == Some(&certificate) {
            return Ok(Reply::None);
        }
        self.put_revoked_certificate(certificate);
        self.state.header.revoked_revision = self.state.header.revision;
        Ok(Reply::None)
    }

    pub(super) fn reinstate_certificate(
        &mut self,
        fingerprint: &Fingerprint,
    ) -> Result<Reply, Refusal> {
        if !self.state.revoked_certificates.contains_key(fingerprint) {
            return Err(Refusal::not_found(KIND, fingerprint));
        }
        self.remove_revoked_certificate(fingerprint);
        self.state.header.revoked_revision = self.state.header.revision;
        Ok(Reply::None)
    }
}
