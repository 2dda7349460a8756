//! The first bytes of raft-engine's files, checked before raft-engine reads them.
//!
//! ```text
//! magic (53 bytes) | version u64, big-endian | alignment u64, in version 2
//! ```
//!
//! raft-engine writes version 2; but a file whose header never reached the disk, because the disk was
//! full or the process was killed when the file was made, gets one of version 1 at the next start. It
//! has no alignment: its records begin there.
//!
//! No checksum covers these bytes. The alignment is always 0 here; raft-engine 0.4.2 believes any other
//! and then allocates a buffer of that size, up to all addresses there are, which ends the process
//! without a word. Everything else in the files is under a checksum, or is compared with the size
//! of the file before it is used.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

const MAGIC: &[u8] = b"RAFT-LOG-FILE-HEADER-9986AB3E47F320B394C8E84916EB0ED5";
const VERSION_BYTES: usize = 8;
/// The version without an alignment.
const UNALIGNED: [u8; VERSION_BYTES] = 1_u64.to_be_bytes();
const HEADER_BYTES: usize = MAGIC.len() + VERSION_BYTES + 8;
const SUFFIXES: [&str; 2] = [".raftlog", ".rewrite"];

/// Returns a file of the log with a header that raft-engine must not read, if there is one.
pub(crate) fn damaged(folder: &Path) -> io::Result<Option<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let path = entry?.path();
        let name = path.to_string_lossy();
        if SUFFIXES.iter().any(|suffix| name.ends_with(suffix)) && is_aligned(&path)? {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Says whether the header names an alignment. One that is cut short or has another magic is
/// raft-engine's to refuse.
fn is_aligned(path: &Path) -> io::Result<bool> {
    let mut header = Vec::with_capacity(HEADER_BYTES);
    File::open(path)?
        .take(HEADER_BYTES as u64)
        .read_to_end(&mut header)?;
    let fields = header.get(MAGIC.len()..).unwrap_or(&[]);
    let (version, alignment) = fields.split_at(VERSION_BYTES.min(fields.len()));
    let is_aligned = alignment.iter().any(|byte| *byte != 0);
    Ok(header.starts_with(MAGIC) && version != UNALIGNED && is_aligned)
}
