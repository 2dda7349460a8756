//! A host's persistent-memory namespaces: which there are, and erasing them.
//!
//! What it is not: a chooser. Which guest gets which namespace, and when one is erased, is decided
//! by the scheduler; this crate discovers and wipes.
//!
//! Invariant: an erase is reported as done only after every byte of the device was overwritten since
//! the erase began, by the tool's own count, and no other process had the device open when it ended.
//!
//! | module | what |
//! |---|---|
//! | [`config`] | the agent's option `pmem_namespaces` |
//! | [`ndctl`] | what `ndctl list` prints, read, pure |
//! | [`discovery`] | configured beside discovered: what can be used, and why the rest cannot, pure |
//! | [`versions`] | the oldest supported kernel and programs, pure |
//! | [`memory`] | the trait, with its parameters and results |
//! | [`command`], [`holders`] | programs with time limits; who has a device open |
//! | [`real`] | with the programs `ndctl` and `daxio` |
//! | [`simulated`] | in memory, under any clock, with injected faults |
//! | `conformance` | the conformance suite of both |
//! | [`volume`] | volumes: devices made and removed, and their records |

pub mod command;
pub mod config;
#[cfg(any(test, feature = "testing"))]
pub mod conformance;
pub mod discovery;
pub mod holders;
pub mod memory;
pub mod ndctl;
pub mod real;
pub mod simulated;
pub mod versions;
pub mod volume;

pub use config::Configured;
pub use discovery::{Discovery, Record};
pub use memory::{EraseId, Mark, Order, Pmem, Progress, State};
pub use real::Real;
pub use simulated::Simulated;
pub use versions::Versions;
