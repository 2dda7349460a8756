//! Commands, their outcomes and rows of the replicated state as bytes (`berth.state.v1`), and back.
//!
//! It does *not* interpret them. The store and the replication see rows and commands as bytes; the
//! machine that joins them with the state calls this crate.
//!
//! Invariant: equal values have equal bytes, on every member; what was written is read as the same
//! value or refused. A command or row that this build does not know is an error, never a default:
//! a member that skipped it would differ from the others.
//!
//! | module | what |
//! |---|---|
//! | [`mod@admit`] | commands as a cluster version allows them |
//! | [`command`] | envelopes with their commands |
//! | [`key`] | what names a row |
//! | [`outcome`] | what came of a command, for another member and for a retry |
//! | [`recent_rows`] | the rows that were written last, as they are stored |
//! | [`row`] | rows and changes of rows |
//! | [`request`] | remembered requests, a row with parts of its own |

pub mod admit;
pub mod command;
pub mod key;
pub mod outcome;
pub mod recent_rows;
pub mod request;
pub mod row;

pub use admit::admit;
pub use command::{decode_command, encode_command};
pub use key::{Watched, decode_watched_key, encode_key, table_name};
pub use outcome::{decode_outcome, encode_outcome};
pub use recent_rows::RecentRows;
pub use row::{decode_row, decode_value, encode_change, encode_row};

use berth_proto::convert::Invalid;

/// Why bytes are not a command, an outcome or a row.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// They are no message of that kind.
    #[error("bytes are no {what}")]
    Wire {
        /// `command`, `outcome` or `row`.
        what: &'static str,
        /// What is wrong with them.
        #[source]
        source: prost::DecodeError,
    },
    /// A field is absent, or not known to this build.
    #[error("a stored {what} cannot be read by this build")]
    Field {
        /// `command`, `outcome` or `row`.
        what: &'static str,
        /// Which field, and what is allowed.
        #[source]
        source: Invalid,
    },
    /// A row is stored under another row's key.
    #[error("the row of {row} is stored under another key")]
    Misplaced {
        /// What the row says that it is.
        row: String,
    },
}
