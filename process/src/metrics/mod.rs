//! Metrics and health of a program, for Prometheus and Kubernetes.
//!
//! ```text
//!   hot path ──relaxed atomics──▶ counters ─┐
//!   state, queues ──read at a scrape────────┴▶ Exposition ─▶ text ─▶ GET /metrics
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `accept` | the format that a client prefers |
//! | [`definition`] | a metric: name, type, labels, text |
//! | [`counters`] | what is counted while a program works |
//! | [`exposition`] | the values of a scrape, and their text |
//! | [`grpc`] | the requests of a gRPC server |
//! | [`health`] | checks and how they are shown |
//! | [`listener`] | the HTTP listener |
//! | `process` | what the kernel knows of the process |
//!
//! Not here: which metrics a program has, but for those that all have. `docs/metrics.md` lists all.
//!
//! Invariant: the values of every label come from a closed set, or from one that is bounded; no name of a
//! VM or of a host is among them.

mod accept;
pub mod counters;
pub mod definition;
pub mod exposition;
pub mod grpc;
pub mod health;
pub mod listener;
mod process;

pub use counters::{Bounds, Count, Counts, Distribution, Durations, DurationsBy, Label, Pairs};
pub use definition::{Definition, Kind};
pub use exposition::{Exposition, Value};
pub use grpc::GrpcRequests;
pub use health::Check;
pub use listener::{Observed, Program, serve};
