//! Encryption of live migrations: the setting of each side's agent, what its hypervisor can do, and
//! what follows for a pair of hosts.
//!
//! Not here: the connections between the parts of a cluster, which have certificates of their own.
//!
//! Invariant: where either side requires encryption, the pair encrypts or is refused.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::name::HostName;
use crate::refusal::{Code, Refusal};

/// The reason of a refusal for a pair of hosts of which one requires encryption and one does not
/// encrypt.
pub const TLS_DIFFERS: &str = "MIGRATION_TLS_DIFFERS";

/// The reason of a refusal for a host that is to encrypt and cannot.
pub const TLS_UNAVAILABLE: &str = "MIGRATION_TLS_UNAVAILABLE";

/// The setting of an agent: `migration.tls`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum TlsPolicy {
    /// Guests are sent and received encrypted, or not at all.
    Require,
    /// Guests are sent and received encrypted where both sides can, else in plain text.
    Prefer,
    /// Guests are sent and received in plain text.
    #[default]
    Off,
}

impl TlsPolicy {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Require, Self::Prefer, Self::Off];

    /// Returns its name in configurations.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Require => "require",
            Self::Prefer => "prefer",
            Self::Off => "off",
        }
    }
}

impl fmt::Display for TlsPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What an agent reports of its side.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TlsReport {
    /// Its host.
    pub host: HostName,
    /// Its setting.
    pub policy: TlsPolicy,
    /// Why its hypervisor cannot encrypt, with what to do; absent where it can, and where the setting
    /// is off.
    pub fault: Option<String>,
}

impl TlsReport {
    fn can(&self) -> bool {
        self.policy != TlsPolicy::Off && self.fault.is_none()
    }

    /// Checks that this side, which has to encrypt, does.
    fn check(&self, required_by: &HostName) -> Result<(), Refusal> {
        let host = &self.host;
        if self.policy == TlsPolicy::Off {
            let message = format!(
                "host {required_by} requires encrypted live migration, and host {host} has \
                 migration.tls = \"off\""
            );
            return Err(refusal(TLS_DIFFERS, message, host).with_hint(format!(
                "set migration.tls = \"require\" on host {host}, with certificates for its QEMU"
            )));
        }
        match &self.fault {
            Some(fault) => {
                let message = format!("host {host} cannot encrypt live migrations: {fault}");
                Err(refusal(TLS_UNAVAILABLE, message, host)
                    .with_hint("see \"Live migrations\" in docs/security.md"))
            }
            None => Ok(()),
        }
    }
}

fn refusal(reason: &str, message: String, host: &HostName) -> Refusal {
    Refusal::new(Code::FailedPrecondition, reason, message).with("host", host)
}

/// Returns whether a guest is sent encrypted between two hosts. `destination` is absent where its agent,
/// or the conductor that passes its report on, is too old to report; `destination_uri` names it then.
///
/// # Errors
///
/// One side requires encryption, and the named host does not encrypt.
pub fn agree(
    source: &TlsReport,
    destination: Option<&TlsReport>,
    destination_uri: &str,
) -> Result<bool, Refusal> {
    let Some(destination) = destination else {
        if source.policy != TlsPolicy::Require {
            return Ok(false);
        }
        let host = &source.host;
        let message = format!(
            "host {host} requires encrypted live migration, and the agent of {destination_uri}, or \
             the conductor, is too old to report whether it encrypts"
        );
        return Err(refusal(TLS_DIFFERS, message, host).with_hint(format!(
            "upgrade them, or set migration.tls = \"prefer\" on host {host} until then"
        )));
    };
    let requires = |side: &&TlsReport| side.policy == TlsPolicy::Require;
    if let Some(side) = [source, destination].into_iter().find(requires) {
        source.check(&side.host)?;
        destination.check(&side.host)?;
        return Ok(true);
    }
    Ok(source.can() && destination.can())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(host: &str, policy: TlsPolicy, can: bool) -> TlsReport {
        TlsReport {
            host: HostName::new(host).unwrap(),
            policy,
            fault: (!can).then(|| "no certificates".to_owned()),
        }
    }

    /// Goal: a side that requires encryption never gets plain text, a side that is off never gets
    /// encryption, and each refusal names the host that has to change. Method: all pairs.
    #[test]
    fn every_pair_encrypts_stays_plain_or_is_refused_by_name() {
        let mut refused = 0;
        for (here, there) in TlsPolicy::ALL
            .into_iter()
            .flat_map(|here| TlsPolicy::ALL.map(|there| (here, there)))
        {
            for (can_here, can_there) in
                [(true, true), (true, false), (false, true), (false, false)]
            {
                let source = report("h1", here, can_here);
                let destination = report("h2", there, can_there);
                let required = here == TlsPolicy::Require || there == TlsPolicy::Require;
                let h1 = here != TlsPolicy::Off && can_here;
                let h2 = there != TlsPolicy::Off && can_there;
                match agree(&source, Some(&destination), "qemu+tls://h2/system") {
                    Ok(encrypted) => {
                        assert_eq!(encrypted, h1 && h2, "{source:?} {destination:?}");
                        assert!(encrypted || !required, "{source:?} {destination:?}");
                    }
                    Err(refusal) => {
                        refused += 1;
                        assert!(required && !(h1 && h2), "{source:?} {destination:?}");
                        let blamed = if h1 { "h2" } else { "h1" };
                        assert_eq!(refusal.metadata["host"], blamed, "{refusal:?}");
                        assert!(refusal.hint.is_some());
                    }
                }
            }
        }
        assert_eq!(refused, 17);
    }

    #[test]
    fn a_destination_that_does_not_report_is_no_destination_of_a_host_that_requires() {
        for policy in TlsPolicy::ALL {
            let source = report("h1", policy, true);
            let agreed = agree(&source, None, "qemu+tcp://h2/system");
            match policy {
                TlsPolicy::Require => {
                    let refusal = agreed.unwrap_err();
                    assert_eq!(refusal.reason, TLS_DIFFERS);
                    assert!(refusal.message.contains("qemu+tcp://h2/system"));
                }
                TlsPolicy::Prefer | TlsPolicy::Off => assert_eq!(agreed, Ok(false)),
            }
        }
    }
}
