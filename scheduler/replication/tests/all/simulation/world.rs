//! The world around the members: time, network, faults, clients, and what must hold.

mod gray;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;

use berth_replication::effects::SendSnapshot;
use berth_replication::{Change, Effects, Machine as _, Position, Ticket};
use berth_store::recover::read_snapshot;
use berth_store::{
    CheckpointStore as _, LogStore as _, Member, StateHash, TableStore as _, checkpoints,
};
use berth_testkit::replication::{Command, Registers, add, set};
use bytes::Bytes;
use raft::eraftpb::Message;

pub(crate) use self::gray::Fault;
use super::node::{CLUSTER, Node};

/// What goes wrong.
#[derive(Clone, Copy)]
pub(crate) struct Faults {
    pub(crate) network: bool,
    pub(crate) crashes: bool,
    pub(crate) damage: bool,
    pub(crate) members: bool,
    /// Disks that hang, or are slow, for a while.
    pub(crate) disks: bool,
}

impl Faults {
    pub(crate) const NONE: Self = Self {
        network: false,
        crashes: false,
        damage: false,
        members: false,
        disks: false,
    };
    pub(crate) const NETWORK: Self = Self {
        network: true,
        ..Self::NONE
    };
    pub(crate) const ALL: Self = Self {
        network: true,
        crashes: true,
        damage: true,
        members: false,
        disks: false,
    };
}

/// Numbers from the seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.roll() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

enum Parcel {
    Message(Message),
    Snapshot {
        message: Message,
        content: Bytes,
    },
    SnapshotReport {
        about: u64,
        arrived: bool,
        incarnation: u64,
    },
}

/// An operation that was proposed: it writes a register of its own, or adds to the common sum.
#[derive(Clone, Copy)]
enum Operation {
    Set(u64),
    Add(u64),
}

impl Operation {
    fn adds(self) -> u64 {
        match self {
            Self::Set(_) => 0,
            Self::Add(n) => n,
        }
    }
}

pub(crate) struct World {
    dice: Dice,
    faults: Faults,
    now: u64,
    nodes: Vec<Node>,
    /// In the order of arrival; the second number keeps equal times apart.
    mail: BTreeMap<(u64, u64), (u64, u64, Parcel)>,
    sent: u64,
    /// Members that hear only each other for now.
    cut_off: BTreeSet<u64>,
    operations: u64,
    in_flight: BTreeMap<(u64, u64, u64), Operation>,
    /// The registers whose writing was acknowledged, in that order.
    acknowledged: Vec<u64>,
    acknowledged_sum: u64,
    unknown_sum: u64,
    /// Reads under way: how many were acknowledged when each was asked.
    reads: BTreeMap<(u64, u64, u64), usize>,
    reads_served: u64,
    leaders: BTreeMap<u64, u64>,
    hashes: BTreeMap<u64, StateHash>,
    trace: u64,
}

const STEPS: u64 = 1500;
const TICK: u64 = 10;

impl World {
    pub(crate) fn new(seed: u64, faults: Faults, members: u64) -> Self {
        let mut nodes: Vec<Node> = (1..=members).map(Node::new).collect();
        nodes[0].bootstrap();
        let mut dice = Dice(seed);
        for node in &mut nodes {
            node.start(dice.roll());
        }
        Self {
            dice,
            faults,
            now: 0,
            nodes,
            mail: BTreeMap::new(),
            sent: 0,
            cut_off: BTreeSet::new(),
            operations: 0,
            in_flight: BTreeMap::new(),
            acknowledged: Vec::new(),
            acknowledged_sum: 0,
            unknown_sum: 0,
            reads: BTreeMap::new(),
            reads_served: 0,
            leaders: BTreeMap::new(),
            hashes: BTreeMap::new(),
            trace: 0,
        }
    }

