//! The effects of a saga. One effect is in progress at a time, and each but [`Effect::Done`] is
//! answered with exactly one event.

use berth_domain::agent::{Call, Fence};
use berth_domain::id::{Epoch, OperationId, VmUid};
use berth_domain::name::HostName;
use berth_domain::operation::{self, Mark, Step};

/// What the driver of a saga is to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Log a step together with what it means; answered by [`Event::Committed`](crate::Event).
    ///
    /// Committing the same record twice is harmless, so a driver may retry it.
    Commit(Box<StepRecord>),
    /// Have the scheduler choose and claim the next host for the operation, under this epoch;
    /// answered by [`Event::Scheduled`](crate::Event).
    ScheduleNext {
        /// The operation.
        operation: OperationId,
        /// The lease under which it is requested.
        epoch: Epoch,
    },
    /// Read operation, VM, migration, claim and hosts again; answered by
    /// [`Event::Refreshed`](crate::Event).
    Refresh,
    /// Call an agent; answered by [`Event::Answered`](crate::Event).
    Call(Box<AgentCall>),
    /// Let time pass; answered by [`Event::Elapsed`](crate::Event).
    Wait {
        /// For how long.
        ms: u64,
    },
    /// Nothing more to do here. Not answered.
    Done(Ended),
    /// Let time pass while a guest is being sent away, but no longer than until its transfer has
    /// ended; answered by [`Event::Elapsed`](crate::Event), or by
    /// [`Event::TransferEnded`](crate::Event) where the end was heard of.
    Watch(Box<TransferWatch>),
}

/// The end of a transfer is to be heard of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferWatch {
    /// The host that sends.
    pub host: HostName,
    /// Where its agent was last known to listen.
    pub address: String,
    /// The guest.
    pub vm: VmUid,
    /// For how long at most: a user may request something of the transfer meanwhile.
    pub ms: u64,
    /// For how long where the agent cannot report the end, as one that is too old.
    pub blind_ms: u64,
}

/// An entry to be logged, and what it means for the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepRecord {
    /// The operation.
    pub operation: OperationId,
    /// The lease under which the step is done.
    pub epoch: Epoch,
    /// The step.
    pub step: Step,
    /// What happened to it.
    pub mark: Mark,
    /// What it means.
    pub effect: operation::Effect,
}

/// A call to the agent of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentCall {
    /// The agent's host.
    pub host: HostName,
    /// Where that agent was last known to listen.
    pub address: String,
    /// Keeps the call from having effects once it is out of date.
    pub fence: Fence,
    /// The call.
    pub call: Call,
}

/// Why a saga is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ended {
    /// The operation has an outcome, and it is recorded.
    Finished,
    /// The operation is another conductor's now, or it is forgotten.
    LeaseLost,
}
