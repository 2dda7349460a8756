//! Gray failures: a member that is neither up nor down, and what the others then do.
//!
//! Goal: whichever member it is and whatever it has, the healthy members write and read on: the
//! longest gap is under three election timeouts. The member gets leadership no second time while
//! its fault lasts, and has caught up when the fault is over.
//!
//! Method: one fault from [`Fault::EVERY`] at the leader or at a follower, for twenty election
//! timeouts. Meanwhile each healthy member sends a write and a read every few units of time, the
//! write to the leader that it knows.

use std::collections::BTreeMap;

use berth_replication::Ticket;
use berth_testkit::replication::set;

use super::super::node::ELECTION_TICKS;
use super::{Operation, TICK, World};

/// One election timeout, in units of time.
const TIMEOUT: u64 = ELECTION_TICKS as u64 * TICK;
/// For how long the fault lasts.
const DURATION: u64 = 20 * TIMEOUT;
/// How often each healthy member sends a write and a read.
const PACE: u64 = 5;

/// What one member has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Each synchronisation takes so long.
    SlowDisk(u64),
    /// No synchronisation returns.
    HungDisk,
    /// No synchronisation returns for the first time, and they are quick for the second, in turn.
    HangingDisk(u64, u64),
    /// The process does not run for the first time, and runs for the second, in turn.
    Starved(u64, u64),
    /// Nothing that it sends arrives at any member.
    Mute,
    /// Nothing that the others send arrives.
    Deaf,
    /// Nothing that it sends arrives at one of the others.
    MuteTowardsOne,
    /// Nothing that one of the others sends arrives.
    DeafTowardsOne,
}

impl Fault {
    pub(crate) const EVERY: [Self; 12] = [
        Self::SlowDisk(TIMEOUT / 2),
        Self::SlowDisk(TIMEOUT * 9 / 10),
        Self::SlowDisk(TIMEOUT * 3 / 2),
        Self::HungDisk,
        Self::HangingDisk(TIMEOUT * 3 / 2, TIMEOUT * 2),
        Self::HangingDisk(TIMEOUT * 5, TIMEOUT / 5),
        Self::Starved(TIMEOUT / 2, 5),
        Self::Starved(TIMEOUT * 3 / 2, 10),
        Self::Mute,
        Self::Deaf,
        Self::MuteTowardsOne,
        Self::DeafTowardsOne,
    ];

    /// Returns whether a synchronisation that began then is over.
    pub(crate) fn is_synchronised(self, begun: u64, now: u64) -> bool {
        match self {
            Self::SlowDisk(takes) => now >= begun + takes,
            Self::HungDisk => false,
            Self::HangingDisk(hung, free) => now % (hung + free) >= hung,
            Self::Starved(..)
            | Self::Mute
            | Self::Deaf
            | Self::MuteTowardsOne
            | Self::DeafTowardsOne => true,
        }
    }

    /// Returns whether the process runs.
    pub(super) fn is_running(self, now: u64) -> bool {
        match self {
            Self::Starved(paused, running) => now % (paused + running) >= paused,
            Self::SlowDisk(_)
            | Self::HungDisk
            | Self::HangingDisk(..)
            | Self::Mute
            | Self::Deaf
            | Self::MuteTowardsOne
            | Self::DeafTowardsOne => true,
        }
    }

    fn is_towards_one(self) -> bool {
        matches!(self, Self::MuteTowardsOne | Self::DeafTowardsOne)
    }

    /// Returns whether what this member sends there, or what is sent to it from there, is lost.
    pub(super) fn loses(self, is_outgoing: bool, is_the_one: bool) -> bool {
        match self {
            Self::Mute => is_outgoing,
            Self::Deaf => !is_outgoing,
            Self::MuteTowardsOne => is_outgoing && is_the_one,
            Self::DeafTowardsOne => !is_outgoing && is_the_one,
            Self::SlowDisk(_) | Self::HungDisk | Self::HangingDisk(..) | Self::Starved(..) => false,
        }
    }
}

/// The longest time without an acknowledgement at one member.
struct Gap {
    last: u64,
    longest: u64,
}

impl Gap {
    fn new(now: u64) -> Self {
        Self {
            last: now,
            longest: 0,
        }
    }

    fn acknowledged(&mut self, now: u64) {
        self.longest = self.longest.max(now - self.last);
        self.last = now;
    }
}

/// What was observed while the fault lasted, in units of time.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) write_gap: u64,
    pub(crate) read_gap: u64,
    /// How often another member began to lead.
    pub(crate) elections: usize,
    /// How often the faulty member did.
    pub(crate) elections_of_faulty: usize,
}

impl Observed {
    /// Says what is wrong with it.
    pub(crate) fn wrong(&self) -> Option<&'static str> {
        if self.write_gap >= 3 * TIMEOUT {
            return Some("the healthy members could not write for too long");
        }
        if self.read_gap >= 3 * TIMEOUT {
            return Some("the healthy members could not read for too long");
        }
        if self.elections_of_faulty > 0 {
            return Some("the faulty member became leader again");
        }
        (self.elections > 2).then_some("leadership changes again and again")
    }
}

