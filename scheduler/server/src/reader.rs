//! The services that read, over a state from files: without a cluster, and within one process.
//!
//! ```text
//!   state ─▶ checkpoint in memory ─▶ replica without a vote ─▶ services ◀─ pair of sockets ◀─ client
//! ```
//!
//! The replica is no member: its number is the one that the next member of that cluster would get. So it
//! never leads, every command is refused for want of a leader, and only stale reads are answered.
//!
//! Not here: where the state comes from ([`history`](crate::history)).
//!
//! Invariant: it neither listens nor dials, so it reaches no member of the cluster that the state is of,
//! and no other program reaches it. It writes no file.

use std::sync::Arc;
use std::time::Duration;

use berth_backup::{Header, Verified};
use berth_domain::version::ServiceVersion;
use berth_process::server;
use berth_proto::client::Dialer;
use berth_replication::Machine as _;
use berth_replication::runtime::{NoNetwork, OpenError, Runtime, Settings, Start};
use berth_replication::transport::{self, Forwarder};
use berth_store::disk::Disk as _;
use berth_store::{
    Header as CheckpointHeader, Identity, Membership, MemoryDisk, checkpoints, disk,
};
use berth_tls::Inside;
use tokio_util::sync::{CancellationToken, DropGuard, WaitForCancellationFutureOwned};
use tonic::service::Routes;

use crate::config::Config;
use crate::contact::Contacts;
use crate::feed::{Feed, Limits};
use crate::machine::{Level, Machine};
use crate::metrics::Metrics;
use crate::routes;
use crate::service::{Context, Setup, StaleReads, Urls};

/// How long a read may wait for the replica: it has nothing else to do.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(600);

/// Why a state cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be kept in memory.
    #[error("the state cannot be kept in memory")]
    Checkpoint(#[from] checkpoints::Error),
    /// The replica refuses it.
    #[error("the state cannot be opened")]
    Open(#[from] OpenError),
}

/// What a state is of.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The cluster.
    pub cluster_id: String,
    /// Its membership, for information.
    pub membership: Membership,
}

impl Origin {
    /// Returns what a backup states.
    #[must_use]
    pub fn of(header: &Header) -> Self {
        Self {
            cluster_id: header.cluster_id.clone(),
            membership: header.membership.clone(),
        }
    }
}

/// Services over a state, as long as this is kept.
#[derive(Debug)]
pub struct Reader {
    inside: Inside,
    /// Ends the replica and the server.
    _stop: DropGuard,
}

impl Reader {
    /// Serves a state, in tasks of the runtime that this is called in. It blocks until the state is loaded.
    ///
    /// # Errors
    ///
    /// Why it cannot be read.
    pub fn start(state: Verified<Machine>, origin: &Origin) -> Result<Self, Error> {
        let (inside, incoming) = Inside::pair();
        let (routes, stop) = serve(state, origin)?;
        let server = server::new(None, server::limits());
        tokio::spawn(server.serve_inside(routes, incoming, stopped(&stop)));
        Ok(Self {
            inside,
            _stop: stop.drop_guard(),
        })
    }

    /// Returns a dialer by which every address is this reader.
    #[must_use]
    pub fn dialer(&self) -> Dialer {
        Dialer::inside(self.inside.clone())
    }
}

/// Returns services over a state that read, and what ends them. It blocks until the state is loaded.
///
/// # Errors
///
/// Why it cannot be read.
pub(crate) fn serve(
    state: Verified<Machine>,
    origin: &Origin,
) -> Result<(Routes, CancellationToken), Error> {
    let runtime = open(state, origin)?;
    let stop = CancellationToken::new();
    let context = context(&runtime, origin, &stop);
    let routes = routes(&context);
    let stopped = stopped(&stop);
    tokio::spawn(async move {
        // It ends when the reader is dropped; nothing that it says is of use then.
        let _ = runtime.run(NoNetwork, stopped).await;
    });
    Ok((routes, stop))
}

fn stopped(stop: &CancellationToken) -> WaitForCancellationFutureOwned {
    stop.clone().cancelled_owned()
}

fn open(state: Verified<Machine>, origin: &Origin) -> Result<Runtime<Machine, MemoryDisk>, Error> {
    let disk = MemoryDisk::new(Identity {
        cluster_id: origin.cluster_id.clone(),
        member_id: outside(&origin.membership),
        disk_id: String::new(),
    });
    let position = state.position;
    let header = CheckpointHeader {
        cluster_id: origin.cluster_id.clone(),
        index: position.index,
        term: position.term,
        membership: origin.membership.clone(),
        state_hash: position.hash.to_bytes().into(),
        rows: position.rows,
    };
    let parts: disk::Parts<MemoryDisk> = disk.clone().split();
    checkpoints::save(&parts.checkpoints, header, state.machine.rows())?;
    // The replica makes a state of its own; two would take twice the memory.
    drop(state);
    let settings = Settings::default();
    Ok(Runtime::open_at(
        Level::default(),
        settings,
        disk,
        Start::Existing,
    )?)
}

/// Returns a number that no member has or had.
fn outside(membership: &Membership) -> u64 {
    let highest = membership.members.iter().map(|member| member.id).max();
    membership.next_id.max(highest.unwrap_or(0) + 1)
}

fn context(
    runtime: &Runtime<Machine, MemoryDisk>,
    origin: &Origin,
    stop: &CancellationToken,
) -> Context {
    let config = Config::new("");
    let dialer = Dialer::inside(Inside::nowhere());
    let known = transport::Known::default();
    let options = transport::Options {
        dialer: dialer.clone(),
        ..transport::Options::default()
    };
    let revision = runtime
        .machine()
        .map_or(0, |machine| machine.state().revision());
    Context::new(Setup {
        metrics: Arc::new(Metrics::new(&[])),
        handle: runtime.handle(),
        archive: runtime.archive(),
        feed: Feed::new(
            revision,
            Limits {
                changes: config.watch_history_max,
                bytes: config.watch_history_bytes_max,
            },
        ),
        cluster_id: origin.cluster_id.clone(),
        liveness_limit_ms: config.liveness_limit_ms,
        request_timeout: REQUEST_TIMEOUT,
        forwarder: Forwarder::new(&runtime.inbox(), "", known.addresses.clone(), options),
        leader_wait: Duration::ZERO,
        stopping: stop.clone(),
        level: ServiceVersion::CURRENT,
        versions: known.versions,
        urls: Urls::new(false),
        addresses: known.addresses,
        contacts: Contacts::default(),
        dialer,
        page: None,
        scheduled_backups: None,
        settings: Vec::new(),
    })
}

fn routes(context: &Context) -> Routes {
    let services = routes::client_services(context, Config::new("").request_bytes_max);
    let services = services.into_axum_router();
    Routes::from(services.layer(StaleReads(context.clone())))
}

#[cfg(test)]
mod tests {
    use berth_store::Member;

    use super::*;

    /// Goal: no vote of the membership is the reader's, so that it cannot lead: also of a cluster with one
    /// member, and where the backup does not state which number is next.
    #[test]
    fn a_reader_is_no_member() {
        let member = |id| Member {
            id,
            ..Member::default()
        };
        let one = Membership::single(member(1));
        let without_next = Membership {
            next_id: 0,
            members: vec![member(2), member(7)],
            voters: vec![2, 7],
            ..Membership::default()
        };
        for membership in [Membership::default(), one, without_next] {
            let id = outside(&membership);
            assert!(id > 0 && membership.get(id).is_none(), "{membership:?}");
            assert!(!membership.is_voter(id) && !membership.is_learner(id));
        }
    }
}
