//! The disks of guests that are off, from the agent of one host to that of another.
//!
//! ```text
//!   destination                               source
//!   FetchDisks ─▶ fetch ──ReadDisks──▶ serve ─▶ driver reads
//!   driver writes ◀── head, data, holes, end ──┘
//! ```
//!
//! | module | what |
//! |---|---|
//! | `fetch` | the destination: requests, writes, keeps within bandwidth and time |
//! | `serve` | the source: sends, until other work on the guest begins |
//!
//! Invariant: bounded. The numbers of fetches and of readers are limited, pieces are small, and a
//! sender that is not read waits.

pub(crate) mod fetch;
pub(crate) mod serve;

pub(crate) use fetch::Fetches;
pub(crate) use serve::Readers;
