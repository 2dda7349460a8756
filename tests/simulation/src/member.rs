//! A scheduler member: the real replica, the real decisions, on a disk in memory that loses what
//! was not synchronised.
//!
//! Not the runtime of production, but the same order of effects.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write as _;

use berth_domain::id::{Epoch, Generation, OperationId, TimeMs};
use berth_domain::operation::Operation;
use berth_domain::refusal::Refusal;
use berth_replication::effects::{AppliedBatch, Persist};
use berth_replication::{
    Config, Effects, Machine as _, Position, Refused, Replica, RowChange, Ticket,
};
use berth_saga::{Facts, HostFacts};
use berth_scheduler::core::{Action, Decision, DecisionRequest, decide};
use berth_scheduler::machine::{Level, Machine};
use berth_state::command::Command;
use berth_state::{Reply, State};
use berth_store::disk::Parts;
use berth_store::recover::read_snapshot;
use berth_store::{
    CheckpointSink, CheckpointStore as _, Disk as _, Identity, LogStore as _, MemoryDisk,
    TableMeta, TableStore as _, checkpoints,
};
use raft::eraftpb::Message;

use crate::bug::Bug;
use crate::chance::Chance;
use crate::forwarder::{Forwarder, Step};
use crate::packet::{CallNumber, Node, Packet, Question, Told};
use crate::writer::number_of;

/// What a member wants the world to do.
#[derive(Debug)]
pub enum Want {
    /// Send this.
    Send(Node, Packet),
    /// Send this checkpoint and report whether it arrived.
    SendSnapshot(u64, Box<Message>, Vec<u8>),
    /// Report that the disk is synchronised, after a while.
    Sync(u64),
    /// Look at what was applied.
    Applied(Vec<(u64, String)>, Position),
    /// Look at a write that was applied: its number, and the generation that it led to.
    Written(u64, Generation),
    /// Look at what was acknowledged.
    Acknowledged(u64, String),
}

/// Who waits for a ticket.
#[allow(clippy::large_enum_variant, reason = "there are a few of them")]
enum Waiter {
    /// With the lease under which a step was asked for, or the answer that needs no command.
    Decision(
        Node,
        CallNumber,
        Option<Epoch>,
        Option<Result<Reply, Refusal>>,
    ),
    Read(Node, CallNumber, Question),
}

/// A member that runs.
struct Running {
    replica: Replica<Machine>,
    parts: Parts<MemoryDisk>,
    waiters: BTreeMap<u64, Waiter>,
    parked: Vec<(Node, CallNumber, DecisionRequest)>,
    last_ticket: u64,
    received: Vec<(u64, Box<dyn CheckpointSink>)>,
    unsynced: VecDeque<u64>,
    forwarder: Forwarder,
    /// What is to be done for writes.
    steps: Vec<Step>,
    /// What this member told itself of attempts to have a write done.
    own: Vec<(CallNumber, Told)>,
}

/// A scheduler member, up or down.
pub struct Member {
    id: u64,
    disk: MemoryDisk,
    cluster: String,
    /// Counts its starts; what belongs to an earlier life is dropped.
    pub life: u64,
    /// What its program can do.
    pub level: Level,
    running: Option<Running>,
}

impl Member {
    /// Returns a member that is down and whose disk is empty.
    #[must_use]
    pub fn new(id: u64, cluster: &str, disk_id: String) -> Self {
        let identity = Identity {
            cluster_id: cluster.to_owned(),
            member_id: id,
            disk_id,
        };
        Self {
            id,
            disk: MemoryDisk::new(identity),
            cluster: cluster.to_owned(),
            life: 0,
            level: Level::default(),
            running: None,
        }
    }

    /// Returns its disk, to prepare the first member's.
    #[must_use]
    pub fn disk(&self) -> MemoryDisk {
        self.disk.clone()
    }

