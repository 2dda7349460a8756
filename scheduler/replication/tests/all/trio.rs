//! Three members on disks in memory, with the real replica, recovery and log; messages are delivered
//! until nothing moves.

use std::collections::BTreeMap;

use berth_replication::{Config, Fatal, Machine as _, Replica, Ticket};
use berth_store::disk::{Disk as _, Parts};
use berth_store::{
    Header, Identity, LogStore as _, Member, Membership, MemoryCopy, MemoryDisk, StateHash,
    checkpoints, recover,
};
use berth_testkit::replication::{Registers, set};
use raft::eraftpb::Message;

const CLUSTER: &str = "trio";

pub(crate) struct Running {
    parts: Parts<MemoryDisk>,
    pub(crate) replica: Replica<Registers>,
}

/// Three members and the messages between them.
pub(crate) struct Trio {
    pub(crate) disks: BTreeMap<u64, MemoryDisk>,
    pub(crate) running: BTreeMap<u64, Running>,
    pub(crate) stopped: BTreeMap<u64, Fatal>,
    /// Changes of the membership that are in force.
    pub(crate) changed: Vec<Ticket>,
    tickets: u64,
    answered: u64,
}

impl Trio {
    pub(crate) fn new() -> Self {
        let member = |id| Member {
            id,
            ..Member::default()
        };
        let mut trio = Self {
            disks: BTreeMap::new(),
            running: BTreeMap::new(),
            stopped: BTreeMap::new(),
            changed: Vec::new(),
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

    pub(crate) fn start(&mut self, id: u64) -> Result<(), berth_store::recover::Error> {
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
    pub(crate) fn kill(&mut self, id: u64) {
        self.running.remove(&id);
        self.disks[&id].crash(0, 0);
    }

    pub(crate) fn copy(&self, id: u64) -> MemoryCopy {
        self.disks[&id].copy()
    }

    /// Has a member forget the log before its newest checkpoint, as one does that took another.
    pub(crate) fn checkpoint(&mut self, id: u64) {
        let replica = &mut self.running.get_mut(&id).expect("it runs").replica;
        let header = replica.header();
        replica.checkpoint_taken(&header, 1);
    }

    /// Lets every member work and delivers what they send, until nothing moves.
    pub(crate) fn settle(&mut self) {
        while self.work_once() {}
    }

    /// Lets every member work, and then delivers what they send; returns whether they sent anything.
    pub(crate) fn work_once(&mut self) -> bool {
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
        let has_sent = !messages.is_empty();
        for message in messages {
            if let Some(to) = self.running.get_mut(&message.to) {
                to.replica.step(message);
            }
        }
        has_sent
    }

    fn work(&mut self, id: u64) -> Result<Vec<Message>, Fatal> {
        let running = self.running.get_mut(&id).expect("it runs");
        let mut messages = Vec::new();
        while let Some(effects) = running.replica.ready()? {
            messages.extend(effects.messages);
            self.answered += effects.answers.len() as u64;
            self.changed.extend(effects.changed);
            if let Some(persist) = effects.persist {
                running.parts.log.append(persist.batch).expect("append");
                running.parts.log.sync().expect("sync");
                running.replica.persisted(persist.number)?;
            }
        }
        Ok(messages)
    }

    /// Lets time pass until a member of these leads and decides.
    pub(crate) fn elect(&mut self, id: u64) {
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

    pub(crate) fn pass(&mut self, ticks: u32) {
        for _ in 0..ticks {
            for running in self.running.values_mut() {
                running.replica.tick();
            }
            self.settle();
        }
    }

    /// Writes so many registers at this member, and counts how many were acknowledged.
    pub(crate) fn write(&mut self, leader: u64, count: u64) -> u64 {
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
    pub(crate) fn three_hundred_writes(&mut self) -> MemoryCopy {
        self.elect(1);
        assert_eq!(self.write(1, 100), 100);
        self.kill(3);
        let older = self.copy(2);
        assert_eq!(self.write(1, 200), 200);
        older
    }
}
