//! The same for a file in the text format of Ganeti's htools, without any cluster, and the answer
//! to Ganeti's own requests.
//!
//! Invariant: `berth-ganeti` decides; here files are read and answers are shown.

mod balance;
mod capacity;
mod iallocator;
mod load;
mod score;
mod verify;

pub use balance::balance;
pub use capacity::capacity;
pub use iallocator::iallocator;
pub use score::score;
pub use verify::verify;
