//! The conductor: boots, deletes and moves VMs, step by recorded step.
//!
//! ```text
//!   users ─▶ service ─▶ scheduler: choose, claim and begin, in one command
//!                │ operation
//!                ▼
//!           supervisor ─▶ one driver per operation ─▶ berth_saga: log + event → effect
//!             │  leases     │ effects                         ▲ answers
//!             │             ├──▶ scheduler: Advance, ScheduleNext, reads
//!             │             └──▶ agents: fenced calls
//!             └── takes over operations whose lease expired
//! ```
//!
//! | module | what |
//! |---|---|
//! | `service`, `console` | what users call |
//! | `supervisor` | which operations this conductor carries out, and its leases |
//! | `driver` | one operation: effects to calls, answers to events |
//! | `scheduler`, `agents` | the calls themselves |
//! | `host_check` | checks of hosts and of the connections between them |
//! | `fence` | the fence command: proof that a host is off |
//! | `restarts` | restarts by policy: when VMs are started that no user requests |
//! | `metrics` | metrics, and health over HTTP |
//! | `traces` | the spans to which calls belong |
//! | `registration` | telling the cluster that this conductor is there |
//! | [`config`], [`flags`] | its configuration and its command line |
//! | [`server`], [`process`] | all of it, as one of several in a process or as one process |
//!
//! Invariant: a conductor keeps nothing. Whatever has to survive it is in the scheduler's log
//! before its consequence leaves, and it decides nothing that is not decided in `berth_saga`.

mod agents;
pub mod config;
mod console;
mod drain;
mod driver;
pub mod error;
mod fence;
pub mod flags;
mod grants;
mod host_check;
mod image;
mod metrics;
mod migration;
mod phases;
mod power;
pub mod process;
mod registration;
mod restarts;
mod scheduler;
pub mod server;
mod service;
mod supervisor;
mod traces;

pub use config::Config;
pub use error::Error;
pub use process::main;
pub use server::{Conductor, run};