    /// Returns whether it is up.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.running.is_some()
    }

    /// Returns its applied state.
    #[must_use]
    pub fn state(&self) -> Option<&State> {
        self.running.as_ref()?.replica.machine().map(Machine::state)
    }

    /// Returns where its applied state is.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        Some(self.running.as_ref()?.replica.position())
    }

    /// Returns whether it leads and decides.
    #[must_use]
    pub fn decides(&self) -> bool {
        self.running
            .as_ref()
            .is_some_and(|r| r.replica.role().deciding)
    }

    /// Starts it from its disk.
    pub fn start(&mut self, chance: &mut Chance) -> Result<Vec<Want>, String> {
        self.life += 1;
        let mut parts = self.disk.clone().split();
        let level = self.level;
        let build = |rows: &mut dyn Iterator<Item = berth_store::Row>, index: u64| {
            Machine::from_rows(level, rows, index).map_err(|e| e.to_string())
        };
        let recovered = berth_store::recover(&mut parts, &build).map_err(|e| e.to_string())?;
        let rebuild = recovered.recovery.rebuild_table;
        let mut config = Config::new(self.id, self.cluster.clone());
        config.seed = chance.seed();
        config.election_ticks = 10;
        config.heartbeat_ticks = 2;
        config.checkpoint_entries = chance.between(20, 200);
        config.hash_commands = 8;
        config.check_invariants = true;
        let replica = Replica::new(config, recovered).map_err(|e| e.to_string())?;
        let mut running = Running {
            replica,
            parts,
            waiters: BTreeMap::new(),
            parked: Vec::new(),
            last_ticket: 0,
            received: Vec::new(),
            unsynced: VecDeque::new(),
            forwarder: Forwarder::new(self.id, self.life),
            steps: Vec::new(),
            own: Vec::new(),
        };
        if rebuild {
            running.rebuild_table(&self.cluster)?;
        }
        self.running = Some(running);
        Ok(Vec::new())
    }

    /// Cuts its power: what was not synchronised is lost, but for a random part.
    pub fn crash(&mut self, chance: &mut Chance) {
        self.running = None;
        let (log, table) = self.disk.unsynced();
        let log = chance.between(0, log as u64);
        let table = chance.between(0, table as u64);
        self.disk.crash(
            usize::try_from(log).expect("a count"),
            usize::try_from(table).expect("a count"),
        );
    }

    /// Lets a tick of Raft's clock pass.
    pub fn tick(
        &mut self,
        now: TimeMs,
        chance: &mut Chance,
        bug: Option<Bug>,
    ) -> Result<Vec<Want>, String> {
        let Some(running) = &mut self.running else {
            return Ok(Vec::new());
        };
        running.replica.tick();
        running.forward(now, bug);
        running.work(now, &self.cluster, chance, bug)
    }

    /// Takes what another node sent.
    pub fn take(
        &mut self,
        now: TimeMs,
        from: Node,
        packet: Packet,
        chance: &mut Chance,
        bug: Option<Bug>,
    ) -> Result<Vec<Want>, String> {
        let Some(running) = &mut self.running else {
            return Ok(Vec::new());
        };
        let mut wants = Vec::new();
        match packet {
            Packet::Raft(message) => running.replica.step(*message),
            Packet::Snapshot(message, bytes) => {
                running.take_snapshot(*message, &bytes, &self.cluster, self.level)?
            }
            Packet::Question(call, question) => {
                wants.extend(running.take_question(now, from, call, *question, bug));
            }
            Packet::Write(call, command) => match running.replica.may_propose() {
                Ok(()) => {
                    let ask = DecisionRequest::new("writer", Action::Plain(*command));
                    wants.extend(running.decide(now, from, call, &ask, bug));
                }
                Err(_) => running.forwarder.take(now, from, call, *command),
            },
            Packet::Told(call, told) => running.own.push((call, *told)),
            Packet::Call(..) | Packet::Answer(..) | Packet::Wish(..) | Packet::Granted(..) => {
                return Err(format!("member {} was sent a foreign packet", self.id));
            }
        }
        wants.extend(running.work(now, &self.cluster, chance, bug)?);
        Ok(wants)
    }

    /// Takes the disk's word that everything up to this number is durable.
    pub fn synced(
        &mut self,
        now: TimeMs,
        number: u64,
        chance: &mut Chance,
        bug: Option<Bug>,
    ) -> Result<Vec<Want>, String> {
        let Some(running) = &mut self.running else {
            return Ok(Vec::new());
        };
        running.parts.log.sync().map_err(|e| e.to_string())?;
        // One synchronisation is for everything that was written before it.
        let number = running
            .unsynced
            .iter()
            .copied()
            .max()
            .unwrap_or(number)
            .max(number);
        running.unsynced.clear();
        if bug != Some(Bug::AnswerBeforeSync) {
            running
                .replica
                .persisted(number)
                .map_err(|e| e.to_string())?;
        }
        running.work(now, &self.cluster, chance, bug)
    }

    /// Learns whether a snapshot arrived.
    pub fn snapshot_sent(
        &mut self,
        now: TimeMs,
        to: u64,
        arrived: bool,
        chance: &mut Chance,
        bug: Option<Bug>,
    ) -> Result<Vec<Want>, String> {
        let Some(running) = &mut self.running else {
            return Ok(Vec::new());
        };
        running.replica.snapshot_sent(to, arrived);
        running.work(now, &self.cluster, chance, bug)
    }
}

