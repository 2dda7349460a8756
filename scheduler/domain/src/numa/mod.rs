//! The fit of guest cells to host cells, and what it takes.
//!
//! | room | what |
//! |---|---|
//! | [`assignment`] | the exact CPUs and pages that a guest was given |
//! | [`usage`] | what the guests of a host take from its cells |
//! | [`mod@fit`] | the search for an assignment, with the reason where there is none |
//! | [`mod@verify`] | whether a given assignment is one, and free |
//! | [`refusal`] | why a guest does not fit, to the cell and the smallest shortfall |

pub mod assignment;
pub mod fit;
pub mod refusal;
pub mod usage;
pub mod verify;

pub use assignment::{Assignment, CellAssignment};
pub use fit::{Limits, Strategy, fit, try_fit};
pub use refusal::{CellShortfall, FitRefusal, Resource, Shortage};
pub use usage::{CellUsage, HostUsage};
pub use verify::verify;
