//! The compute agent of one host: it drives the hypervisor for conductors, and never decides
//! placement alone. It fits, then confirms, swaps or refuses the claim.
//!
//! ```text
//!   conductors ─▶ service ─▶ shell ─▶ core: event → effects
//!                              │ requests        ▲ answers
//!                              └──▶ threads ─▶ driver ─▶ hypervisor
//!   scheduler  ◀─ registration
//! ```
//!
//! | room | what |
//! |---|---|
//! | [`core`] | which calls are taken and what they lead to, without I/O |
//! | `shell` | owns the core, performs its driver requests on threads |
//! | `transfers` | who waits for the end of a transfer |
//! | `service` | what conductors call |
//! | `disks` | the disks of guests that are off, fetched from and given to other agents |
//! | `guest_volumes` | the volumes of guests, marked as theirs while they run |
//! | `registration` | telling the scheduler what the host has, and that it is alive |
//! | `signals` | the memory of the host and of its guests, measured now and then |
//! | `self_fencing` | what is promised of the guests when nobody hears of this agent |
//! | `pmem` | the persistent memory that is configured, looked at and erased |
//! | [`volumes`] | the volumes of persistent memory, made and erased as the leader says |
//! | `watchdog` | the device that resets the machine if this agent does not feed it |
//! | `hypervisor` | the machine and the driver that are configured |
//! | `no_driver` | that of a host which is there for its volumes and runs no guests |
//! | [`config`], [`flags`] | what it is told, and what it tells |
//! | [`server`], [`process`] | all of it, as one of several in a process or as one process |
//!
//! Invariant: an agent keeps nothing of its own. Claim, epoch and the whole record of a guest are
//! kept with the guest by the hypervisor. What is promised of guests is written down beside them, or
//! beside their sockets.

pub mod config;
pub mod core;
mod disks;
pub mod error;
pub mod flags;
mod guest_volumes;
mod hypervisor;
mod no_driver;
mod pmem;
pub mod process;
mod qualities;
mod reality;
mod registration;
mod self_fencing;
pub mod server;
mod service;
mod shell;
mod signals;
mod transfers;
pub mod volumes;
pub mod watchdog;

pub use config::Config;
pub use error::Error;
pub use process::main;
pub use server::{ComputeAgent, run};
