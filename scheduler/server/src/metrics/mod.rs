//! The metrics and the health of a member.
//!
//! | module | contents |
//! |---|---|
//! | `decisions`, `refusals` | what was decided, counted where it is decided |
//! | `raft` | Raft, as the owner of the replica reports it |
//! | `census` | counts of the objects of the state |
//! | `failover` | whether the failure of each host would be survived |
//! | `disk` | the data directory |
//! | `observed` | all of them together, and the checks of health |
//!
//! Not here: the listener and the text ([`berth_process::metrics`]).
//!
//! Invariant: nothing here is waited for by a decision, and the owner of the replica gives its status
//! and a clone of its state, and nothing else.

pub(crate) mod census;
pub(crate) mod decisions;
mod disk;
mod failover;
mod observed;
mod raft;
mod refusals;

use std::sync::Arc;

use berth_process::access::table;
use berth_process::metrics::{Bounds, Count, Durations, GrpcRequests};

pub(crate) use decisions::End;
pub(crate) use failover::Failover;
pub(crate) use observed::Watched;

/// What is counted while a member works.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// Decisions.
    pub(crate) decisions: decisions::Decisions,
    /// Refusals by reason.
    pub(crate) refused: refusals::Refused,
    /// Synchronisations of the Raft log.
    pub(crate) log_syncs: Arc<Durations>,
    /// Requests of OpenStack Placement's REST API.
    pub(crate) placement: Arc<berth_placement_api::Requests>,
    /// Requests of gRPC.
    pub(crate) grpc: Arc<GrpcRequests>,
    /// How often an election ended or leadership was lost, as this member saw it.
    pub(crate) leader_changes: Count,
}

impl Metrics {
    /// Returns those of a member that serves these services.
    pub(crate) fn new(services: &'static [&'static str]) -> Self {
        Self {
            decisions: decisions::Decisions::default(),
            refused: refusals::Refused::default(),
            log_syncs: Arc::new(Durations::new(Bounds::SHORT)),
            placement: Arc::default(),
            grpc: GrpcRequests::new(table::methods_of(services)),
            leader_changes: Count::default(),
        }
    }
}
