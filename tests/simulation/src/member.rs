//! A scheduler member: the real replica, the real decisions, on a disk in memory that loses what
//! was not synchronised.
//!
//! Not the runtime of production, but the same order of effects.
//!
//! A member is what runs on one machine: it may be removed, and another member begin there with an
//! empty directory and a new number. Raft knows the numbers, everything else the machines.

mod cluster;
mod disk;
mod joiner;
mod lease;
mod read;
mod recovery;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::Write as _;
use std::sync::Arc;

use berth_decide::{Action, Decision, DecisionRequest, decide};
use berth_domain::id::{Epoch, Generation, TimeMs};
use berth_domain::refusal::Refusal;
use berth_replication::{
    Config, Effects, Fatal, Machine as _, Position, Refused, Replica, Ticket, admission,
};
use berth_scheduler::machine::{Level, Machine};
use berth_state::{Reply, State};
use berth_store::disk::Parts;
use berth_store::recover::read_snapshot;
use berth_store::{
    CheckpointSink, CheckpointStore as _, Disk as _, Identity, LogStore as _, Membership,
    MemoryDisk, Record, checkpoints,
};
use raft::eraftpb::{Message, MessageType};

use self::cluster::{Begun, Queries};
use self::joiner::Joiner;
pub use self::joiner::Joining;
use self::lease::{current_lease, epoch_of, under_any_epoch};
use self::read::read;
pub use self::read::{expected, facts};
use crate::asker::{Numbers, Out, Timer};
use crate::bug::Bug;
use crate::chance::Chance;
use crate::forwarder::{Forwarder, Step};
use crate::packet::{CallNumber, Hello, MembersResponse, Node, Packet, Question, Told};
use crate::writer::number_of;

/// What a member wants the world to do.
#[derive(Debug)]
pub enum Want {
    /// Send this.
    Send(Node, Packet),
    /// Send this checkpoint to the machine and report whether it arrived.
    SendSnapshot(u64, Hello, Box<Message>, Vec<u8>),
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
    /// A change of the membership, with the number that it gives a member.
    Change(Node, CallNumber, Option<u64>),
}

/// A member that runs.
struct Running {
    replica: Replica<Machine>,
    site: u64,
    identity: Identity,
    hello: Hello,
    /// Its start.
    life: u64,
    /// The streams of others that were admitted: member and start.
    admitted: BTreeSet<(u64, u64)>,
    /// On which machines members are that are not in the membership yet.
    learned: BTreeMap<u64, u64>,
    /// Requests for the members that are under way.
    begun: Vec<Begun>,
    queries: Queries,
    /// Whether it knows that it was removed.
    removed: bool,
    /// Why it must not go on, where another member's word shows it.
    contradiction: Option<Fatal>,
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

/// What is in the data directory of a machine.
enum Directory {
    Empty,
    /// The disk under which a member joins.
    Joining(String),
    Member(Identity, MemoryDisk),
}

/// Why a member ended and is not started again.
#[derive(Debug)]
pub enum Ended {
    /// It was removed.
    Removed,
    /// Its disk is damaged.
    Refused(String),
    /// Another member's word shows that this one, or a quorum, lost what was acknowledged.
    Contradicted(Fatal),
}

/// What a start led to.
#[derive(Debug)]
pub enum Start {
    /// There is nothing to start.
    Nothing,
    /// It is up.
    Up,
    /// It queries the members of the cluster.
    Joining(Vec<Out>),
}

/// A scheduler member, up or down.
pub struct Member {
    site: u64,
    directory: Directory,
    cluster: String,
    /// Counts its starts; what belongs to an earlier life is dropped.
    pub life: u64,
    /// What its program can do.
    pub level: Level,
    /// Through which machines it joins, if it is to be a member and is none yet.
    pub peers: Vec<u64>,
    /// Why it is not to be started again.
    pub ended: Option<Ended>,
    /// Whether members come and go, so that this one may have been removed without its knowledge.
    pub is_among_changes: bool,
    /// Whether it writes no checkpoint, so that no member is sent one in place of entries.
    pub keeps_log: bool,
    joiner: Option<Joiner>,
    running: Option<Running>,
}

/// Returns where the members reach the one on a machine.
#[must_use]
pub fn address_of(site: u64) -> String {
    format!("member{site}")
}

/// Returns the machine with this address.
#[must_use]
pub fn site_of(address: &str) -> Option<u64> {
    address.strip_prefix("member")?.parse().ok()
}

impl Member {
    /// Returns a machine with an empty directory.
    #[must_use]
    pub fn nothing(site: u64, cluster: &str) -> Self {
        Self {
            site,
            directory: Directory::Empty,
            cluster: cluster.to_owned(),
            life: 0,
            level: Level::default(),
            peers: Vec::new(),
            ended: None,
            is_among_changes: false,
            keeps_log: false,
            joiner: None,
            running: None,
        }
    }