impl World {
    /// Runs one fault at the leader or at a follower, and heals it.
    pub(crate) fn run_gray(mut self, fault: Fault, at_leader: bool) -> Observed {
        self.assemble();
        self.until("a leader decides", |world| world.deciding().is_some());
        // Some history first, of which the fault is no part.
        for _ in 0..5 * TIMEOUT {
            self.clients();
            self.step();
        }
        let leader = self.deciding().expect("nothing disturbed it");
        let faulty = match at_leader {
            true => leader,
            false => (leader + 1) % self.nodes.len(),
        };
        self.nodes[faulty].fault = Some(fault);
        let observed = self.observe(faulty);
        self.heal();
        self.settle();
        self.judge();
        observed
    }

    fn deciding(&self) -> Option<usize> {
        self.nodes.iter().position(|node| {
            let running = node.running.as_ref();
            running.is_some_and(|running| running.replica.role().deciding)
        })
    }

    /// Sends writes and reads at the healthy members while the fault lasts.
    fn observe(&mut self, faulty: usize) -> Observed {
        let begun = self.now;
        let elected_before = self.leaders.len();
        let healthy: Vec<usize> = (0..self.nodes.len())
            .filter(|at| *at != faulty && !self.is_the_one(faulty, *at))
            .collect();
        let gaps = || healthy.iter().map(|at| (*at, Gap::new(begun))).collect();
        let (mut writes, mut reads): (BTreeMap<_, _>, BTreeMap<_, _>) = (gaps(), gaps());
        let mut senders: BTreeMap<u64, usize> = BTreeMap::new();
        while self.now < begun + DURATION {
            let acknowledged = self.acknowledged.len();
            let served: Vec<u64> = self.nodes.iter().map(|node| node.reads_served).collect();
            let senders_now = match self.now.is_multiple_of(PACE) {
                true => &healthy[..],
                false => &[],
            };
            for at in senders_now {
                senders.extend(self.write_from(*at).map(|number| (number, *at)));
                self.read_from(*at);
            }
            self.step();
            for number in &self.acknowledged[acknowledged..] {
                if let Some(gap) = senders.get(number).and_then(|at| writes.get_mut(at)) {
                    gap.acknowledged(self.now);
                }
            }
            for (at, gap) in &mut reads {
                if self.nodes[*at].reads_served > served[*at] {
                    gap.acknowledged(self.now);
                }
            }
        }
        let id = self.nodes[faulty].id;
        Observed {
            write_gap: self.longest(writes),
            read_gap: self.longest(reads),
            elections: self.leaders.len() - elected_before,
            elections_of_faulty: (self.leaders.values().skip(elected_before))
                .filter(|leader| **leader == id)
                .count(),
        }
    }

    fn longest(&self, gaps: BTreeMap<usize, Gap>) -> u64 {
        let ended = gaps.into_values().map(|mut gap| {
            gap.acknowledged(self.now);
            gap.longest
        });
        ended.max().expect("there are healthy members")
    }

    /// Returns whether this is the member that a fault of one link cuts off as well. For a fault
    /// of the follower after the leader, that is the leader.
    fn is_the_one(&self, faulty: usize, at: usize) -> bool {
        let count = self.nodes.len();
        let is_next = at == (faulty + count - 1) % count;
        is_next && self.nodes[faulty].fault.is_some_and(Fault::is_towards_one)
    }

    /// Returns what is wrong with this member.
    pub(super) fn fault_of(&self, id: u64) -> Option<Fault> {
        self.nodes.iter().find(|node| node.id == id)?.fault
    }

    /// Returns whether one of the two has a fault that loses what the first sends to the second.
    pub(super) fn is_lost_one_way(&self, from: u64, to: u64) -> bool {
        let loses = |faulty: u64, other: u64, is_outgoing| {
            let is_one = || self.is_the_one(faulty as usize - 1, other as usize - 1);
            let fault = self.fault_of(faulty);
            fault.is_some_and(|fault| fault.loses(is_outgoing, is_one()))
        };
        loses(from, to, true) || loses(to, from, false)
    }

    /// A client writes at this member, which forwards to the leader that it knows. Returns the
    /// number of the operation.
    fn write_from(&mut self, at: usize) -> Option<u64> {
        let member = self.nodes[at].running.as_ref().expect("it is running");
        let leader = member.replica.role().leader?;
        let node = self.nodes.iter_mut().find(|node| node.id == leader);
        let node = node.expect("it was elected");
        let is_awake = node.fault.is_none_or(|fault| fault.is_running(self.now));
        let running = node.running.as_mut().expect("it is running");
        if !is_awake || running.replica.may_propose().is_err() {
            return None;
        }
        self.operations += 1;
        let number = self.operations;
        running.last_ticket += 1;
        let ticket = Ticket(running.last_ticket);
        let command = set(format!("op{number}"), number);
        running.replica.propose(ticket, command).expect("taken");
        let key = (leader, node.incarnation, ticket.0);
        self.in_flight.insert(key, Operation::Set(number));
        Some(number)
    }

    fn read_from(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let running = node.running.as_mut().expect("it is running");
        running.last_ticket += 1;
        let ticket = Ticket(running.last_ticket);
        running.replica.read_index(ticket);
        let key = (node.id, node.incarnation, ticket.0);
        self.reads.insert(key, self.acknowledged.len());
    }
}
