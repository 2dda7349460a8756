//! The identity in a certificate: role and name.
//!
//! ```text
//!   subject: O = berth:<role>, CN = <name>      the names and addresses: subject alternative names
//!   subject: CN = pmem-registry                 PMEM-CSI's controller: csi-controller
//!   subject: CN = pmem-node-controller          PMEM-CSI's node part: agent of the hosts it names
//! ```
//!
//! Not here: whether the certificate can be trusted. The caller has verified it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest as _, Sha256};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::role::{PREFIX, Role, UnknownRole};

/// The common name of PMEM-CSI's controller: nodes register with it, and it calls them.
pub const PMEM_REGISTRY: &str = "pmem-registry";
/// The common name of PMEM-CSI's part on each node.
pub const PMEM_NODE_CONTROLLER: &str = "pmem-node-controller";

/// The longest name, in bytes; it is stored with each request in the log.
pub const NAME_MAX: usize = 64;

/// The identity in a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its role.
    pub role: Role,
    /// Its name among those of its role: of a host for an agent, of a service for a conductor.
    pub name: String,
    /// The names by which it may be dialled.
    pub dns: Vec<String>,
    /// The addresses by which it may be dialled.
    pub ips: Vec<IpAddr>,
    /// The beginning of the certificate's validity, in seconds since 1970.
    pub not_before: i64,
    /// The end of its validity.
    pub not_after: i64,
    /// The SHA-256 of the certificate, in hexadecimal digits.
    pub fingerprint: String,
}

/// A certificate carries no identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Anonymous {
    /// It is none.
    #[error("it is no X.509 certificate")]
    Malformed,
    /// The subject has no organisation of the form `berth:<role>`.
    #[error("its subject {subject:?} has no organisation berth:<role>")]
    NoRole {
        /// The subject.
        subject: String,
    },
    /// The subject has several.
    #[error("its subject {subject:?} has several organisations berth:<role>")]
    SeveralRoles {
        /// The subject.
        subject: String,
    },
    /// The role is not known.
    // No `from`: the role would be the source as well, and be printed twice.
    #[error("its organisation is wrong: {0}")]
    Role(UnknownRole),
    /// The subject has no common name, or several, or one that cannot be a name.
    #[error(
        "its subject {subject:?} must have one common name of 1 to {NAME_MAX} letters, digits, '.', '_', '-'"
    )]
    Name {
        /// The subject.
        subject: String,
    },
}

impl From<UnknownRole> for Anonymous {
    fn from(error: UnknownRole) -> Self {
        Self::Role(error)
    }
}

impl Identity {
    /// Reads a certificate.
    ///
    /// # Errors
    ///
    /// When it carries no identity.
    pub fn of(der: &[u8]) -> Result<Self, Anonymous> {
        let (_, parsed) = X509Certificate::from_der(der).map_err(|_| Anonymous::Malformed)?;
        let subject = parsed.subject().to_string();
        let mut names = parsed.subject().iter_common_name();
        let name = names.next().and_then(|name| name.as_str().ok());
        let name = name.filter(|name| is_name(name) && names.next().is_none());
        let Some(name) = name else {
            return Err(Anonymous::Name { subject });
        };
        let organisations = parsed.subject().iter_organization();
        let mut roles = organisations
            .filter_map(|o| o.as_str().ok())
            .filter_map(|o| o.strip_prefix(PREFIX));
        let role = match (roles.next(), roles.next()) {
            (Some(role), None) => role.parse()?,
            (Some(_), Some(_)) => return Err(Anonymous::SeveralRoles { subject }),
            (None, _) if parsed.subject().iter_organization().next().is_some() => {
                return Err(Anonymous::NoRole { subject });
            }
            (None, _) => match name {
                PMEM_REGISTRY => Role::CsiController,
                PMEM_NODE_CONTROLLER => Role::Agent,
                _ => return Err(Anonymous::NoRole { subject }),
            },
        };
        let (dns, ips) = alternatives(&parsed);
        Ok(Self {
            role,
            name: name.to_owned(),
            dns,
            ips,
            not_before: parsed.validity().not_before.timestamp(),
            not_after: parsed.validity().not_after.timestamp(),
            fingerprint: fingerprint(der),
        })
    }