    /// Runs to the end and returns a digest of everything that happened.
    pub(crate) fn run(mut self) -> u64 {
        self.assemble();
        let deadline = self.now + STEPS * 4;
        while self.now < deadline {
            self.disturb();
            self.clients();
            self.step();
        }
        self.heal();
        self.settle();
        self.judge();
        self.trace
    }

    /// Brings all members into the group before anything goes wrong.
    fn assemble(&mut self) {
        let count = self.nodes.len() as u64;
        for id in 2..=count {
            self.until("a member can be added", |world| world.add_member(id));
        }
        self.until("all members vote", |world| {
            world.nodes.iter().all(|node| {
                node.running.as_ref().is_some_and(|running| {
                    running.replica.membership().voters.len() as u64 == count
                })
            })
        });
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let deadline = self.now + 60_000;
        while !done(self) {
            assert!(
                self.now < deadline,
                "not in time: {what}\n{}",
                self.picture()
            );
            self.step();
        }
    }

    fn add_member(&mut self, id: u64) -> bool {
        let member = Member {
            id,
            address: format!("m{id}"),
            promote: true,
            ..Member::default()
        };
        self.nodes.iter_mut().any(|node| {
            let Some(running) = node.running.as_mut() else {
                return false;
            };
            let ticket = Ticket(u64::MAX);
            let changes = [Change::AddLearner(member.clone())];
            running.replica.change_membership(ticket, &changes).is_ok()
        })
    }

    /// One unit of time: mail arrives, disks finish, clocks tick.
    fn step(&mut self) {
        self.now += 1;
        while let Some(entry) = self.mail.first_entry().filter(|e| e.key().0 <= self.now) {
            let (_, sent) = *entry.key();
            let (from, to, parcel) = entry.remove();
            match self.fault_of(to).is_none_or(|f| f.is_running(self.now)) {
                true => self.deliver(from, to, parcel),
                // It waits in the receiver's buffers.
                false => drop(self.mail.insert((self.now + 1, sent), (from, to, parcel))),
            }
        }
        for at in 0..self.nodes.len() {
            let id = self.nodes[at].id;
            let slow = self.dice.below(6);
            let fault = self.nodes[at].fault;
            if fault.is_some_and(|fault| !fault.is_running(self.now)) {
                continue;
            }
            let Some(running) = self.nodes[at].running.as_mut() else {
                continue;
            };
            if self.now % TICK == id % TICK {
                running.replica.tick();
            }
            match fault {
                Some(fault) => running.work_slowly(fault, self.now),
                None if slow == 0 => running.complete_persists(),
                None => {}
            }
            if slow == 1 {
                running.write_table();
            }
            if slow == 2 && self.now.is_multiple_of(7) {
                running.parts.table.flush().expect("flush");
            }
            self.carry_out(at);
        }
    }

    fn carry_out(&mut self, at: usize) {
        loop {
            let Some(running) = self.nodes[at].running.as_mut() else {
                return;
            };
            let effects = running
                .replica
                .ready()
                .unwrap_or_else(|e| panic!("member {} stopped: {e}", at + 1));
            let Some(effects) = effects else { break };
            self.effects(at, effects);
        }
        let node = &self.nodes[at];
        let Some(running) = &node.running else { return };
        // What was predicted for everything in flight is what came out when nothing is.
        if self.now.is_multiple_of(64)
            && running.replica.pending() == 0
            && let Some(speculative) = running.replica.speculative()
        {
            let applied = running.replica.machine().expect("a leader has a state");
            assert!(speculative.rows().eq(applied.rows()), "speculation drifted");
        }
    }

