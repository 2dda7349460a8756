//! What the tests that cross crates share: harnesses and helpers. No product code is here.
//!
//! | module | what |
//! |---|---|
//! | [`lab`] | machines in namespaces, hypervisors, guests that boot |
//! | [`measure`] | what the benchmarks share |
//! | [`processes`] | every part as a process on loopback, killed and started again |
//! | [`small`] | a whole Berth within a test, for scenarios |
//!
//! The tests themselves are in `tests/layering.rs`, `tests/all/` and `tests/real/`; `README.md` lists
//! them.

pub mod lab;
pub mod measure;
pub mod processes;
pub mod small;
