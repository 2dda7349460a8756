//! Cases for the exact fit, and a solver to compare it with.

pub mod draw;
pub mod solver;
