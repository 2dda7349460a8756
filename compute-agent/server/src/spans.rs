//! The spans of calls to the hypervisor's driver, as children of the calls that lead to them.
//!
//! The core does not state for which call it makes a request of the driver, and does not know of spans.
//! A guest has one call that works on it at a time, so a request about a guest belongs to the last call
//! about that guest that is not answered.
//!
//! Not here: what the agent does by itself, as its comparisons, which is in no trace.
//!
//! Invariant: as many calls are remembered as wait for their reply, and no more.

use std::sync::Arc;

use berth_agent_core::CallId;
use berth_domain::id::VmUid;
use berth_driver::{Error, Kind, Request};
use berth_process::metrics::Label as _;
use berth_traces::attributes::DRIVER_CALL;
use berth_traces::{Active, Kind as SpanKind, Span};

use crate::metrics::{CallEnd, CallKind};

/// The spans of calls that are not answered.
#[derive(Debug, Default)]
pub(crate) struct CallSpans {
    calls: Vec<(CallId, VmUid, Arc<Active>)>,
}

impl CallSpans {
    /// Remembers the span of a call about a guest.
    pub(crate) fn begin(&mut self, id: CallId, vm: VmUid, span: Arc<Active>) {
        self.calls.push((id, vm, span));
    }

    /// Forgets a call that is answered.
    pub(crate) fn end(&mut self, id: CallId) {
        self.calls.retain(|(call, ..)| *call != id);
    }

    /// Begins the span of a request of the driver, if it belongs to a call that has one.
    pub(crate) fn of_driver(&self, request: &Request) -> Option<Span> {
        if self.calls.is_empty() {
            return None;
        }
        match about(request) {
            About::Guest(vm) => self.of(vm, request.kind()),
            // Its call is certain only where there is one.
            About::Call => match self.calls.as_slice() {
                [(_, _, call)] => Some(begin(call, request.kind())),
                _ => None,
            },
            About::Host => None,
        }
    }

    /// Begins the span of a request about a guest.
    pub(crate) fn of(&self, vm: VmUid, kind: Kind) -> Option<Span> {
        let mut calls = self.calls.iter().rev();
        let (.., call) = calls.find(|(_, about, _)| *about == vm)?;
        Some(begin(call, kind))
    }
}

fn begin(call: &Active, kind: Kind) -> Span {
    let label = CallKind::from(kind).as_str();
    let mut span = Span::child(
        SpanKind::Internal,
        format!("driver {label}"),
        call.context(),
    );
    span.set(DRIVER_CALL, label);
    span
}

/// Ends the span of a request with its result.
pub(crate) fn end_driver<T>(span: Option<Span>, result: &Result<T, Error>) {
    let Some(mut span) = span else {
        return;
    };
    if result.is_err() {
        span.fail(CallEnd::from(result).as_str());
    }
}

/// What a request of the driver is about.
enum About {
    /// A guest.
    Guest(VmUid),
    /// What a call needs, without naming a guest.
    Call,
    /// The host: the agent's own work.
    Host,
}

fn about(request: &Request) -> About {
    match request {
        Request::Create(domain) | Request::Start(domain) | Request::MakeDisks(domain) => {
            About::Guest(domain.uid)
        }
        Request::Prepare { domain, .. } | Request::CopyDisk { domain, .. } => {
            About::Guest(domain.uid)
        }
        Request::Migrate { vm, .. } => About::Guest(*vm),
        Request::Destroy(vm)
        | Request::Domain(vm)
        | Request::Cancel(vm)
        | Request::CheckTls(vm)
        | Request::CheckPeer(vm, _)
        | Request::Abort(vm)
        | Request::Release(vm)
        | Request::Shutdown(vm)
        | Request::Stop(vm)
        | Request::Force(vm, _)
        | Request::Forget(vm)
        | Request::StopFetch(vm)
        | Request::DropDisks(vm, ..) => About::Guest(*vm),
        Request::FetchDisks(fetch) => About::Guest(fetch.domain.uid),
        Request::FreePages | Request::PublishImage(_) | Request::DropImage(_) => About::Call,
        Request::Domains | Request::Everything | Request::Evict(..) | Request::Erase(_) => {
            About::Host
        }
    }
}
