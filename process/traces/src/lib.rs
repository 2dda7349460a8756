//! Traces: what a program records of operations and calls, and sends to a collector by OTLP.
//!
//! ```text
//!   Span::child ──▶ Span ──(dropped)──▶ recorder: a bounded queue ──▶ export: batches ──▶ collector
//!      ▲                                        │ full: dropped and counted
//!      │ current: the span of this task
//!   server: the header `traceparent` of a request      client: the header of a call
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`context`] | the identity of a span, and the header that carries it |
//! | [`operation`] | the identities of the spans of an operation, derived from its id |
//! | [`current`](mod@current) | the span of the task that runs |
//! | [`span`] | a span that is recorded |
//! | [`body`] | the body of a gRPC response, and what is kept until its end |
//! | [`client`] | calls with a span |
//! | [`attributes`] | the names of all attributes |
//! | [`recorder`] | where spans go, how many were dropped, and whether any are recorded |
//! | `export`, `connector` | the task that sends them, and its connection |
//!
//! Not here: which spans there are (the programs), and the configuration file (`berth-process`).
//!
//! Invariant: a program never waits for a collector. What the queue does not take, and what the
//! collector does not take in time, is dropped and counted. While nothing is configured, a call costs
//! one load of an atomic.

pub mod attributes;
pub mod body;
pub mod client;
mod connector;
pub mod context;
pub mod current;
mod export;
pub mod operation;
pub mod recorder;
pub mod span;

pub use context::SpanContext;
pub use current::{Active, current, within};
pub use recorder::{Running, Service, Settings, is_on, start};
pub use span::{Finished, Kind, Span};
