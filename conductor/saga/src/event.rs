//! The events of a saga: the answer to its last effect, or a request to cancel.

use berth_domain::agent::{Failure, Reply};
use berth_domain::operation::Operation;
use berth_domain::refusal::Refusal;

use crate::facts::Facts;

/// An answer to the effect that is in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The first event of every saga.
    Begin,
    /// To [`Effect::Commit`](crate::Effect): the operation as it is now, or why it was refused.
    /// [`Code::Unavailable`](berth_domain::refusal::Code) and `DeadlineExceeded` mean that it may
    /// have been committed.
    Committed(Result<Box<Operation>, Refusal>),
    /// To [`Effect::ScheduleNext`](crate::Effect).
    Scheduled(Result<(), Refusal>),
    /// To [`Effect::Refresh`](crate::Effect).
    Refreshed(Result<Box<(Operation, Facts)>, Refusal>),
    /// To [`Effect::Call`](crate::Effect).
    Answered(Result<Box<Reply>, Failure>),
    /// To [`Effect::Wait`](crate::Effect).
    Elapsed,
    /// A user requested to cancel the operation. May come at any time, answers nothing, and is
    /// heeded at the next step before the point of no return.
    CancelRequested,
    /// To [`Effect::Watch`](crate::Effect): the agent reports that the transfer has ended, one way or
    /// the other. Only a reason to look: it is no part of the verdict.
    TransferEnded,
}