    fn effects(&mut self, at: usize, effects: Effects<Registers>) {
        let (id, incarnation) = (self.nodes[at].id, self.nodes[at].incarnation);
        for message in effects.messages {
            self.post(id, message.to, Parcel::Message(message));
        }
        for snapshot in effects.snapshots {
            self.post_snapshot(at, snapshot);
        }
        for answer in effects.answers {
            let operation = self.in_flight.remove(&(id, incarnation, answer.ticket.0));
            let operation = operation.expect("it was proposed here");
            if let Operation::Set(number) = operation {
                self.acknowledged.push(number);
            }
            self.acknowledged_sum += operation.adds();
            self.note(&[1, id, answer.index]);
        }
        for ticket in effects.lost {
            if let Some(operation) = self.in_flight.remove(&(id, incarnation, ticket.0)) {
                self.unknown_sum += operation.adds();
            }
        }
        for ticket in effects.reads {
            let at_request = self.reads.remove(&(id, incarnation, ticket.0));
            self.check_read(at, at_request.expect("it was asked here"));
        }
        for ticket in effects.failed_reads {
            self.reads.remove(&(id, incarnation, ticket.0));
        }
        if let Some(role) = effects.role.filter(|role| role.deciding) {
            let leader = *self.leaders.entry(role.term).or_insert(id);
            assert_eq!(leader, id, "two members decide in term {}", role.term);
        }
        let running = self.nodes[at].running.as_mut().expect("it is running");
        if effects.replaced.is_some() {
            running.rebuild_table();
        }
        let mut position = None;
        if let Some(applied) = effects.applied {
            position = Some(applied.position);
            running.applied.push(applied);
        }
        running.persists.extend(effects.persist);
        if let Some(request) = effects.checkpoint {
            let header = request.header.clone();
            let bytes = checkpoints::save(
                &running.parts.checkpoints,
                request.header,
                request.machine.rows(),
            );
            running
                .replica
                .checkpoint_taken(&header, bytes.expect("save"));
        }
        if let Some(first_kept) = effects.compact_log {
            running.parts.log.compact(first_kept).expect("compact");
        }
        self.nodes[at].removed |= effects.removed;
        if let Some(position) = position {
            self.check_hash(id, position);
        }
    }

    fn check_hash(&mut self, id: u64, position: Position) {
        let known = *self.hashes.entry(position.index).or_insert(position.hash);
        assert_eq!(
            known, position.hash,
            "member {id} has another state at index {}",
            position.index
        );
        self.note(&[2, id, position.index]);
    }

    fn check_read(&mut self, at: usize, acknowledged_before: usize) {
        let running = self.nodes[at].running.as_ref().expect("it is running");
        let machine = running.replica.machine().expect("a state");
        for number in self.acknowledged[..acknowledged_before]
            .iter()
            .rev()
            .take(50)
        {
            assert!(
                machine.get(&format!("op{number}")).is_some(),
                "a read at member {} misses operation {number}",
                at + 1
            );
        }
        self.reads_served += 1;
        self.nodes[at].reads_served += 1;
    }

    fn post(&mut self, from: u64, to: u64, parcel: Parcel) {
        let (lost, twice, delay) = match self.faults.network {
            true => {
                let far = if self.dice.one_in(12) { 60 } else { 4 };
                (
                    self.dice.one_in(25),
                    self.dice.one_in(30),
                    1 + self.dice.below(far),
                )
            }
            false => (false, false, 1),
        };
        if lost {
            return;
        }
        if twice && let Parcel::Message(message) = &parcel {
            let copy = Parcel::Message(message.clone());
            self.sent += 1;
            let when = self.now + delay + 1 + self.dice.below(30);
            self.mail.insert((when, self.sent), (from, to, copy));
        }
        self.sent += 1;
        self.mail
            .insert((self.now + delay, self.sent), (from, to, parcel));
    }