    /// Returns a member that is down and whose disk is empty; its number is that of the machine.
    #[must_use]
    pub fn new(site: u64, cluster: &str, disk_id: String) -> Self {
        let mut member = Self::nothing(site, cluster);
        member.make_directory(site, disk_id);
        member
    }

    fn make_directory(&mut self, member_id: u64, disk_id: String) {
        let identity = Identity {
            cluster_id: self.cluster.clone(),
            member_id,
            disk_id,
        };
        let disk = MemoryDisk::new(identity.clone());
        self.directory = Directory::Member(identity, disk);
    }

    /// Becomes a member of another cluster, with an empty disk.
    pub fn join_other_cluster(&mut self, cluster: &str, disk_id: String) {
        self.delete_directory();
        cluster.clone_into(&mut self.cluster);
        self.make_directory(self.site, disk_id);
    }

    /// Returns its disk, if there is a member.
    #[must_use]
    pub fn disk(&self) -> Option<MemoryDisk> {
        match &self.directory {
            Directory::Member(_, disk) => Some(disk.clone()),
            Directory::Empty | Directory::Joining(_) => None,
        }
    }

    /// Returns the identity of its disk, if there is a member.
    #[must_use]
    pub fn disk_id(&self) -> Option<&str> {
        match &self.directory {
            Directory::Member(identity, _) => Some(&identity.disk_id),
            Directory::Empty | Directory::Joining(_) => None,
        }
    }

    /// Returns the number of the member whose directory is here.
    #[must_use]
    pub fn id(&self) -> Option<u64> {
        match &self.directory {
            Directory::Member(identity, _) => Some(identity.member_id),
            Directory::Empty | Directory::Joining(_) => None,
        }
    }

    /// Returns the number of its machine.
    #[must_use]
    pub fn site(&self) -> u64 {
        self.site
    }

    /// Returns whether there is a member that can be started.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.id().is_some() && self.ended.is_none()
    }

    /// Ends whatever runs, and deletes the directory.
    pub fn delete_directory(&mut self) {
        self.running = None;
        self.joiner = None;
        self.ended = None;
        self.peers.clear();
        self.directory = Directory::Empty;
    }

    /// Returns the membership that it has applied.
    #[must_use]
    pub fn membership(&self) -> Option<&Arc<Membership>> {
        Some(self.running.as_ref()?.replica.membership())
    }

    /// Returns whether it joins.
    #[must_use]
    pub fn is_joining(&self) -> bool {
        self.joiner.is_some()
    }