    /// Returns the principal of its requests, as `operator:ann`.
    #[must_use]
    pub fn principal(&self) -> String {
        format!("{}:{}", self.role, self.name)
    }

    /// Returns whether it may act for a host.
    #[must_use]
    pub fn is_agent_of(&self, host: &str) -> bool {
        let of_pmem_csi = self.name == PMEM_NODE_CONTROLLER;
        self.role == Role::Agent
            && (self.name == host || (of_pmem_csi && self.dns.iter().any(|name| name == host)))
    }

    /// Describes why the certificate of an agent is not that of this host, and what to do.
    #[must_use]
    pub fn not_of_host(&self, host: &str) -> String {
        if self.name != PMEM_NODE_CONTROLLER {
            return format!(
                "the certificate is that of host {}, and this is host {host}: issue one with --name \
                 {host}",
                self.name
            );
        }
        let named = match self.dns.is_empty() {
            true => "none".to_owned(),
            false => self.dns.join(", "),
        };
        format!(
            "the certificate is one of PMEM-CSI ({PMEM_NODE_CONTROLLER}), which stands for the hosts in \
             its DNS names ({named}), and host {host} is not among them: issue one with --dns {host}"
        )
    }

    /// Returns whether the certificate has expired.
    #[must_use]
    pub fn has_expired(&self, now: i64) -> bool {
        now > self.not_after
    }

    /// Returns how many whole days the certificate is still valid; negative if it has expired.
    #[must_use]
    pub fn days_left(&self, now: i64) -> i64 {
        (self.not_after - now).div_euclid(24 * 60 * 60)
    }
}

/// Returns whether a text may be the name of an identity, by the rule for names of hosts and services.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=NAME_MAX).contains(&text.len()) && text.chars().all(plain)
}

fn alternatives(certificate: &X509Certificate<'_>) -> (Vec<String>, Vec<IpAddr>) {
    let (mut dns, mut ips) = (Vec::new(), Vec::new());
    let names = certificate.subject_alternative_name().ok().flatten();
    for name in names.iter().flat_map(|names| &names.value.general_names) {
        // Servers are dialled by nothing else.
        if let GeneralName::DNSName(name) = name {
            dns.push((*name).to_owned());
        } else if let GeneralName::IPAddress(bytes) = name {
            ips.extend(address(bytes));
        }
    }
    (dns, ips)
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(|bytes| Ipv4Addr::from(bytes).into());
    let v6 = || <[u8; 16]>::try_from(bytes).map(|bytes| Ipv6Addr::from(bytes).into());
    v4.or_else(|_| v6()).ok()
}

/// Returns the SHA-256 of a certificate in hexadecimal digits.
#[must_use]
pub fn fingerprint(der: &[u8]) -> String {
    let digest = Sha256::digest(der);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the time in seconds since 1970.
#[must_use]
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    // A clock before 1970 was never set; no certificate holds then.
    since.map_or(0, |elapsed| {
        i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(name: &str, dns: &[&str]) -> Identity {
        Identity {
            role: Role::Agent,
            name: name.to_owned(),
            dns: dns.iter().map(ToString::to_string).collect(),
            ips: Vec::new(),
            not_before: 0,
            not_after: 0,
            fingerprint: String::new(),
        }
    }

    /// Goal: the name that PMEM-CSI gives all its nodes is not taken for that of a host.
    #[test]
    fn a_certificate_of_another_host_is_described_as_what_it_is() {
        let text = agent("h2", &["h2"]).not_of_host("h1");
        assert!(
            text.starts_with("the certificate is that of host h2,"),
            "{text}"
        );
        for (dns, named) in [(&["h2", "h3"][..], "(h2, h3)"), (&[], "(none)")] {
            let of_pmem_csi = agent(PMEM_NODE_CONTROLLER, dns);
            assert!(!of_pmem_csi.is_agent_of("h1"));
            let text = of_pmem_csi.not_of_host("h1");
            assert!(
                text.contains("one of PMEM-CSI (pmem-node-controller)"),
                "{text}"
            );
            assert!(text.contains(named), "{text}");
            assert!(text.ends_with("issue one with --dns h1"), "{text}");
            assert!(!text.contains("that of host"), "{text}");
        }
    }
}
