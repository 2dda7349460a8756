//! The replica: Raft, the state machine and everything between, as a pure core.
//!
//! ```text
//!   tick, step, propose, read ─▶ ┌─────────┐ ─▶ Effects: persist, messages, answers, reads,
//!   persisted, checkpoint_taken ▶│ Replica │     applied rows, checkpoint, role
//!                                └─────────┘
//! ```
//!
//! It owns no thread, no clock, no disk and no socket, and is a function of its inputs and its
//! seed: the runtime and the simulator drive the same code.
//!
//! Invariants:
//! * A command is applied only when its entry is durable here and committed by a quorum.
//! * An answer leaves only after its command is applied, and is the outcome that was predicted.
//! * The speculative state exists only while this replica leads and an entry of its own term is
//!   applied; it is the applied state plus all pending proposals, in order.
//! * The state hash is the hash of the state's rows.

mod apply;
mod change;
mod contradiction;
mod history;
mod patience;
mod persist;
mod propose;
mod reads;
mod resign;

use std::collections::VecDeque;
use std::sync::Arc;

use berth_store::{Header, Membership, Recovered, StateHash};
use raft::eraftpb::{Message, MessageType};
use raft::{RawNode, StateRole};

pub use self::change::{Addition, Change, MemberStatus};
use self::persist::Outstanding;
use self::propose::Pending;
use self::reads::Reads;
use self::resign::LogDisk;
use crate::config::Config;
use crate::effects::{CheckpointRequest, Effects, Position, Role, Ticket};
use crate::error::Fatal;
use crate::logger::logger;
use crate::machine::Machine;
use crate::retained::Retained;
use crate::seed::Seed;
use crate::window::{Mark, Window};

/// How many recent hashes are kept to compare with the leader's.
const HASHES_KEPT: usize = 16_384;

/// One member of the group.
pub struct Replica<M: Machine> {
    config: Config,
    node: RawNode<Window>,
    seed: Seed,
    /// The timeout that the seed gave for this role and term.
    election_ticks: usize,
    role: Role,
    raft_role: StateRole,
    /// The last leader that was known, and its term. Raft forgets it when that leader steps down, and
    /// a second one of the term would pass for the first.
    last_leader: (u64, u64),
    /// `None` until a member that was added receives its first snapshot.
    machine: Option<M>,
    position: Position,
    membership: Arc<Membership>,
    /// Hashes after recent indexes; the last belongs to `position.index`.
    hashes: VecDeque<StateHash>,
    /// The applied state plus all pending proposals.
    speculative: Option<M>,
    pending: VecDeque<Pending<M>>,
    /// Entries that `propose` made and Raft has not seen yet.
    queued: Vec<raft::eraftpb::Entry>,
    reads: Reads,
    /// The change of membership that waits for its entry, and where that stands.
    change: Option<(u64, Ticket)>,
    /// What was handed to the disk and is not durable yet, in order.
    outstanding: VecDeque<Outstanding<M>>,
    /// How long the disk has not answered.
    log_disk: LogDisk,
    /// A snapshot that Raft is about to accept.
    incoming: Option<(Header, M)>,
    /// Growth of the log since the last checkpoint, and the size of that.
    log_bytes: u64,
    checkpoint_bytes: u64,
    checkpoint_under_way: bool,
    /// Commands applied since hashes were last compared.
    unchecked_commands: u64,
    ticks: u64,
    /// The last entry that was applied to a state of patience.
    patient_until: u64,
    /// Why this replica must not go on. Nothing is taken from other members any more.
    stopped: Option<Fatal>,
    out: Effects<M>,
}

