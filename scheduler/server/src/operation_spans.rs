//! The spans of operations that have ended: the operation itself, and the attempts of its steps, made of
//! its replicated log.
//!
//! They are sent by the leader that applies the end, and not by the conductor, which may have died: so a
//! tree has one root and all its steps, whichever conductors carried the operation out. Calls are
//! children of these spans, whose identities conductors derive in the same way.
//!
//! Not here: operations that go on, which have calls but no root yet.
//!
//! Invariant: nothing of the state depends on it. What it misses, as when the leader dies at that
//! moment, is missing in the trace alone.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use berth_codec::{self as codec, Watched};
use berth_domain::event::Name;
use berth_domain::id::TimeMs;
use berth_domain::operation::{Attempted, Ending, Operation, Outcome, Subject};
use berth_replication::runtime::{Event, Handle};
use berth_replication::{Row as StoredRow, RowChange};
use berth_state::Row;
use berth_traces::attributes::{
    ERROR_TYPE, HOST, OPERATION_ID, OPERATION_KIND, STEP, STEP_ATTEMPT, STEP_CLAIM, STEP_UNDO, VM,
};
use berth_traces::operation as identity;
use berth_traces::{Finished, Kind, SpanContext};
use bytes::Bytes;
use tokio::sync::broadcast::error::RecvError;

use crate::machine::Machine;

/// Sends the spans of each operation whose end this member applies as the leader, until the replica
/// stops.
pub(crate) async fn run(handle: Handle<Machine>) {
    let mut events = handle.watch();
    loop {
        match events.recv().await {
            Ok(Event::Applied(batch)) if handle.leader().role.deciding => {
                let changes = batch.commands.iter().flat_map(|command| &command.changes);
                for operation in changes.filter_map(ended) {
                    send(&operation);
                }
            }
            Ok(Event::Applied(_) | Event::Replaced(_)) => {}
            Err(RecvError::Lagged(batches)) => {
                tracing::warn!(
                    batches,
                    "spans of operations are missing, as changes were missed"
                );
            }
            Err(RecvError::Closed) => return,
        }
    }
}

/// Returns the operation that a change ends.
fn ended(change: &RowChange) -> Option<Operation> {
    let Some(Watched::Record(Name::Operation(id))) = codec::decode_watched_key(&change.key) else {
        return None;
    };
    // Before anything is decoded.
    identity::root(id.0.as_u128())?;
    let read = |value: &Bytes| {
        let row = StoredRow {
            key: change.key.clone(),
            value: value.clone(),
        };
        match codec::decode_row(&row) {
            Ok(Row::Operation(operation)) => Some(operation),
            Ok(_) | Err(_) => None,
        }
    };
    let operation = read(change.new.as_ref()?)?;
    let was_done = || {
        change
            .old
            .as_ref()
            .and_then(read)
            .is_some_and(|old| old.is_done())
    };
    (operation.is_done() && !was_done()).then(|| Operation::clone(&operation))
}

fn send(operation: &Operation) {
    let id = operation.id.0.as_u128();
    let Some(root) = identity::root(id) else {
        return;
    };
    for attempted in operation.attempts() {
        if let Some(context) = identity::attempt(id, attempted.attempt.number()) {
            step(operation, &attempted, context).of(root).send();
        }
    }
    whole(operation, root).send();
}

/// Returns the span of an operation.
fn whole(operation: &Operation, context: SpanContext) -> Finished {
    let ended_at = operation.ended_at.unwrap_or(operation.created_at);
    let times = (time(operation.created_at), time(ended_at));
    let label = operation.kind.plan().label;
    let mut span = Finished::new(context, Kind::Internal, format!("operation {label}"), times);
    span.set(OPERATION_ID, operation.id.to_string());
    span.set(OPERATION_KIND, label);
    match &operation.subject {
        Subject::Vm(vm) => span.set(VM, vm.to_string()),
        Subject::Drain(drain) => span.set(HOST, drain.host.to_string()),
    }
    match &operation.outcome {
        Some(Outcome::Succeeded) => span.failed = Some(false),
        Some(Outcome::Failed(refusal)) => fail(&mut span, &refusal.reason),
        None => {}
    }
    span
}

/// Returns the span of an attempt of a step.
fn step(operation: &Operation, attempted: &Attempted<'_>, context: SpanContext) -> Finished {
    let attempt = attempted.attempt;
    let what = if attempt.is_undo { "undo" } else { "step" };
    let name = format!("{what} {}", attempt.step.title());
    let times = (time(attempted.begun_at), time(attempted.ended_at));
    let mut span = Finished::new(context, Kind::Internal, name, times);
    span.set(OPERATION_KIND, operation.kind.plan().label);
    span.set(STEP, attempt.step.title());
    span.set(STEP_UNDO, attempt.is_undo);
    span.set(STEP_ATTEMPT, attempt.failures.saturating_add(1));
    span.set(STEP_CLAIM, attempt.claims);
    if let Some(host) = attempted.host {
        span.set(HOST, host.to_string());
    }
    match attempted.ending {
        Ending::Open => {}
        Ending::Done => span.failed = Some(false),
        Ending::Failed(refusal) => fail(&mut span, &refusal.reason),
    }
    span
}

/// Records why it failed: the reason alone, as the message is a text for people.
fn fail(span: &mut Finished, reason: &str) {
    span.set(ERROR_TYPE, reason.to_owned());
    span.failed = Some(true);
}

fn time(at: TimeMs) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(at.0)
}