impl Running {
    fn take_question(
        &mut self,
        now: TimeMs,
        from: Node,
        call: CallNumber,
        question: Question,
        bug: Option<Bug>,
    ) -> Vec<Want> {
        match question {
            Question::Decide(ask) => match self.replica.may_propose() {
                Ok(()) => self.decide(now, from, call, &ask, bug),
                Err(Refused::NotReady) => {
                    self.parked.push((from, call, ask));
                    Vec::new()
                }
                Err(
                    Refused::NotLeader { .. }
                    | Refused::Transferring { .. }
                    | Refused::ChangePending
                    | Refused::Change(_),
                ) => vec![self.not_leader(from, call)],
            },
            Question::Facts(_)
            | Question::Expired
            | Question::Registered(_)
            | Question::Service(_)
            | Question::Erasures(_)
            | Question::Volumes(_) => {
                let ticket = self.wait(Waiter::Read(from, call, question));
                self.replica.read_index(ticket);
                Vec::new()
            }
        }
    }

    fn not_leader(&self, from: Node, call: CallNumber) -> Want {
        let told = Told::NotLeader(
            self.replica
                .role()
                .leader
                .filter(|l| *l != self.replica.id()),
        );
        Want::Send(from, Packet::Told(call, Box::new(told)))
    }

    fn decide(
        &mut self,
        now: TimeMs,
        from: Node,
        call: CallNumber,
        ask: &DecisionRequest,
        bug: Option<Bug>,
    ) -> Vec<Want> {
        let machine = self
            .replica
            .speculative()
            .expect("a replica that takes proposals speculates");
        let epoch = epoch_of(ask);
        let ask = match bug {
            Some(Bug::StaleEpoch) => under_any_epoch(machine.state(), ask.clone()),
            _ => ask.clone(),
        };
        match decide(machine.state(), now, &ask) {
            Decision::Command(proposal) => {
                let ticket = self.wait(Waiter::Decision(from, call, epoch, None));
                let proposed = self.replica.propose(ticket, proposal.envelope);
                assert!(proposed.is_ok(), "the replica said that it takes proposals");
            }
            Decision::Answer(answer) => {
                let reply = match bug {
                    Some(Bug::AnswerAsItIs) => as_it_is(machine.state(), answer.reply),
                    Some(_) | None => answer.reply,
                };
                let ticket = self.wait(Waiter::Decision(from, call, None, Some(Ok(reply))));
                self.replica.confirm_decision(ticket);
            }
            Decision::Explain(_) => unreachable!("every reason is worked out"),
            Decision::Refuse(refusal) => {
                let ticket = self.wait(Waiter::Decision(from, call, None, Some(Err(*refusal))));
                self.replica.confirm_decision(ticket);
            }
        }
        Vec::new()
    }

    fn wait(&mut self, waiter: Waiter) -> Ticket {
        self.last_ticket += 1;
        self.waiters.insert(self.last_ticket, waiter);
        Ticket(self.last_ticket)
    }

    fn take_snapshot(
        &mut self,
        message: Message,
        bytes: &[u8],
        cluster: &str,
        level: Level,
    ) -> Result<(), String> {
        let build = |rows: &mut dyn Iterator<Item = berth_store::Row>, index: u64| {
            Machine::from_rows(level, rows, index).map_err(|e| e.to_string())
        };
        let (header, machine) = read_snapshot(bytes, cluster, &build).map_err(|e| e.to_string())?;
        let index = header.index;
        let mut sink = self.parts.checkpoints.create().map_err(|e| e.to_string())?;
        sink.write_all(bytes).map_err(|e| e.to_string())?;
        sink.seal().map_err(|e| e.to_string())?;
        if self.replica.step_snapshot(message, header, machine) {
            self.received.push((index, sink));
        }
        Ok(())
    }

