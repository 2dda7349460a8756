//! To which span the calls of a conductor belong: the operation's, or that of an attempt of a step.
//!
//! Neither span is begun or ended here. Their identities follow from the operation's id and log, and the
//! scheduler that records the end of the operation sends them: so they are complete whichever
//! conductors carried the operation out, and wherever one of them died.
//!
//! Invariant: nothing of an operation depends on whether it is traced, and an operation that waits for
//! long has no more spans for it: polls are in no trace, and of the calls for one attempt the first
//! [`CALLS_MAX`].

use std::sync::Arc;

use berth_domain::id::OperationId;
use berth_domain::operation::{Attempt, Step};
use berth_saga::{Effect, Saga};
use berth_traces::Active;
use berth_traces::operation as identity;

/// Calls for one attempt of a step that have spans.
const CALLS_MAX: u32 = 16;

/// Returns the span of an operation, if it is recorded.
pub(crate) fn of_operation(id: OperationId) -> Option<Arc<Active>> {
    identity::root(id.0.as_u128()).map(Active::new)
}

/// The spans to which the calls of one operation belong.
#[derive(Debug, Default)]
pub(crate) struct CallSpans {
    attempt: Option<Attempt>,
    /// The calls for the attempt so far.
    calls: u32,
}

impl CallSpans {
    /// Returns the span to which the call of an effect belongs, if it is recorded.
    pub(crate) fn of_effect(&mut self, saga: &Saga, effect: &Effect) -> Option<Arc<Active>> {
        let operation = saga.operation();
        let root = of_operation(operation.id)?;
        let log = &operation.log;
        let attempt = match effect {
            Effect::Commit(record) => Attempt::of_entry(log, record.step, &record.mark),
            Effect::Call(_) => match saga.called_step()? {
                // Its log has one step for what is queried and what is cleaned up.
                (Step::Settle, _) => Attempt::of_call(log, Step::Settle, false),
                (step, is_undo) => Attempt::of_call(log, step, is_undo),
            },
            Effect::ScheduleNext { .. } => return Some(root),
            Effect::Refresh | Effect::Wait { .. } | Effect::Watch(_) | Effect::Done(_) => {
                return None;
            }
        };
        if self.attempt != Some(attempt) {
            *self = Self {
                attempt: Some(attempt),
                calls: 0,
            };
        }
        self.calls = self.calls.saturating_add(1);
        // A record may be repeated, but not for as long as a poll.
        let is_record = matches!(effect, Effect::Commit(_));
        if self.calls > CALLS_MAX && !is_record {
            return None;
        }
        let id = operation.id.0.as_u128();
        identity::attempt(id, attempt.number()).map(Active::new)
    }
}
