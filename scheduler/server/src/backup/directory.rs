//! The files of the schedule: their names, which backup is made next, and which files are deleted.
//!
//! ```text
//!   berth-CLUSTER-mMEMBER-INDEX-full.backup
//!   berth-CLUSTER-mMEMBER-INDEX-increment.backup     INDEX: where the file ends, in 20 digits
//! ```
//!
//! Several members, and several clusters, may use one directory: each sees its own files only.
//!
//! Invariant: a file is deleted only if its name and its header say that this member made it, and if so
//! many newer full backups are there as are kept.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use berth_backup::{Header, Kind, ReadError, Reader, Summary};
use berth_files::{Draft, PART};

use super::content::Origin;

const SUFFIX: &str = ".backup";

/// The size of a buffer of a file.
const BUFFER_BYTES: usize = 256 << 10;

/// A file of this member's, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Own {
    /// Where the file ends.
    pub(crate) index: u64,
    /// What it is.
    pub(crate) kind: Kind,
    /// The file.
    pub(crate) path: PathBuf,
}

fn prefix(origin: &Origin) -> String {
    format!("berth-{}-m{}-", origin.cluster_id, origin.member_id)
}

/// Returns the name of the file of a backup.
pub(crate) fn name(origin: &Origin, header: &Header) -> String {
    let (index, kind) = (header.end.index, header.kind().as_str());
    format!("{}{index:020}-{kind}{SUFFIX}", prefix(origin))
}

/// Reads a name; nothing if it is none of this member's.
fn parse(origin: &Origin, name: &str) -> Option<(u64, Kind)> {
    let rest = name.strip_prefix(&prefix(origin))?.strip_suffix(SUFFIX)?;
    let (index, kind) = rest.split_once('-')?;
    let kinds = [Kind::Full, Kind::Increment];
    let kind = kinds.into_iter().find(|known| known.as_str() == kind)?;
    let is_plain = index.len() == 20 && index.bytes().all(|byte| byte.is_ascii_digit());
    Some((index.parse().ok().filter(|_| is_plain)?, kind))
}

/// Returns this member's files, the oldest first: an increment before a full backup of the same end,
/// which was made after it. Removes what an interrupted backup left.
pub(crate) fn list(origin: &Origin, directory: &Path) -> io::Result<Vec<Own>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        if let Some(whole) = name.strip_suffix(PART) {
            if parse(origin, whole).is_some() {
                // Unless a process is writing it.
                drop(Draft::create(&directory.join(whole)));
            }
        } else if let Some((index, kind)) = parse(origin, name) {
            files.push(Own { index, kind, path });
        }
    }
    files.sort_by_key(|own| (own.index, own.kind == Kind::Full, own.path.clone()));
    Ok(files)
}

/// Returns the file that the next increment follows; nothing if a full backup is due. The files are in
/// order.
pub(crate) fn next_after(files: &[Own], full_every: u64) -> Option<&Own> {
    let newest_full = files.iter().rposition(|own| own.kind == Kind::Full)?;
    let since = (files.len() - newest_full) as u64;
    files.last().filter(|_| since < full_every)
}

/// Returns the files that newer full backups replace, of which so many are kept. The files are in order.
pub(crate) fn replaced(files: &[Own], keep: u64) -> &[Own] {
    let fulls = files.iter().enumerate();
    let fulls = fulls.filter(|(_, own)| own.kind == Kind::Full);
    let nth = usize::try_from(keep.saturating_sub(1)).unwrap_or(usize::MAX);
    match fulls.rev().nth(nth) {
        Some((oldest_kept, _)) => &files[..oldest_kept],
        None => &[],
    }
}

/// Reads a whole file and verifies its checksums.
pub(crate) fn read(path: &Path) -> Result<Summary, ReadError> {
    let file = File::open(path).map_err(ReadError::Io)?;
    Reader::new(BufReader::with_capacity(BUFFER_BYTES, file))?.finish()
}