    /// Lets the replica work until it wants nothing more, carrying out what stays on this node.
    fn work(
        &mut self,
        now: TimeMs,
        cluster: &str,
        chance: &mut Chance,
        bug: Option<Bug>,
    ) -> Result<Vec<Want>, String> {
        let mut wants = Vec::new();
        loop {
            while let Some(effects) = self.replica.ready().map_err(|e| e.to_string())? {
                self.carry_out(effects, now, cluster, chance, bug, &mut wants)?;
            }
            self.keep_own(&mut wants);
            if self.own.is_empty() && self.steps.is_empty() {
                return Ok(wants);
            }
            wants.extend(self.take_steps(now, bug));
        }
    }

    /// Goes on with the writes that came to this member.
    fn forward(&mut self, now: TimeMs, bug: Option<Bug>) {
        let steps = self.forwarder.go_on(now, self.replica.role(), bug);
        self.steps.extend(steps);
    }

    /// Takes out what this member tells itself: that is not sent over the network.
    fn keep_own(&mut self, wants: &mut Vec<Want>) {
        let own = Node::Member(self.replica.id());
        let is_own =
            |want: &mut Want| matches!(want, Want::Send(to, Packet::Told(..)) if *to == own);
        for want in wants.extract_if(.., is_own) {
            if let Want::Send(_, Packet::Told(call, told)) = want {
                self.own.push((call, *told));
            }
        }
    }

    fn take_steps(&mut self, now: TimeMs, bug: Option<Bug>) -> Vec<Want> {
        let mut wants = Vec::new();
        let own = Node::Member(self.replica.id());
        for (call, told) in std::mem::take(&mut self.own) {
            let steps = self.forwarder.told(call, told, bug);
            self.steps.extend(steps);
        }
        for step in std::mem::take(&mut self.steps) {
            match step {
                Step::Here(call, request) => {
                    let question = Question::Decide(*request);
                    wants.extend(self.take_question(now, own, call, question, bug));
                }
                Step::Ask(member, call, request) => wants.push(Want::Send(
                    Node::Member(member),
                    Packet::Question(call, Box::new(Question::Decide(*request))),
                )),
                Step::Tell(writer, call, told) => {
                    wants.push(Want::Send(writer, Packet::Told(call, told)));
                }
            }
        }
        wants
    }

    fn carry_out(
        &mut self,
        effects: Effects<Machine>,
        now: TimeMs,
        cluster: &str,
        chance: &mut Chance,
        bug: Option<Bug>,
        wants: &mut Vec<Want>,
    ) -> Result<(), String> {
        for message in effects.messages {
            wants.push(Want::Send(
                Node::Member(message.to),
                Packet::Raft(Box::new(message)),
            ));
        }
        if let Some(persist) = effects.persist {
            self.persist(persist, bug, wants)?;
        }
        if effects.replaced.is_some() {
            self.rebuild_table(cluster)?;
        }
        if let Some(applied) = effects.applied {
            self.write_table(&applied, cluster, chance)?;
            let replies = applied.commands.iter().flat_map(|c| &c.outcome);
            for (number, generation) in replies.filter_map(number_of) {
                wants.push(Want::Written(number, generation));
            }
            let commands = applied.commands.iter();
            let commands = commands
                .map(|c| (c.index, format!("{:?}", c.outcome)))
                .collect();
            wants.push(Want::Applied(commands, applied.position));
        }
        for answer in effects.answers {
            wants.push(Want::Acknowledged(
                answer.index,
                format!("{:?}", answer.outcome),
            ));
            if let Some(Waiter::Decision(from, call, epoch, _)) =
                self.waiters.remove(&answer.ticket.0)
            {
                current_lease(epoch, &answer.outcome)?;
                let told = Told::Decided(answer.outcome);
                wants.push(Want::Send(from, Packet::Told(call, Box::new(told))));
            }
        }
        self.serve(effects.reads, now, wants);
        for ticket in effects.lost.into_iter().chain(effects.failed_reads) {
            if let Some(waiter) = self.waiters.remove(&ticket.0) {
                let (from, call) = match waiter {
                    Waiter::Decision(from, call, ..) | Waiter::Read(from, call, _) => (from, call),
                };
                wants.push(Want::Send(from, Packet::Told(call, Box::new(Told::Lost))));
            }
        }
        if let Some(request) = effects.checkpoint {
            let header = request.header.clone();
            let rows = request.machine.rows();
            let bytes = checkpoints::save(&self.parts.checkpoints, request.header, rows)
                .map_err(|e| e.to_string())?;
            self.replica.checkpoint_taken(&header, bytes);
        }
        if let Some(first_kept) = effects.compact_log {
            self.parts
                .log
                .compact(first_kept)
                .map_err(|e| e.to_string())?;
        }
        for snapshot in effects.snapshots {
            match self.parts.checkpoints.open(snapshot.index) {
                Ok(mut content) => {
                    let mut bytes = Vec::new();
                    content.read_to_end(&mut bytes).map_err(|e| e.to_string())?;
                    wants.push(Want::SendSnapshot(
                        snapshot.to,
                        Box::new(snapshot.message),
                        bytes,
                    ));
                }
                Err(_) => self.replica.snapshot_sent(snapshot.to, false),
            }
        }
        if effects.role.is_some() {
            for (from, call, ask) in std::mem::take(&mut self.parked) {
                wants.extend(self.take_question(now, from, call, Question::Decide(ask), bug));
            }
        }
        Ok(())
    }

