//! Which certificates a server has, by its configuration: the table `[tls]`, or three flags.
//!
//! Not here: what certificates are (`berth_tls`), and which role may call what ([`crate::access`]).
//!
//! Invariant: all three files or none. With them, every connection is encrypted and both ends are
//! authenticated; there is no mixed mode.

use std::path::PathBuf;

use berth_tls::{Files, Identity, Role, Tls};

use crate::configuration::Faults;
use crate::keys::Keys;

/// Where a server's certificates are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encryption {
    /// The certificates of the authorities that are trusted.
    pub ca: Option<PathBuf>,
    /// The own certificate.
    pub cert: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
}

impl Encryption {
    /// Takes its keys out of a file.
    pub fn read(&mut self, keys: &mut Keys) {
        keys.table("tls", |keys| {
            keys.take_some("ca", &mut self.ca);
            keys.take_some("cert", &mut self.cert);
            keys.take_some("key", &mut self.key);
        });
    }

    /// Returns whether any of the files is configured.
    #[must_use]
    pub fn is_configured(&self) -> bool {
        self.ca.is_some() || self.cert.is_some() || self.key.is_some()
    }

    /// Adds a fault where some files are configured and others are not.
    pub fn check(&self, faults: &mut Vec<String>) {
        let files = [("ca", &self.ca), ("cert", &self.cert), ("key", &self.key)];
        let missing = files.iter().filter(|(_, file)| file.is_none());
        let missing: Vec<String> = missing.map(|(key, _)| format!("tls.{key}")).collect();
        if self.is_configured() && !missing.is_empty() {
            faults.push(format!(
                "tls needs all of tls.ca, tls.cert and tls.key: {} is missing",
                missing.join(" and ")
            ));
        }
    }

    /// Returns the files, if all of them are configured.
    #[must_use]
    pub fn files(&self) -> Option<Files> {
        Some(Files {
            ca: self.ca.clone()?,
            cert: self.cert.clone()?,
            key: self.key.clone()?,
        })
    }

    /// Opens the files of a server of this role, which others dial as `advertise`; `None` where none
    /// are configured. `is_right` checks the identity in the certificate.
    ///
    /// # Errors
    ///
    /// What is wrong with the files, or with the identity.
    pub fn open(
        &self,
        role: Role,
        advertise: &str,
        is_right: impl FnOnce(&Identity) -> Result<(), String>,
    ) -> Result<Option<Tls>, Faults> {
        let Some(tls) = self.open_client(role)? else {
            return Ok(None);
        };
        is_right(&tls.identity()).map_err(wrong)?;
        let host = advertise
            .rsplit_once(':')
            .map_or(advertise, |(host, _)| host);
        tls.current().check_serves(host).map_err(wrong)?;
        Ok(Some(tls))
    }

    /// Opens the files of a program of this role that only calls others; `None` where none are
    /// configured.
    ///
    /// # Errors
    ///
    /// What is wrong with the files, or with the identity.
    pub fn open_client(&self, role: Role) -> Result<Option<Tls>, Faults> {
        let Some(files) = self.files() else {
            return Ok(None);
        };
        let tls = Tls::open(files).map_err(|fault| wrong(fault.to_string()))?;
        let identity = tls.identity();
        if identity.role != role {
            return Err(wrong(format!(
                "the certificate is that of {}, and a {role} needs one of its own: berth certs issue \
                 --role {role}",
                identity.principal()
            )));
        }
        Ok(Some(tls))
    }
}

fn wrong(what: String) -> Faults {
    Faults(vec![format!("tls: {what}")])
}

/// Returns the scheme of a server's URL.
#[must_use]
pub fn scheme(tls: Option<&Tls>) -> &'static str {
    match tls {
        Some(_) => "https",
        None => "http",
    }
}