impl<M: Machine> Replica<M> {
    /// Makes a replica of what was found on its disk.
    pub fn new(config: Config, recovered: Recovered<M>) -> Result<Self, Fatal> {
        let conf = recovered.membership.conf_state();
        let mark = recovered.checkpoint.as_ref().map(mark_of);
        let newest = mark.as_ref().map_or(0, |mark| mark.index);
        let behind = recovered.entries.iter().filter(|e| e.index > newest);
        let log_bytes = behind.map(crate::window::entry_bytes).sum();
        let window = Window::new(
            recovered.hard_state,
            conf,
            recovered.log_start,
            recovered.entries,
            mark,
        );
        let node = RawNode::new(&raft_config(&config, recovered.index), window, &logger())?;
        let mut hashes = VecDeque::new();
        hashes.push_back(recovered.hash);
        let mut replica = Self {
            seed: Seed::new(config.seed),
            election_ticks: config.election_ticks,
            config,
            role: Role {
                term: node.raft.term,
                ..Role::default()
            },
            raft_role: node.raft.state,
            last_leader: (0, 0),
            node,
            machine: recovered.state,
            position: Position {
                index: recovered.index,
                term: recovered.term,
                hash: recovered.hash,
                rows: recovered.rows,
            },
            membership: Arc::new(recovered.membership),
            hashes,
            speculative: None,
            pending: VecDeque::new(),
            queued: Vec::new(),
            reads: Reads::default(),
            change: None,
            outstanding: VecDeque::new(),
            log_disk: LogDisk::default(),
            incoming: None,
            log_bytes,
            checkpoint_bytes: 0,
            checkpoint_under_way: false,
            unchecked_commands: 0,
            ticks: 0,
            patient_until: 0,
            stopped: None,
            out: Effects::default(),
        };
        replica.reads.incarnation = replica.seed.next();
        replica.draw_election_timeout();
        Ok(replica)
    }

    /// Lets one unit of time pass.
    pub fn tick(&mut self) {
        self.flush_proposals();
        self.ticks += 1;
        // A lone voter wins its election at once, and raft-rs insists that its log is durable
        // then. It can wait for its own disk.
        let alone = self.membership.voters.len() == 1 && self.membership.voters_outgoing.is_empty();
        let waits = alone && !self.leads() && !self.outstanding.is_empty();
        if !waits && !self.is_installing() && self.passes() {
            self.tick_raft();
        }
        self.check_disk();
        self.tick_reads();
        if self.role.deciding {
            self.promote_learners();
            self.record_hash_when_idle();
        }
    }

    /// Takes a message from another member. Snapshots come by [`step_snapshot`](Self::step_snapshot).
    /// One that shows that a member lost acknowledged entries stops this replica: `ready` says so.
    pub fn step(&mut self, message: Message) {
        self.flush_proposals();
        match message.get_msg_type() {
            // Members do not propose for each other: the proposer could not be answered.
            MessageType::MsgPropose | MessageType::MsgSnapshot => return,
            MessageType::MsgHup
            | MessageType::MsgBeat
            | MessageType::MsgAppend
            | MessageType::MsgAppendResponse
            | MessageType::MsgRequestVote
            | MessageType::MsgRequestVoteResponse
            | MessageType::MsgHeartbeat
            | MessageType::MsgHeartbeatResponse
            | MessageType::MsgUnreachable
            | MessageType::MsgSnapStatus
            | MessageType::MsgCheckQuorum
            | MessageType::MsgTransferLeader
            | MessageType::MsgTimeoutNow
            | MessageType::MsgReadIndex
            | MessageType::MsgReadIndexResp
            | MessageType::MsgRequestPreVote
            | MessageType::MsgRequestPreVoteResponse => {}
        }
        self.stopped = self.stopped.take().or_else(|| self.contradiction(&message));
        if self.stopped.is_some() {
            return;
        }
        // Its candidacy would wait for the disk, and the leader wait for the candidate.
        if message.get_msg_type() == MessageType::MsgTimeoutNow
            && (self.is_disk_stalled() || self.is_installing())
        {
            return;
        }
        // What raft-rs refuses here (an unknown sender, a local message) needs no answer.
        let _ = self.node.step(message);
        self.observe();
    }