/// Deletes a file if its header says that this member made it; returns whether it did.
pub(crate) fn delete(origin: &Origin, own: &Own) -> io::Result<bool> {
    let file = File::open(&own.path)?;
    let is_ours = Reader::new(BufReader::new(file)).is_ok_and(|reader| {
        let header = reader.header();
        header.cluster_id == origin.cluster_id && header.member_id == origin.member_id
    });
    if is_ours {
        fs::remove_file(&own.path)?;
    }
    Ok(is_ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> Origin {
        Origin {
            cluster_id: "6f1c6f0e-3a0e-4c39-8a51-4a8c3b6b1f10".to_owned(),
            member_id: 2,
        }
    }

    /// Returns files as a text describes them: `f` full, `i` increment.
    fn files(kinds: &str) -> Vec<Own> {
        let kind = |letter| match letter {
            'f' => Kind::Full,
            _ => Kind::Increment,
        };
        let own = |(index, letter)| Own {
            index,
            kind: kind(letter),
            path: PathBuf::from(format!("{index}{letter}")),
        };
        (1..).zip(kinds.chars()).map(own).collect()
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        let origin = origin();
        for kind in [Kind::Full, Kind::Increment] {
            let header = Header {
                kind: kind.into(),
                end: berth_backup::Place {
                    index: 812,
                    ..Default::default()
                },
                ..Header::default()
            };
            let name = name(&origin, &header);
            assert_eq!(parse(&origin, &name), Some((812, kind)), "{name}");
            let other = Origin {
                member_id: 22,
                ..origin.clone()
            };
            assert_eq!(parse(&other, &name), None);
            for foreign in [
                name.replace("-m2-", "-m3-"),
                name.replace("6f1c", "0000"),
                name.replace("812", "+12"),
                name.replace(".backup", ".backup.part"),
                format!("old-{name}"),
                "monday.backup".to_owned(),
            ] {
                assert_eq!(parse(&origin, &foreign), None, "{foreign}");
            }
        }
    }

    /// Goal: every so many backups one is full, whatever is there.
    #[test]
    fn a_full_backup_is_due_when_there_are_enough_increments() {
        let next = |kinds, full_every| {
            let files = files(kinds);
            next_after(&files, full_every).map(|own| own.index)
        };
        assert_eq!(next("", 3), None);
        // Increments whose full backup was deleted by hand.
        assert_eq!(next("ii", 3), None);
        assert_eq!(next("f", 3), Some(1));
        assert_eq!(next("fi", 3), Some(2));
        assert_eq!(next("fii", 3), None);
        assert_eq!(next("fiif", 3), Some(4));
        assert_eq!(next("fiifi", 3), Some(5));
        assert_eq!(next("f", 1), None);
    }

    /// Goal: so many full backups stay as are kept, each with its increments, and everything before
    /// them goes.
    #[test]
    fn what_newer_full_backups_replace_is_found() {
        let gone = |kinds, keep| replaced(&files(kinds), keep).len();
        assert_eq!(gone("", 1), 0);
        assert_eq!(gone("ii", 1), 0);
        assert_eq!(gone("fii", 1), 0);
        assert_eq!(gone("fiif", 1), 3);
        assert_eq!(gone("fiifi", 1), 3);
        assert_eq!(gone("fiif", 2), 0);
        assert_eq!(gone("iifififi", 2), 4);
        assert_eq!(gone("fff", 2), 1);
    }

    /// Goal: nothing of others is listed or deleted, and what was interrupted is removed.
    #[test]
    fn only_own_files_are_deleted() {
        let folder = tempfile::tempdir().expect("a folder");
        let origin = origin();
        let path = |name: &str| folder.path().join(name);
        let own = format!("{}{:020}-full{SUFFIX}", prefix(&origin), 7);
        fs::write(path(&own), "no backup").expect("a file");
        fs::write(path(&format!("{own}{PART}")), "interrupted").expect("a file");
        for foreign in ["monday.backup", "monday.backup.part", "notes.txt"] {
            fs::write(path(foreign), "of another").expect("a file");
        }
        let files = list(&origin, folder.path()).expect("a list");
        assert_eq!(files.len(), 1);
        assert!(!path(&format!("{own}{PART}")).exists());
        // Its header does not say that this member made it.
        assert!(!delete(&origin, &files[0]).expect("it is read"));
        let names = fs::read_dir(folder.path()).expect("a folder");
        assert_eq!(names.count(), 4);
    }
}
