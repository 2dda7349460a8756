//! The integration tests of backups, in one binary, with the toy machine of replication.
//!
//! | module | what it tests |
//! |---|---|
//! | `common` | a history of registers, and backups of it |
//! | `damage` | every flipped bit, every truncation, newer and foreign files |
//! | `chain` | what follows what, and what verification finds |
//! | `remedy` | the reasons of refusals are documented |
//!
//! Backups of the whole state are in `scheduler/server/tests/all/backup`.

mod chain;
mod common;
mod damage;
mod remedy;
