//! One member in the simulation: a replica, its disk, and what is on the way to that disk.

use std::collections::VecDeque;

use berth_replication::effects::{AppliedBatch, Persist};
use berth_replication::{Config, Machine, Replica};
use berth_store::disk::{Disk, Parts};
use berth_store::recover::Error;
use berth_store::{
    CheckpointSink, Header, Identity, LogStore as _, Member, Membership, MemoryCopy, MemoryDisk,
    StateHash, TableMeta, TableStore as _, checkpoints, recover,
};
use berth_testkit::replication::Registers;

use super::world::Fault;

pub(crate) struct Node {
    pub(crate) id: u64,
    pub(crate) disk: MemoryDisk,
    /// Grows with each start, so that reports for an earlier one can be told.
    pub(crate) incarnation: u64,
    pub(crate) running: Option<Running>,
    pub(crate) removed: bool,
    /// What is wrong with it, though it runs.
    pub(crate) fault: Option<Fault>,
    /// Linearizable reads that it answered.
    pub(crate) reads_served: u64,
    /// The disk as it was at the last start.
    older: Option<MemoryCopy>,
}

pub(crate) struct Running {
    pub(crate) replica: Replica<Registers>,
    pub(crate) parts: Parts<MemoryDisk>,
    pub(crate) persists: VecDeque<Persist>,
    /// The synchronisation under way: when it began, and how many of `persists` are in it.
    sync: Option<(u64, usize)>,
    pub(crate) applied: Vec<AppliedBatch<Registers>>,
    pub(crate) received: Vec<(u64, Box<dyn CheckpointSink>)>,
    pub(crate) last_ticket: u64,
}

pub(crate) const CLUSTER: &str = "simulated";
/// The election timeout of all members.
pub(crate) const ELECTION_TICKS: usize = 10;

impl Node {
    pub(crate) fn new(id: u64) -> Self {
        Self {
            id,
            disk: MemoryDisk::new(Identity {
                cluster_id: CLUSTER.into(),
                member_id: id,
                disk_id: format!("disk-{id}"),
            }),
            incarnation: 0,
            running: None,
            removed: false,
            fault: None,
            reads_served: 0,
            older: None,
        }
    }

    /// Gives the disk the state that a new cluster begins with.
    pub(crate) fn bootstrap(&self) {
        let parts = self.disk.clone().split();
        let header = Header {
            cluster_id: CLUSTER.into(),
            index: 1,
            term: 1,
            membership: Membership::single(Member {
                id: self.id,
                promote: true,
                ..Member::default()
            }),
            state_hash: StateHash::EMPTY.to_bytes().into(),
            rows: 0,
        };
        checkpoints::save(&parts.checkpoints, header, std::iter::empty()).expect("save");
    }

    pub(crate) fn start(&mut self, seed: u64) {
        self.incarnation += 1;
        self.refuse_an_older_log();
        let mut parts = self.disk.clone().split();
        let recovered = recover(&mut parts, &|rows, index| {
            Registers::from_rows((), rows, index).map_err(|e| e.to_string())
        })
        .unwrap_or_else(|error| panic!("member {} cannot start: {error}", self.id));
        let config = Config {
            seed,
            election_ticks: ELECTION_TICKS,
            heartbeat_ticks: 2,
            checkpoint_bytes: 1500,
            checkpoint_entries: 60,
            hash_commands: 7,
            promote_gap: 4,
            message_bytes_max: 400,
            check_invariants: true,
            ..Config::new(self.id, CLUSTER)
        };
        let rebuild = recovered.recovery.rebuild_table;
        let replica = Replica::new(config, recovered).expect("a replica");
        let mut running = Running {
            replica,
            parts,
            persists: VecDeque::new(),
            sync: None,
            applied: Vec::new(),
            received: Vec::new(),
            last_ticket: 0,
        };
        if rebuild {
            running.rebuild_table();
        }
        self.running = Some(running);
    }

