//! SHA-256 digests as text: 64 hexadecimal digits. Not here: what they are the digests of.

use std::fmt;

/// Writes a digest with small letters.
pub(crate) fn write(digest: &[u8; 32], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    digest.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// Reads a digest; nothing where the text is none. Letters may be of either case.
pub(crate) fn read(text: impl Iterator<Item = char>) -> Option<[u8; 32]> {
    let digit = |c: char| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let digits: Vec<u8> = text.map(digit).collect::<Option<_>>()?;
    let (pairs, []) = digits.as_chunks::<2>() else {
        return None;
    };
    let bytes: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
    bytes.try_into().ok()
}
