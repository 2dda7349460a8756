//! A leader and its followers in one thread: the product's replicas and machine over disks in memory.
//!
//! What a member does by itself is measured apart from what the others do. Left out are threads,
//! gRPC and real disks.

use std::collections::{BTreeMap, VecDeque};

use berth_codec::table_name;
use berth_decide::{Decision, DecisionRequest};
use berth_domain::id::TimeMs;
use berth_domain::refusal::Refusal;
use berth_replication::machine::Machine as _;
use berth_replication::{Config, Effects, Replica, RowChange, Ticket};
use berth_state::{Reply, State};
use berth_store::disk::{Disk as _, Parts};
use berth_store::{
    Header, Identity, LogStore as _, Member as MemberRecord, Membership, MemoryDisk, StateHash,
    checkpoints, recover,
};
use raft::eraftpb::Message;

use crate::allocator::{Requested, counted};
use crate::machine::Machine;

const CLUSTER: &str = "priced";
const MEMBERS: u64 = 3;

/// What happened since the figures were taken last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spent {
    /// Commands that were applied.
    pub(crate) commands: u64,
    /// Their bytes in the log.
    pub(crate) command_bytes: u64,
    /// Rows that they changed, by table.
    pub(crate) rows: BTreeMap<&'static str, u64>,
    /// The bytes of these rows as they are stored.
    pub(crate) row_bytes: u64,
    /// What the leader requested to decide and to predict.
    pub(crate) decide: Requested,
    /// What the leader requested to replicate and to apply.
    pub(crate) commit: Requested,
    /// What one follower requested.
    pub(crate) follow: Requested,
}

struct Member {
    replica: Replica<Machine>,
    parts: Parts<MemoryDisk>,
    inbox: VecDeque<Message>,
}

/// The group. The first member leads.
pub(crate) struct Group {
    members: Vec<Member>,
    tickets: u64,
    answers: Vec<Result<Reply, Refusal>>,
    spent: Spent,
}

impl Group {
    /// Returns a group that begins with this state, and has a leader.
    pub(crate) fn new(state: State) -> Self {
        // The log goes on where the state is, as in a cluster: entries of the audit are forgotten by
        // their revision.
        let index = state.revision();
        let machine = Machine::new(state);
        let rows: Vec<_> = machine.rows().collect();
        let members = (1..=MEMBERS).map(|id| member(id, index, &rows));
        let mut group = Self {
            members: members.collect(),
            tickets: 0,
            answers: Vec::new(),
            spent: Spent::default(),
        };
        group.members[0].replica.campaign();
        group.settle();
        assert!(group.members[0].replica.role().deciding, "the first leads");
        group
    }

    /// Returns the state on which the leader decides.
    pub(crate) fn state(&self) -> &State {
        let machine = self.members[0].replica.speculative();
        machine.expect("the first leads").state()
    }

    /// Decides on these requests, replicates the commands together, and returns what came of them.
    pub(crate) fn execute(&mut self, at: TimeMs, requests: &[DecisionRequest]) -> Vec<Reply> {
        for request in requests {
            self.tickets += 1;
            let ticket = Ticket(self.tickets);
            let leader = &mut self.members[0].replica;
            let ((), requested) = counted(|| decide(leader, ticket, at, request));
            add(&mut self.spent.decide, requested);
        }
        self.settle();
        let answers = std::mem::take(&mut self.answers).into_iter();
        let replies = answers.map(|answer| answer.expect("the command is carried out"));
        replies.collect()
    }

    /// Returns what was spent since the last call.
    pub(crate) fn take_spent(&mut self) -> Spent {
        std::mem::take(&mut self.spent)
    }