    /// Takes a snapshot that was received whole and verified. Says whether it is used; if so, an
    /// effect requests to install it.
    pub fn step_snapshot(&mut self, message: Message, header: Header, machine: M) -> bool {
        self.flush_proposals();
        let metadata = message.get_snapshot().get_metadata();
        let index = header.index;
        let fits = message.get_msg_type() == MessageType::MsgSnapshot
            && (metadata.index, metadata.term) == (header.index, header.term)
            && header.hash().is_some()
            && self.incoming.is_none();
        if !fits {
            return false;
        }
        self.stopped = self.stopped.take().or_else(|| self.contradiction(&message));
        if self.stopped.is_some() {
            return false;
        }
        // One that comes too late goes to Raft all the same: its answer informs the leader, which
        // would send the snapshot for ever otherwise.
        let _ = self.node.step(message);
        self.observe();
        let taken = self
            .node
            .snap()
            .is_some_and(|snapshot| snapshot.get_metadata().index == index);
        if taken {
            self.incoming = Some((header, machine));
        }
        taken
    }

    /// Reports how sending a snapshot ended.
    pub fn snapshot_sent(&mut self, to: u64, arrived: bool) {
        self.flush_proposals();
        let status = match arrived {
            true => raft::SnapshotStatus::Finish,
            false => raft::SnapshotStatus::Failure,
        };
        self.node.report_snapshot(to, status);
        self.observe();
    }

    /// Reports that a message to this member could not be sent.
    pub fn unreachable(&mut self, to: u64) {
        self.flush_proposals();
        self.node.report_unreachable(to);
        self.observe();
    }

    /// Reports that the requested checkpoint is durable. The log before the one that was the
    /// newest until now is not needed any more.
    pub fn checkpoint_taken(&mut self, header: &Header, bytes: u64) {
        self.flush_proposals();
        self.checkpoint_under_way = false;
        let store = self.node.mut_store();
        let before = store.checkpoint().map_or(0, |mark| mark.index);
        if header.index <= before {
            return;
        }
        self.checkpoint_bytes = bytes;
        store.set_checkpoint(mark_of(header));
        store.compact(before);
        self.out.compact_log = Some(before + 1);
    }

    /// Requests a checkpoint now, for instance before a shutdown.
    pub fn request_checkpoint(&mut self) {
        let due = self
            .node
            .store()
            .checkpoint()
            .is_none_or(|mark| mark.index < self.position.index);
        if let Some(machine) = self
            .machine
            .as_ref()
            .filter(|_| due && !self.checkpoint_under_way)
        {
            self.out.checkpoint = Some(CheckpointRequest {
                header: self.header(),
                machine: machine.clone(),
            });
            self.checkpoint_under_way = true;
            self.log_bytes = 0;
        }
    }

    /// Transfers leadership to the other member.
    pub fn transfer_leader(&mut self, to: u64) -> Result<(), crate::error::Refused> {
        self.flush_proposals();
        self.must_lead()?;
        if !self.membership.voters.contains(&to) {
            return Err(crate::error::Refused::Change(
                "the new leader must be a voter",
            ));
        }
        if to != self.config.id {
            self.node.transfer_leader(to);
            self.observe();
        }
        Ok(())
    }

    /// Calls an election now, without waiting for the timeout.
    pub fn campaign(&mut self) {
        if !self.leads() && self.outstanding.is_empty() {
            let _ = self.node.campaign();
            self.observe();
        }
    }

    /// Returns the applied state; `None` on a member that has received none yet.
    pub fn machine(&self) -> Option<&M> {
        self.machine.as_ref()
    }

    /// Returns the state on which decisions are made; only while this replica decides.
    pub fn speculative(&self) -> Option<&M> {
        self.speculative.as_ref()
    }

    /// Returns where the applied state is.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Returns the membership at the applied index.
    pub fn membership(&self) -> &Arc<Membership> {
        &self.membership
    }

    /// Returns what this replica is to its cluster.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Returns this member's id.
    pub fn id(&self) -> u64 {
        self.config.id
    }

    /// Returns how many proposals wait for their commit.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Returns how much of the log is in memory. It reaches back to the older of two checkpoints, and
    /// the next is due after so many entries or bytes.
    pub fn retained_log(&self) -> Retained {
        let bytes_due = self.config.checkpoint_bytes.max(self.checkpoint_bytes);
        let entries_due = usize::try_from(self.config.checkpoint_entries).unwrap_or(usize::MAX);
        let (entries, bytes) = self.node.store().size();
        Retained::counted("log_entries", entries, entries_due.saturating_mul(2))
            .with_bytes(bytes, bytes_due * 2)
    }

