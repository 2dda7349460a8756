//! The task that owns the replica: gathers input, lets the replica work, carries out effects.
//!
//! Here are its parts and its loop; what requests need is in `requests`, what the replica needs
//! for in `carry_out`.

mod carry_out;
mod requests;

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use berth_store::disk::Disk;
use berth_store::{
    CheckpointSink, CheckpointStore, Header, Identity, Member, Membership, checkpoints,
};
use raft::eraftpb::Message;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::effects::Replaced;
use crate::machine::Machine;
use crate::replica::Replica;
use crate::runtime::handle::{
    Event, Job, Leader, LogError, MembershipError, ProposeError, ReadError, ReadJob, Request,
};
use crate::runtime::log_thread::{self, LogJob};
use crate::runtime::table_thread::{self, Pace, TableJob, TableNote, TableQueue};
use crate::runtime::{Ended, Network, OpenError, Settings, StopError};

const INPUTS_AT_ONCE: usize = 1024;
/// How long the disk's threads may take to write what is left.
const JOIN_TIMEOUT: Duration = Duration::from_secs(30);

/// What the owner's own helpers report.
pub(in crate::runtime) enum Internal<M: Machine> {
    /// The log is durable up to this batch, or cannot be written.
    Persisted(Result<u64, LogError>),
    /// The table cannot be written.
    TableFailed(berth_store::table::Error),
    /// The table was left behind under load, and there is time to rebuild it.
    TableBehind,
    /// A helper panicked while writing this, with this message.
    Panicked(&'static str, String),
    /// A checkpoint is durable, or cannot be written.
    Checkpoint(Result<(Header, u64), checkpoints::Error>),
    /// A snapshot was sent, or not.
    SnapshotSent { to: u64, arrived: bool },
    /// Messages to this member were lost.
    Unreachable(u64),
    /// A snapshot was received and verified.
    Snapshot(Box<ReceivedSnapshot<M>>),
}

/// A snapshot that verified.
pub(in crate::runtime) struct ReceivedSnapshot<M> {
    pub(in crate::runtime) message: Message,
    pub(in crate::runtime) header: Header,
    pub(in crate::runtime) machine: M,
    pub(in crate::runtime) sink: Box<dyn CheckpointSink>,
    /// Receives whether the replica uses it.
    pub(in crate::runtime) taken: oneshot::Sender<bool>,
}

/// Who waits for a ticket.
enum Waiter<M: Machine> {
    /// A command, or a decision without one.
    Job(Box<dyn Job<M>>),
    Read(Box<dyn ReadJob<M>>),
    /// A change of the membership, and the number it is answered with if not the index.
    Change(Option<u64>, oneshot::Sender<Result<u64, MembershipError>>),
}

/// What the owner is made of.
pub(in crate::runtime) struct Setup<M: Machine, D: Disk> {
    pub(in crate::runtime) settings: Settings,
    pub(in crate::runtime) replica: Replica<M>,
    pub(in crate::runtime) identity: Identity,
    pub(in crate::runtime) rebuild_table: bool,
    pub(in crate::runtime) log: D::Log,
    pub(in crate::runtime) table: D::Table,
    pub(in crate::runtime) checkpoints: Arc<dyn CheckpointStore>,
    pub(in crate::runtime) guard: Box<dyn Send>,
    pub(in crate::runtime) decisions: mpsc::Receiver<Box<dyn Job<M>>>,
    pub(in crate::runtime) requests: mpsc::Receiver<Request<M>>,
    pub(in crate::runtime) messages: mpsc::Receiver<Vec<Message>>,
    pub(in crate::runtime) internal: mpsc::UnboundedReceiver<Internal<M>>,
    pub(in crate::runtime) internal_in: mpsc::UnboundedSender<Internal<M>>,
    pub(in crate::runtime) events: broadcast::Sender<Event<M>>,
    pub(in crate::runtime) leader: watch::Sender<Leader>,
    pub(in crate::runtime) membership: Arc<watch::Sender<Arc<Membership>>>,
}

/// What keeps other processes away from the disk, until the last that has it is gone.
type Guard = Arc<Mutex<Box<dyn Send>>>;

/// The owner of a replica.
pub(in crate::runtime) struct Owner<M: Machine, D: Disk> {
    settings: Settings,
    replica: Replica<M>,
    checkpoints: Arc<dyn CheckpointStore>,
    log: Sender<LogJob>,
    table: TableQueue<M>,
    threads: Vec<JoinHandle<()>>,
    /// Keeps other processes away from the disk until the threads have ended, which have it too: a
    /// panic of the owner does not wait for them.
    guard: Guard,
    /// Commands to decide on. They gather here while the disk is busy.
    decisions: mpsc::Receiver<Box<dyn Job<M>>>,
    /// Everything else. None of it waits for the disk.
    requests: mpsc::Receiver<Request<M>>,
    messages: mpsc::Receiver<Vec<Message>>,
    internal: mpsc::UnboundedReceiver<Internal<M>>,
    internal_in: mpsc::UnboundedSender<Internal<M>>,
    events: broadcast::Sender<Event<M>>,
    leader: watch::Sender<Leader>,
    membership: Arc<watch::Sender<Arc<Membership>>>,
    waiters: HashMap<u64, Waiter<M>>,
    last_ticket: u64,
    /// Decisions that wait until this member, just elected, decides.
    parked: Vec<Box<dyn Job<M>>>,
    /// Batches that the log thread has not reported yet.
    batches_in_flight: VecDeque<u64>,
    /// Received checkpoints that the replica may install.
    received: Vec<(u64, Box<dyn CheckpointSink>)>,
    removed: bool,
    _disk: std::marker::PhantomData<fn() -> D>,
}

impl<M: Machine, D: Disk> Owner<M, D> {
    pub(in crate::runtime) fn new(setup: Setup<M, D>) -> Result<Self, OpenError> {
        let guard: Guard = Arc::new(Mutex::new(setup.guard));
        let (internal, held) = (setup.internal_in.clone(), guard.clone());
        let observer = setup.settings.sync_observer.clone();
        let (log, log_thread) = log_thread::start(setup.log, observer, move |done| {
            let _ = &held;
            // The owner may have ended first; then no caller waits.
            let _ = internal.send(Internal::Persisted(done));
        })
        .map_err(OpenError::Thread)?;
        let (internal, held) = (setup.internal_in.clone(), guard.clone());
        let pace = Pace {
            every: setup.settings.table_every,
            changes: setup.settings.table_changes,
        };
        let (table, table_thread) = table_thread::start(
            setup.table,
            setup.identity.cluster_id.clone(),
            pace,
            move |note| {
                let _ = &held;
                // The owner may have ended first; then no caller waits.
                let _ = internal.send(match note {
                    TableNote::Failed(error) => Internal::TableFailed(error),
                    TableNote::Panicked(what) => Internal::Panicked("table", what),
                    TableNote::Behind => Internal::TableBehind,
                });
            },
        )
        .map_err(OpenError::Thread)?;
        let mut owner = Self {
            settings: setup.settings,
            replica: setup.replica,
            checkpoints: setup.checkpoints,
            log,
            table,
            threads: vec![log_thread, table_thread],
            guard,
            decisions: setup.decisions,
            requests: setup.requests,
            messages: setup.messages,
            internal: setup.internal,
            internal_in: setup.internal_in,
            events: setup.events,
            leader: setup.leader,
            membership: setup.membership,
            waiters: HashMap::new(),
            last_ticket: 0,
            parked: Vec::new(),
            batches_in_flight: VecDeque::new(),
            received: Vec::new(),
            removed: false,
            _disk: std::marker::PhantomData,
        };
        if setup.rebuild_table {
            owner.rebuild_table();
        }
        Ok(owner)
    }

