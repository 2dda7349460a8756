//! An authority in a directory of its own, and what it makes.

use std::path::Path;
use std::time::Duration;

use berth_tls::authority::{self, Authority, CA, CA_KEY, CertificateSpec, Pair};
use berth_tls::{Files, Role, Tls};
use tempfile::TempDir;

pub(crate) struct Certs {
    pub(crate) folder: TempDir,
    pub(crate) authority: Authority,
}

pub(crate) fn spec(role: Role, name: &str) -> CertificateSpec {
    CertificateSpec {
        role,
        name: name.to_owned(),
        dns: vec!["localhost".to_owned()],
        ips: vec!["127.0.0.1".parse().unwrap()],
        validity: Duration::from_secs(3600),
    }
}

impl Certs {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pair = authority::init(folder.path(), "test", 10).unwrap();
        let authority = Authority::open(&pair.cert, &pair.key).unwrap();
        Self { folder, authority }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn pair(&self, stem: &str) -> Pair {
        Pair::named(self.path(), stem)
    }

    pub(crate) fn issue(&self, spec: &CertificateSpec) -> Files {
        let pair = self.pair(&format!("{}-{}", spec.role, spec.name));
        self.authority.issue(spec, &pair).unwrap();
        self.files(&pair)
    }

    pub(crate) fn files(&self, pair: &Pair) -> Files {
        Files {
            ca: self.path().join(CA),
            cert: pair.cert.clone(),
            key: pair.key.clone(),
        }
    }

    pub(crate) fn tls(&self, role: Role, name: &str) -> Tls {
        Tls::open(self.issue(&spec(role, name))).unwrap()
    }

    pub(crate) fn ca_key(&self) -> std::path::PathBuf {
        self.path().join(CA_KEY)
    }
}
