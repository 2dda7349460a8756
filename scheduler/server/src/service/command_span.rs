//! The spans of a request that changes the state: from the request to its outcome, with the moment at
//! which it was decided, and that at which its command was applied. A command is applied as soon as a
//! majority has it on its disks.
//!
//! What begins an operation has two spans, each linked to the other trace: one in the trace of the
//! client, if it has one, and one in the trace of the operation.
//!
//! Invariant: without traces a request has none of this but a check whether there are any.

use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use berth_decide::Action;
use berth_domain::id::OperationId;
use berth_domain::refusal::Refusal;
use berth_process::metrics::Label as _;
use berth_state::Reply;
use berth_traces::attributes::COMMAND;
use berth_traces::operation as identity;
use berth_traces::{Active, Kind, Span, current};

use super::context::{Done, NoOutcome};
use crate::metrics::decisions;

/// When things happened, as the replica's task records them.
#[derive(Debug, Default)]
pub(super) struct Moments {
    decided: OnceLock<SystemTime>,
    applied: OnceLock<SystemTime>,
}

impl Moments {
    pub(super) fn decided(moments: Option<&Arc<Self>>) {
        if let Some(moments) = moments {
            // Each happens once.
            let _ = moments.decided.set(SystemTime::now());
        }
    }

    pub(super) fn applied(moments: Option<&Arc<Self>>) {
        if let Some(moments) = moments {
            let _ = moments.applied.set(SystemTime::now());
        }
    }
}

/// A request that is decided, and has spans.
#[derive(Debug)]
pub(super) struct CommandSpan {
    kind: decisions::Kind,
    begun: SystemTime,
    /// The span of the request, if it has one.
    request: Option<Arc<Active>>,
    pub(super) moments: Arc<Moments>,
}

impl CommandSpan {
    /// Begins the spans of a request, if any are recorded.
    pub(super) fn begin(action: &Action, validate_only: bool) -> Option<Self> {
        if !berth_traces::is_on() || validate_only {
            return None;
        }
        Some(Self {
            kind: decisions::kind_of(action),
            begun: SystemTime::now(),
            request: current(),
            moments: Arc::default(),
        })
    }

    /// Sends them, with the outcome.
    pub(super) fn end<T>(self, outcome: &Result<(Result<Done, Refusal>, T), NoOutcome>) {
        let begun = match outcome {
            Ok((Ok(done), _)) => self.begun_operation(&done.reply),
            Ok((Err(_), _)) | Err(_) => None,
        };
        let root = begun.and_then(|id| identity::root(id.0.as_u128()));
        let of_request = self.request.as_ref().map(|request| {
            let mut span = Span::child(Kind::Internal, self.name(), request.context());
            self.describe(&mut span, outcome);
            span
        });
        let is_other =
            |request: &Arc<Active>| root.is_some_and(|root| root.trace != request.context().trace);
        let is_own = self.request.as_ref().is_none_or(is_other);
        let of_operation = root.filter(|_| is_own).map(|root| {
            let mut span = Span::child(Kind::Internal, self.name(), root);
            self.describe(&mut span, outcome);
            span
        });
        if let (Some(request), Some(operation)) = (&of_request, &of_operation) {
            request.active().link(operation.active().context());
            operation.active().link(request.active().context());
        }
    }

    fn name(&self) -> String {
        format!("command {}", self.kind.as_str())
    }

    fn describe<T>(
        &self,
        span: &mut Span,
        outcome: &Result<(Result<Done, Refusal>, T), NoOutcome>,
    ) {
        span.begun_at(self.begun);
        span.set(COMMAND, self.kind.as_str());
        for (name, moment) in [
            ("decided", &self.moments.decided),
            ("applied", &self.moments.applied),
        ] {
            if let Some(at) = moment.get() {
                span.event(name, *at);
            }
        }
        match outcome {
            Ok((Ok(_), _)) => {}
            Ok((Err(refusal), _)) => span.fail(refusal.reason.clone()),
            Err(NoOutcome::Propose(error)) => span.fail(decisions::End::from(error).as_str()),
            Err(NoOutcome::TimedOut) => span.fail(decisions::End::TimedOut.as_str()),
        }
    }

    /// Returns the operation that was begun, or that a client has an order for.
    fn begun_operation(&self, reply: &Reply) -> Option<OperationId> {
        match self.kind {
            decisions::Kind::Boot
            | decisions::Kind::Migration
            | decisions::Kind::Move
            | decisions::Kind::Unshelve
            | decisions::Kind::Power
            | decisions::Kind::OtherOperation => {
                if let Reply::Operation(operation) = reply {
                    return Some(operation.id);
                }
                None
            }
            // The others are steps of one, or about none.
            decisions::Kind::DrainedMove
            | decisions::Kind::NextHost
            | decisions::Kind::Step
            | decisions::Kind::Lease
            | decisions::Kind::Host
            | decisions::Kind::Volume
            | decisions::Kind::Placement
            | decisions::Kind::Catalog
            | decisions::Kind::Policy
            | decisions::Kind::Cluster => None,
        }
    }
}