    /// Returns whether it is up.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.running.is_some() || self.joiner.is_some()
    }

    /// Returns whether a member runs, and not only its way into the cluster.
    #[must_use]
    pub fn is_running(&self) -> bool {
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

    /// Starts what belongs to its directory.
    ///
    /// # Errors
    ///
    /// When what is on a sound disk is not taken.
    pub fn start(
        &mut self,
        now: TimeMs,
        chance: &mut Chance,
        numbers: &mut Numbers,
        bug: Option<Bug>,
    ) -> Result<Start, String> {
        self.life += 1;
        if let Directory::Empty = self.directory
            && !self.peers.is_empty()
        {
            self.directory = Directory::Joining(chance.uuid().to_string());
        }
        match &self.directory {
            Directory::Empty => Ok(Start::Nothing),
            Directory::Joining(disk) => {
                let mut joiner = Joiner::new(self.site, disk.clone(), &self.peers);
                let outs = joiner.query(now, numbers);
                self.joiner = Some(joiner);
                Ok(Start::Joining(outs))
            }
            Directory::Member(identity, disk) => {
                self.open(identity.clone(), disk.clone(), chance, bug)?;
                Ok(Start::Up)
            }
        }
    }

    fn open(
        &mut self,
        identity: Identity,
        disk: MemoryDisk,
        chance: &mut Chance,
        bug: Option<Bug>,
    ) -> Result<(), String> {
        let mut parts = disk.clone().split();
        let level = self.level;
        let build = |rows: &mut dyn Iterator<Item = berth_store::Row>, index: u64| {
            Machine::from_rows(level, rows, index).map_err(|e| e.to_string())
        };
        let mut recovered = berth_store::recover(&mut parts, &build);
        if recovered.is_err() && bug == Some(Bug::IgnoreWitness) {
            disk.forge_witness();
            recovered = berth_store::recover(&mut parts, &build);
        }
        let recovered = match recovered {
            Ok(recovered) => recovered,
            Err(error) => {
                self.ended = Some(Ended::Refused(error.to_string()));
                return Ok(());
            }
        };
        let rebuild = recovered.recovery.rebuild_table;
        let id = identity.member_id;
        let mut config = Config::new(id, self.cluster.clone());
        config.seed = chance.seed();
        config.election_ticks = 10;
        config.heartbeat_ticks = 2;
        config.checkpoint_entries = chance.between(20, 200);
        if self.keeps_log {
            config.checkpoint_entries = u64::MAX;
        }
        config.hash_commands = 8;
        let replica = Replica::new(config, recovered).map_err(|e| e.to_string())?;
        let mut running = Running {
            replica,
            site: self.site,
            hello: Hello {
                disk: identity.disk_id.as_str().into(),
                life: self.life,
            },
            identity,
            life: self.life,
            admitted: BTreeSet::new(),
            learned: BTreeMap::new(),
            begun: Vec::new(),
            queries: Queries::default(),
            removed: false,
            contradiction: None,
            parts,
            waiters: BTreeMap::new(),
            parked: Vec::new(),
            last_ticket: 0,
            received: Vec::new(),
            unsynced: VecDeque::new(),
            forwarder: Forwarder::new(id, self.life),
            steps: Vec::new(),
            own: Vec::new(),
        };
        if rebuild {
            running.rebuild_table(&self.cluster)?;
        }
        self.running = Some(running);
        Ok(())
    }

    /// Cuts its power: what was not synchronised is lost, but for a random part.
    pub fn crash(&mut self, chance: &mut Chance) {
        self.crash_with(chance, Record::Kept);
    }

    /// As [`Self::crash`], and this becomes of the witness's newest record.
    pub fn crash_with(&mut self, chance: &mut Chance, record: Record) {
        self.running = None;
        self.joiner = None;
        let Directory::Member(_, disk) = &self.directory else {
            return;
        };
        let (log, table) = disk.unsynced();
        let log = chance.between(0, log as u64);
        let table = chance.between(0, table as u64);
        disk.crash_with(
            usize::try_from(log).expect("a count"),
            usize::try_from(table).expect("a count"),
            record,
        );
    }

    /// Takes a response to a member that joins.
    pub fn take_as_joiner(&mut self, now: TimeMs, call: CallNumber, told: Told) -> Joining {
        let Some(joiner) = &mut self.joiner else {
            return Joining::Goes(Vec::new());
        };
        let joining = joiner.take(now, call, told);
        match &joining {
            Joining::Goes(_) => {}
            Joining::Failed => self.joiner = None,
            Joining::Joined(id) => {
                self.joiner = None;
                self.peers.clear();
                if let Directory::Joining(disk) = &self.directory {
                    self.make_directory(*id, disk.clone());
                }
            }
        }
        joining
    }

    /// Wakes a member that joins.
    pub fn wake_joiner(&mut self, now: TimeMs, timer: Timer, numbers: &mut Numbers) -> Joining {
        match (timer, &mut self.joiner) {
            (Timer::Unanswered(call), Some(_)) => self.take_as_joiner(now, call, Told::Lost),
            (_, Some(joiner)) => Joining::Goes(joiner.query(now, numbers)),
            (_, None) => Joining::Goes(Vec::new()),
        }
    }

    /// Ends a member that must not go on.
    fn end_if_due(&mut self) {
        let Some(running) = &mut self.running else {
            return;
        };
        if let Some(fatal) = running.contradiction.take() {
            self.ended = Some(Ended::Contradicted(fatal));
        } else if running.removed {
            self.ended = Some(Ended::Removed);
        } else {
            return;
        }
        self.running = None;
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
        running.end_recovery(now);
        let mut wants = running.go_on_with_members(now, bug);
        if self.is_among_changes {
            wants.extend(running.query_others());
        }
        wants.extend(running.work(now, &self.cluster, chance, bug)?);
        self.end_if_due();
        Ok(wants)
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
            Packet::Raft(hello, mut message) => {
                if bug == Some(Bug::IgnoreContent)
                    && message.get_msg_type() == MessageType::MsgAppend
                {
                    message.context.clear();
                }
                if running.admits(from, &hello, &message) {
                    running.replica.step(*message);
                }
            }
            Packet::Snapshot(hello, message, bytes) => {
                if running.admits(from, &hello, &message) {
                    running.take_snapshot(*message, &bytes, &self.cluster, self.level)?;
                }
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
            Packet::Told(call, told) => {
                if !running.take_knowledge(call, &told) {
                    running.own.push((call, *told));
                }
            }
            Packet::Call(..) | Packet::Answer(..) | Packet::Wish(..) | Packet::Granted(..) => {
                return Err(format!("member {} was sent a foreign packet", self.site));
            }
        }
        wants.extend(running.work(now, &self.cluster, chance, bug)?);
        self.end_if_due();
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
        let wants = running.work(now, &self.cluster, chance, bug)?;
        self.end_if_due();
        Ok(wants)
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
        let wants = running.work(now, &self.cluster, chance, bug)?;
        self.end_if_due();
        Ok(wants)
    }

    /// Returns whether a snapshot for this member arrives here.
    #[must_use]
    pub fn receives(&self, id: u64) -> bool {
        self.running.as_ref().is_some_and(|r| r.replica.id() == id)
    }
}

