//! The scheduler: chooses and claims in one committed command.
//!
//! ```text
//!   request ─▶ service (convert) ─▶ berth_decide on the leader's speculative state
//!                                        │ command
//!                                        ▼
//!                          replica: log on a quorum's disks, apply ─▶ response (convert)
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`machine`] | the state as what is replicated |
//! | `service` | the gRPC services |
//! | `placement` | what OpenStack Placement's REST API reads and writes |
//! | `backup` | backups of this member's state |
//! | `grants` | makes and signs what conductors may do at agents |
//! | [`feed`] | recent changes, for watches |
//! | [`change_log`] | what became of a VM or a host, from a log |
//! | [`liveness`], `duties` | heartbeats of hosts, and the leader's other duties |
//! | `operation_spans` | the spans of operations that have ended |
//! | `refusals` | recent refusals, which are in no log |
//! | `health`, `leadership` | the health service, and log lines for changes of leadership |
//! | [`config`], [`flags`] | configuration file and command line |
//! | [`membership`] | which changes of the membership are made |
//! | `addresses` | records where members are reached now |
//! | `contact`, `dead_members` | who answers the leader, and the removal of who does not |
//! | `member`, `join`, `expelled`, `outdated` | start, joining, and removal of a member |
//! | `invariants`, `parallel_check` | samples of the invariants, and all of them on all processors |
//! | `metrics` | metrics, and health over HTTP |
//! | [`stop`] | why a member does not start or stops by itself, and what to do about it |
//! | [`history`], [`moment`] | the state at a moment, from backups |
//! | [`reader`] | the services that read, over such a state and without a cluster |
//! | `other_cluster` | refuses requests that are for another cluster |
//! | `page` | the page of the cluster, for browsers |
//! | `past`, `earlier` | reads at an earlier revision of a member, and why there is none |
//! | `routes` | the services that clients call, as one router |
//! | [`server`], [`process`] | the whole member, inside a process or as one |
//!
//! Invariant: no response is sent before its command is on a quorum's disks, and nothing outside
//! [`berth_decide`] and [`membership`] decides.

mod addresses;
mod backup;
pub mod change_log;
pub mod config;
mod contact;
mod dead_members;
mod duties;
mod earlier;
pub mod error;
mod expelled;
pub mod feed;
pub mod flags;
mod freshness;
mod grants;
mod health;
pub mod history;
mod invariants;
mod join;
mod leadership;
pub mod liveness;
pub mod machine;
mod member;
pub mod membership;
mod metrics;
pub mod moment;
mod new_group;
mod operation_spans;
mod other_cluster;
mod outdated;
mod page;
mod parallel_check;
mod past;
mod placement;
pub mod process;
pub mod reader;
mod recovery;
mod refusals;
mod routes;
pub mod server;
mod service;
pub mod stop;

pub use berth_placement_api::{Profile, candidates_request};
pub use config::{Config, Start};
pub use error::Error;
pub use machine::Machine;
pub use process::main;
pub use server::{Scheduler, run};
