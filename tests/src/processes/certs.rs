//! Certificates for a cluster of processes, from an authority of its own.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_tls::authority::{self, Authority, CA, CertificateSpec, Pair};
use berth_tls::{Files, Role, Tls};

/// How long certificates hold unless a test says otherwise.
const HOLD: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// An authority in a directory.
#[derive(Debug)]
pub struct Certs {
    directory: PathBuf,
    ip: IpAddr,
}

impl Certs {
    /// Makes an authority for servers at this address.
    ///
    /// # Panics
    ///
    /// When it cannot.
    #[must_use]
    pub fn new(directory: PathBuf, ip: IpAddr) -> Self {
        authority::init(&directory, "test", 365).expect("an authority");
        Self { directory, ip }
    }

    /// Returns its directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the file with its certificate.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.directory.join(CA)
    }

    fn authority(&self) -> Authority {
        let key = self.directory.join(authority::CA_KEY);
        Authority::open(&self.ca(), &key).expect("an authority")
    }

    /// Returns the files of a user or a part, with a certificate that is made where there is none yet.
    ///
    /// # Panics
    ///
    /// When it cannot be made.
    #[must_use]
    pub fn files(&self, role: Role, name: &str) -> Files {
        self.files_for(role, name, HOLD)
    }

    /// As [`Self::files`], with a certificate that holds for this long.
    ///
    /// # Panics
    ///
    /// When it cannot be made.
    #[must_use]
    pub fn files_for(&self, role: Role, name: &str, holds: Duration) -> Files {
        let pair = Pair::named(&self.directory, &format!("{role}-{name}"));
        if !pair.cert.exists() {
            let request = CertificateSpec {
                role,
                name: name.to_owned(),
                dns: Vec::new(),
                ips: vec![self.ip],
                validity: holds,
            };
            let made = self.authority().issue(&request, &pair);
            made.expect("a certificate");
        }
        Files {
            ca: self.ca(),
            cert: pair.cert,
            key: pair.key,
        }
    }

    /// Returns the certificates of a user or a part.
    ///
    /// # Panics
    ///
    /// When they cannot be made.
    #[must_use]
    pub fn tls(&self, role: Role, name: &str) -> Tls {
        Tls::open(self.files(role, name)).expect("certificates")
    }

    /// Makes all certificates anew, in their files.
    ///
    /// # Panics
    ///
    /// When one cannot be made.
    pub fn renew_all(&self) {
        for entry in fs::read_dir(&self.directory).expect("the directory") {
            let path = entry.expect("an entry").path();
            let is_own = path.ends_with(CA);
            let Ok(pair) = Pair::of_certificate(&path) else {
                continue;
            };
            if !is_own {
                let renewed = self.authority().renew(&pair, HOLD);
                renewed.expect("a renewed certificate");
            }
        }
    }
}

/// Returns the flags that tell a program of its certificates.
#[must_use]
pub fn flags(files: &Files) -> [(&'static str, String); 3] {
    [
        ("--tls-ca", files.ca.display().to_string()),
        ("--tls-cert", files.cert.display().to_string()),
        ("--tls-key", files.key.display().to_string()),
    ]
}
