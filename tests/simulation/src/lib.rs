//! The whole of Berth in one thread under a virtual clock: scheduler members, conductors and
//! agents as the cores that production runs, on a network and on disks that fail on purpose.
//!
//! ```text
//!   user ──wish──▶ conductor (berth_saga) ──ask──▶ member (decide + Replica + MemoryDisk)
//!                      │                             ▲ raft ▼
//!                      └──call──▶ agent (core) ──▶ World (hypervisors)
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`mod@run`] | one seed from beginning to end |
//! | [`packet`], [`network`] | what is sent, and what becomes of it |
//! | [`member`], [`conductor`], [`agent`], [`user`] | one kind of node each |
//! | [`asker`] | how members are asked |
//! | `forwarder`, [`writer`] | writes through any member, and who makes them |
//! | [`volumes`] | devices of volumes, who makes them and who wants them |
//! | [`administrator`], `run::membership` | who adds and removes members |
//! | `run::damage` | disks that lose what they had synchronised |
//! | `scene` | the hosts and the flavors |
//! | [`faults`] | crashes, stalls and cuts |
//! | `run::upgrade` | exchanges for newer programs |
//! | [`verdict`] | what must hold after every step, and at the end |
//! | [`bug`] | bugs that can be planted, to see that they are found |
//!
//! Invariant: a run is a function of its seed. Nothing here reads a clock, the environment or a
//! source of randomness but [`chance`], and nothing iterates over a hash map.

pub mod administrator;
pub mod agent;
pub mod asker;
pub mod bug;
pub mod chance;
pub mod conductor;
pub mod faults;
mod forwarder;
pub mod member;
pub mod network;
pub mod packet;
pub mod run;
pub mod scene;
pub mod user;
pub mod verdict;
pub mod volumes;
pub mod wish;
pub mod writer;

pub use bug::Bug;
pub use run::{Failure, Options, Summary, run};
