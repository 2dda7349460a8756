//! The gRPC services: convert, decide or read, convert.
//!
//! | room | what |
//! |---|---|
//! | [`context`] | what all services share: asking the replica, reading its state |
//! | [`keyed`] | request ids, so that a retry gets the first answer |
//! | `host`, `placement`, `scheduler`, `operation`, `cluster` | one service each |
//!
//! Invariant: no service holds state of its own, and none decides; that is [`crate::core`].

mod cluster;
mod context;
mod host;
mod keyed;
mod list;
mod operation;
mod placement;
mod read;
mod refusal;
mod scheduler;
mod watch;

pub(crate) use cluster::{CHANGE_PENDING, ClusterApi};
pub(crate) use context::{Context, Setup};
pub(crate) use host::HostApi;
pub(crate) use operation::OperationApi;
pub(crate) use placement::PlacementApi;
pub(crate) use scheduler::SchedulerApi;