    fn post_snapshot(&mut self, at: usize, snapshot: SendSnapshot) {
        let (id, incarnation) = (self.nodes[at].id, self.nodes[at].incarnation);
        let running = self.nodes[at].running.as_mut().expect("it is running");
        let to = snapshot.to;
        let mut content = Vec::new();
        let opened = running.parts.checkpoints.open(snapshot.index);
        let lost = self.faults.network && self.dice.one_in(4);
        match opened {
            Ok(mut reader) if !lost => {
                reader.read_to_end(&mut content).expect("read");
                let message = snapshot.message;
                let content = content.into();
                self.sent += 1;
                let when = self.now + 20 + self.dice.below(40);
                let parcel = Parcel::Snapshot { message, content };
                self.mail.insert((when, self.sent), (id, to, parcel));
            }
            Ok(_) | Err(_) => {
                let arrived = false;
                let report = Parcel::SnapshotReport {
                    about: to,
                    arrived,
                    incarnation,
                };
                self.sent += 1;
                self.mail
                    .insert((self.now + 15, self.sent), (to, id, report));
            }
        }
    }

    fn deliver(&mut self, from: u64, to: u64, parcel: Parcel) {
        let apart = self.cut_off.contains(&from) != self.cut_off.contains(&to)
            || self.is_lost_one_way(from, to);
        let Some(at) = self.nodes.iter().position(|n| n.id == to) else {
            return;
        };
        match parcel {
            Parcel::SnapshotReport {
                about,
                arrived,
                incarnation,
            } => {
                let node = &mut self.nodes[at];
                if node.incarnation == incarnation
                    && let Some(running) = node.running.as_mut()
                {
                    running.replica.snapshot_sent(about, arrived);
                }
            }
            Parcel::Message(message) => {
                if let Some(running) = self.nodes[at].running.as_mut().filter(|_| !apart) {
                    running.replica.step(message);
                    self.carry_out(at);
                }
            }
            Parcel::Snapshot { message, content } => {
                let arrived = !apart && self.receive_snapshot(at, message, &content);
                let sender = self.nodes.iter().find(|n| n.id == from);
                let incarnation = sender.map_or(0, |n| n.incarnation);
                let report = Parcel::SnapshotReport {
                    about: to,
                    arrived,
                    incarnation,
                };
                self.sent += 1;
                self.mail
                    .insert((self.now + 2, self.sent), (to, from, report));
                self.carry_out(at);
            }
        }
    }

    fn receive_snapshot(&mut self, at: usize, message: Message, content: &[u8]) -> bool {
        let Some(running) = self.nodes[at].running.as_mut() else {
            return false;
        };
        let mut sink = running.parts.checkpoints.create().expect("create");
        sink.write_all(content).expect("write");
        sink.seal().expect("seal");
        let (header, machine) = read_snapshot(sink.reopen().expect("reopen"), CLUSTER, &|r, i| {
            Registers::from_rows((), r, i).map_err(|e| e.to_string())
        })
        .expect("a sound snapshot");
        let index = header.index;
        let used = running.replica.step_snapshot(message, header, machine);
        if used {
            running.received.push((index, sink));
        }
        used
    }

    /// Clients ask random members for random things.
    fn clients(&mut self) {
        if !self.dice.one_in(3) {
            return;
        }
        let at = self.dice.below(self.nodes.len() as u64) as usize;
        let kind = self.dice.below(8);
        let adds = self.dice.below(5);
        let (id, incarnation) = (self.nodes[at].id, self.nodes[at].incarnation);
        let Some(running) = self.nodes[at].running.as_mut() else {
            return;
        };
        running.last_ticket += 1;
        let ticket = Ticket(running.last_ticket);
        if kind == 0 {
            running.replica.read_index(ticket);
            let before = self.acknowledged.len();
            self.reads.insert((id, incarnation, ticket.0), before);
            return;
        }
        if kind == 1 && running.replica.may_propose().is_ok() {
            // A decision that needs no command may tell only what is committed.
            running.replica.confirm_decision(ticket);
            let before = self.acknowledged.len();
            self.reads.insert((id, incarnation, ticket.0), before);
            return;
        }
        if running.replica.may_propose().is_err() {
            return;
        }
        self.operations += 1;
        let number = self.operations;
        let proposals: [(Command, Operation); 2] = [
            (set(format!("op{number}"), number), Operation::Set(number)),
            (add("sum", adds), Operation::Add(adds)),
        ];
        for (command, operation) in proposals {
            let ticket = Ticket(running.last_ticket);
            running.last_ticket += 1;
            running.replica.propose(ticket, command).expect("taken");
            self.in_flight
                .insert((id, incarnation, ticket.0), operation);
        }
    }

