//! A text file in a program's data directory, in which it stores over restarts what it has learnt.
//!
//! Invariant: it is replaced as a whole, and what is not exactly as it was written is not used.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// The longest file that is read: far more than the largest that is written.
const BYTES_MAX: u64 = 1 << 20;

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

/// Reads what is stored in a file of a data directory; `None` if there is none.
pub(super) fn load(directory: &Path, name: &str) -> Result<Option<String>, Unusable> {
    let file = match File::open(directory.join(name)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Unusable::Read(error)),
    };
    let mut text = String::new();
    match file.take(BYTES_MAX).read_to_string(&mut text) {
        Ok(_) => body(text).map(Some).ok_or(Unusable::Damaged),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(Unusable::Damaged),
        Err(error) => Err(Unusable::Read(error)),
    }
}

/// Replaces a file of a data directory, which is created if it is missing. The text ends with a line.
pub(super) fn store(directory: &Path, name: &str, text: &str) -> io::Result<()> {
    berth_files::make_private(directory)?;
    let text = format!("{text}checksum {:016x}\n", checksum(text));
    berth_files::replace(&directory.join(name), text.as_bytes())
}

fn body(mut text: String) -> Option<String> {
    let at = text.rfind("checksum ")?;
    let (body, sum) = text.split_at(at);
    let is_whole = sum == format!("checksum {:016x}\n", checksum(body));
    text.truncate(at);
    is_whole.then_some(text)
}

/// FNV-1a: it detects damage, and nothing else is expected of it.
fn checksum(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
