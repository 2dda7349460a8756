//! Bytes of another member to a Raft message.
//!
//! raft-rs decodes with protobuf 2, which skips an unknown group by calling itself for each group in
//! it (RUSTSEC-2024-0437): a megabyte of opened groups overflows the stack and ends the process.
//! No message of Raft has groups, so bytes with one are refused before that decoder reads them.
//!
//! Not here: whether a message is from who it says.

use bytes::Bytes;
use protobuf::wire_format::WireType;
use protobuf::{CodedInputStream, Message as _, ProtobufError};
use raft::eraftpb::{EntryType, Message};

/// The fields of a message that are messages, each with its own. Bytes in other fields are not
/// decoded, so a group in them is data.
struct Nested(&'static [(u32, Nested)]);

/// `Message`: its entries, and its snapshot with metadata and their configuration.
const MESSAGE: Nested = Nested(&[
    (7, Nested(&[])),
    (9, Nested(&[(2, Nested(&[(1, Nested(&[]))]))])),
]);

/// `ConfChangeV2`: its changes. The state of a member is changed by it once it is committed.
const CHANGE: Nested = Nested(&[(2, Nested(&[]))]);

/// Decodes a message of Raft.
///
/// # Errors
///
/// When the bytes are not one, or hold a group.
pub(super) fn decode(bytes: &Bytes) -> Result<Message, ProtobufError> {
    refuse_groups(bytes, &MESSAGE)?;
    let message = Message::parse_from_carllerche_bytes(bytes)?;
    for entry in message.get_entries() {
        match entry.get_entry_type() {
            EntryType::EntryNormal => {}
            EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => {
                refuse_groups(&entry.data, &CHANGE)?;
            }
        }
    }
    Ok(message)
}

/// Reads the keys of all fields; calls itself as deep as `nested` goes, whatever the bytes are.
fn refuse_groups(bytes: &[u8], nested: &Nested) -> Result<(), ProtobufError> {
    let mut input = CodedInputStream::from_bytes(bytes);
    while !input.eof()? {
        let (field, wire_type) = input.read_tag_unpack()?;
        match wire_type {
            WireType::WireTypeLengthDelimited => {
                let length = input.read_raw_varint32()?;
                let start = input.pos() as usize;
                input.skip_raw_bytes(length)?;
                if let Some((_, inner)) = nested.0.iter().find(|(number, _)| *number == field) {
                    refuse_groups(&bytes[start..start + length as usize], inner)?;
                }
            }
            WireType::WireTypeVarint => {
                input.read_raw_varint64()?;
            }
            WireType::WireTypeFixed64 => {
                input.read_fixed64()?;
            }
            WireType::WireTypeFixed32 => {
                input.read_fixed32()?;
            }
            WireType::WireTypeStartGroup | WireType::WireTypeEndGroup => {
                return Err(protobuf::rt::unexpected_wire_type(wire_type));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use raft::eraftpb::{ConfChangeSingle, ConfChangeV2, Entry, MessageType};

    use super::*;

    /// So many groups, each opened in the one before.
    const DEEP: usize = 1_000_000;
    /// The key of field 11 as the beginning of a group.
    const OPEN: u8 = 11 << 3 | 3;

    fn message() -> Message {
        let mut change = ConfChangeV2::default();
        change.mut_changes().push(ConfChangeSingle::default());
        let mut entry = Entry::default();
        entry.set_entry_type(EntryType::EntryConfChangeV2);
        entry.data = change.write_to_bytes().expect("a change is encoded").into();
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgSnapshot);
        message.set_from(2);
        message.set_term(u64::MAX);
        message.set_context(vec![OPEN; 64].into());
        message.mut_entries().push(entry);
        let metadata = message.mut_snapshot().mut_metadata();
        metadata.mut_conf_state().set_voters(vec![1, 2, 3]);
        message
    }

    /// Appends bytes to the message at a path of fields, the last of which is the innermost.
    fn nest(path: &[u8], bytes: Vec<u8>) -> Vec<u8> {
        path.iter().rev().fold(bytes, |inner, field| {
            let mut outer = vec![field << 3 | 2];
            let mut length = inner.len();
            while length > 0x7f {
                outer.push(length as u8 & 0x7f | 0x80);
                length >>= 7;
            }
            outer.push(length as u8);
            outer.extend(inner);
            outer
        })
    }

    #[test]
    fn what_members_send_is_decoded() {
        let bytes = message().write_to_bytes().expect("a message is encoded");
        assert_eq!(decode(&bytes.into()).expect("a message"), message());
    }

    /// Goal: no bytes make the decoder call itself without limit. Method: a million nested groups at
    /// every place where protobuf 2 decodes a message; without the check each ends the process.
    #[test]
    fn groups_are_refused_wherever_a_message_is_decoded() {
        let paths: [&[u8]; 5] = [&[], &[7], &[9], &[9, 2], &[9, 2, 1]];
        for path in paths {
            let bytes = nest(path, vec![OPEN; DEEP]);
            assert!(decode(&bytes.into()).is_err(), "groups at {path:?}");
        }
        for path in [&[][..], &[2]] {
            let mut sent = message();
            sent.mut_entries()[0].data = nest(path, vec![OPEN; DEEP]).into();
            let bytes = sent.write_to_bytes().expect("a message is encoded");
            assert!(
                decode(&bytes.into()).is_err(),
                "groups at {path:?} of a change"
            );
        }
    }

    /// Goal: damaged bytes are refused, never a panic. Method: each prefix and each single changed byte.
    #[test]
    fn damaged_bytes_do_not_panic() {
        let bytes = message().write_to_bytes().expect("a message is encoded");
        for end in 0..bytes.len() {
            let _ = decode(&bytes[..end].to_vec().into());
            for value in 0..=u8::MAX {
                let mut damaged = bytes.clone();
                damaged[end] = value;
                let _ = decode(&damaged.into());
            }
        }
    }
}
