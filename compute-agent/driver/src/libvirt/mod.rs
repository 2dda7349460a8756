//! The binding to libvirt: the library is opened when it is first used.
//!
//! What it is: the few functions of `libvirt.so.0` that a compute agent needs, behind
//! safe types ([`Library`], [`Connection`], [`Domain`]) and one error with libvirt's
//! message. The binding knows nothing of claims and writes no XML: that is for
//! [`LibvirtDriver`], which uses it.
//!
//! The library is opened at run time and not linked, so that one binary serves hosts
//! with a hypervisor and machines without one; where it is missing, that is an
//! [`Error`] like any other.
//!
//! Every call blocks its thread, a migration for as long as it takes: an async caller
//! wraps it in `spawn_blocking`. The types may be shared between threads. Calls on one
//! connection take turns, but for a migration, which has a connection of its own: it can
//! be watched ([`Domain::job`]) and aborted ([`Domain::abort_job`]) from another thread.
//!
//! Invariant: `unsafe` stays inside `ffi`, `connection` and `domain`.

mod awaited;
#[allow(unsafe_code)]
mod connection;
mod console;
pub mod cpu;
mod disk;
#[allow(unsafe_code)]
mod domain;
pub mod driver;
mod ending;
mod error;
#[allow(unsafe_code)]
mod ffi;
mod inspect;
mod job;
mod memory;
mod migration;
mod network;
mod parameters;
mod peer;
mod progress;
mod send;

pub use connection::{Connection, CpuComparison, Library, Platform, Version};
pub use domain::{Affects, Domain, DomainState, DomainStatus, XmlView, paused, running, shut_off};
pub use driver::LibvirtDriver;
pub use error::{Error, Fault, Kind};
pub use job::{JobKind, JobStats};
pub use migration::Migration;
