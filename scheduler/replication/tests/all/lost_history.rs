//! Members that come back with an older disk, and what the others notice.
//!
//! Goal: no loss that a running member can contradict leads to two histories that are both
//! served. A log that is older than its witness never starts; an older directory as a whole starts,
//! and then either its owner or the member that knows better stops with a sentence. Method: three
//! members on disks in memory, with the real replica, recovery and log; messages are delivered
//! until nothing moves.

use std::collections::BTreeMap;

use berth_replication::{Config, Fatal, Machine as _, Replica, Ticket};
use berth_store::disk::{Disk as _, Parts};
use berth_store::{
    Header, Identity, LogStore as _, Member, Membership, MemoryCopy, MemoryDisk, StateHash,
    checkpoints, recover,
};
use berth_testkit::replication::{Registers, set};
use raft::eraftpb::{Message, MessageType};

const CLUSTER: &str = "trio";

struct Running {
    parts: Parts<MemoryDisk>,
    replica: Replica<Registers>,
}

/// Three members and the messages between them.
struct Trio {
    disks: BTreeMap<u64, MemoryDisk>,
    running: BTreeMap<u64, Running>,
    stopped: BTreeMap<u64, Fatal>,
    tickets: u64,
    answered: u64,
}

impl Trio {
    fn new() -> Self {
        let member = |id| Member {
            id,
            ..Member::default()
        };
        let mut trio = Self {
            disks: BTreeMap::new(),
            running: BTreeMap::new(),
            stopped: BTreeMap::new(),
            tickets: 0,
            answered: 0,
        };
        for id in 1..=3 {
            let disk = MemoryDisk::new(Identity {
                cluster_id: CLUSTER.into(),
                member_id: id,
                disk_id: format!("disk-{id}"),
            });
            let header = Header {
                cluster_id: CLUSTER.into(),
                index: 1,
                term: 1,
                membership: Membership {
                    members: (1..=3).map(member).collect(),
                    voters: vec![1, 2, 3],
                    next_id: 4,
                    ..Membership::default()
                },
                state_hash: StateHash::EMPTY.to_bytes().into(),
                rows: 0,
            };
            let parts = disk.clone().split();
            checkpoints::save(&parts.checkpoints, header, std::iter::empty()).expect("save");
            trio.disks.insert(id, disk);
            trio.start(id).expect("a fresh disk");
        }
        trio
    }

    fn start(&mut self, id: u64) -> Result<(), berth_store::recover::Error> {
        let mut parts = self.disks[&id].clone().split();
        let recovered = recover(&mut parts, &|rows, index| {
            Registers::from_rows((), rows, index).map_err(|e| e.to_string())
        })?;
        let config = Config {
            check_invariants: true,
            ..Config::new(id, CLUSTER)
        };
        let replica = Replica::new(config, recovered).expect("a replica");
        self.running.insert(id, Running { parts, replica });
        Ok(())
    }

    /// Ends a member as kill -9 does; everything that it synchronised stays.
    fn kill(&mut self, id: u64) {
        self.running.remove(&id);
        self.disks[&id].crash(0, 0);
    }

    fn copy(&self, id: u64) -> MemoryCopy {
        self.disks[&id].copy()
    }

    /// Lets every member work and delivers what they send, until nothing moves.
    fn settle(&mut self) {
        loop {
            let mut messages: Vec<Message> = Vec::new();
            let ids: Vec<u64> = self.running.keys().copied().collect();
            for id in ids {
                match self.work(id) {
                    Ok(sent) => messages.extend(sent),
                    Err(fatal) => {
                        self.kill(id);
                        self.stopped.insert(id, fatal);
                    }
                }
            }
            if messages.is_empty() {
                return;
            }
            for message in messages {
                if let Some(to) = self.running.get_mut(&message.to) {
                    to.replica.step(message);
                }
            }
        }
    }

    fn work(&mut self, id: u64) -> Result<Vec<Message>, Fatal> {
        let running = self.running.get_mut(&id).expect("it runs");
        let mut messages = Vec::new();
        while let Some(effects) = running.replica.ready()? {
            messages.extend(effects.messages);
            self.answered += effects.answers.len() as u64;
            if let Some(persist) = effects.persist {
                running.parts.log.append(persist.batch).expect("append");
                running.parts.log.sync().expect("sync");
                running.replica.persisted(persist.number)?;
            }
        }
        Ok(messages)
    }

    /// Lets time pass until a member of these leads and decides.
    fn elect(&mut self, id: u64) {
        for _ in 0..400 {
            let Some(running) = self.running.get_mut(&id) else {
                return;
            };
            if running.replica.role().deciding {
                return;
            }
            for running in self.running.values_mut() {
                running.replica.tick();
            }
            if let Some(running) = self.running.get_mut(&id)
                && running.replica.role().leader.is_none()
            {
                running.replica.campaign();
            }
            self.settle();
        }
        panic!("member {id} is not elected");
    }

