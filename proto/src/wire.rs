//! The fields of a message as they lie in its bytes, without a type that is generated for it.
//!
//! Not here: what the fields are, which their descriptors state.

use bytes::Buf as _;
use prost::encoding::{WireType, decode_key, decode_varint};

/// A field as it lies in the bytes.
pub(crate) struct Lying<'b> {
    pub(crate) number: u32,
    pub(crate) wire: WireType,
    /// With its key.
    pub(crate) whole: &'b [u8],
    /// Without key and length.
    pub(crate) content: &'b [u8],
}

/// Takes the next field from the bytes.
pub(crate) fn take<'b>(bytes: &mut &'b [u8]) -> Option<Lying<'b>> {
    let before = *bytes;
    let (number, wire) = decode_key(bytes).ok()?;
    let start = *bytes;
    let content = match wire {
        WireType::Varint => {
            decode_varint(bytes).ok()?;
            &start[..start.len() - bytes.len()]
        }
        WireType::SixtyFourBit => fixed(bytes, 8)?,
        WireType::ThirtyTwoBit => fixed(bytes, 4)?,
        WireType::LengthDelimited => {
            let length = decode_varint(bytes).ok()?;
            fixed(bytes, usize::try_from(length).ok()?)?
        }
        WireType::StartGroup | WireType::EndGroup => return None,
    };
    Some(Lying {
        number,
        wire,
        whole: &before[..before.len() - bytes.len()],
        content,
    })
}

fn fixed<'b>(bytes: &mut &'b [u8], length: usize) -> Option<&'b [u8]> {
    let content = bytes.get(..length)?;
    bytes.advance(length);
    Some(content)
}
