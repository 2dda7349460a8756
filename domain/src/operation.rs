//! A long operation: what it is about, who carries it out, and the log of its steps.
//!
//! The log is replicated. Another conductor that takes the lease over reads it and carries on;
//! the lease's epoch fences the one before it, in the state and at the agents.
//!
//! Invariant: entries are appended under the epoch of the current lease only; a done operation
//! has no lease and takes no more entries.

mod advice;
pub mod attempt;
pub mod drain;
mod effect;
mod kind;
mod plan;
mod step;
pub mod table;

use serde::{Deserialize, Serialize};

use crate::id::{ClaimId, Epoch, OperationId, TimeMs};
use crate::name::{HostName, ServiceName, VmName};
use crate::ownership::Ownership;
use crate::refusal::Refusal;

pub use advice::Advice;
pub use attempt::{Attempt, Attempted, Ending};
pub use drain::{Drain, DrainSpec, DrainedVm, PlannedPlace, Progress};
pub use effect::{Effect, EffectName, GuestPower};
pub use kind::Kind;
pub use plan::{ClaimPurpose, Conditions, Due, OnFailure, Plan, StepPlan, Undo};
pub use step::{Site, Step};

/// The longest that a guest may be given to power off by itself: an hour.
pub const STOP_TIMEOUT_MS_MAX: u64 = 3_600_000;
/// How long a guest may take to power off by itself, by default.
pub const STOP_TIMEOUT_MS: u64 = 60_000;

/// What is logged of a step.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mark {
    /// It is about to be done: from here on it may have had effects.
    Started,
    /// It was done.
    Succeeded,
    /// It was refused or failed.
    Failed(Refusal),
    /// Its undo is about to be done.
    UndoStarted,
    /// Its undo was done.
    Undone,
}

impl Mark {
    /// Returns why it failed, if it did.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Failed(refusal) => Some(refusal),
            Self::Started | Self::Succeeded | Self::UndoStarted | Self::Undone => None,
        }
    }

    /// Returns it with its refusal [as records keep it](Refusal::as_record).
    #[must_use]
    pub fn as_record(&self, is_bounded: bool) -> Self {
        match self {
            Self::Failed(refusal) => Self::Failed(refusal.as_record(is_bounded)),
            Self::Started | Self::Succeeded | Self::UndoStarted | Self::Undone => self.clone(),
        }
    }
}

/// An entry of an operation's log.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Entry {
    /// The step.
    pub step: Step,
    /// What happened to it.
    pub mark: Mark,
    /// The host that it was about, where there was one.
    pub host: Option<HostName>,
    /// When it was logged.
    pub at: TimeMs,
}

/// The right of one conductor to carry an operation out.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lease {
    /// The conductor.
    pub conductor: ServiceName,
    /// Fences the holders before it.
    pub epoch: Epoch,
    /// When another conductor may take over, in replicated time.
    pub expires_at: TimeMs,
}

/// The holder of a lease, and its duration.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LeaseRequest {
    /// The conductor.
    pub conductor: ServiceName,
    /// For how long from now.
    pub ttl_ms: u64,
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Outcome {
    /// It succeeded.
    Succeeded,
    /// It did not, and what it had done was undone.
    Failed(Refusal),
}

/// What an operation works on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// A VM.
    Vm(VmName),
    /// A host that is drained.
    Drain(Box<Drain>),
}

/// A long operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Operation {
    /// Who it is.
    pub id: OperationId,
    /// What it is about.
    pub kind: Kind,
    /// What it works on.
    #[serde(flatten)]
    pub subject: Subject,
    /// The host that the user named, if any.
    pub requested_host: Option<HostName>,
    /// Hosts that refused already and are not tried again.
    pub excluded: Vec<HostName>,
    /// The claim that the operation took, as long as it is not settled.
    pub claim: Option<ClaimId>,
    /// Who carries it out; absent once it is done.
    pub lease: Option<Lease>,
    /// Set when its cancellation was requested: it is undone before the point of no return, and its
    /// transfer stopped after it.
    pub cancelled: bool,
    /// What has happened.
    pub log: Vec<Entry>,
    /// How it ended; absent while it runs.
    pub outcome: Option<Outcome>,
    /// When it was requested.
    pub created_at: TimeMs,
    /// When it ended.
    pub ended_at: Option<TimeMs>,
    /// Set when a completion of its transfer was requested.
    #[serde(default)]
    pub force_complete: bool,
    /// The project of its VM, and who requested it.
    #[serde(flatten)]
    pub ownership: Ownership,
}

impl Operation {
    /// Returns whether it has ended.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.outcome.is_some()
    }

    /// Returns the VM that it works on; none for a drain, whose moves are operations of their own.
    #[must_use]
    pub fn vm(&self) -> Option<&VmName> {
        match &self.subject {
            Subject::Vm(vm) => Some(vm),
            Subject::Drain(_) => None,
        }
    }

    /// Returns what it records of the host that it drains.
    #[must_use]
    pub fn drain(&self) -> Option<&Drain> {
        match &self.subject {
            Subject::Vm(_) => None,
            Subject::Drain(drain) => Some(drain),
        }
    }

    /// Returns the name of what it works on.
    #[must_use]
    pub fn subject_name(&self) -> &str {
        match &self.subject {
            Subject::Vm(vm) => vm.as_str(),
            Subject::Drain(drain) => drain.host.as_str(),
        }
    }
}