    /// Lets messages and writes pass until there are none.
    fn settle(&mut self) {
        loop {
            let mut is_idle = true;
            for at in 0..self.members.len() {
                let member = &mut self.members[at];
                let (outputs, requested) = counted(|| member.work());
                is_idle &= outputs.is_empty();
                match at {
                    0 => add(&mut self.spent.commit, requested),
                    1 => add(&mut self.spent.follow, requested),
                    _ => {}
                }
                for output in outputs {
                    self.take(at, output);
                }
            }
            if is_idle {
                return;
            }
        }
    }

    fn take(&mut self, at: usize, output: Effects<Machine>) {
        for message in output.messages {
            let to = usize::try_from(message.to).expect("there are few") - 1;
            self.members[to].inbox.push_back(message);
        }
        if at > 0 {
            return;
        }
        self.answers
            .extend(output.answers.into_iter().map(|a| a.outcome));
        for command in output.applied.iter().flat_map(|batch| &batch.commands) {
            self.spent.commands += 1;
            for change in &command.changes {
                let table = table_name(&change.key).expect("a known table");
                *self.spent.rows.entry(table).or_default() += 1;
                self.spent.row_bytes += row_bytes(change);
            }
        }
        let written = output.persist.into_iter().flat_map(|p| p.batch.entries);
        self.spent.command_bytes += written.map(|entry| entry.data.len() as u64).sum::<u64>();
    }
}

impl Member {
    /// Takes what arrived and does everything that follows from it here.
    fn work(&mut self) -> Vec<Effects<Machine>> {
        while let Some(message) = self.inbox.pop_front() {
            self.replica.step(message);
        }
        let mut outputs = Vec::new();
        while let Some(effects) = self.replica.ready().expect("the member goes on") {
            if let Some(persist) = &effects.persist {
                let number = persist.number;
                self.parts
                    .log
                    .append(persist.batch.clone())
                    .expect("append");
                self.parts.log.sync().expect("sync");
                self.replica.persisted(number).expect("the member goes on");
            }
            outputs.push(effects);
        }
        outputs
    }
}

fn decide(leader: &mut Replica<Machine>, ticket: Ticket, at: TimeMs, request: &DecisionRequest) {
    let machine = leader.speculative().expect("the first leads");
    let Decision::Command(proposal) = machine.decide(at, request) else {
        panic!("no command comes of {request:?}");
    };
    leader
        .propose(ticket, proposal.envelope)
        .expect("the first leads");
}

fn row_bytes(change: &RowChange) -> u64 {
    let value = change.new.as_ref().map_or(0, bytes::Bytes::len);
    (change.key.len() + value) as u64
}

fn add(sum: &mut Requested, more: Requested) {
    sum.times += more.times;
    sum.bytes += more.bytes;
}

/// Returns a member whose disk has the state as its checkpoint.
fn member(id: u64, index: u64, rows: &[berth_replication::Row]) -> Member {
    let disk = MemoryDisk::new(Identity {
        cluster_id: CLUSTER.to_owned(),
        member_id: id,
        disk_id: format!("disk-{id}"),
    });
    let mut parts = disk.split();
    let members = (1..=MEMBERS).map(|id| MemberRecord {
        id,
        ..MemberRecord::default()
    });
    let header = Header {
        cluster_id: CLUSTER.to_owned(),
        index,
        term: 1,
        membership: Membership {
            members: members.collect(),
            voters: (1..=MEMBERS).collect(),
            next_id: MEMBERS + 1,
            ..Membership::default()
        },
        state_hash: StateHash::of_rows(rows.iter().cloned()).to_bytes().to_vec(),
        rows: rows.len() as u64,
    };
    checkpoints::save(&parts.checkpoints, header, rows.iter().cloned()).expect("save");
    let recovered = recover(&mut parts, &|rows, index| {
        let level = crate::machine::Level::default();
        Machine::from_rows(level, rows, index).map_err(|error| error.to_string())
    });
    let recovered = recovered.expect("the disk is sound");
    let replica = Replica::new(Config::new(id, CLUSTER), recovered).expect("a replica");
    Member {
        replica,
        parts,
        inbox: VecDeque::new(),
    }
}