    fn disturb(&mut self) {
        if self.faults.network && self.dice.one_in(300) {
            self.cut_off.clear();
            if self.dice.one_in(2) {
                for node in &self.nodes {
                    if self.dice.one_in(3) {
                        self.cut_off.insert(node.id);
                    }
                }
            }
        }
        if self.faults.crashes && self.dice.one_in(100) {
            let at = self.dice.below(self.nodes.len() as u64) as usize;
            match self.nodes[at].running {
                Some(_) if self.dice.one_in(4) => self.crash(at),
                Some(_) => {}
                None => self.start(at),
            }
        }
        if self.faults.disks && self.dice.one_in(120) {
            let at = self.dice.below(self.nodes.len() as u64) as usize;
            self.nodes[at].fault = match self.dice.below(8) {
                0 => Some(Fault::HungDisk),
                1 => Some(Fault::SlowDisk(self.dice.below(200))),
                _ => None,
            };
        }
        if self.faults.members && self.dice.one_in(200) {
            self.shuffle_members();
        }
        if self.dice.one_in(400) {
            let to = 1 + self.dice.below(self.nodes.len() as u64);
            for node in &mut self.nodes {
                if let Some(running) = node.running.as_mut() {
                    // Refused by all but a leader.
                    let _ = running.replica.transfer_leader(to);
                }
            }
        }
    }

    fn crash(&mut self, at: usize) {
        let (id, incarnation) = (self.nodes[at].id, self.nodes[at].incarnation);
        let log_batches = self.dice.below(4) as usize;
        let table_batches = self.dice.below(4) as usize;
        let named = self.dice.one_in(2);
        self.nodes[at].crash(log_batches, table_batches, named);
        let of_this = |key: &(u64, u64, u64)| (key.0, key.1) == (id, incarnation);
        self.reads.retain(|key, _| !of_this(key));
        let unknown: u64 = self
            .in_flight
            .iter()
            .filter(|(key, _)| of_this(key))
            .map(|(_, operation)| operation.adds())
            .sum();
        self.unknown_sum += unknown;
        self.in_flight.retain(|key, _| !of_this(key));
        self.note(&[3, id, self.now]);
    }

    fn start(&mut self, at: usize) {
        if self.nodes[at].removed {
            return;
        }
        if self.faults.damage {
            self.damage(at);
        }
        let seed = self.dice.roll();
        self.nodes[at].start(seed);
        self.note(&[4, self.nodes[at].id, self.now]);
    }

    /// What a disk may do to files at rest, as far as it can be repaired.
    fn damage(&mut self, at: usize) {
        let disk = &self.nodes[at].disk;
        match self.dice.below(6) {
            0 => disk.empty_table(),
            1 => {
                disk.damage_table();
            }
            2 => {
                let parts = berth_store::Disk::split(disk.clone());
                let mut log = parts.log;
                let checkpoints = parts.checkpoints.list().expect("list");
                let entries = log.load().expect("load").entries;
                let first = entries.first().map_or(u64::MAX, |e| e.index);
                let last = entries.last().map_or(0, |e| e.index);
                // Only where another is left and the log still continues it.
                if let [newest, older] = checkpoints[..]
                    && first <= older + 1
                    && last >= newest
                {
                    disk.damage_checkpoint(newest, 40);
                }
            }
            _ => {}
        }
    }

