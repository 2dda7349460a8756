//! Balancing: how evenly hosts are filled, and which moves would help.
//!
//! | module | what |
//! |---|---|
//! | [`metric`] | how well the guests are spread, in one number |
//! | [`weights`] | how much each of its components says |
//! | [`policy`] | what a plan is to reach, and what a move may cost |
//! | [`mod@plan`] | the moves that help, until no single one is worth its cost |
//! | `cluster_model`, `aim`, `best` | hosts and guests in numbers, and the best move off a host |
//! | [`guard`] | moves that keep hosts able to fail |
//! | [`mod@defragment`] | the moves that make room for a guest |
//! | `words`, `sets` | a move in words, moves that may be made at the same time |
//!
//! Invariant: what is planned here keeps every rule that a claim keeps; a plan is never carried out
//! here.

mod aim;
mod best;
mod cluster_model;
pub mod defragment;
mod evict;
pub mod guard;
pub mod metric;
pub mod plan;
pub mod policy;
mod sets;
pub mod weights;
mod words;

pub use defragment::{Budget, FreedPlacement, Goal, Impossible, Shift, Verdict, Way, defragment};
pub use guard::Guard;
pub use metric::{Component, Metric, Score, Signals, Standing};
pub use plan::{Admit, Effort, End, Move, Plan, Proposal, plan};
pub use policy::{Options, Threshold};
pub use weights::Weights;
