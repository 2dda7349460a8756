//! What the records of a backup hold: rows of the state, or entries of the log.
//!
//! Records are protobuf, so that a later version can add to them. Rows and commands are bytes whose
//! meaning the machine knows.

use berth_store::Row;
use bytes::Bytes;
use raft::eraftpb::{Entry, EntryType};

/// One record of the container.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Record {
    /// Rows; only in a full backup.
    #[prost(message, repeated, tag = "1")]
    pub(crate) rows: Vec<WireRow>,
    /// Entries; only in an increment.
    #[prost(message, repeated, tag = "2")]
    pub(crate) entries: Vec<WireEntry>,
}

/// A row of the state.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WireRow {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) value: Bytes,
}

/// A committed entry.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WireEntry {
    #[prost(uint64, tag = "1")]
    pub(crate) index: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) term: u64,
    #[prost(enumeration = "EntryKind", tag = "3")]
    pub(crate) kind: i32,
    #[prost(bytes = "bytes", tag = "4")]
    pub(crate) data: Bytes,
    #[prost(bytes = "bytes", tag = "5")]
    pub(crate) context: Bytes,
}

/// The type of an entry. Raft's own enum has no value that means absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum EntryKind {
    Unspecified = 0,
    Normal = 1,
    ConfChange = 2,
    ConfChangeV2 = 3,
}

/// One thing that a backup holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A row of the state.
    Row(Row),
    /// A committed entry of the log.
    Entry(Entry),
}

impl From<&Row> for WireRow {
    fn from(row: &Row) -> Self {
        Self {
            key: row.key.clone(),
            value: row.value.clone(),
        }
    }
}

impl From<WireRow> for Row {
    fn from(row: WireRow) -> Self {
        Self {
            key: row.key,
            value: row.value,
        }
    }
}

impl From<&Entry> for WireEntry {
    fn from(entry: &Entry) -> Self {
        let kind = match entry.get_entry_type() {
            EntryType::EntryNormal => EntryKind::Normal,
            EntryType::EntryConfChange => EntryKind::ConfChange,
            EntryType::EntryConfChangeV2 => EntryKind::ConfChangeV2,
        };
        Self {
            index: entry.index,
            term: entry.term,
            kind: kind.into(),
            data: entry.data.clone(),
            context: entry.context.clone(),
        }
    }
}

impl WireEntry {
    /// Returns the entry, unless its type is unknown.
    pub(crate) fn into_entry(self) -> Option<Entry> {
        let entry_type = match EntryKind::try_from(self.kind).ok()? {
            EntryKind::Unspecified => return None,
            EntryKind::Normal => EntryType::EntryNormal,
            EntryKind::ConfChange => EntryType::EntryConfChange,
            EntryKind::ConfChangeV2 => EntryType::EntryConfChangeV2,
        };
        let mut entry = Entry {
            index: self.index,
            term: self.term,
            data: self.data,
            context: self.context,
            ..Entry::default()
        };
        entry.set_entry_type(entry_type);
        Some(entry)
    }
}

/// What stands at the end of a backup.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Trailer {
    /// How many rows there are.
    #[prost(uint64, tag = "1")]
    pub(crate) rows: u64,
    /// How many entries there are.
    #[prost(uint64, tag = "2")]
    pub(crate) entries: u64,
}
