//! A host's persistent-memory namespaces: which there are, and erasing them.
//!
//! What it is not: a chooser. Which guest gets which namespace, and when one is erased, is decided
//! by the scheduler; this crate looks and wipes.
//!
//! Invariant: an erase is told to be done only after every byte of the device was overwritten since
//! the erase began, by the tool's own count, and nobody else had the device open when it ended.
//!
//! | room | what |
//! |---|---|
//! | [`config`] | the agent's option `pmem_namespaces` |
//! | [`ndctl`] | what `ndctl list` prints, read, pure |
//! | [`discovery`] | configured beside found: what can be used, and why the rest cannot, pure |
//! | [`versions`] | the oldest kernel and programs that will do, pure |
//! | [`memory`] | the trait, what it is given, what it answers |
//! | [`command`], [`holders`] | programs with time limits; who has a device open |
//! | [`real`] | with the programs `ndctl` and `daxio` |
//! | [`simulated`] | in memory, under any clock, with faults on order |
//! | [`conformance`] | what both are held to |
//! | [`volume`] | volumes: devices made and removed, and what is written down of them |

pub mod command;
pub mod config;
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
