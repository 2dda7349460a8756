//! Revoked certificates.

use berth_domain::revocation::{Fingerprint, PRINCIPAL_MAX, REASON_MAX, RevokedCertificate};

use super::field::{self, Invalid};
use crate::cluster::v1;

impl From<&RevokedCertificate> for v1::RevokedCertificate {
    fn from(certificate: &RevokedCertificate) -> Self {
        Self {
            fingerprint: certificate.fingerprint.to_string(),
            principal: certificate.principal.clone(),
            reason: certificate.reason.clone(),
            expire_time: certificate.expires_at.map(field::timestamp),
            revoke_time: Some(field::timestamp(certificate.revoked_at)),
        }
    }
}

impl TryFrom<v1::RevokedCertificate> for RevokedCertificate {
    type Error = Invalid;

    /// A request leaves open when it is revoked; it reads as the epoch then, and the state writes its
    /// own time.
    fn try_from(wire: v1::RevokedCertificate) -> Result<Self, Invalid> {
        let revoked_at = field::optional_time(wire.revoke_time, "revoke_time")?;
        Ok(Self {
            fingerprint: fingerprint(&wire.fingerprint, "fingerprint")?,
            principal: field::text(wire.principal, "principal", PRINCIPAL_MAX)?,
            reason: field::text(wire.reason, "reason", REASON_MAX)?,
            expires_at: field::optional_time(wire.expire_time, "expire_time")?,
            revoked_at: revoked_at.unwrap_or_default(),
        })
    }
}

/// Reads a fingerprint.
///
/// # Errors
///
/// When it is none.
pub fn fingerprint(value: &str, field: &str) -> Result<Fingerprint, Invalid> {
    value
        .parse()
        .map_err(|rule| Invalid::new(field, format!("{rule}")))
}
