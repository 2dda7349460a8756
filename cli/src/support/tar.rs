//! A tar archive (POSIX ustar) of files in memory: what `tar -x` opens.
//!
//! Not here: compression, directories, links, owners. The crates that do more are no dependency of Berth.
//!
//! Invariant: an archive that was cut short, or in which the checksum of a header is wrong, is refused;
//! names are relative and stay below the directory they are extracted to.

use std::collections::BTreeMap;
use std::io::{self, Write};

/// The size of a block.
const BLOCK: usize = 512;
/// Blocks of zeros at the end.
const END_BLOCKS: usize = 2;
/// The longest name.
const NAME_MAX: usize = 100;
/// The maximum size of an archive that is read.
pub(super) const BYTES_MAX: u64 = 4 << 30;

/// Why bytes are no archive.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum Error {
    /// It does not begin like one.
    #[error("it does not begin like a tar archive")]
    Foreign,
    /// It ends too early.
    #[error("it ends too early")]
    Truncated,
    /// A header is unsound.
    #[error("the header at byte {0} is damaged")]
    Damaged(usize),
}

/// Writes one file.
///
/// # Errors
///
/// That of the writer, or that the name is no short relative path.
pub(super) fn write(
    out: &mut impl Write,
    name: &str,
    content: &[u8],
    modified_s: u64,
) -> io::Result<()> {
    if !is_good(name) {
        return Err(io::Error::other(format!(
            "{name:?} is no name in an archive"
        )));
    }
    out.write_all(&header(name, content.len() as u64, modified_s))?;
    out.write_all(content)?;
    let rest = content.len().next_multiple_of(BLOCK) - content.len();
    out.write_all(&[0; BLOCK][..rest])
}

/// Writes the end.
///
/// # Errors
///
/// That of the writer.
pub(super) fn end(out: &mut impl Write) -> io::Result<()> {
    out.write_all(&[0; BLOCK * END_BLOCKS])
}

/// Returns the files of an archive by their names.
///
/// # Errors
///
/// It is no sound archive.
pub(super) fn read(bytes: &[u8]) -> Result<BTreeMap<String, &[u8]>, Error> {
    let mut files = BTreeMap::new();
    let mut at = 0;
    loop {
        let is_first = at == 0;
        let block = bytes.get(at..at + BLOCK).ok_or(match is_first {
            true => Error::Foreign,
            false => Error::Truncated,
        })?;
        if !is_first && block.iter().all(|byte| *byte == 0) {
            let last = bytes.get(at + BLOCK..at + BLOCK * END_BLOCKS);
            return last.map(|_| files).ok_or(Error::Truncated);
        }
        let entry = entry(block).ok_or(match is_first {
            true => Error::Foreign,
            false => Error::Damaged(at),
        })?;
        let begin = at + BLOCK;
        let end = begin.checked_add(entry.size).ok_or(Error::Damaged(at))?;
        let content = bytes.get(begin..end).ok_or(Error::Truncated)?;
        files.insert(entry.name, content);
        at = begin + entry.size.next_multiple_of(BLOCK);
    }
}

/// What a header states.
struct Entry {
    name: String,
    size: usize,
}

fn entry(block: &[u8]) -> Option<Entry> {
    let is_ustar = block.get(257..262)? == b"ustar";
    let stated = octal(block.get(148..156)?)?;
    let is_file = matches!(block.get(156)?, b'0' | 0);
    let name = text(block.get(..NAME_MAX)?)?;
    let size = usize::try_from(octal(block.get(124..136)?)?).ok()?;
    let is_sound = is_ustar && is_file && stated == checksum(block) && is_good(&name);
    is_sound.then_some(Entry { name, size })
}

/// Returns whether a name is a relative path without `..`.
fn is_good(name: &str) -> bool {
    let parts_are_good = name.split('/').all(|part| !matches!(part, "" | "." | ".."));
    parts_are_good && name.len() < NAME_MAX && name.is_ascii()
}

fn header(name: &str, size: u64, modified_s: u64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, b"0000600\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{size:011o}\0").as_bytes());
    put(136, format!("{modified_s:011o}\0").as_bytes());
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum = checksum(&block);
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// Returns the sum of the bytes, in which those of the sum itself count as spaces.
fn checksum(block: &[u8]) -> u64 {
    let of_sum = 148..156;
    let bytes = block.iter().enumerate();
    bytes
        .map(|(at, byte)| u64::from(if of_sum.contains(&at) { b' ' } else { *byte }))
        .sum()
}

fn text(field: &[u8]) -> Option<String> {
    let end = field.iter().position(|byte| *byte == 0);
    let bytes = &field[..end.unwrap_or(field.len())];
    String::from_utf8(bytes.to_vec()).ok()
}

fn octal(field: &[u8]) -> Option<u64> {
    let text = text(field)?;
    u64::from_str_radix(text.trim_matches(' '), 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive() -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, "bundle.json", b"{}", 7).expect("written");
        write(&mut bytes, "a/empty", b"", 7).expect("written");
        write(&mut bytes, "a/block", &[1; BLOCK], 7).expect("written");
        end(&mut bytes).expect("written");
        bytes
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = archive();
        let files = read(&bytes).expect("it is sound");
        let expected: [(&str, &[u8]); 3] = [
            ("a/block", &[1; BLOCK]),
            ("a/empty", b""),
            ("bundle.json", b"{}"),
        ];
        let names: Vec<_> = files
            .iter()
            .map(|(name, content)| (&**name, *content))
            .collect();
        assert_eq!(names, expected);
    }

    /// Goal: no archive that was cut short is taken for a whole one.
    #[test]
    fn every_cut_is_seen() {
        let bytes = archive();
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_err(), "{length}");
        }
        assert_eq!(read(b"BERTHBKP"), Err(Error::Foreign));
        assert_eq!(read(&[0; 4 * BLOCK]), Err(Error::Foreign));
    }

    #[test]
    fn headers_are_checked() {
        let mut bytes = archive();
        bytes[3] ^= 1;
        assert_eq!(read(&bytes), Err(Error::Foreign));
        for bad in ["", "/etc/x", "../x", "a//b", "a/", &"x".repeat(NAME_MAX)] {
            assert!(write(&mut Vec::new(), bad, b"", 0).is_err(), "{bad}");
        }
    }
}
