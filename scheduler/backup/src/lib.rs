//! Backups of the replicated state: the file format, and their verification.
//!
//! ```text
//!   a full backup      the state at one index, as rows
//!   an increment       the committed entries of the log that follow another backup
//!   a chain            a full backup and increments, each following the one before it
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`header`] | what a file states about itself |
//! | [`record`] | what its records hold |
//! | [`writer`], [`reader`] | the container: one file in one stream of bytes |
//! | [`remedy`] | the reason of each refusal, and what helps |
//! | [`chain`] | verification: checksums, the state, the replay of the entries, the hash at the end |
//!
//! It does *not* know what a row or a command means (the [`Machine`](berth_replication::Machine) does),
//! opens no file, and restores nothing.
//!
//! Invariant: a file that was cut short, or in which any byte differs, is never read as a backup.

pub mod chain;
pub mod header;
pub mod reader;
pub mod record;
pub mod remedy;
pub mod writer;

pub use chain::{Chain, Verified, VerifyError};
pub use header::{Header, Kind, Place};
pub use reader::{ReadError, Reader, Summary};
pub use record::Item;
pub use remedy::{Access, Remedy};
pub use writer::{WriteError, Writer};

/// The container version that this code writes, and the newest that it reads.
pub const FORMAT: u32 = 1;

const MAGIC: &[u8; 8] = b"BERTHBKP";

/// Limits that a damaged length must not exceed. A header has a line for each member.
const HEADER_BYTES_MAX: usize = 1 << 20;
/// A single row or command may be larger than a usual record: as long as the longest message between
/// members, 64 MiB.
const RECORD_BYTES_MAX: usize = 128 << 20;
/// A trailer has a few numbers.
const TRAILER_BYTES_MAX: usize = 4 << 10;