    pub(in crate::runtime) fn machine(&self) -> Option<&M> {
        self.replica.machine()
    }

    pub(in crate::runtime) async fn run(
        mut self,
        mut network: impl Network,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<Ended, StopError> {
        network.members(self.replica.membership());
        let ended = self.work(&mut network, shutdown).await;
        self.finish(ended).await
    }

    async fn work(
        &mut self,
        network: &mut impl Network,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<Ended, StopError> {
        let mut shutdown = std::pin::pin!(shutdown);
        let mut ticks = interval(self.settings.tick);
        // After a pause, time did not pass for the others' heartbeats either: no burst of ticks
        // that would call an election at once.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut inputs = Vec::new();
        let mut requests = Vec::new();
        let mut decisions = Vec::new();
        let mut internals = Vec::new();
        // A single voter has no other member to wait for.
        if self.replica.membership().voters == [self.replica.id()] {
            self.replica.campaign();
        }
        loop {
            self.carry_out_all(network)?;
            if self.removed {
                return Ok(Ended::Removed);
            }
            let has_handles = !self.requests.is_closed();
            let takes_decisions = self.takes_decisions() && has_handles;
            tokio::select! {
                biased;
                () = &mut shutdown => return self.hand_over(network).await,
                _ = self.internal.recv_many(&mut internals, INPUTS_AT_ONCE) => {
                    for internal in internals.drain(..) {
                        self.take_internal(internal)?;
                    }
                }
                _ = ticks.tick() => self.replica.tick(),
                _ = self.messages.recv_many(&mut inputs, INPUTS_AT_ONCE) => {
                    for message in inputs.drain(..).flatten() {
                        self.replica.step(message);
                    }
                }
                _ = self.requests.recv_many(&mut requests, INPUTS_AT_ONCE), if has_handles => {
                    for request in requests.drain(..) {
                        self.take_request(request);
                    }
                }
                _ = self.decisions.recv_many(&mut decisions, INPUTS_AT_ONCE), if takes_decisions => {
                    for job in decisions.drain(..) {
                        self.decide(job);
                    }
                }
            }
            self.take_what_waits();
        }
    }

    /// Takes requests and decisions that are there. Members' messages come first in the loop;
    /// these must not starve behind them.
    fn take_what_waits(&mut self) {
        for _ in 0..INPUTS_AT_ONCE {
            match self.requests.try_recv() {
                Ok(request) => self.take_request(request),
                Err(_) => break,
            }
        }
        for _ in 0..INPUTS_AT_ONCE {
            match self.takes_decisions().then(|| self.decisions.try_recv()) {
                Some(Ok(job)) => self.decide(job),
                Some(Err(_)) | None => break,
            }
        }
    }

    /// Returns whether decisions are taken now. While a batch of the leader is on its way to the
    /// disk they gather for the next. Another member only names the leader, whatever its disk does.
    fn takes_decisions(&self) -> bool {
        let leads = self.replica.role().leader == Some(self.replica.id());
        !leads
            || self.batches_in_flight.len() < self.settings.batches_max
                && self.replica.pending() < self.settings.pending_max
    }

    /// Before a shutdown the leader lets another member lead, so that the cluster does not have
    /// to find out by timeout. Bounded by one election timeout.
    async fn hand_over(&mut self, network: &mut impl Network) -> Result<Ended, StopError> {
        let Some(to) = self.replica.furthest_voter() else {
            return Ok(Ended::Shutdown);
        };
        if self.replica.transfer_leader(to).is_err() {
            return Ok(Ended::Shutdown);
        }
        let ticks = u32::try_from(self.settings.replica.election_ticks).unwrap_or(u32::MAX);
        let deadline = Instant::now() + self.settings.tick * ticks;
        while self.replica.role().leader == Some(self.replica.id()) {
            self.carry_out_all(network)?;
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(deadline) => break,
                internal = self.internal.recv() => {
                    if let Some(internal) = internal {
                        self.take_internal(internal)?;
                    }
                }
                messages = self.messages.recv() => {
                    for message in messages.into_iter().flatten() {
                        self.replica.step(message);
                    }
                }
            }
        }
        self.carry_out_all(network)?;
        Ok(Ended::Shutdown)
    }

    /// Ends everything that waits and joins the threads, whatever the reason.
    async fn finish(mut self, ended: Result<Ended, StopError>) -> Result<Ended, StopError> {
        self.requests.close();
        while let Ok(request) = self.requests.try_recv() {
            request.stop();
        }
        // Dropping a decision that was not begun answers it.
        self.decisions.close();
        while self.decisions.try_recv().is_ok() {}
        for job in std::mem::take(&mut self.parked) {
            job.finish(Err(ProposeError::Stopped));
        }
        let leader = self.leader_member();
        for (_, waiter) in self.waiters.drain() {
            let leader = leader.clone();
            match waiter {
                // Its entry may be on its way to the other members, or at theirs already.
                Waiter::Job(job) => job.finish(Err(ProposeError::Lost { leader })),
                Waiter::Read(read) => read.finish(Err(ReadError::Stopped)),
                Waiter::Change(_, reply) => {
                    // The caller may have gone.
                    let _ = reply.send(Err(MembershipError::Lost { leader }));
                }
            }
        }
        // Closing their channels ends the threads once they have done what was queued.
        drop((self.log, self.table));
        let sound = join(std::mem::take(&mut self.threads)).await;
        drop(self.guard);
        // What the threads reported last counts too.
        self.internal.close();
        while let Ok(internal) = self.internal.try_recv() {
            match internal {
                Internal::Persisted(Err(error)) => return ended.and(Err(error.into())),
                Internal::TableFailed(error) => return ended.and(Err(error.into())),
                Internal::Panicked(part, what) => {
                    return ended.and(Err(StopError::Panicked { part, what }));
                }
                Internal::Checkpoint(_)
                | Internal::Persisted(Ok(_))
                | Internal::SnapshotSent { .. }
                | Internal::Unreachable(_)
                | Internal::TableBehind
                | Internal::Snapshot(_) => {}
            }
        }
        match sound {
            true => ended,
            false => ended.and(Err(StopError::Thread("log or the table"))),
        }
    }

    fn take_internal(&mut self, internal: Internal<M>) -> Result<(), StopError> {
        match internal {
            Internal::Persisted(done) => {
                let number = done?;
                while self.batches_in_flight.front().is_some_and(|n| *n <= number) {
                    self.batches_in_flight.pop_front();
                }
                self.replica.persisted(number)?;
            }
            Internal::TableFailed(error) => return Err(error.into()),
            Internal::TableBehind => self.rebuild_table(),
            Internal::Panicked(part, what) => return Err(StopError::Panicked { part, what }),
            Internal::Checkpoint(done) => {
                let (header, bytes) = done?;
                tracing::info!(index = header.index, bytes, "checkpoint written");
                self.replica.checkpoint_taken(&header, bytes);
            }
            Internal::SnapshotSent { to, arrived } => self.replica.snapshot_sent(to, arrived),
            Internal::Unreachable(to) => self.replica.unreachable(to),
            Internal::Snapshot(received) => {
                let received = *received;
                let index = received.header.index;
                let used =
                    self.replica
                        .step_snapshot(received.message, received.header, received.machine);
                if used {
                    self.received.push((index, received.sink));
                }
                // The sender's connection may be gone; Raft sends it again.
                let _ = received.taken.send(used);
            }
        }
        Ok(())
    }

    fn rebuild_table(&mut self) {
        let Some(state) = self.snapshot() else {
            return;
        };
        // The thread was just started; if it is gone already, its report ends the member.
        let _ = self.send_to_table(TableJob::Rebuild(Arc::new(state)));
    }

    /// Returns the applied state with its place in the log; nothing before the first one.
    fn snapshot(&self) -> Option<Replaced<M>> {
        Some(Replaced {
            machine: self.replica.machine()?.clone(),
            position: self.replica.position(),
            membership: self.replica.membership().clone(),
        })
    }

    fn leader_member(&self) -> Option<Member> {
        let leader = self.replica.role().leader?;
        self.replica.membership().get(leader).cloned()
    }
}

/// Waits for threads to end, and says whether they did so without a panic.
///
/// Not for ever: a library below may be stuck after a fault of the disk, and the process, which is
/// about to end, must not be. They are polled, since a blocking task that waits would keep the
/// async runtime from ending too.
async fn join(threads: Vec<JoinHandle<()>>) -> bool {
    let deadline = Instant::now() + JOIN_TIMEOUT;
    let mut sound = true;
    for thread in threads {
        while !thread.is_finished() {
            if Instant::now() > deadline {
                tracing::error!("disk thread does not end, stopping without it");
                return false;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        // A thread that panicked has said so.
        sound &= thread.join().is_ok();
    }
    sound
}

/// Returns who leads, as this replica sees it.
pub(in crate::runtime) fn leader_of<M: Machine>(replica: &Replica<M>) -> Leader {
    let role = replica.role();
    Leader {
        role,
        member: role
            .leader
            .and_then(|id| replica.membership().get(id).cloned()),
        id: replica.id(),
    }
}

/// Returns the sender of the membership that the inbox checks senders against.
pub(in crate::runtime) fn watch_membership<M: Machine>(
    replica: &Replica<M>,
) -> watch::Sender<Arc<Membership>> {
    watch::Sender::new(replica.membership().clone())
}
