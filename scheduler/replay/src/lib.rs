//! Recorded decisions made again.
//!
//! ```text
//!   recorded command ──▶ its request ──▶ decided on the recorded state ──▶ the same host and claim?
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`decision`] | the request that led to a recorded command |
//! | [`check`] | whether the same policy leads to the recorded decisions |
//! | [`report`] | what is reported |
//!
//! Pure: no I/O, no clock, no randomness. It opens no backup: the caller passes the recorded
//! commands in order, each with the state before it.
//!
//! Invariant: decisions are made by [`berth_decide`] alone, with the ids and the time of the recorded
//! command, so that the same history and changes give the same report.

pub mod check;
pub mod decision;
pub mod report;

pub use check::Check;
pub use decision::{Kind, RecordedDecision};
pub use report::{CheckReport, Difference};
