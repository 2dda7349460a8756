//! Backups of the whole state.
//!
//! | module | what it tests |
//! |---|---|
//! | `content` | every table and every kind of command, in full backups and increments |
//! | `served` | backups that members send, and what they refuse |
//!
//! Not here: damage, gaps and wrong hashes, which are in `scheduler/backup/tests`.

mod content;
mod served;
