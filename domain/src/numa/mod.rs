//! The fit of guest cells to host cells, and what it takes.
//!
//! | module | what |
//! |---|---|
//! | [`assignment`] | the exact CPUs, pages and PCI functions that a guest was given |
//! | [`usage`] | what the guests of a host take from its cells |
//! | [`outline`] | a host's cells in numbers, kept so that decisions are fast |
//! | [`mod@fit`] | the search for an assignment, with the reason where there is none |
//! | [`mod@verify`] | whether a given assignment is one, and free |
//! | [`refusal`] | why a guest does not fit, to the cell and the smallest shortfall |

pub mod fit;
pub mod outline;
pub mod refusal;
pub mod usage;
pub mod verify;

pub use crate::assignment::{self, Assignment, CellAssignment};
pub use fit::{ExactDemand, Ground, Guest, Strategy, fit, gives_up, is_feasible, try_fit};
pub use outline::{Limits, Outline, ThreadRules};
pub use refusal::{CellShortfall, FitRefusal, PciRegion, PciShortfall, Resource, Shortage};
pub use usage::{CellUsage, HostUsage};
pub use verify::verify;
