//! Rows: the state as the store sees it.
//!
//! A row is a key and a value, both opaque. The machine that owns the state names its rows and
//! says which of them a command changed; nothing here interprets either.

use bytes::Bytes;

/// One row of the materialised state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// Unique among the rows of one state.
    pub key: Bytes,
    /// The row's content.
    pub value: Bytes,
}

/// What a command did to one row.
///
/// The old value travels along because the state hash is maintained from changes alone, without
/// reading anything back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowChange {
    /// The row's key.
    pub key: Bytes,
    /// The value before the command; `None` when the row did not exist.
    pub old: Option<Bytes>,
    /// The value after the command; `None` when the row is gone.
    pub new: Option<Bytes>,
}
