//! Encryption of live migrations: the setting, and whether the certificates of this host's QEMU serve.
//!
//! Not here: what a pair of hosts agrees on ([`berth_domain::migration_tls`]); the agent's own
//! certificates, which QEMU must not have.
//!
//! Invariant: the check reads the files each time, so that certificates that are renewed or expire count
//! from then on.

use std::path::PathBuf;

use berth_domain::migration_tls::TlsPolicy;
use berth_driver::Error;
use berth_driver::libvirt::driver::{TlsCheck, uri_host};
use berth_process::Keys;
use berth_tls::hypervisor;

/// Settings of live migrations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// Whether guests are sent and received encrypted; absent: as [`Self::policy`] derives it.
    pub tls: Option<TlsPolicy>,
    /// Where the certificates of QEMU are: `migrate_tls_x509_cert_dir` of `qemu.conf`.
    pub tls_dir: PathBuf,
}

impl Default for Migration {
    fn default() -> Self {
        Self {
            tls: None,
            tls_dir: hypervisor::QEMU_DIRECTORY.into(),
        }
    }
}

impl Migration {
    pub(crate) fn read(&mut self, keys: &mut Keys) {
        keys.take_some("tls", &mut self.tls);
        keys.take("tls_dir", &mut self.tls_dir);
    }

    pub(crate) fn validate(&self, faults: &mut Vec<String>) {
        if !self.tls_dir.is_absolute() {
            faults.push(format!(
                "migration.tls_dir = {:?} is not an absolute path",
                self.tls_dir.display().to_string()
            ));
        }
    }

    /// Returns the setting of an agent: that of the configuration, else that guests are protected as the
    /// agent's own connections are.
    #[must_use]
    pub fn policy(&self, has_certificates: bool) -> TlsPolicy {
        match (self.tls, has_certificates) {
            (Some(policy), _) => policy,
            (None, true) => TlsPolicy::Require,
            (None, false) => TlsPolicy::Off,
        }
    }
}

/// Returns the check of QEMU's certificates: of those in `directory`, for guests that come to
/// `migration_uri`.
pub(crate) fn check(directory: PathBuf, migration_uri: &str) -> TlsCheck {
    let host = uri_host(migration_uri);
    let migration_uri = migration_uri.to_owned();
    Box::new(move || {
        let Some(host) = &host else {
            return Err(Error::refused(format!(
                "libvirt.migration_uri = {migration_uri:?} names no host, which the certificate of QEMU \
                 has to be issued for"
            )));
        };
        hypervisor::check_qemu(&directory, host).map_err(|fault| {
            Error::refused(format!(
                "{fault}; make certificates with berth certs hypervisor --name {host} and copy them to \
                 the host, and check migration.tls_dir"
            ))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_setting_guests_are_protected_as_the_agents_connections_are() {
        let mut migration = Migration::default();
        assert_eq!(migration.policy(true), TlsPolicy::Require);
        assert_eq!(migration.policy(false), TlsPolicy::Off);
        for policy in TlsPolicy::ALL {
            migration.tls = Some(policy);
            assert_eq!(migration.policy(true), policy);
            assert_eq!(migration.policy(false), policy);
        }
    }
}