    /// Returns the index up to which this replica knows the log to be committed.
    pub fn committed(&self) -> u64 {
        self.node.raft.raft_log.committed
    }

    /// Returns the last index of the log, durable or not.
    pub fn last_index(&self) -> u64 {
        self.node.raft.raft_log.last_index() + self.queued.len() as u64
    }

    /// Returns the index of the first entry that the log still has.
    pub fn first_index(&self) -> u64 {
        self.node.raft.raft_log.first_index()
    }

    /// Returns what a checkpoint of the applied state says about itself.
    pub fn header(&self) -> Header {
        Header {
            cluster_id: self.config.cluster_id.clone(),
            index: self.position.index,
            term: self.position.term,
            membership: self.membership.as_ref().clone(),
            state_hash: self.position.hash.to_bytes().into(),
            rows: self.position.rows,
        }
    }

    /// Returns whether a snapshot waits for the disk. Until then this member must not call an
    /// election: raft-rs looks for entries behind the applied index, which the snapshot replaced,
    /// and panics.
    fn is_installing(&self) -> bool {
        self.outstanding.iter().any(|o| o.install.is_some())
    }

    fn leads(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    /// Notices what a call into Raft did to role, term and leader. Called after each.
    fn observe(&mut self) {
        let raft = &self.node.raft;
        if raft.leader_id != 0 {
            self.last_leader = (raft.term, raft.leader_id);
        }
        let moved = raft.state != self.raft_role || raft.term != self.role.term;
        self.raft_role = raft.state;
        if moved {
            self.draw_election_timeout();
        } else if self.node.raft.randomized_election_timeout() != self.election_ticks {
            self.node
                .raft
                .set_randomized_election_timeout(self.election_ticks);
        }
        let raft = &self.node.raft;
        let role = Role {
            term: raft.term,
            leader: Some(raft.leader_id).filter(|id| *id != 0),
            deciding: self.speculative.is_some() && self.leads() && raft.term == self.role.term,
        };
        if role == self.role {
            return;
        }
        if self.role.deciding && !role.deciding || role.term != self.role.term || !self.leads() {
            self.stop_deciding();
        }
        if (role.term, role.leader) != (self.role.term, self.role.leader) {
            self.reads.restart_rounds();
        }
        self.role = role;
        self.out.role = Some(role);
    }

    /// raft-rs draws a timeout from the thread's generator whenever it resets; this replaces it.
    fn draw_election_timeout(&mut self) {
        let usual = self.config.election_ticks;
        let low = match self.is_reluctant() {
            true => 2 * usual,
            false => usual,
        };
        self.election_ticks = self.seed.between(low, low + usual);
        self.node
            .raft
            .set_randomized_election_timeout(self.election_ticks);
    }
}

fn raft_config(config: &Config, applied: u64) -> raft::Config {
    raft::Config {
        id: config.id,
        election_tick: config.election_ticks,
        // The seed draws up to twice the timeout, and up to three times for a reluctant member.
        max_election_tick: 3 * config.election_ticks,
        heartbeat_tick: config.heartbeat_ticks,
        applied,
        max_size_per_msg: config.message_bytes_max,
        max_inflight_msgs: 256,
        check_quorum: true,
        pre_vote: true,
        // The other option has no clock in raft-rs and serves stale reads after a pause.
        read_only_option: raft::ReadOnlyOption::Safe,
        // raft-rs 0.7.0 joins entries to an earlier empty append without looking whether they
        // follow it. When a follower's rejection moves its progress back in between, entries 916
        // and 917 travel as what follows 917; it acknowledges 919, and an index that it does not
        // have counts for the commit. Proposals are batched before Raft sees them instead.
        batch_append: false,
        // Ready batches are bounded, so that a long replay does not starve ticks and messages.
        max_committed_size_per_ready: 4 << 20,
        ..raft::Config::default()
    }
}

fn mark_of(header: &Header) -> Mark {
    Mark {
        index: header.index,
        term: header.term,
        conf: header.membership.conf_state(),
    }
}
