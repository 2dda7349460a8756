//! The runtime: one task that owns the replica, and the threads that own its disk.
//!
//! ```text
//!   Handle ──requests──▶┌────────────┐──batches──▶ log thread   (one sync per batch)
//!   Inbox ──messages───▶│ owner task │──changes──▶ table thread (coalesced, off the ack path)
//!   interval ──ticks───▶│  (Replica) │──clone────▶ checkpoint, in the background
//!                       └────────────┘──messages─▶ Network
//! ```
//!
//! This is the only place of replication with time, threads and channels. While the log thread
//! synchronises, decisions gather and form the next batch, so batches grow with the load by
//! themselves. Nothing else waits for the disk: a member with a hung disk gives its status and its
//! state.
//!
//! Invariant: whatever fails below (disk, divergence, a broken invariant) ends the task with an
//! error, and nothing that was not synchronised is acknowledged.

mod archive;
mod background;
mod handle;
mod history;
mod inbox;
mod log_thread;
mod owner;
mod table_thread;

use std::sync::Arc;
use std::time::Duration;

use berth_store::disk::{Disk, Parts};
use berth_store::recover::FIRST_INDEX;
use berth_store::{
    CheckpointStore, Header, Identity, Member, Membership, Recovery, StateHash, checkpoints,
    recover,
};
use raft::eraftpb::Message;
use tokio::sync::{broadcast, mpsc, watch};

pub use self::archive::{Archive, ArchiveError, Past};
pub use self::background::in_background;
pub use self::handle::{
    Committed, Decision, Event, Handle, Leader, LogError, MembershipError, ProposeError, Proposed,
    ReadError, Status,
};
pub use self::inbox::{Inbox, InboxError, IncomingSnapshot, SnapshotReport};
use self::owner::Owner;
use crate::config::Config;
use crate::error::Fatal;
use crate::machine::{Machine, Row};
use crate::replica::Replica;

/// How the runtime behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long a tick is. Heartbeats and elections are counted in ticks.
    pub tick: Duration,
    /// The replica's settings; id and cluster are taken from the disk.
    pub replica: Config,
    /// Decisions, and other requests, that may wait for the owner before senders have to.
    pub queue: usize,
    /// Proposals that may wait for their commit.
    pub pending_max: usize,
    /// Batches that may be on their way to the log while new requests are taken. One gives the
    /// largest batches and least work per command.
    pub batches_max: usize,
    /// The table is written this often at most.
    pub table_every: Duration,
    /// The table is left behind, and rebuilt later, when so many rows wait to be written.
    pub table_changes: usize,
    /// Learns how long each synchronisation of the log took.
    pub sync_observer: SyncObserver,
}

/// Is called by the thread of the log with how long a synchronisation took; it must not block.
#[derive(Clone, Default)]
pub struct SyncObserver(Option<Arc<dyn Fn(Duration) + Send + Sync>>);

impl SyncObserver {
    /// Returns one that calls this.
    pub fn new(observe: impl Fn(Duration) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(observe)))
    }

    pub(crate) fn observe(&self, took: Duration) {
        if let Some(observe) = &self.0 {
            observe(took);
        }
    }
}

impl std::fmt::Debug for SyncObserver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SyncObserver")
            .field(&self.0.is_some())
            .finish()
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            tick: Duration::from_millis(50),
            replica: Config::new(0, ""),
            queue: 4096,
            pending_max: 16_384,
            batches_max: 1,
            table_every: Duration::from_secs(5),
            table_changes: 50_000,
            sync_observer: SyncObserver::default(),
        }
    }
}

/// How a member begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// From what is on its disk. A disk without a state waits for the leader's snapshot.
    Existing,
    /// As the only voter of a new cluster, with an empty state.
    Bootstrap {
        /// Where the others will reach it.
        address: String,
    },
}

