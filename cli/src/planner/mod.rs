//! Failover checks, balancing and capacity planning.
//!
//! | module | contents |
//! |---|---|
//! | [`verify`] | `berth verify` |
//! | [`score`] | `berth score` |
//! | [`balance`] | `berth balance`, and carrying it out |
//! | [`capacity`] | `berth capacity` |
//! | [`text`] | the same for a file of Ganeti's, and `berth iallocator` |
//!
//! Invariant: nothing is worked out here for a cluster; its schedulers do that on one frozen state.
//! For a file, `berth-ganeti` does.

pub mod balance;
pub mod capacity;
pub mod score;
pub mod text;
pub mod verify;

/// A failure would not be survived, or memory is overcommitted beyond its ratio. The output names which.
#[derive(Debug, thiserror::Error)]
#[error("not every failure would be survived, or memory is given away beyond its ratio")]
pub struct Unhealthy;

/// What a score means, where one is shown to people.
const SCALE: &str = "0 is even, lower is better";

/// Returns a score as people read it.
fn number(score: f64) -> String {
    format!("{score:.4}")
}

/// Returns a ratio of thousandths as people read it.
fn ratio(milli: u64) -> String {
    format!("{}", milli as f64 / 1000.0)
}
