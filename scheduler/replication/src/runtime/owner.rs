//! The task that owns the replica: gathers input, lets the replica work, carries out effects.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

use berth_store::disk::Disk;
use berth_store::{
    CheckpointSink, CheckpointStore, Header, Identity, Member, Membership, checkpoints,
};
use raft::eraftpb::Message;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::handle::{
    Committed, Event, Job, Leader, LogError, MembershipError, ProposeError, ReadError, ReadJob,
    Request, Status,
};
use super::inbox::SnapshotReport;
use super::log_thread::{self, LogJob};
use super::table_thread::{self, Pace, TableJob};
use super::{Ended, Network, OpenError, OutgoingSnapshot, Settings, StopError};
use crate::effects::{CheckpointRequest, Effects, Persist, Replaced, SendSnapshot, Ticket};
use crate::error::Refused;
use crate::machine::Machine;
use crate::replica::{Change, Replica};

const INPUTS_AT_ONCE: usize = 1024;

/// What the owner's own helpers report.
pub(super) enum Internal<M: Machine> {
    /// The log is durable up to this batch, or cannot be written.
    Persisted(Result<u64, LogError>),
    /// The table cannot be written.
    TableFailed(berth_store::table::Error),
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
pub(super) struct ReceivedSnapshot<M> {
    pub(super) message: Message,
    pub(super) header: Header,
    pub(super) machine: M,
    pub(super) sink: Box<dyn CheckpointSink>,
    /// Told whether the replica uses it.
    pub(super) taken: oneshot::Sender<bool>,
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
pub(super) struct Setup<M: Machine, D: Disk> {
    pub(super) settings: Settings,
    pub(super) replica: Replica<M>,
    pub(super) identity: Identity,
    pub(super) rebuild_table: bool,
    pub(super) log: D::Log,
    pub(super) table: D::Table,
    pub(super) checkpoints: Arc<dyn CheckpointStore>,
    pub(super) guard: Box<dyn Send>,
    pub(super) requests: mpsc::Receiver<Request<M>>,
    pub(super) messages: mpsc::Receiver<Vec<Message>>,
    pub(super) internal: mpsc::UnboundedReceiver<Internal<M>>,
    pub(super) internal_in: mpsc::UnboundedSender<Internal<M>>,
    pub(super) events: broadcast::Sender<Event<M>>,
    pub(super) leader: watch::Sender<Leader>,
    pub(super) membership: Arc<watch::Sender<Arc<Membership>>>,
}

/// The owner of a replica.
pub(super) struct Owner<M: Machine, D: Disk> {
    settings: Settings,
    replica: Replica<M>,
    checkpoints: Arc<dyn CheckpointStore>,
    log: Sender<LogJob>,
    table: Sender<TableJob<M>>,
    threads: Vec<JoinHandle<()>>,
    /// Keeps other processes away from the disk until the threads have ended.
    guard: Box<dyn Send>,
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
    /// Received checkpoints that the replica may ask to install.
    received: Vec<(u64, Box<dyn CheckpointSink>)>,
    removed: bool,
    _disk: std::marker::PhantomData<fn() -> D>,
}

impl<M: Machine, D: Disk> Owner<M, D> {
    pub(super) fn new(setup: Setup<M, D>) -> Result<Self, OpenError> {
        let internal = setup.internal_in.clone();
        let (log, log_thread) = log_thread::start(setup.log, move |done| {
            // The owner may have ended first; then nobody waits.
            let _ = internal.send(Internal::Persisted(done));
        })
        .map_err(OpenError::Thread)?;
        let internal = setup.internal_in.clone();
        let pace = Pace {
            every: setup.settings.table_every,
            changes: setup.settings.table_changes,
        };
        let (table, table_thread) = table_thread::start(
            setup.table,
            setup.identity.cluster_id.clone(),
            pace,
            move |error| {
                let _ = internal.send(Internal::TableFailed(error));
            },
        )
        .map_err(OpenError::Thread)?;
        let owner = Self {
            settings: setup.settings,
            replica: setup.replica,
            checkpoints: setup.checkpoints,
            log,
            table,
            threads: vec![log_thread, table_thread],
            guard: setup.guard,
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

    pub(super) async fn run(
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
        let mut internals = Vec::new();
        // A lone voter has nobody to wait for.
        if self.replica.membership().voters == [self.replica.id()] {
            self.replica.campaign();
        }
        loop {
            self.carry_out_all(network)?;
            if self.removed {
                return Ok(Ended::Removed);
            }
            let room = self.has_room() && !self.requests.is_closed();
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
                _ = self.requests.recv_many(&mut requests, INPUTS_AT_ONCE), if room => {
                    for request in requests.drain(..) {
                        self.take_request(request);
                    }
                }
            }
            // Members' messages come first above; requests must not starve behind them.
            for _ in 0..INPUTS_AT_ONCE {
                match self.has_room().then(|| self.requests.try_recv()) {
                    Some(Ok(request)) => self.take_request(request),
                    Some(Err(_)) | None => break,
                }
            }
        }
    }

    /// Says whether requests are taken now. While a batch is on its way to the disk they gather
    /// for the next.
    fn has_room(&self) -> bool {
        self.batches_in_flight.len() < self.settings.batches_max
            && self.replica.pending() < self.settings.pending_max
    }

    /// Before a shutdown the leader lets another member lead, so that the cluster does not have
    /// to find out by timeout. Bounded by one election timeout.
    async fn hand_over(&mut self, network: &mut impl Network) -> Result<Ended, StopError> {
        let Some(to) = self.furthest_voter() else {
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
        for job in std::mem::take(&mut self.parked) {
            job.finish(Err(ProposeError::Stopped));
        }
        for (_, waiter) in self.waiters.drain() {
            match waiter {
                Waiter::Job(job) => job.finish(Err(ProposeError::Stopped)),
                Waiter::Read(read) => read.finish(Err(ReadError::Stopped)),
                Waiter::Change(_, reply) => {
                    let _ = reply.send(Err(MembershipError::Stopped));
                }
            }
        }
        // Closing their channels ends the threads once they have done what was queued.
        drop((self.log, self.table));
        let threads = std::mem::take(&mut self.threads);
        let joined = tokio::task::spawn_blocking(move || {
            // A thread that panicked has said so; its loss shows as a missing report.
            threads.into_iter().all(|thread| thread.join().is_ok())
        });
        let sound = joined.await.unwrap_or(false);
        drop(self.guard);
        // What the threads reported last counts too.
        self.internal.close();
        while let Ok(internal) = self.internal.try_recv() {
            match internal {
                Internal::Persisted(Err(error)) => return ended.and(Err(error.into())),
                Internal::TableFailed(error) => return ended.and(Err(error.into())),
                Internal::Checkpoint(_)
                | Internal::Persisted(Ok(_))
                | Internal::SnapshotSent { .. }
                | Internal::Unreachable(_)
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
            Internal::Checkpoint(done) => {
                let (header, bytes) = done?;
                tracing::info!(index = header.index, bytes, "checkpoint taken");
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
                // The sender's connection may be gone; Raft tells it again.
                let _ = received.taken.send(used);
            }
        }
        Ok(())
    }

    fn take_request(&mut self, request: Request<M>) {
        match request {
            Request::Decide(job) => self.decide(job),
            Request::Read(read) => {
                let ticket = self.wait(Waiter::Read(read));
                self.replica.read_index(ticket);
            }
            Request::ReadStale(read) => {
                read.finish(self.replica.machine().ok_or(ReadError::NoState));
            }
            Request::Status(reply) => {
                // Who asked may have gone.
                let _ = reply.send(self.status());
            }
            Request::AddMember { member, reply } => self.add_member(member, reply),
            Request::Change { changes, reply } => {
                // The leader cannot take itself out: it hands over, and the next can.
                let own = self.replica.id();
                let leaves =
                    |c: &Change| matches!(c, Change::Remove(id) | Change::Demote(id) if *id == own);
                if changes.iter().any(leaves)
                    && let Some(to) = self.furthest_voter()
                    && self.replica.transfer_leader(to).is_ok()
                {
                    let refused = Refused::Transferring { to };
                    let leader = self.replica.membership().get(to).cloned();
                    let _ = reply.send(Err(MembershipError::Refused { refused, leader }));
                    return;
                }
                self.change(changes, None, reply);
            }
            Request::Transfer { to, reply } => {
                let result = match to.or_else(|| self.furthest_voter()) {
                    Some(to) => self.replica.transfer_leader(to),
                    None => Err(Refused::Change("there is no other voter")),
                };
                let leader = self.leader_member();
                let _ = reply
                    .send(result.map_err(|refused| MembershipError::Refused { refused, leader }));
            }
            Request::Checkpoint => self.replica.request_checkpoint(),
        }
    }

    fn decide(&mut self, mut job: Box<dyn Job<M>>) {
        match self.replica.may_propose() {
            Ok(()) => {}
            // It will be decided in a moment, here or elsewhere.
            Err(Refused::NotReady) => return self.parked.push(job),
            Err(
                Refused::NotLeader { .. }
                | Refused::Transferring { .. }
                | Refused::ChangePending
                | Refused::Change(_),
            ) => {
                let leader = self.leader_member();
                return job.finish(Err(ProposeError::NotLeader { leader }));
            }
        }
        let state = self
            .replica
            .speculative()
            .expect("a replica that takes proposals has a speculative state");
        let command = job.decide(state);
        let ticket = self.wait(Waiter::Job(job));
        match command {
            None => self.replica.confirm_decision(ticket),
            Some(command) => {
                let taken = self.replica.propose(ticket, command).is_ok();
                assert!(
                    taken,
                    "nothing happened since the replica said that it would"
                );
            }
        }
    }

    /// Adds a member under the next id. Asked again for the same disk, it gives the same answer.
    fn add_member(
        &mut self,
        mut member: Member,
        reply: oneshot::Sender<Result<u64, MembershipError>>,
    ) {
        let membership = self.replica.membership().clone();
        let same_disk = |m: &&Member| !m.disk.is_empty() && m.disk == member.disk;
        if self.replica.may_propose().is_ok() {
            if let Some(known) = membership.members.iter().find(same_disk) {
                // Who asked may have gone.
                let _ = reply.send(Ok(known.id));
                return;
            }
            if membership
                .members
                .iter()
                .any(|m| m.address == member.address)
            {
                let refused = Refused::Change("the address belongs to another member");
                let leader = self.leader_member();
                let _ = reply.send(Err(MembershipError::Refused { refused, leader }));
                return;
            }
        }
        member.id = membership.next_id;
        let id = member.id;
        self.change(vec![Change::AddLearner(member)], Some(id), reply);
    }

    fn change(
        &mut self,
        changes: Vec<Change>,
        answer: Option<u64>,
        reply: oneshot::Sender<Result<u64, MembershipError>>,
    ) {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        match self.replica.change_membership(ticket, &changes) {
            Ok(()) => {
                self.waiters.insert(ticket.0, Waiter::Change(answer, reply));
            }
            Err(refused) => {
                let leader = self.leader_member();
                // Who asked may have gone.
                let _ = reply.send(Err(MembershipError::Refused { refused, leader }));
            }
        }
    }

    fn wait(&mut self, waiter: Waiter<M>) -> Ticket {
        self.last_ticket += 1;
        self.waiters.insert(self.last_ticket, waiter);
        Ticket(self.last_ticket)
    }

    fn carry_out_all(&mut self, network: &mut impl Network) -> Result<(), StopError> {
        while let Some(effects) = self.replica.ready()? {
            self.carry_out(effects, network)?;
        }
        Ok(())
    }

    fn carry_out(
        &mut self,
        effects: Effects<M>,
        network: &mut impl Network,
    ) -> Result<(), StopError> {
        // Followers may begin to synchronise while this member does.
        self.send(effects.messages, network);
        if let Some(persist) = effects.persist {
            self.persist(persist)?;
        }
        if let Some(membership) = effects.membership {
            network.members(&membership);
            self.membership.send_replace(membership);
            self.leader.send_replace(leader_of(&self.replica));
        }
        if effects.role.is_some() {
            self.leader.send_replace(leader_of(&self.replica));
        }
        if let Some(replaced) = effects.replaced {
            let replaced = Arc::new(replaced);
            self.tell_table(TableJob::Rebuild(replaced.clone()))?;
            // Nobody may be watching.
            let _ = self.events.send(Event::Replaced(replaced));
        }
        if let Some(applied) = effects.applied {
            let applied = Arc::new(applied);
            self.tell_table(TableJob::Applied(applied.clone()))?;
            if !applied.commands.is_empty() && self.events.receiver_count() > 0 {
                let _ = self.events.send(Event::Applied(applied));
            }
        }
        for answer in effects.answers {
            if let Some(Waiter::Job(job)) = self.waiters.remove(&answer.ticket.0) {
                job.finish(Ok(Some(Committed {
                    index: answer.index,
                    outcome: answer.outcome,
                })));
            }
        }
        self.serve(effects.reads);
        self.fail(effects.lost, &effects.failed_reads);
        self.changed(effects.changed);
        if let Some(request) = effects.checkpoint {
            self.take_checkpoint(request);
        }
        if let Some(first_kept) = effects.compact_log {
            self.log
                .send(LogJob::Compact(first_kept))
                .map_err(|_| StopError::Thread("log"))?;
        }
        for snapshot in effects.snapshots {
            self.send_snapshot(snapshot, network);
        }
        self.removed |= effects.removed;
        if effects.role.is_some() {
            self.unpark();
        }
        Ok(())
    }

    fn persist(&mut self, persist: Persist) -> Result<(), StopError> {
        let install = persist.install.map(|index| {
            let at = self.received.iter().position(|(i, _)| *i == index);
            let at = at.expect("the replica installs what it was given");
            let received = self.received.swap_remove(at);
            // Others were overtaken by this one.
            self.received.clear();
            received
        });
        self.batches_in_flight.push_back(persist.number);
        self.log
            .send(LogJob::Persist {
                number: persist.number,
                batch: persist.batch,
                install,
            })
            .map_err(|_| StopError::Thread("log"))
    }

    fn tell_table(&self, job: TableJob<M>) -> Result<(), StopError> {
        self.table.send(job).map_err(|_| StopError::Thread("table"))
    }

    fn send(&self, messages: Vec<Message>, network: &mut impl Network) {
        let mut by_member: Vec<(u64, Vec<Message>)> = Vec::new();
        for message in messages {
            match by_member.iter_mut().find(|(to, _)| *to == message.to) {
                Some((_, batch)) => batch.push(message),
                None => by_member.push((message.to, vec![message])),
            }
        }
        for (to, batch) in by_member {
            match self.replica.membership().get(to) {
                Some(member) => network.send(member, batch),
                // A member that has no state yet answers the leader, whose address came with the
                // stream; the network knows it.
                None => network.send(
                    &Member {
                        id: to,
                        ..Member::default()
                    },
                    batch,
                ),
            }
        }
    }

    fn send_snapshot(&mut self, snapshot: SendSnapshot, network: &mut impl Network) {
        let internal = self.internal_in.clone();
        let to = snapshot.to;
        let report = SnapshotReport {
            report: Some(Box::new(move |arrived| {
                // The owner may have ended first; then nobody waits.
                let _ = internal.send(Internal::SnapshotSent { to, arrived });
            })),
        };
        let Some(member) = self.replica.membership().get(to).cloned() else {
            return report.finished(false);
        };
        match self.checkpoints.open(snapshot.index) {
            Ok(content) => {
                let message = snapshot.message;
                network.send_snapshot(&member, OutgoingSnapshot { message, content }, report);
            }
            Err(error) => {
                // A newer checkpoint took its place meanwhile; Raft asks again.
                tracing::info!(to, index = snapshot.index, %error, "no checkpoint to send");
                report.finished(false);
            }
        }
    }

    fn take_checkpoint(&self, request: CheckpointRequest<M>) {
        let checkpoints = self.checkpoints.clone();
        let internal = self.internal_in.clone();
        tokio::task::spawn_blocking(move || {
            let header = request.header.clone();
            let done =
                checkpoints::save(checkpoints.as_ref(), request.header, request.machine.rows());
            let _ = internal.send(Internal::Checkpoint(done.map(|bytes| (header, bytes))));
        });
    }

    fn serve(&mut self, tickets: Vec<Ticket>) {
        for ticket in tickets {
            match self.waiters.remove(&ticket.0) {
                Some(Waiter::Read(read)) => {
                    read.finish(self.replica.machine().ok_or(ReadError::NoState));
                }
                Some(Waiter::Job(job)) => job.finish(Ok(None)),
                Some(Waiter::Change(..)) | None => {}
            }
        }
    }

    fn fail(&mut self, lost: Vec<Ticket>, failed_reads: &[Ticket]) {
        if lost.is_empty() && failed_reads.is_empty() {
            return;
        }
        let leader = self.leader_member();
        for ticket in lost.iter().chain(failed_reads) {
            match self.waiters.remove(&ticket.0) {
                Some(Waiter::Job(job)) => job.finish(Err(ProposeError::Lost {
                    leader: leader.clone(),
                })),
                Some(Waiter::Read(read)) => read.finish(Err(ReadError::Unconfirmed {
                    leader: leader.clone(),
                })),
                Some(Waiter::Change(_, reply)) => {
                    let leader = leader.clone();
                    // Who asked may have gone.
                    let _ = reply.send(Err(MembershipError::Lost { leader }));
                }
                None => {}
            }
        }
    }

    fn changed(&mut self, tickets: Vec<Ticket>) {
        let index = self.replica.position().index;
        for ticket in tickets {
            if let Some(Waiter::Change(answer, reply)) = self.waiters.remove(&ticket.0) {
                // Who asked may have gone.
                let _ = reply.send(Ok(answer.unwrap_or(index)));
            }
        }
    }

    fn unpark(&mut self) {
        if matches!(self.replica.may_propose(), Err(Refused::NotReady)) {
            return;
        }
        for job in std::mem::take(&mut self.parked) {
            self.decide(job);
        }
    }

    fn rebuild_table(&self) {
        let Some(machine) = self.replica.machine() else {
            return;
        };
        // The thread was just started; if it is gone already, its report ends the member.
        let _ = self.tell_table(TableJob::Rebuild(Arc::new(Replaced {
            machine: machine.clone(),
            position: self.replica.position(),
            membership: self.replica.membership().clone(),
        })));
    }

    fn leader_member(&self) -> Option<Member> {
        let leader = self.replica.role().leader?;
        self.replica.membership().get(leader).cloned()
    }

    /// Returns the other voter whose log is longest, among those that were heard of lately.
    fn furthest_voter(&self) -> Option<u64> {
        let own = self.replica.id();
        let membership = self.replica.membership();
        self.replica
            .progress()
            .into_iter()
            .filter(|m| m.id != own && m.active && membership.voters.contains(&m.id))
            .max_by_key(|m| m.matched)
            .map(|m| m.id)
    }

    fn status(&self) -> Status {
        Status {
            id: self.replica.id(),
            role: self.replica.role(),
            position: self.replica.position(),
            committed: self.replica.committed(),
            first_index: self.replica.first_index(),
            last_index: self.replica.last_index(),
            membership: self.replica.membership().clone(),
            progress: self.replica.progress(),
            pending: self.replica.pending(),
        }
    }
}

/// Returns who leads, as this replica sees it.
pub(super) fn leader_of<M: Machine>(replica: &Replica<M>) -> Leader {
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
pub(super) fn watch_membership<M: Machine>(replica: &Replica<M>) -> watch::Sender<Arc<Membership>> {
    watch::Sender::new(replica.membership().clone())
}
