//! The fit of guest cells to host cells, and what it takes.
//!
//! | room | what |
//! |---|---|
//! | [`assignment`] | the exact CPUs and pages that a guest was given |
//! | [`usage`] | what the guests of a host take from its cells |
//! | [`mod@fit`] | the search for an assignment, with the reason where there is none |

pub mod assignment;
pub mod fit;
pub mod usage;

pub use assignment::{Assignment, CellAssignment};
pub use fit::{Limits, Shortfall, Strategy, fit};
pub use usage::{CellUsage, HostUsage};