    fn persist(
        &mut self,
        persist: Persist,
        bug: Option<Bug>,
        wants: &mut Vec<Want>,
    ) -> Result<(), String> {
        if let Some(index) = persist.install {
            let at = self.received.iter().position(|(i, _)| *i == index);
            let (_, sink) = self
                .received
                .swap_remove(at.ok_or("an unknown checkpoint is installed")?);
            self.received.clear();
            sink.commit(index, 2).map_err(|e| e.to_string())?;
        }
        self.parts
            .log
            .append(persist.batch)
            .map_err(|e| e.to_string())?;
        self.unsynced.push_back(persist.number);
        if bug == Some(Bug::AnswerBeforeSync) {
            self.replica
                .persisted(persist.number)
                .map_err(|e| e.to_string())?;
        }
        wants.push(Want::Sync(persist.number));
        Ok(())
    }

    fn serve(&mut self, reads: Vec<Ticket>, now: TimeMs, wants: &mut Vec<Want>) {
        for ticket in reads {
            let (to, call, told) = match self.waiters.remove(&ticket.0) {
                None => continue,
                Some(Waiter::Decision(to, call, _, answer)) => {
                    (to, call, answer.map_or(Told::Lost, Told::Decided))
                }
                Some(Waiter::Read(to, call, question)) => {
                    let Some(machine) = self.replica.machine() else {
                        continue;
                    };
                    (to, call, read(machine.state(), now, &question))
                }
            };
            wants.push(Want::Send(to, Packet::Told(call, Box::new(told))));
        }
    }

