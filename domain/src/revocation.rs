//! Certificates that are revoked: the bearer of one is no part of the cluster any more.
//!
//! Not here: the certificates themselves, and who compares them (`berth-tls`).

use std::fmt;
use std::str::FromStr;

use crate::digest;
use crate::id::TimeMs;

/// The most certificates that are listed. Beyond that many their authority is to be replaced.
pub const REVOKED_MAX: usize = 1024;

/// The longest principal of a certificate, in bytes.
pub const PRINCIPAL_MAX: usize = 128;

/// The longest reason, in bytes.
pub const REASON_MAX: usize = 256;

/// The SHA-256 of a certificate in DER form; as text 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        digest::write(&self.0, f)
    }
}

/// A text is no fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be the SHA-256 of a certificate, 64 hexadecimal digits")]
pub struct NoFingerprint;

impl FromStr for Fingerprint {
    type Err = NoFingerprint;

    fn from_str(text: &str) -> Result<Self, NoFingerprint> {
        // What other programs show has colons between the bytes.
        let digits = text.chars().filter(|c| *c != ':');
        digest::read(digits).map(Self).ok_or(NoFingerprint)
    }
}

/// A certificate that no program of the cluster accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevokedCertificate {
    /// Which.
    pub fingerprint: Fingerprint,
    /// Its principal, as `agent:h1`; empty where it is not known.
    pub principal: String,
    /// Why.
    pub reason: String,
    /// When it expires, after which it need not be listed; absent where that is not known.
    pub expires_at: Option<TimeMs>,
    /// When it was revoked.
    pub revoked_at: TimeMs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_read_as_they_are_shown() {
        let bytes = std::array::from_fn(|at| u8::try_from(at * 7 % 256).unwrap());
        let shown = Fingerprint(bytes).to_string();
        assert_eq!(shown.len(), 64);
        assert_eq!(shown.parse(), Ok(Fingerprint(bytes)));
        assert_eq!(shown.to_uppercase().parse(), Ok(Fingerprint(bytes)));
        let pairs: Vec<&str> = (0..32).map(|at| &shown[at * 2..at * 2 + 2]).collect();
        assert_eq!(pairs.join(":").parse(), Ok(Fingerprint(bytes)));
        let cases = [
            &shown[1..],
            "",
            "sha256",
            &shown.replace('0', "g"),
            &format!("{shown}00"),
        ];
        for wrong in cases {
            assert_eq!(wrong.parse::<Fingerprint>(), Err(NoFingerprint), "{wrong}");
        }
    }
}