impl Running {
    /// Checks the stream that a packet comes with. One that was admitted goes on until one of the
    /// two ends.
    fn admits(&mut self, from: Node, hello: &Hello, message: &Message) -> bool {
        let stream = (message.from, hello.life);
        if message.to == self.replica.id() && self.admitted.contains(&stream) {
            return true;
        }
        let sender = admission::Sender {
            cluster_id: &self.identity.cluster_id,
            from: message.from,
            from_disk: &hello.disk,
            to: message.to,
        };
        let checked = admission::check(&self.identity, self.replica.membership(), &sender);
        if checked.is_err() {
            return false;
        }
        self.admitted.insert(stream);
        if let Node::Member(site) = from {
            self.learned.insert(message.from, site);
        }
        true
    }

    /// Returns the machine of another member.
    fn site_of_member(&self, id: u64) -> Option<u64> {
        match self.replica.membership().get(id) {
            Some(member) => site_of(&member.address),
            None => self.learned.get(&id).copied(),
        }
    }

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
            | Question::Drain(_)
            | Question::Expired
            | Question::Registered(_)
            | Question::Service(_)
            | Question::Erasures(_)
            | Question::Expected(_)
            | Question::Volumes(_) => {
                let ticket = self.wait(Waiter::Read(from, call, question));
                self.replica.read_index(ticket);
                Vec::new()
            }
            Question::Members(request) => self.take_members_request(now, from, call, request),
        }
    }

    fn not_leader(&self, from: Node, call: CallNumber) -> Want {
        let leader = self.replica.role().leader;
        let leader = leader.filter(|leader| *leader != self.replica.id());
        let told = Told::NotLeader(leader.and_then(|leader| self.site_of_member(leader)));
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
        match decide(machine.state(), berth_codec::admit, now, &ask) {
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
            loop {
                match self.replica.ready() {
                    Ok(Some(effects)) => {
                        self.carry_out(effects, now, cluster, chance, bug, &mut wants)?;
                    }
                    Ok(None) => break,
                    Err(fatal) if is_contradiction(&fatal) => {
                        self.contradiction = Some(fatal);
                        return Ok(wants);
                    }
                    Err(fatal) => return Err(fatal.to_string()),
                }
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
        let own = Node::Member(self.site);
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
        let own = Node::Member(self.site);
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
                Step::Ask(member, call, request) => {
                    // Without an address it is lost, and counts as in doubt.
                    if let Some(site) = self.site_of_member(member) {
                        wants.push(Want::Send(
                            Node::Member(site),
                            Packet::Question(call, Box::new(Question::Decide(*request))),
                        ));
                    }
                }
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
            // Without an address the message is lost; the member will say hello.
            if let Some(site) = self.site_of_member(message.to) {
                let packet = Packet::Raft(self.hello.clone(), Box::new(message));
                wants.push(Want::Send(Node::Member(site), packet));
            }
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
        for ticket in effects.changed {
            if let Some(Waiter::Change(from, call, id)) = self.waiters.remove(&ticket.0) {
                let done = id.map_or(MembersResponse::Done, MembersResponse::Member);
                let told = Box::new(Told::Members(done));
                wants.push(Want::Send(from, Packet::Told(call, told)));
            }
        }
        self.removed |= effects.removed;
        for ticket in effects.lost.into_iter().chain(effects.failed_reads) {
            if let Some(waiter) = self.waiters.remove(&ticket.0) {
                let (from, call) = match waiter {
                    Waiter::Decision(from, call, ..)
                    | Waiter::Read(from, call, _)
                    | Waiter::Change(from, call, _) => (from, call),
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
            let site = self.site_of_member(snapshot.to);
            match (site, self.parts.checkpoints.open(snapshot.index)) {
                (Some(site), Ok(mut content)) => {
                    let mut bytes = Vec::new();
                    content.read_to_end(&mut bytes).map_err(|e| e.to_string())?;
                    let hello = self.hello.clone();
                    let message = Box::new(snapshot.message);
                    wants.push(Want::SendSnapshot(site, hello, message, bytes));
                }
                (None, _) | (_, Err(_)) => self.replica.snapshot_sent(snapshot.to, false),
            }
        }
        if effects.role.is_some() {
            for (from, call, ask) in std::mem::take(&mut self.parked) {
                wants.extend(self.take_question(now, from, call, Question::Decide(ask), bug));
            }
        }
        Ok(())
    }

    fn serve(&mut self, reads: Vec<Ticket>, now: TimeMs, wants: &mut Vec<Want>) {
        for ticket in reads {
            let (to, call, told) = match self.waiters.remove(&ticket.0) {
                None => continue,
                Some(Waiter::Decision(to, call, _, answer)) => {
                    (to, call, answer.map_or(Told::Lost, Told::Decided))
                }
                Some(Waiter::Change(..)) => continue,
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
}

/// Returns whether this is what another member's word shows.
fn is_contradiction(fatal: &Fatal) -> bool {
    match fatal {
        Fatal::LogLost { .. }
        | Fatal::LeaderBehind { .. }
        | Fatal::TwoLeaders { .. }
        | Fatal::LedTwice { .. }
        | Fatal::OtherContent { .. }
        | Fatal::OtherHistory { .. } => true,
        Fatal::Command { .. }
        | Fatal::Entry { .. }
        | Fatal::Diverged { .. }
        | Fatal::Prediction { .. }
        | Fatal::Invariant { .. }
        | Fatal::Raft(_) => false,
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
