//! The scheduler: chooses and claims in one committed command.
//!
//! ```text
//!   request ─▶ service (convert) ─▶ core::decide on the leader's speculative state
//!                                        │ command
//!                                        ▼
//!                          replica: log on a quorum's disks, apply ─▶ answer (convert)
//! ```
//!
//! | room | what |
//! |---|---|
//! | [`mod@core`] | from a request and the state to a decision; pure |
//! | [`machine`] | the state as what is replicated |
//! | `service` | the gRPC services |
//! | `placement_rest` | OpenStack Placement's REST API |
//! | [`feed`] | what has changed lately, for watches |
//! | [`liveness`], `duties` | which hosts are heard of, and the leader's other duties |
//! | `refusals` | what was refused lately, and is in no log |
//! | `health`, `leadership` | whether this member serves, and who leads as it sees it |
//! | [`config`], [`flags`] | what a member is told, and what it tells |
//! | `member`, `join`, `expelled`, `outdated` | from a directory to a member, and out again |
//! | [`server`], [`process`] | all of it, as one of several in a process or as one process |
//!
//! Invariant: nothing is answered that is not on a quorum's disks, and nothing outside
//! [`mod@core`] decides.

pub mod config;
pub mod core;
mod duties;
pub mod error;
mod expelled;
pub mod feed;
pub mod flags;
mod health;
mod join;
mod leadership;
pub mod liveness;
pub mod machine;
mod member;
mod outdated;
mod placement_rest;
pub mod process;
mod refusals;
pub mod server;
mod service;

pub use config::{Config, Start};
pub use error::Error;
pub use machine::Machine;
pub use placement_rest::{Profile, candidates_request};
pub use process::main;
pub use server::{Scheduler, run};
