//! Recorded decisions made again: checked, and under another policy, other flavors or another fleet.
//!
//! ```text
//!   recorded command ──▶ its request ──▶ decided on the recorded state ──▶ the same host and claim?
//!                             │
//!                             └────────▶ decided on a state of its own ──▶ what would differ
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`decision`] | the request that led to a recorded command |
//! | [`check`] | whether the same policy leads to the recorded decisions |
//! | [`changes`] | what is changed: policy, flavors, hosts |
//! | [`what_if`] | the recorded requests on a state with these changes |
//! | `translate` | recorded commands that choose no host, as that state takes them |
//! | [`replayer`] | all of these as one pass over a history |
//! | [`usage`] | how much of the hosts is taken, and what of them no VM can take |
//! | [`report`] | what is reported |
//!
//! Pure: no I/O, no clock, no randomness. It opens no backup: the caller passes the recorded
//! commands in order, each with the state before it.
//!
//! Invariant: decisions are made by [`berth_decide`] alone, with the ids and the time of the recorded
//! command, so that the same history and changes give the same report.

pub mod changes;
pub mod check;
pub mod decision;
pub mod replayer;
pub mod report;
mod translate;
pub mod usage;
pub mod what_if;

pub use changes::{Changes, FlavorChange};
pub use check::Check;
pub use decision::{Kind, RecordedDecision};
pub use replayer::Replayer;
pub use report::{CheckReport, Difference, Report, WhatIfReport};
pub use usage::Usage;
pub use what_if::WhatIf;
