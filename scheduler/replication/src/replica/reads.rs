//! Linearizable reads by ReadIndex, and answers that need no command.
//!
//! raft-rs drops a read silently when it cannot serve it (no leader, nothing committed in the
//! term). So each round has its own name, is repeated after a while, and fails after a longer
//! one. At most two rounds are under way; requests gather for the next meanwhile.
//!
//! A decision that was made on the speculative state without becoming a command is a read too: it
//! may leave only when everything it saw is committed and the leader that made it is still the
//! leader.

use std::collections::BTreeMap;

use raft::ReadState;

use super::Replica;
use crate::effects::Ticket;
use crate::machine::Machine;

const ROUNDS_MAX: usize = 2;

/// One request.
#[derive(Clone, Copy, Debug)]
struct Request {
    ticket: Ticket,
    /// Not before this index is applied.
    index: u64,
    /// The tick at which it fails.
    deadline: u64,
    /// Whether it must be confirmed under the leadership of the request.
    decision: bool,
}

/// Reads under way.
#[derive(Debug, Default)]
pub(super) struct Reads {
    /// Distinguishes rounds of this start of the process from those of an earlier one.
    pub(super) incarnation: u64,
    waiting: Vec<Request>,
    /// Rounds by number: when they were requested, and for which requests.
    rounds: BTreeMap<u64, (u64, Vec<Request>)>,
    last_round: u64,
    /// Confirmed, waiting for the index to be applied.
    confirmed: Vec<Request>,
}

impl Reads {
    /// Rounds that a change of leader has made void are repeated.
    pub(super) fn restart_rounds(&mut self) {
        for (_, (_, requests)) in std::mem::take(&mut self.rounds) {
            self.waiting.extend(requests);
        }
    }
}

impl<M: Machine> Replica<M> {
    /// Requests a moment at which the applied state contains everything that was acknowledged
    /// anywhere before this call.
    pub fn read_index(&mut self, ticket: Ticket) {
        self.reads.waiting.push(Request {
            ticket,
            index: 0,
            deadline: self.ticks + self.config.read_timeout_ticks,
            decision: false,
        });
    }

    /// Requests the moment at which a decision that was just made on the speculative state may be returned.
    pub fn confirm_decision(&mut self, ticket: Ticket) {
        self.reads.waiting.push(Request {
            ticket,
            index: self.last_index(),
            deadline: self.ticks + self.config.read_timeout_ticks,
            decision: true,
        });
    }

    /// Starts a round for the requests that wait.
    pub(super) fn start_read_round(&mut self) {
        let answerable = match self.leads() {
            true => self.role.deciding,
            false => self.role.leader.is_some() && self.machine.is_some(),
        };
        if self.reads.waiting.is_empty() || !answerable || self.reads.rounds.len() >= ROUNDS_MAX {
            return;
        }
        let requests = std::mem::take(&mut self.reads.waiting);
        self.reads.last_round += 1;
        let round = self.reads.last_round;
        self.reads.rounds.insert(round, (self.ticks, requests));
        let mut name = Vec::with_capacity(24);
        for part in [self.config.id, self.reads.incarnation, round] {
            name.extend_from_slice(&part.to_le_bytes());
        }
        self.node.read_index(name);
    }

    /// Takes note of rounds that Raft has confirmed.
    pub(super) fn confirm_reads(&mut self, states: Vec<ReadState>) {
        for state in states {
            let Some(round) = self.round_of(&state.request_ctx) else {
                continue;
            };
            let Some((_, requests)) = self.reads.rounds.remove(&round) else {
                continue;
            };
            self.reads
                .confirmed
                .extend(requests.into_iter().map(|request| Request {
                    index: request.index.max(state.index),
                    ..request
                }));
        }
        self.serve_reads();
    }

    fn round_of(&self, name: &[u8]) -> Option<u64> {
        let mut words = name
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
        let ours = words.next()? == self.config.id && words.next()? == self.reads.incarnation;
        words.next().filter(|_| ours)
    }

    /// Serves what is confirmed and applied.
    pub(super) fn serve_reads(&mut self) {
        let applied = self.position.index;
        let reads = &mut self.out.reads;
        self.reads.confirmed.retain(|request| {
            let served = request.index <= applied;
            if served {
                reads.push(request.ticket);
            }
            !served
        });
    }

    /// Repeats rounds that got lost, and gives up on old requests.
    pub(super) fn tick_reads(&mut self) {
        let now = self.ticks;
        let lost_before = now.saturating_sub(self.config.read_retry_ticks);
        let lost: Vec<u64> = self
            .reads
            .rounds
            .iter()
            .filter(|(_, (requested_at, _))| *requested_at < lost_before)
            .map(|(round, _)| *round)
            .collect();
        for round in lost {
            if let Some((_, requests)) = self.reads.rounds.remove(&round) {
                self.reads.waiting.extend(requests);
            }
        }
        let failed = &mut self.out.failed_reads;
        let mut keep = |request: &Request| {
            let alive = request.deadline > now;
            if !alive {
                failed.push(request.ticket);
            }
            alive
        };
        self.reads.waiting.retain(&mut keep);
        self.reads.confirmed.retain(&mut keep);
    }

    /// Decisions of a leadership that is over are void.
    pub(super) fn fail_decision_reads(&mut self) {
        self.reads.restart_rounds();
        let failed = &mut self.out.failed_reads;
        let mut keep = |request: &Request| {
            if request.decision {
                failed.push(request.ticket);
            }
            !request.decision
        };
        self.reads.waiting.retain(&mut keep);
        self.reads.confirmed.retain(&mut keep);
    }
}
