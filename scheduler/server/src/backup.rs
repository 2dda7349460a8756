//! Backups of this member's own state.
//!
//! | module | what |
//! |---|---|
//! | [`content`] | what a backup is made of, and how it is written |
//! | [`directory`] | the files of the schedule: names, what is made next, what is deleted |
//! | [`store`] | writes a file there, verifies it, and deletes what it replaces |
//! | [`schedule`] | the task that makes backups at intervals |
//! | [`status`] | how the last scheduled backup ended |
//!
//! Not here: sending a backup to a client (`service`), and the format ([`berth_backup`]).

pub(crate) mod content;
pub(crate) mod directory;
pub(crate) mod schedule;
pub(crate) mod status;
pub(crate) mod store;