    fn write_table(
        &mut self,
        applied: &AppliedBatch<Machine>,
        cluster: &str,
        chance: &mut Chance,
    ) -> Result<(), String> {
        let changes = applied.commands.iter().flat_map(|c| &c.changes);
        let batch: BTreeMap<_, _> = changes
            .map(|c: &RowChange| (c.key.clone(), c.new.clone()))
            .collect();
        let meta = self.meta(applied.position, cluster);
        let table = &mut self.parts.table;
        table
            .write(batch.into_iter().collect(), Some(&meta))
            .map_err(|e| e.to_string())?;
        if chance.percent(30) {
            table.flush().map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    fn rebuild_table(&mut self, cluster: &str) -> Result<(), String> {
        let Some(machine) = self.replica.machine() else {
            return Ok(());
        };
        let rows = machine
            .rows()
            .map(|row| (row.key, Some(row.value)))
            .collect();
        let meta = self.meta(self.replica.position(), cluster);
        let table = &mut self.parts.table;
        table.clear().map_err(|e| e.to_string())?;
        table.write(rows, None).map_err(|e| e.to_string())?;
        table.flush().map_err(|e| e.to_string())?;
        table
            .write(Vec::new(), Some(&meta))
            .map_err(|e| e.to_string())?;
        table.flush().map_err(|e| e.to_string())
    }

    fn meta(&self, position: Position, cluster: &str) -> TableMeta {
        TableMeta {
            index: position.index,
            term: position.term,
            state_hash: position.hash.to_bytes().into(),
            rows: position.rows,
            membership: berth_store::Membership::clone(self.replica.membership()),
            cluster_id: cluster.to_owned(),
        }
    }
}

/// Answers a question from a state that contains everything acknowledged before it.
fn read(state: &State, now: TimeMs, question: &Question) -> Told {
    match question {
        Question::Facts(id) => Told::Facts(facts(state, *id)),
        Question::Expired => {
            let now = now.max(state.time());
            Told::Expired(state.expired_leases(now).map(|o| o.id).collect())
        }
        Question::Erasures(host) => Told::Erasures(state.erasures_of(host)),
        Question::Volumes(host) => {
            let volumes = state.volumes_of_host(host);
            Told::Volumes(volumes.map(|volume| (**volume).clone()).collect())
        }
        Question::Service(name) => Told::Service(state.service(name).map(|s| s.version)),
        Question::Registered(host) => {
            Told::Registered(state.host(host).map(|view| view.host.report.incarnation))
        }
        Question::Decide(_) => Told::Lost,
    }
}

/// Returns an operation with what a saga has to know of it, as conductors read it.
#[must_use]
pub fn facts(state: &State, id: OperationId) -> Option<(Operation, Facts)> {
    let operation = state.operation(id)?;
    let vm = state.vm(&operation.vm)?;
    let claims = || state.claims_of_vm(&vm.name);
    let migration = Facts::migration_needed(&operation.kind, claims().map(|c| &**c));
    let migration = migration.and_then(|id| state.migration(id));
    let claim = operation.claim.and_then(|c| state.claim(c));
    let names = Facts::hosts_needed(vm, migration.map(|m| &**m), claim.map(|c| &**c));
    let hosts = names.into_iter().filter_map(|name| {
        let facts = HostFacts::from(&*state.host(&name)?.host);
        Some((name, facts))
    });
    let facts = Facts {
        vm: (**vm).clone(),
        migration: migration.map(|m| (**m).clone()),
        claim: claim.map(|c| (**c).clone()),
        claims: claims().map(|c| (c.id, (**c).clone())).collect(),
        hosts: hosts.collect(),
    };
    Some(((**operation).clone(), facts))
}

/// Returns the lease under which a step is asked for.
fn epoch_of(ask: &DecisionRequest) -> Option<Epoch> {
    match &ask.action {
        Action::Plain(Command::Advance { epoch, .. }) | Action::ScheduleNext { epoch, .. } => {
            Some(*epoch)
        }
        Action::Plain(_)
        | Action::SetPolicy { .. }
        | Action::ScheduleVm(_)
        | Action::ScheduleMigration(_)
        | Action::ScheduleMove(_)
        | Action::ScheduleUnshelve(_)
        | Action::CreateVolume(_) => None,
    }
}

/// Checks that a step that was taken was asked for under the lease that holds.
fn current_lease(asked: Option<Epoch>, outcome: &Result<Reply, Refusal>) -> Result<(), String> {
    let (Some(asked), Ok(Reply::Operation(operation))) = (asked, outcome) else {
        return Ok(());
    };
    match &operation.lease {
        Some(lease) if lease.epoch != asked => Err(format!(
            "a step under epoch {asked} was taken while {} held epoch {}: {operation:?}",
            lease.conductor, lease.epoch
        )),
        Some(_) | None => Ok(()),
    }
}

/// Plants [`Bug::AnswerAsItIs`].
fn as_it_is(state: &State, reply: Reply) -> Reply {
    let Reply::Provider(provider) = &reply else {
        return reply;
    };
    let now = state.providers().get(&provider.id).cloned();
    now.map_or(reply, Reply::Provider)
}

/// Plants [`Bug::StaleEpoch`]: whatever lease a step was done under, it is taken for the present
/// one.
fn under_any_epoch(state: &State, mut ask: DecisionRequest) -> DecisionRequest {
    let present = |id: &OperationId| {
        state
            .operation(*id)
            .and_then(|o| o.lease.as_ref())
            .map(|l| l.epoch)
    };
    match &mut ask.action {
        Action::Plain(Command::Advance {
            operation, epoch, ..
        })
        | Action::ScheduleNext {
            operation, epoch, ..
        } => {
            *epoch = present(operation).unwrap_or(*epoch);
        }
        Action::Plain(_)
        | Action::SetPolicy { .. }
        | Action::ScheduleVm(_)
        | Action::ScheduleMigration(_)
        | Action::ScheduleMove(_)
        | Action::ScheduleUnshelve(_)
        | Action::CreateVolume(_) => {}
    }
    ask
}
