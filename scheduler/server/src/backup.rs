//! Backups of this member's own state.
//!
//! | module | what |
//! |---|---|
//! | [`content`] | what a backup is made of, and how it is written |
//!
//! Not here: sending a backup to a client (`service`), and the format ([`berth_backup`]).

pub(crate) mod content;
