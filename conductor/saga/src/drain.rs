//! What a conductor does next to drain a host.
//!
//! No saga: a drain calls no agent. Its moves are operations of their own, and what became of each VM
//! is in the drain's record, so that everything that is needed to go on is read from there.
//!
//! ```text
//!   record, ended moves, time ─▶ next ─▶ Move · Record · Await · Done ─┐
//!                                 ▲                                    │
//!                                 └──────── refused, read again ◀──────┘
//! ```
//!
//! Invariant: what is remembered here alone only delays or repeats an attempt. A conductor that knows
//! nothing of it does the same, later or once more.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::id::{Epoch, OperationId, TimeMs};
use berth_domain::name::VmName;
use berth_domain::operation::drain::is_temporary;
use berth_domain::operation::{Kind, Operation};
use berth_domain::refusal::{Code, Refusal};

use crate::effect::Ended;

/// How long a VM rests that another operation works on, before it is tried again.
const REST_MS: u64 = 5_000;
/// How often a drain is read that waits for its moves: it may be cancelled.
const READ_MS: u64 = 2_000;

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DrainEffect {
    /// Begin the move of a VM.
    Move(VmName),
    /// Record what became of a VM.
    Record {
        /// The VM.
        vm: VmName,
        /// Why its move could not begin; absent: its move has ended.
        refusal: Option<Refusal>,
    },
    /// Wait until one of these moves has ended, but not longer than that.
    Await {
        /// The moves in progress.
        moves: Vec<OperationId>,
        /// The longest wait.
        ms: u64,
    },
    /// There is nothing more to do here.
    Done(Ended),
}

/// Drains a host under one lease.
#[derive(Clone, Debug)]
pub struct Drainer {
    epoch: Option<Epoch>,
    /// A move that was refused, until it is recorded.
    refused: Option<(VmName, Refusal)>,
    /// VMs that are not tried before that time.
    resting: BTreeMap<VmName, TimeMs>,
}

impl Drainer {
    /// Returns one that drains under the lease that the operation has now.
    #[must_use]
    pub fn new(drain: &Operation) -> Self {
        Self {
            epoch: drain.lease.as_ref().map(|lease| lease.epoch),
            refused: None,
            resting: BTreeMap::new(),
        }
    }

    /// Returns the epoch of its lease.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch.unwrap_or(Epoch(0))
    }

    /// Returns what to do next, with the drain as it is recorded and those of its moves that are known
    /// to have ended.
    pub fn next(
        &mut self,
        operation: &Operation,
        ended: &BTreeSet<OperationId>,
        now: TimeMs,
    ) -> DrainEffect {
        let (Some(drain), Kind::DrainHost(spec)) = (operation.drain(), &operation.kind) else {
            return DrainEffect::Done(Ended::LeaseLost);
        };
        if operation.is_done() {
            return DrainEffect::Done(Ended::Finished);
        }
        if operation.lease.as_ref().map(|lease| lease.epoch) != self.epoch {
            return DrainEffect::Done(Ended::LeaseLost);
        }
        if let Some((vm, refusal)) = self.refused.clone() {
            let refusal = Some(refusal);
            return DrainEffect::Record { vm, refusal };
        }
        if let Some((vm, _)) = drain.moving().find(|(_, id)| ended.contains(id)) {
            let (vm, refusal) = (vm.clone(), None);
            // One whose move has failed for now waits again, and rests before the next attempt.
            self.rest(vm.clone(), now);
            return DrainEffect::Record { vm, refusal };
        }
        self.resting.retain(|_, until| *until > now);
        let moves: Vec<OperationId> = drain.moving().map(|(_, id)| id).collect();
        if !operation.cancelled && moves.len() < spec.parallel as usize {
            let mut waiting = drain.waiting().map(|drained| &drained.vm);
            if let Some(vm) = waiting.find(|vm| !self.resting.contains_key(*vm)) {
                return DrainEffect::Move(vm.clone());
            }
        }
        let rested = self.resting.values().min();
        let ms = rested.map_or(READ_MS, |until| until.0.saturating_sub(now.0).min(READ_MS));
        DrainEffect::Await { moves, ms }
    }

    /// Takes note that a move could not begin.
    pub fn refused(&mut self, vm: VmName, refusal: Refusal, now: TimeMs) {
        match Meaning::of(&refusal) {
            // The record shows what is true by now.
            Meaning::Stale => {}
            Meaning::Unknown => self.rest(vm, now),
            Meaning::Refused => {
                if is_temporary(&refusal) {
                    self.rest(vm.clone(), now);
                }
                self.refused = Some((vm, refusal));
            }
        }
    }

    /// Takes note of how a record was answered.
    pub fn recorded(&mut self, answer: Result<(), &Refusal>) {
        let is_unknown = answer.is_err_and(|refusal| Meaning::of(refusal) == Meaning::Unknown);
        if !is_unknown {
            self.refused = None;
        }
    }

    fn rest(&mut self, vm: VmName, now: TimeMs) {
        self.resting.insert(vm, TimeMs(now.0 + REST_MS));
    }
}

/// What a refusal by the scheduler says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// The VM is not moved, for this reason.
    Refused,
    /// The drain is not any more as this conductor read it.
    Stale,
    /// It is not known whether the move has begun.
    Unknown,
}

impl Meaning {
    fn of(refusal: &Refusal) -> Self {
        match (refusal.reason.as_str(), refusal.code) {
            (
                "STALE_EPOCH"
                | "OPERATION_DONE"
                | "OPERATION_NOT_FOUND"
                | "DRAIN_CANCELLED"
                | "VM_NOT_WAITING"
                | "TOO_MANY_MOVES"
                | "MOVE_RUNS",
                _,
            ) => Self::Stale,
            (_, Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled) => Self::Unknown,
            // Where it began all the same, the state refuses the record.
            (
                _,
                Code::InvalidArgument
                | Code::NotFound
                | Code::AlreadyExists
                | Code::FailedPrecondition
                | Code::Aborted
                | Code::ResourceExhausted
                | Code::OutOfRange
                | Code::PermissionDenied
                | Code::Unimplemented
                | Code::Internal,
            ) => Self::Refused,
        }
    }
}