    fn shuffle_members(&mut self) {
        if self.dice.one_in(2) && self.nodes.len() < 8 {
            let mut node = Node::new(self.nodes.len() as u64 + 1);
            let id = node.id;
            if self.add_member(id) {
                node.start(self.dice.roll());
                self.nodes.push(node);
            }
            return;
        }
        let id = 1 + self.dice.below(self.nodes.len() as u64);
        let demote = self.dice.one_in(3);
        let moved = self.dice.one_in(4).then(|| self.dice.roll());
        for node in &mut self.nodes {
            let Some(running) = node.running.as_mut() else {
                continue;
            };
            if running.replica.membership().voters.len() <= 3 {
                continue;
            }
            let change = match (moved, demote) {
                (Some(number), _) => Change::Address {
                    id,
                    address: format!("moved-{number}"),
                },
                (None, true) => Change::Demote(id),
                (None, false) => Change::Remove(id),
            };
            // Refused by all but a leader, and by a leader that is busy.
            let _ = running
                .replica
                .change_membership(Ticket(u64::MAX), &[change]);
        }
    }

    /// Ends all faults and starts everybody.
    fn heal(&mut self) {
        self.faults = Faults::NONE;
        self.cut_off.clear();
        for node in &mut self.nodes {
            node.fault = None;
        }
        for at in 0..self.nodes.len() {
            if self.nodes[at].running.is_none() {
                self.start(at);
            }
        }
    }

    /// Waits until all members that belong to the group have applied the same.
    fn settle(&mut self) {
        self.until("the group agrees", |world| {
            let members: Vec<_> = world
                .nodes
                .iter()
                .filter_map(|n| n.running.as_ref())
                .map(|r| &r.replica)
                .collect();
            let Some(leader) = members.iter().find(|r| r.role().deciding) else {
                return false;
            };
            let position = leader.position();
            let belongs = |id| leader.membership().get(id).is_some();
            leader.pending() == 0
                && leader.committed() == leader.last_index()
                && members
                    .iter()
                    .filter(|r| belongs(r.id()))
                    .all(|r| r.position() == position)
        });
        // Hash records and late answers.
        for _ in 0..200 {
            self.step();
        }
    }

    fn judge(&mut self) {
        let leader = self
            .nodes
            .iter()
            .filter_map(|n| n.running.as_ref())
            .find(|r| r.replica.role().deciding)
            .expect("a leader");
        let machine = leader.replica.machine().expect("a state");
        for number in &self.acknowledged {
            assert_eq!(
                machine.get(&format!("op{number}")),
                Some(number.to_string().as_str()),
                "operation {number} was acknowledged and is lost"
            );
        }
        let sum: u64 = machine.get("sum").map_or(0, |v| v.parse().expect("a sum"));
        let most = self.acknowledged_sum
            + self.unknown_sum
            + self.in_flight.values().map(|o| o.adds()).sum::<u64>();
        assert!(
            (self.acknowledged_sum..=most).contains(&sum),
            "the sum is {sum}, acknowledged were {}, possible {most}",
            self.acknowledged_sum
        );
        assert!(self.acknowledged.len() > 20, "hardly anything happened");
        assert!(self.reads_served > 5, "hardly anything was read");
        let hash = leader.replica.position();
        self.note(&[5, hash.index, hash.rows]);
    }

    /// Describes all members, for a failing run.
    fn picture(&self) -> String {
        let mut text = String::new();
        for node in &self.nodes {
            let line = match &node.running {
                None => format!("member {} is down\n", node.id),
                Some(running) => {
                    let replica = &running.replica;
                    format!(
                        "member {}: {:?} {:?} committed {} last {} pending {} progress {:?} \
                         voters {:?} learners {:?} persists {}\n",
                        node.id,
                        replica.role(),
                        replica.position(),
                        replica.committed(),
                        replica.last_index(),
                        replica.pending(),
                        replica.progress(),
                        replica.membership().voters,
                        replica.membership().learners,
                        running.persists.len(),
                    )
                }
            };
            text.push_str(&line);
        }
        text
    }

    fn note(&mut self, facts: &[u64]) {
        for fact in facts {
            self.trace = (self.trace ^ fact)
                .wrapping_mul(0x0100_0000_01b3)
                .rotate_left(23);
        }
    }
}
