//! The gRPC services: convert, decide or read, convert.
//!
//! | module | contents |
//! |---|---|
//! | [`context`] | shared by all services: requests to the replica, reads of its state |
//! | [`command_span`] | the spans of requests that change the state |
//! | [`forward`] | commands forwarded to the leader, and what is known without a response |
//! | [`keyed`] | request ids, so that a retry gets the first answer |
//! | [`holder`] | whether who carries an operation on is who holds it |
//! | [`table`] | the providers as lists and candidates are searched among |
//! | [`events`], [`watch`], [`watch_providers`] | the streams of what changes |
//! | [`write`] | the writes of counted placement as commands, alone and in batches |
//! | [`stale`] | reads that this member answers alone, and what their answers are worth |
//! | [`backup`] | a backup of this member's state, as a stream |
//! | [`diagnostics`] | what this member states of itself for support |
//! | [`page_login`] | links that log a browser in to the page |
//! | [`recovery`], [`recovery_status`] | what agents report while the cluster recovers, and how far that is |
//! | [`filter`] | the filters of provider lists |
//! | [`query`], [`candidates`], [`explanation`] | allocation candidates, and why there are none |
//! | `host`, `placement`, `catalog`, `import`, `policy`, `planner`, `server_group`, `aggregate`, `audit`, `scheduler`, `operation`, `cluster` | one service each |
//!
//! Invariant: no service holds state of its own, and none decides; that is [`berth_decide`].

mod aggregate;
mod audit;
mod backup;
mod candidates;
mod catalog;
mod cluster;
mod command_span;
mod context;
mod cpu_baseline;
mod diagnostics;
mod events;
mod explanation;
mod filter;
mod forward;
mod history;
mod holder;
mod host;
mod image;
mod import;
mod keyed;
mod list;
mod messages;
mod moves;
mod network;
mod operation;
mod page_login;
mod placement;
mod planner;
mod policy;
mod power;
mod query;
mod read;
mod reality;
mod recovery;
mod recovery_status;
mod refusal;
mod retained;
mod revocation;
mod scheduler;
mod server_group;
mod signals;
mod stale;
mod table;
mod volume;
mod volume_read;
mod watch;
mod watch_providers;
mod write;

pub(crate) use aggregate::AggregateApi;
pub(crate) use audit::AuditApi;
pub(crate) use catalog::CatalogApi;
pub(crate) use cluster::ClusterApi;
pub(crate) use context::{Context, Setup, wall};
pub(crate) use events::EventApi;
pub(crate) use host::HostApi;
pub(crate) use image::ImageApi;
pub(crate) use import::ImportApi;
pub(crate) use moves::MoveApi;
pub(crate) use operation::OperationApi;
pub(crate) use placement::PlacementApi;
pub(crate) use planner::PlannerApi;
pub(crate) use policy::{PolicyApi, memory_of as host_memory};
pub(crate) use power::PowerApi;
pub(crate) use refusal::Urls;
pub(crate) use retained::of_state as retained_of_state;
pub(crate) use revocation::revoked_since;
pub(crate) use scheduler::SchedulerApi;
pub(crate) use server_group::ServerGroupApi;
pub(crate) use stale::{Layer as StaleReads, of_own_state};
pub(crate) use volume::VolumeApi;
