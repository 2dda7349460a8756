//! The disks of guests that are off, from the agent of one host to that of another.
//!
//! ```text
//!   destination                               source
//!   FetchDisks ─▶ fetch ──ReadDisks──▶ serve ─▶ driver reads
//!   driver writes ◀── head, data, holes, end ──┘
//! ```
//!
//! | room | what |
//! |---|---|
//! | `fetch` | the destination: asks, writes, keeps within bandwidth and time |
//! | `serve` | the source: sends, until something else is done with the guest |
//!
//! Invariant: bounded. So many fetches and so many sendings go on at a time, pieces are small, and a
//! sender that is not read waits.

pub(crate) mod fetch;
pub(crate) mod serve;

pub(crate) use fetch::Fetches;
pub(crate) use serve::Readers;
