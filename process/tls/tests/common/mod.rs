//! An authority in a directory of its own, and what it makes.

#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

use std::path::Path;
use std::time::Duration;

use berth_tls::authority::{self, Authority, CA, CA_KEY, Pair, Wanted};
use berth_tls::{Files, Role, Tls};
use tempfile::TempDir;

pub struct Certs {
    pub folder: TempDir,
    pub authority: Authority,
}

pub fn wanted(role: Role, name: &str) -> Wanted {
    Wanted {
        role,
        name: name.to_owned(),
        dns: vec!["localhost".to_owned()],
        ips: vec!["127.0.0.1".parse().unwrap()],
        holds: Duration::from_secs(3600),
    }
}

impl Certs {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pair = authority::init(folder.path(), "test", 10).unwrap();
        let authority = Authority::open(&pair.cert, &pair.key).unwrap();
        Self { folder, authority }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn pair(&self, stem: &str) -> Pair {
        Pair::named(self.path(), stem)
    }

    pub fn issue(&self, wanted: &Wanted) -> Files {
        let pair = self.pair(&format!("{}-{}", wanted.role, wanted.name));
        self.authority.issue(wanted, &pair).unwrap();
        self.files(&pair)
    }

    pub fn files(&self, pair: &Pair) -> Files {
        Files {
            ca: self.path().join(CA),
            cert: pair.cert.clone(),
            key: pair.key.clone(),
        }
    }

    pub fn tls(&self, role: Role, name: &str) -> Tls {
        Tls::open(self.issue(&wanted(role, name))).unwrap()
    }

    pub fn ca_key(&self) -> std::path::PathBuf {
        self.path().join(CA_KEY)
    }
}
