//! Backups of the whole state.
//!
//! | module | what it tests |
//! |---|---|
//! | `content` | every table and every kind of command, in full backups and increments |
//! | `full_disk` | restores and recoveries on a disk that is full |
//! | `scheduled` | backups that members make at intervals, and what they delete |
//! | `served` | backups that members send, and what they refuse |
//!
//! Not here: damage, gaps and wrong hashes, which are in `scheduler/backup/tests`.

mod content;
mod full_disk;
mod scheduled;
mod served;