    fn pass(&mut self, ticks: u32) {
        for _ in 0..ticks {
            for running in self.running.values_mut() {
                running.replica.tick();
            }
            self.settle();
        }
    }

    /// Writes so many registers at this member, and counts how many were acknowledged.
    fn write(&mut self, leader: u64, count: u64) -> u64 {
        let before = self.answered;
        for _ in 0..count {
            self.tickets += 1;
            let Some(running) = self.running.get_mut(&leader) else {
                break;
            };
            let command = set(format!("r{}", self.tickets), self.tickets);
            if running
                .replica
                .propose(Ticket(self.tickets), command)
                .is_ok()
            {
                self.settle();
            }
        }
        self.answered - before
    }

    /// A (1) leads, d (3) misses the last writes, and everything is down. Returns b's disk as it
    /// was in between.
    fn three_hundred_writes(&mut self) -> MemoryCopy {
        self.elect(1);
        assert_eq!(self.write(1, 100), 100);
        self.kill(3);
        let older = self.copy(2);
        assert_eq!(self.write(1, 200), 200);
        older
    }
}

#[test]
fn a_log_behind_its_witness_does_not_start() {
    let mut trio = Trio::new();
    let older = trio.three_hundred_writes();
    trio.kill(1);
    trio.kill(2);
    trio.disks[&2].put_back_log(&older);
    for _ in 0..2 {
        let error = trio.start(2).expect_err("it lost 200 entries");
        assert!(
            matches!(error, berth_store::recover::Error::Behind { .. }),
            "{error}"
        );
    }
}

/// The case that no witness on the disk shows. The two members with the shorter history go on,
/// since nothing running contradicts them; the one that knows better must not join in.
#[test]
fn an_older_directory_is_contradicted_by_the_member_that_knows_better() {
    for more in [0, 1, 50, 199, 200, 400] {
        let mut trio = Trio::new();
        let older = trio.three_hundred_writes();
        trio.kill(1);
        trio.kill(2);
        trio.disks[&2].put_back(&older);
        trio.start(2).expect("nothing on its disk is wrong");
        trio.start(3).expect("sound");
        trio.elect(2);
        assert_eq!(trio.write(2, more), more);
        trio.start(1).expect("sound");
        trio.pass(100);
        assert!(!trio.stopped.is_empty(), "after {more} more writes");
        for (id, fatal) in &trio.stopped {
            let expected = match id {
                1 => matches!(fatal, Fatal::OtherHistory { .. }),
                2 => matches!(fatal, Fatal::LeaderBehind { .. }),
                _ => false,
            };
            assert!(expected, "member {id} after {more} more writes: {fatal}");
        }
        let both = trio.running.contains_key(&1) && trio.running.contains_key(&2);
        assert!(!both, "two histories are served after {more} more writes");
    }
}

#[test]
fn a_leader_that_goes_on_notices_that_a_follower_forgot() {
    let mut trio = Trio::new();
    let older = trio.three_hundred_writes();
    trio.kill(2);
    trio.disks[&2].put_back(&older);
    trio.start(2).expect("nothing on its disk is wrong");
    trio.pass(60);
    let fatal = trio.stopped.get(&2).expect("it stops");
    assert!(matches!(fatal, Fatal::LogLost { leader: 1, .. }), "{fatal}");
    assert!(trio.running.contains_key(&1));
}

/// A leader must not count an index that it does not have: raft-rs would, and would commit its
/// later entries with it.
#[test]
fn a_leader_refuses_an_index_beyond_its_last_entry() {
    for kind in [
        MessageType::MsgAppendResponse,
        MessageType::MsgHeartbeatResponse,
    ] {
        let mut trio = Trio::new();
        trio.elect(1);
        trio.write(1, 5);
        let replica = &mut trio.running.get_mut(&1).expect("it leads").replica;
        let mut message = Message::default();
        message.set_msg_type(kind);
        message.from = 2;
        message.to = 1;
        message.term = replica.role().term;
        message.commit = replica.last_index() + 1;
        replica.step(message);
        trio.settle();
        let fatal = trio.stopped.get(&1).expect("it stops");
        assert!(
            matches!(fatal, Fatal::LeaderBehind { member: 2, .. }),
            "{fatal}"
        );
    }
}

/// A member that voted, and came back as it was before, votes again: two members lead in one term.
#[test]
fn two_leaders_of_one_term_are_noticed() {
    let mut trio = Trio::new();
    trio.elect(1);
    trio.write(1, 5);
    let replica = &mut trio.running.get_mut(&2).expect("it follows").replica;
    let mut message = Message::default();
    message.set_msg_type(MessageType::MsgHeartbeat);
    message.from = 3;
    message.to = 2;
    message.term = replica.role().term;
    replica.step(message);
    trio.settle();
    let fatal = trio.stopped.get(&2).expect("it stops");
    assert!(
        matches!(
            fatal,
            Fatal::TwoLeaders {
                one: 1,
                other: 3,
                ..
            }
        ),
        "{fatal}"
    );
}
