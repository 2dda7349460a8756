//! The file in which a program stores the learnt members of its cluster over restarts.
//!
//! It is not configuration: it is rewritten when the membership changes, and may be deleted.
//!
//! Invariant: it holds addresses without a scheme: the certificates of the program alone decide on
//! encryption.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use super::{Known, MEMBERS_MAX, is_member_address};
use crate::client::stored::{self, Unusable};

/// The name of the file in the program's data directory.
pub const FILE: &str = "schedulers";

const HEAD: &str = "berth schedulers 1";

/// Reads what is stored in a data directory; `None` if nothing is.
///
/// # Errors
///
/// Why the file is not used.
pub fn load(directory: &Path) -> Result<Option<Known>, Unusable> {
    let text = stored::load(directory, FILE)?;
    text.map(|text| parse(&text).ok_or(Unusable::Damaged))
        .transpose()
}

/// Replaces what is stored in a data directory, which is created if it is missing.
///
/// # Errors
///
/// The error of the file system; what was stored before is still there then.
pub fn store(directory: &Path, known: &Known) -> io::Result<()> {
    stored::store(directory, FILE, &render(known))
}

fn render(known: &Known) -> String {
    let mut text = format!("{HEAD}\ncluster {}\n", known.cluster_id);
    if known.era > 0 {
        let _ = writeln!(text, "era {}", known.era);
    }
    for address in &known.configured {
        let _ = writeln!(text, "configured {address}");
    }
    for address in &known.members {
        let _ = writeln!(text, "member {address}");
    }
    text
}

fn parse(text: &str) -> Option<Known> {
    let mut lines = text.lines();
    let head = lines.next()? == HEAD;
    let cluster_id = lines.next()?.strip_prefix("cluster ")?.to_owned();
    let mut known = Known {
        cluster_id,
        ..Known::default()
    };
    for line in lines {
        let (kind, address) = line.split_once(' ')?;
        match kind {
            "era" => known.era = address.parse().ok()?,
            "configured" => known.configured.push(address.to_owned()),
            "member" if is_member_address(address) => known.members.push(address.to_owned()),
            _ => return None,
        }
    }
    (head && known.members.len() <= MEMBERS_MAX).then_some(known)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn known() -> Known {
        Known {
            cluster_id: "0198c0de-0000-7000-8000-000000000001".to_owned(),
            era: 2_000_000_000_000,
            configured: vec!["http://h1:7100".to_owned()],
            members: vec!["h1:7100".to_owned(), "[::1]:7100".to_owned()],
        }
    }

    #[test]
    fn what_is_stored_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("made/when/missing");
        assert!(load(&directory).unwrap().is_none());
        for (members, era) in [(0, 0), (1, 2_000_000_000_000), (2, u64::MAX)] {
            let mut known = known();
            known.era = era;
            known.members.truncate(members);
            store(&directory, &known).unwrap();
            assert_eq!(load(&directory).unwrap(), Some(known));
        }
        let left = fs::read_dir(&directory).unwrap().count();
        assert_eq!(left, 1, "no part remains");
    }

    /// Goal: no damaged file is used. Method: each bit flipped, and each length.
    #[test]
    fn every_damage_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        store(folder.path(), &known()).unwrap();
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
        let appended = [&whole[..], b"member h9:7100\n"].concat();
        fs::write(&file, appended).unwrap();
        assert!(load(folder.path()).is_err());
    }

    #[test]
    fn the_number_of_members_is_bounded() {
        let member = |number| format!("h{number}:7100");
        for count in [MEMBERS_MAX, MEMBERS_MAX + 1] {
            let mut known = known();
            known.members = (0..count).map(member).collect();
            let is_used = parse(&render(&known)).is_some();
            assert_eq!(is_used, count == MEMBERS_MAX);
        }
    }
}
