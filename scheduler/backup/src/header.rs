//! What a backup states about itself: where it begins and ends in the history of one cluster.
//!
//! All of it is known before the first record is written: the state is frozen, and so is the end of
//! the entries.

use berth_replication::effects::Position;
use berth_replication::history::Reached;
use berth_store::{Membership, StateHash};

/// What a backup holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Kind {
    /// Never written.
    Unspecified = 0,
    /// The whole state.
    Full = 1,
    /// The entries that follow another backup.
    Increment = 2,
}

impl Kind {
    /// Returns its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unspecified => "unspecified",
            Self::Full => "full",
            Self::Increment => "increment",
        }
    }
}

/// A place in the history of a state.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Place {
    /// The index of the last applied entry.
    #[prost(uint64, tag = "1")]
    pub index: u64,
    /// The term of that entry.
    #[prost(uint64, tag = "2")]
    pub term: u64,
    /// The hash of all rows.
    #[prost(bytes = "vec", tag = "3")]
    pub state_hash: Vec<u8>,
    /// The number of rows.
    #[prost(uint64, tag = "4")]
    pub rows: u64,
}

impl From<Position> for Place {
    fn from(position: Position) -> Self {
        Self {
            index: position.index,
            term: position.term,
            state_hash: position.hash.to_bytes().into(),
            rows: position.rows,
        }
    }
}

impl Place {
    /// Returns the hash of all rows; a reader has checked that there is one.
    #[must_use]
    pub fn hash(&self) -> Option<StateHash> {
        StateHash::from_bytes(&self.state_hash)
    }

    /// Returns it as a member states it.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        Some(Position {
            index: self.index,
            term: self.term,
            hash: self.hash()?,
            rows: self.rows,
        })
    }

    /// Returns it as a reader of the log states it.
    #[must_use]
    pub fn reached(&self) -> Reached {
        Reached {
            index: self.index,
            term: self.term,
            hash: self.hash(),
        }
    }
}

/// What a backup states about itself.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Header {
    /// The cluster, a UUID.
    #[prost(string, tag = "1")]
    pub cluster_id: String,
    /// The cluster version at the end.
    #[prost(uint32, tag = "2")]
    pub cluster_version: u32,
    /// The member that wrote it.
    #[prost(uint64, tag = "3")]
    pub member_id: u64,
    /// When, by that member's clock, in milliseconds since 1970.
    #[prost(uint64, tag = "4")]
    pub created_ms: u64,
    /// What it holds.
    #[prost(enumeration = "Kind", tag = "5")]
    pub kind: i32,
    /// Where an increment begins: the end of the backup that it follows. Absent in a full one.
    #[prost(message, optional, tag = "6")]
    pub after: Option<Place>,
    /// Where it ends.
    #[prost(message, required, tag = "7")]
    pub end: Place,
    /// The revision at the end: the index of the last command, as clients know it.
    #[prost(uint64, tag = "8")]
    pub revision: u64,
    /// The membership at the end, for information: a restored cluster has another one.
    #[prost(message, required, tag = "9")]
    pub membership: Membership,
    /// The version of the program that wrote it.
    #[prost(string, tag = "10")]
    pub program_version: String,
    /// Whether texts were removed from the state, as in a support bundle: it is to be read, and no cluster
    /// can go on with it.
    #[prost(bool, tag = "11")]
    pub redacted: bool,
}

impl Header {
    /// Returns the index before the first that it has: 0 in a full backup.
    #[must_use]
    pub fn after_index(&self) -> u64 {
        self.after.as_ref().map_or(0, |after| after.index)
    }

    /// Returns what contradicts itself.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        if self.end.hash().is_none() {
            return Some("state hash of the header");
        }
        match (self.kind(), &self.after) {
            (Kind::Full, None) => None,
            (Kind::Increment, Some(after)) if after.hash().is_none() => {
                Some("state hash of the header")
            }
            (Kind::Increment, Some(after))
                if after.index > self.end.index || after.term > self.end.term =>
            {
                Some("range of the header")
            }
            (Kind::Increment, Some(_)) => None,
            (Kind::Full, Some(_)) | (Kind::Increment, None) | (Kind::Unspecified, _) => {
                Some("kind of the header")
            }
        }
    }
}
