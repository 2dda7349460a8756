//! The revoked certificates of the cluster, for programs that are no schedulers: queried when their
//! list has changed, and stored for a restart while no scheduler responds.
//!
//! Not here: what becomes of connections with such a certificate (`berth_tls::revoked`).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use berth_domain::revocation::{Fingerprint, REVOKED_MAX};
use berth_tls::Revoked;

use super::stored::{self, Unusable};
use crate::cluster::v1::ListRevokedCertificatesResponse;

/// The name of the file in the program's data directory.
pub const FILE: &str = "revoked-certificates";

const HEAD: &str = "berth revoked certificates 1";

/// Reads what is stored in a data directory; `None` if nothing is.
///
/// # Errors
///
/// Why the file is not used.
pub fn load(directory: &Path) -> Result<Option<Revoked>, Unusable> {
    let text = stored::load(directory, FILE)?;
    text.map(|text| parse(&text).ok_or(Unusable::Damaged))
        .transpose()
}

/// Replaces what is stored in a data directory, which is created if it is missing.
///
/// # Errors
///
/// The error of the file system; what was stored before is still there then.
pub fn store(directory: &Path, revoked: &Revoked) -> io::Result<()> {
    stored::store(directory, FILE, &render(revoked))
}

/// Returns the list of a response; `None` if it is not one.
pub(super) fn of_response(
    cluster: &str,
    response: &ListRevokedCertificatesResponse,
) -> Option<Revoked> {
    let read = |text: &str| Some(text.parse::<Fingerprint>().ok()?.0);
    let listed = response.certificates.iter();
    let fingerprints: Option<BTreeSet<_>> = listed.map(|c| read(&c.fingerprint)).collect();
    let fingerprints = fingerprints.filter(|listed| listed.len() <= REVOKED_MAX)?;
    Some(Revoked {
        cluster: cluster.to_owned(),
        revision: response.revoked_revision,
        fingerprints,
    })
}

fn render(revoked: &Revoked) -> String {
    let Revoked {
        cluster,
        revision,
        fingerprints,
    } = revoked;
    let mut text = format!("{HEAD}\ncluster {cluster}\nrevision {revision}\n");
    for fingerprint in fingerprints {
        let _ = writeln!(text, "{}", Fingerprint(*fingerprint));
    }
    text
}

fn parse(text: &str) -> Option<Revoked> {
    let mut lines = text.lines();
    let is_ours = lines.next()? == HEAD;
    let cluster = lines.next()?.strip_prefix("cluster ")?.to_owned();
    let revision = lines.next()?.strip_prefix("revision ")?.parse().ok()?;
    let fingerprint = |line: &str| Some(line.parse::<Fingerprint>().ok()?.0);
    let fingerprints: BTreeSet<_> = lines.map(fingerprint).collect::<Option<_>>()?;
    let is_list = is_ours && fingerprints.len() <= REVOKED_MAX;
    is_list.then_some(Revoked {
        cluster,
        revision,
        fingerprints,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn revoked(count: u16) -> Revoked {
        let fingerprint = |number: u16| {
            let [high, low] = number.to_be_bytes();
            std::array::from_fn(|at| if at % 2 == 0 { high } else { low })
        };
        Revoked {
            cluster: "0198c0de-0000-7000-8000-000000000001".to_owned(),
            revision: 7,
            fingerprints: (0..count).map(fingerprint).collect(),
        }
    }

    #[test]
    fn what_is_stored_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(load(folder.path()).unwrap(), None);
        for count in [0, 1, 1024] {
            store(folder.path(), &revoked(count)).unwrap();
            assert_eq!(load(folder.path()).unwrap(), Some(revoked(count)));
        }
        store(folder.path(), &revoked(1025)).unwrap();
        assert!(load(folder.path()).is_err(), "more than there may be");
    }

    /// Goal: no damaged list is used. Method: each bit flipped, and each length.
    #[test]
    fn every_damage_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        store(folder.path(), &revoked(2)).unwrap();
        let file = folder.path().join(FILE);
        let whole = fs::read(&file).unwrap();
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            fs::write(&file, damaged).unwrap();
            assert!(load(folder.path()).is_err(), "bit {bit}");
        }
        for length in 0..whole.len() {
            fs::write(&file, &whole[..length]).unwrap();
            assert!(load(folder.path()).is_err(), "{length} bytes");
        }
    }
}
