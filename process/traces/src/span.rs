//! A span that is recorded: begun, given attributes, and sent when it is dropped.
//!
//! Invariant: a span is bounded: so many attributes, events and links, and so many bytes of each text.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

use tonic::Code;
use tonic::codegen::http::HeaderMap;

use crate::attributes::{ERROR_TYPE, RPC_METHOD, RPC_SERVICE, RPC_STATUS, RPC_SYSTEM};
use crate::context::{HEADER, SpanContext};
use crate::current::{Active, current};
use crate::recorder;

/// Attributes of a span at most.
const ATTRIBUTES_MAX: usize = 16;
/// Events of a span at most.
const EVENTS_MAX: usize = 16;
/// Bytes of a name or a value at most; what is longer is cut.
const TEXT_BYTES_MAX: usize = 256;

/// What a span is to its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Work in this program.
    Internal,
    /// A request that is answered.
    Server,
    /// A call that is made.
    Client,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text.
    Text(Cow<'static, str>),
    /// A number.
    Number(i64),
    /// Yes or no.
    Flag(bool),
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(bounded(text.into()))
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

/// A span that has ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Its identity.
    pub context: SpanContext,
    /// Its parent; the root of a trace has none.
    pub parent: Option<u64>,
    /// Whether the parent is in another program.
    pub is_parent_remote: bool,
    /// What it is to its trace.
    pub kind: Kind,
    /// Its name, of a small set.
    pub name: Cow<'static, str>,
    /// When it began.
    pub begun: SystemTime,
    /// When it ended.
    pub ended: SystemTime,
    /// Its attributes, by the names of [`crate::attributes`].
    pub attributes: Vec<(&'static str, Value)>,
    /// What happened meanwhile.
    pub events: Vec<(&'static str, SystemTime)>,
    /// Spans of other traces.
    pub links: Vec<SpanContext>,
    /// Whether it failed; unknown for most.
    pub failed: Option<bool>,
}

impl Finished {
    /// Returns a span that began and ended at these times.
    #[must_use]
    pub fn new(
        context: SpanContext,
        kind: Kind,
        name: impl Into<Cow<'static, str>>,
        (begun, ended): (SystemTime, SystemTime),
    ) -> Self {
        Self {
            context,
            parent: None,
            is_parent_remote: false,
            kind,
            name: bounded(name.into()),
            begun,
            ended: ended.max(begun),
            attributes: Vec::new(),
            events: Vec::new(),
            links: Vec::new(),
            failed: None,
        }
    }

    /// Makes it a child of a span.
    #[must_use]
    pub fn of(mut self, parent: SpanContext) -> Self {
        self.parent = Some(parent.span);
        self
    }

    /// Adds an attribute.
    pub fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        if self.attributes.len() < ATTRIBUTES_MAX {
            self.attributes.push((name, value.into()));
        }
    }

    /// Adds an event.
    pub fn event(&mut self, name: &'static str, at: SystemTime) {
        if self.events.len() < EVENTS_MAX {
            self.events.push((name, at));
        }
    }

    /// Sends it, if traces are recorded.
    pub fn send(self) {
        recorder::send(self);
    }
}

/// A span that goes on. It ends when it is dropped.
#[derive(Debug)]
pub struct Span {
    active: Arc<Active>,
    /// Absent once it is sent.
    record: Option<Box<Finished>>,
}

impl Span {
    /// Begins a child of a span of this program.
    #[must_use]
    pub fn child(kind: Kind, name: impl Into<Cow<'static, str>>, parent: SpanContext) -> Self {
        let context = parent.with_span(new_id());
        let now = SystemTime::now();
        let record = Finished::new(context, kind, name, (now, now)).of(parent);
        Self {
            active: Active::new(context),
            record: Some(Box::new(record)),
        }
    }

    /// Begins the span of a request with these headers, if they have a span that is recorded.
    /// `method` is its full name, as `berth.operation.v1.OperationService/Advance`.
    #[must_use]
    pub fn server(method: &str, headers: &HeaderMap) -> Option<Self> {
        let parent = parent(headers)?;
        let mut span = Self::call(Kind::Server, method, parent);
        if let Some(record) = &mut span.record {
            record.is_parent_remote = true;
        }
        Some(span)
    }

    /// Begins the span of a call of a method, if this task has one.
    #[must_use]
    pub fn client(method: &str) -> Option<Self> {
        let parent = current()?.context();
        Some(Self::call(Kind::Client, method, parent))
    }

    fn call(kind: Kind, method: &str, parent: SpanContext) -> Self {
        let mut span = Self::child(kind, method.to_owned(), parent);
        let (service, name) = method.rsplit_once('/').unwrap_or(("", method));
        span.set(RPC_SYSTEM, "grpc");
        span.set(RPC_SERVICE, service.to_owned());
        span.set(RPC_METHOD, name.to_owned());
        span
    }

    /// Returns it as others refer to it.
    #[must_use]
    pub fn active(&self) -> Arc<Active> {
        self.active.clone()
    }

    /// Has it begin earlier: where it is known only later that it is recorded.
    pub fn begun_at(&mut self, begun: SystemTime) {
        if let Some(record) = &mut self.record {
            record.begun = begun;
        }
    }

    /// Adds an attribute.
    pub fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        if let Some(record) = &mut self.record {
            record.set(name, value);
        }
    }

    /// Adds an event.
    pub fn event(&mut self, name: &'static str, at: SystemTime) {
        if let Some(record) = &mut self.record {
            record.event(name, at);
        }
    }

    /// Records that it failed, for this reason: a word of a small set.
    pub fn fail(&mut self, reason: impl Into<Value>) {
        self.set(ERROR_TYPE, reason);
        if let Some(record) = &mut self.record {
            record.failed = Some(true);
        }
    }

    /// Records the status of its call. A server has failed where that is its own fault.
    pub fn set_code(&mut self, code: Code) {
        self.set(RPC_STATUS, u32::try_from(code as i32).unwrap_or(2));
        let Some(record) = &mut self.record else {
            return;
        };
        let is_failure = match code {
            Code::Ok => false,
            Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss => true,
            Code::Cancelled
            | Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::ResourceExhausted
            | Code::FailedPrecondition
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unauthenticated => record.kind == Kind::Client,
        };
        record.failed = is_failure.then_some(true);
    }

    /// Records the status in these headers or trailers, if they have one.
    pub(crate) fn set_status(&mut self, headers: &HeaderMap) {
        if let Some(status) = headers.get("grpc-status") {
            self.set_code(Code::from_bytes(status.as_bytes()));
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(mut record) = self.record.take() {
            record.ended = SystemTime::now().max(record.begun);
            record.links.extend(self.active.take_links());
            recorder::send(*record);
        }
    }
}

/// Returns the span that a request states, where it is valid, stated once, and recorded.
fn parent(headers: &HeaderMap) -> Option<SpanContext> {
    if !recorder::is_on() {
        return None;
    }
    let mut stated = headers.get_all(HEADER).iter();
    let (first, None) = (stated.next()?, stated.next()) else {
        return None;
    };
    SpanContext::parse(first.as_bytes()).filter(|parent| parent.is_sampled)
}

/// Returns the id of a new span.
fn new_id() -> u64 {
    rand::random_range(1..=u64::MAX)
}

/// Cuts a text that is too long.
fn bounded(text: Cow<'static, str>) -> Cow<'static, str> {
    if text.len() <= TEXT_BYTES_MAX {
        return text;
    }
    let mut ends = (0..=TEXT_BYTES_MAX).rev();
    let end = ends.find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text[..end].to_owned().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_lists_are_bounded() {
        let context = SpanContext {
            trace: 1,
            span: 2,
            is_sampled: true,
        };
        let now = SystemTime::now();
        let mut span = Finished::new(context, Kind::Internal, "ä".repeat(1_000), (now, now));
        assert_eq!(span.name.len(), TEXT_BYTES_MAX);
        for _ in 0..100 {
            span.set("a", "x".repeat(1_000));
            span.event("b", now);
        }
        assert_eq!(span.attributes.len(), ATTRIBUTES_MAX);
        assert_eq!(span.events.len(), EVENTS_MAX);
        let Value::Text(text) = &span.attributes[0].1 else {
            panic!("a text");
        };
        assert_eq!(text.len(), TEXT_BYTES_MAX);
    }

    /// Goal: what no call has while nothing is configured: a span, from a header or otherwise.
    #[test]
    fn nothing_is_recorded_where_nothing_is_configured() {
        let mut headers = HeaderMap::new();
        let valid = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        headers.insert(HEADER, valid.parse().unwrap());
        assert!(Span::server("a.A/Get", &headers).is_none());
        assert!(Span::client("a.A/Get").is_none());
        assert_eq!(crate::operation::root(7), None);
    }
}
