//! What an entry of the log carries.
//!
//! Raft's own entries (the empty one of a new leader, configuration changes) are recognized by their
//! type. Of the others, a command has an empty context and its bytes as data, so that proposing
//! copies nothing; a record of the state hash is marked in the context.

use berth_store::{Member, StateHash};
use bytes::Bytes;
use prost::Message as _;
use raft::eraftpb::{ConfChangeV2, Entry, EntryType};

const HASH_MARK: &[u8] = b"\x01";

/// What an entry means to a replica.
#[derive(Debug, PartialEq)]
pub(crate) enum Content<'a> {
    /// The first entry of a new leader.
    Empty,
    /// A command of the machine.
    Command(&'a Bytes),
    /// The leader's state hash at an earlier index.
    Hash(HashRecord),
    /// A change of the membership.
    Change(ConfChangeV2, ChangeNote),
    /// Nothing this program knows.
    Unknown,
}

/// The leader's state hash at an index; members compare their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HashRecord {
    /// The index the hash belongs to.
    pub(crate) index: u64,
    /// The hash after applying that index.
    pub(crate) hash: StateHash,
}

/// What a configuration change says beyond Raft's part of it.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ChangeNote {
    /// Members that the change adds, or of which it changes the description.
    #[prost(message, repeated, tag = "1")]
    pub(crate) members: Vec<Member>,
}

/// Returns the entry of a command.
pub(crate) fn command(data: Bytes) -> Entry {
    Entry {
        data,
        ..Entry::default()
    }
}

/// Returns the entry of a hash record.
pub(crate) fn hash_record(record: HashRecord) -> Entry {
    let mut data = Vec::with_capacity(24);
    data.extend_from_slice(&record.index.to_le_bytes());
    data.extend_from_slice(&record.hash.to_bytes());
    Entry {
        data: data.into(),
        context: Bytes::from_static(HASH_MARK),
        ..Entry::default()
    }
}

/// Says what an entry carries.
pub(crate) fn content(entry: &Entry) -> Content<'_> {
    match entry.get_entry_type() {
        EntryType::EntryNormal if entry.context.is_empty() => match entry.data.is_empty() {
            true => Content::Empty,
            false => Content::Command(&entry.data),
        },
        EntryType::EntryNormal if entry.context == HASH_MARK => {
            parse_hash(&entry.data).map_or(Content::Unknown, Content::Hash)
        }
        EntryType::EntryConfChangeV2 => parse_change(entry).unwrap_or(Content::Unknown),
        // Never proposed: one form of configuration change is enough.
        EntryType::EntryConfChange | EntryType::EntryNormal => Content::Unknown,
    }
}

fn parse_hash(data: &[u8]) -> Option<HashRecord> {
    let (index, hash) = data.split_at_checked(8)?;
    Some(HashRecord {
        index: u64::from_le_bytes(index.try_into().ok()?),
        hash: StateHash::from_bytes(hash)?,
    })
}

fn parse_change(entry: &Entry) -> Option<Content<'_>> {
    let change: ConfChangeV2 = protobuf::Message::parse_from_bytes(&entry.data).ok()?;
    let note = ChangeNote::decode(entry.context.clone()).ok()?;
    Some(Content::Change(change, note))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_as_what_they_were() {
        assert_eq!(content(&Entry::default()), Content::Empty);
        let data = Bytes::from_static(b"do");
        assert_eq!(content(&command(data.clone())), Content::Command(&data));
        let record = HashRecord {
            index: 7,
            hash: StateHash::EMPTY,
        };
        assert_eq!(content(&hash_record(record)), Content::Hash(record));
    }

    #[test]
    fn an_entry_of_another_kind_is_unknown() {
        let entry = Entry {
            context: Bytes::from_static(b"\x09"),
            data: Bytes::from_static(b"?"),
            ..Entry::default()
        };
        assert_eq!(content(&entry), Content::Unknown);
    }
}
