//! Balancing: how evenly hosts are filled, and which moves would help.
//!
//! | room | what |
//! |---|---|
//! | [`metric`] | how well the guests are spread, in one number |
//! | [`policy`] | what a plan is to reach, and what a move may cost |
//! | [`plan`] | the moves that help, until no single one is worth its cost |
//! | `board`, `aim`, `best` | hosts and guests in numbers, and the best move off a host |
//! | `words` | a move in words |
//!
//! Invariant: what is planned here keeps every rule that a claim keeps; a plan is never carried out
//! here.

mod aim;
mod best;
mod board;
pub mod metric;
pub mod plan;
pub mod policy;
mod words;

pub use metric::{Component, Metric, Score, Signals, Standing, Weights};
pub use plan::{Admit, Effort, End, Move, Plan, Proposal, plan};
pub use policy::{Options, Threshold};
