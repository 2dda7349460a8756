//! What a scheduler member keeps on disk, at the level of bytes.
//!
//! A member's directory holds three things, a marker and a witness:
//!
//! ```text
//! member/
//!   MEMBER        the member that owns the directory (identity), locked while in use
//!   FORMAT        the ledger of local migrations
//!   WITNESS       how far the log was synchronised, so that a loss at its end shows
//!   log/          Raft log and hard state (raft-engine): what was promised
//!   checkpoints/  whole states as files of our own; the newest two are kept
//!   table/        the state as rows (sled): a cache that saves replaying the log
//! ```
//!
//! This crate does *not* know what a row or a command means (`berth-codec` writes and reads them,
//! nothing here looks into them), and decides nothing about Raft. The order of trust is log over checkpoint over
//! table: the table is thrown away whenever it contradicts the others, a damaged checkpoint falls
//! back to the one before it, and a log that lost entries stops the member.
//!
//! Invariant: the log is cut only behind the older of the two checkpoints, so that either
//! checkpoint together with the log gives the whole state.

pub mod checkpoint;
pub mod checkpoints;
pub mod container;
pub mod disk;
pub mod extent;
pub mod hash;
pub mod identity;
pub mod log;
mod log_header;
mod log_tail;
pub mod membership;
pub mod memory;
pub mod recover;
pub mod row;
pub mod space;
pub mod table;
pub mod witness;
mod witness_record;

pub use berth_migrations::Error as MigrationError;
pub use checkpoint::Header;
pub use checkpoints::{CheckpointSink, CheckpointStore};
pub use disk::{Disk, FileDisk};
pub use extent::Extent;
pub use hash::StateHash;
pub use identity::Identity;
pub use log::{LogBatch, LogContents, LogStore};
pub use membership::{Member, Membership};
pub use memory::{Loss, MemoryCopy, MemoryDisk, Record};
pub use recover::{Recovered, Recovery, recover};
pub use row::{Row, RowChange};
pub use table::{TableMeta, TableStore};

/// What lies in a member's directory.
pub mod folders {
    pub use berth_migrations::{CHECKPOINTS, LOG, TABLE, WITNESS};
}
