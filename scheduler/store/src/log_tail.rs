//! How much of the newest log file raft-engine cuts off when it opens it.
//!
//! raft-engine allocates its files ahead, and cuts the blank rest off when it closes them. A process
//! that is killed leaves the rest, which raft-engine then reports as corruption; so does a record
//! that was not completely written. Only the second is of interest: bytes other than zero behind
//! what raft-engine kept. Whether they had been synchronised before, which is damage and not a torn
//! end, the [witness](crate::witness) decides.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

const SUFFIX: &str = "raftlog";
const BLOCK_BYTES: usize = 64 << 10;

/// The newest file of a log before it is opened.
pub(crate) struct Tail {
    path: PathBuf,
    /// The position behind its last byte that is not zero.
    used: u64,
}

impl Tail {
    /// Looks at a log that is closed; nothing where there is none yet.
    pub(crate) fn of(folder: &Path) -> io::Result<Option<Self>> {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut newest = None;
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|suffix| suffix == SUFFIX) {
                newest = newest.max(Some(path));
            }
        }
        newest
            .map(|path| {
                Ok(Self {
                    used: used(&path)?,
                    path,
                })
            })
            .transpose()
    }

    /// Returns how many bytes of it are gone now that the log is open.
    pub(crate) fn cut_off(&self) -> io::Result<u64> {
        Ok(self.used.saturating_sub(fs::metadata(&self.path)?.len()))
    }
}

/// Returns the position behind the last byte that is not zero.
fn used(path: &Path) -> io::Result<u64> {
    let file = File::open(path)?;
    let mut end = file.metadata()?.len();
    let mut block = vec![0; BLOCK_BYTES];
    while end > 0 {
        let begin = end.saturating_sub(BLOCK_BYTES as u64);
        let length = usize::try_from(end - begin).unwrap_or(BLOCK_BYTES);
        file.read_exact_at(&mut block[..length], begin)?;
        if let Some(last) = block[..length].iter().rposition(|byte| *byte != 0) {
            return Ok(begin + last as u64 + 1);
        }
        end = begin;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_space_is_not_used() {
        let folder = tempfile::tempdir().expect("temporary folder");
        assert!(
            Tail::of(&folder.path().join("none"))
                .expect("no log")
                .is_none()
        );
        for (sound, blank) in [
            (0, 0),
            (0, 200_000),
            (70, 0),
            (70, 200_000),
            (150_000, 65_536),
        ] {
            let mut bytes = vec![7; sound];
            bytes.resize(sound + blank, 0);
            fs::write(folder.path().join("0000000000000001.raftlog"), "older").expect("write");
            let path = folder.path().join("0000000000000002.raftlog");
            fs::write(&path, bytes).expect("write");
            let tail = Tail::of(folder.path()).expect("a log").expect("a file");
            assert_eq!(
                (&tail.path, tail.used),
                (&path, sound as u64),
                "{sound} {blank}"
            );
            let kept = sound as u64 / 2;
            let file = File::options().write(true).open(&path).expect("open");
            file.set_len(kept).expect("truncate");
            assert_eq!(tail.cut_off().expect("a file"), sound as u64 - kept);
        }
    }
}