/// Carries messages to other members. Losing them is allowed, blocking is not.
pub trait Network: Send + 'static {
    /// Sends messages, in order.
    fn send(&mut self, to: &Member, messages: Vec<Message>);
    /// Sends a snapshot and reports how it ended.
    fn send_snapshot(&mut self, to: &Member, snapshot: OutgoingSnapshot, report: SnapshotReport);
    /// Reports the current members.
    fn members(&mut self, membership: &Arc<Membership>);
}

/// A network that loses everything, for a member without peers.
pub struct NoNetwork;

impl Network for NoNetwork {
    fn send(&mut self, _to: &Member, _messages: Vec<Message>) {}

    fn send_snapshot(&mut self, _to: &Member, _snapshot: OutgoingSnapshot, report: SnapshotReport) {
        report.finished(false);
    }

    fn members(&mut self, _membership: &Arc<Membership>) {}
}

/// A snapshot on its way out.
pub struct OutgoingSnapshot {
    /// What Raft says with it.
    pub message: Message,
    /// The checkpoint's bytes.
    pub content: Box<dyn std::io::Read + Send>,
}

/// Why a member cannot start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its disk gives no state.
    #[error(transparent)]
    Recover(#[from] berth_store::recover::Error),
    /// A new cluster cannot begin on a disk that has a state.
    #[error("this disk already holds the state of cluster {cluster_id}")]
    AlreadyStarted {
        /// The cluster.
        cluster_id: String,
    },
    /// The first checkpoint of a new cluster could not be written.
    #[error(transparent)]
    Checkpoint(#[from] checkpoints::Error),
    /// The replica refuses what was recovered.
    #[error(transparent)]
    Replica(#[from] Fatal),
    /// A thread could not be started.
    #[error("a thread for the disk could not be started")]
    Thread(#[source] std::io::Error),
}

/// Why a member stopped by itself.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// The replica found that it must not go on.
    #[error(transparent)]
    Replica(#[from] Fatal),
    /// The log could not be written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A checkpoint could not be written.
    #[error(transparent)]
    Checkpoint(#[from] checkpoints::Error),
    /// The table could not be written.
    #[error(transparent)]
    Table(#[from] berth_store::table::Error),
    /// A thread of the disk panicked.
    #[error("what writes the {part} panicked: {what}")]
    Panicked {
        /// What it writes.
        part: &'static str,
        /// The message of the panic.
        what: String,
    },
    /// A thread of the disk does not end, or ended without a report.
    #[error("the thread that writes the {0} does not answer any more")]
    Thread(&'static str),
}

/// How a member ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By the shutdown that its caller requested.
    Shutdown,
    /// It was removed from its cluster and must not start again.
    Removed,
}

/// A member that is ready to run.
pub struct Runtime<M: Machine, D: Disk> {
    owner: Owner<M, D>,
    handle: Handle<M>,
    inbox: Inbox<M>,
    archive: Archive<M>,
    recovery: Recovery,
    identity: Identity,
}

impl<M: Machine, D: Disk> Runtime<M, D> {
    /// Reads the disk and makes a member of it. This may take long and blocks.
    pub fn open(settings: Settings, disk: D, start: Start) -> Result<Self, OpenError> {
        Self::open_at(M::Level::default(), settings, disk, start)
    }

    /// As [`Self::open`], for a member that reads only what this level knows.
    pub fn open_at(
        level: M::Level,
        settings: Settings,
        disk: D,
        start: Start,
    ) -> Result<Self, OpenError> {
        let mut parts = disk.split();
        if let Start::Bootstrap { address } = start {
            bootstrap::<M, D>(level, &mut parts, address)?;
        }
        let recovered = recover(&mut parts, &|rows, index| build::<M>(level, rows, index))?;
        let recovery = recovered.recovery.clone();
        let identity = parts.identity.clone();
        let config = Config {
            id: identity.member_id,
            cluster_id: identity.cluster_id.clone(),
            // Members must differ; so should two starts of one.
            seed: settings.replica.seed ^ seed_of(&identity) ^ recovered.hard_state.commit,
            ..settings.replica.clone()
        };
        let replica = Replica::new(config, recovered)?;

        let (decisions_in, decisions) = mpsc::channel(settings.queue);
        let (requests_in, requests) = mpsc::channel(settings.queue);
        let (messages_in, messages) = mpsc::channel(1024);
        let (internal_in, internal) = mpsc::unbounded_channel();
        let (events, _) = broadcast::channel(4096);
        let (leader_in, leader) = watch::channel(owner::leader_of(&replica));
        let handle = Handle::new(decisions_in, requests_in, events.clone(), leader);
        let checkpoints: Arc<dyn CheckpointStore> = Arc::new(parts.checkpoints);
        let cluster_id = &identity.cluster_id;
        let archive = Archive::new(handle.clone(), checkpoints.clone(), cluster_id, level);
        let inbox = Inbox::new(
            identity.clone(),
            messages_in,
            internal_in.clone(),
            checkpoints.clone(),
            owner::watch_membership(&replica),
            level,
        );
        let owner = Owner::new(owner::Setup::<M, D> {
            settings,
            replica,
            identity: identity.clone(),
            rebuild_table: recovery.rebuild_table,
            log: parts.log,
            table: parts.table,
            checkpoints,
            guard: parts.guard,
            decisions,
            requests,
            messages,
            internal,
            internal_in,
            events,
            leader: leader_in,
            membership: inbox.membership_sender(),
        })?;
        Ok(Self {
            owner,
            handle,
            inbox,
            archive,
            recovery,
            identity,
        })
    }

    /// Returns what opening the disk found and did.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Returns the state that it begins with; none on a member that has received none yet.
    pub fn machine(&self) -> Option<&M> {
        self.owner.machine()
    }

    /// Returns who this member is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns a handle that sends requests to this member.
    pub fn handle(&self) -> Handle<M> {
        self.handle.clone()
    }

    /// Returns the way in for other members' messages.
    pub fn inbox(&self) -> Inbox<M> {
        self.inbox.clone()
    }

    /// Returns what makes earlier states of this member.
    pub fn archive(&self) -> Archive<M> {
        self.archive.clone()
    }

    /// Runs until it is shut down, removed, or unable to go on.
    pub async fn run(
        self,
        network: impl Network,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<Ended, StopError> {
        // The owner must not keep its own channels open.
        drop((self.handle, self.inbox, self.archive));
        self.owner.run(network, shutdown).await
    }
}

/// Makes a state of rows.
pub(crate) fn build<M: Machine>(
    level: M::Level,
    rows: &mut dyn Iterator<Item = Row>,
    index: u64,
) -> Result<M, String> {
    M::from_rows(level, rows, index).map_err(|error| chain(&error))
}

/// Returns the message of a panic.
pub(crate) fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without a message".to_owned())
}

/// Returns what an error says, with what lies below it.
fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

/// Writes the checkpoint that a new cluster begins with.
fn bootstrap<M: Machine, D: Disk>(
    level: M::Level,
    parts: &mut Parts<D>,
    address: String,
) -> Result<(), OpenError> {
    let identity = &parts.identity;
    if !parts.checkpoints.list()?.is_empty() {
        return Err(OpenError::AlreadyStarted {
            cluster_id: identity.cluster_id.clone(),
        });
    }
    let index = FIRST_INDEX;
    let machine = build::<M>(level, &mut std::iter::empty(), index)
        .map_err(|what| berth_store::recover::Error::State { index, what })?;
    let rows: Vec<Row> = machine.rows().collect();
    let header = Header {
        cluster_id: identity.cluster_id.clone(),
        index,
        term: 1,
        membership: Membership::single(Member {
            id: identity.member_id,
            address,
            disk: identity.disk_id.clone(),
            promote: true,
        }),
        state_hash: StateHash::of_rows(rows.iter().cloned()).to_bytes().into(),
        rows: rows.len() as u64,
    };
    checkpoints::save(&parts.checkpoints, header, rows.into_iter())?;
    Ok(())
}

/// Mixes what distinguishes members; only used to make election timeouts differ.
fn seed_of(identity: &Identity) -> u64 {
    let mut seed = identity.member_id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for byte in identity.disk_id.bytes() {
        seed = (seed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    seed
}
