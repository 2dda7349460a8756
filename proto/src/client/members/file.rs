//! The file in which a program stores the learnt members of its cluster over restarts.
//!
//! It is not configuration: it is rewritten when the membership changes, and may be deleted.
//!
//! Invariant: it is replaced as a whole, and what is not exactly as it was written is not used. It
//! holds addresses without a scheme: the certificates of the program alone decide on encryption.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use super::{Known, MEMBERS_MAX, is_member_address};

/// The name of the file in the program's data directory.
pub const FILE: &str = "schedulers";

const HEAD: &str = "berth schedulers 1";

/// The longest file that is read: far more than the largest that is written.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why a stored file is not used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// It could not be read.
    #[error("failed to read it: {0}")]
    Read(io::Error),
    /// It is not as it was written.
    #[error("it is damaged")]
    Damaged,
}

/// Reads what is stored in a data directory; `None` if nothing is.
///
/// # Errors
///
/// Why the file is not used.
pub fn load(directory: &Path) -> Result<Option<Known>, Unusable> {
    let file = match File::open(directory.join(FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Unusable::Read(error)),
    };
    let mut text = String::new();
    match file.take(FILE_BYTES_MAX).read_to_string(&mut text) {
        Ok(_) => parse(&text).map(Some).ok_or(Unusable::Damaged),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(Unusable::Damaged),
        Err(error) => Err(Unusable::Read(error)),
    }
}

/// Replaces what is stored in a data directory, which is created if it is missing.
///
/// # Errors
///
/// The error of the file system; what was stored before is still there then.
pub fn store(directory: &Path, known: &Known) -> io::Result<()> {
    berth_files::make_private(directory)?;
    berth_files::replace(&directory.join(FILE), render(known).as_bytes())
}

fn render(known: &Known) -> String {
    let mut text = format!("{HEAD}\ncluster {}\n", known.cluster_id);
    for address in &known.configured {
        let _ = writeln!(text, "configured {address}");
    }
    for address in &known.members {
        let _ = writeln!(text, "member {address}");
    }
    let sum = checksum(&text);
    let _ = writeln!(text, "checksum {sum:016x}");
    text
}

fn parse(text: &str) -> Option<Known> {
    let at = text.rfind("checksum ")?;
    let (body, sum) = text.split_at(at);
    if sum != format!("checksum {:016x}\n", checksum(body)) {
        return None;
    }
    let mut lines = body.lines();
    let head = lines.next()? == HEAD;
    let cluster_id = lines.next()?.strip_prefix("cluster ")?.to_owned();
    let mut known = Known {
        cluster_id,
        ..Known::default()
    };
    for line in lines {
        let (kind, address) = line.split_once(' ')?;
        match kind {
            "configured" => known.configured.push(address.to_owned()),
            "member" if is_member_address(address) => known.members.push(address.to_owned()),
            _ => return None,
        }
    }
    (head && known.members.len() <= MEMBERS_MAX).then_some(known)
}

/// FNV-1a: it detects damage, and nothing else is expected of it.
fn checksum(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn known() -> Known {
        Known {
            cluster_id: "0198c0de-0000-7000-8000-000000000001".to_owned(),
            configured: vec!["http://h1:7100".to_owned()],
            members: vec!["h1:7100".to_owned(), "[::1]:7100".to_owned()],
        }
    }

    #[test]
    fn what_is_stored_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("made/when/missing");
        assert!(load(&directory).unwrap().is_none());
        for members in 0..=2 {
            let mut known = known();
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