    /// Puts the log of the last start beside everything else: if a write was synchronised since,
    /// the member must not start. Then all is as before.
    fn refuse_an_older_log(&mut self) {
        if self.disk.unsynced() != (0, 0) {
            return;
        }
        let present = self.disk.copy();
        if let Some(older) = self.older.replace(present.clone()) {
            self.disk.put_back_log(&older);
            let mut parts = self.disk.clone().split();
            let contents = parts.log.load().expect("load");
            if contents.extent.sequence < contents.witness.sequence {
                let recovered = recover(&mut parts, &|rows, index| {
                    Registers::from_rows((), rows, index).map_err(|e| e.to_string())
                });
                let error = recovered
                    .map(|_| ())
                    .expect_err("the log lost what was synchronised");
                assert!(matches!(error, Error::Behind { .. }), "{error}");
            }
            self.disk.put_back(&present);
        }
    }

    /// Loses power. Some of what was handed to the disk may have reached it.
    pub(crate) fn crash(&mut self, log_batches: usize, table_batches: usize, named: bool) {
        let Some(mut running) = self.running.take() else {
            return;
        };
        for persist in running.persists.drain(..) {
            // What comes after a checkpoint waits for its name, which is given durably; the log
            // may not have been reset any more.
            if let Some(index) = persist.install {
                let at = running.received.iter().position(|(i, _)| *i == index);
                let (_, sink) = running.received.remove(at.expect("it was received"));
                if named {
                    running.parts.log.sync().expect("sync");
                    sink.commit(index, 1).expect("commit");
                }
                break;
            }
            running.parts.log.append(persist.batch).expect("append");
        }
        self.disk.crash(log_batches, table_batches);
    }
}

impl Running {
    /// Lets a disk with a fault work: one synchronisation after the other, each for everything
    /// that was handed over when it began.
    pub(crate) fn work_slowly(&mut self, fault: Fault, now: u64) {
        if let Some((begun, count)) = self.sync
            && fault.is_synchronised(begun, now)
        {
            self.sync = None;
            self.complete_first(count);
        }
        if self.sync.is_none() && !self.persists.is_empty() {
            self.sync = Some((now, self.persists.len()));
        }
    }

    /// Makes everything durable that was handed to the disk so far.
    pub(crate) fn complete_persists(&mut self) {
        self.sync = None;
        self.complete_first(self.persists.len());
    }

    fn complete_first(&mut self, count: usize) {
        let mut last = None;
        for _ in 0..count {
            let Some(persist) = self.persists.pop_front() else {
                break;
            };
            if let Some(index) = persist.install {
                self.parts.log.sync().expect("sync");
                let at = self.received.iter().position(|(i, _)| *i == index);
                let (_, sink) = self.received.remove(at.expect("it was received"));
                sink.commit(index, 1).expect("commit");
            }
            self.parts.log.append(persist.batch).expect("append");
            last = Some(persist.number);
        }
        self.parts.log.sync().expect("sync");
        if let Some(number) = last {
            self.replica.persisted(number).expect("persisted");
        }
    }

    /// Writes what was applied to the table, without making it durable.
    pub(crate) fn write_table(&mut self) {
        for batch in std::mem::take(&mut self.applied) {
            let rows = batch
                .commands
                .iter()
                .flat_map(|c| &c.changes)
                .map(|change| (change.key.clone(), change.new.clone()))
                .collect();
            let position = batch.position;
            let meta = TableMeta {
                index: position.index,
                term: position.term,
                state_hash: position.hash.to_bytes().into(),
                rows: position.rows,
                membership: batch.membership.as_ref().clone(),
                cluster_id: CLUSTER.into(),
            };
            self.parts.table.write(rows, Some(&meta)).expect("write");
        }
    }

    pub(crate) fn rebuild_table(&mut self) {
        self.applied.clear();
        self.parts.table.clear().expect("clear");
        let Some(machine) = self.replica.machine() else {
            return;
        };
        let rows = machine.rows().map(|r| (r.key, Some(r.value))).collect();
        let header = self.replica.header();
        let meta = TableMeta {
            index: header.index,
            term: header.term,
            state_hash: header.state_hash,
            rows: header.rows,
            membership: header.membership,
            cluster_id: CLUSTER.into(),
        };
        self.parts.table.write(rows, Some(&meta)).expect("write");
    }
}
