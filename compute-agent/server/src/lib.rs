//! The compute agent of one host: it drives the hypervisor for conductors, and never decides
//! placement alone. It fits, then confirms, swaps or refuses the claim.
//!
//! ```text
//!   conductors ─▶ service ─▶ shell ─▶ `berth-agent-core`: event → effects
//!                              │ requests        ▲ answers
//!                              └──▶ threads ─▶ driver ─▶ hypervisor
//!   scheduler  ◀─ registration
//! ```
//!
//! | module | what |
//! |---|---|
//! | `shell` | owns the core, performs its driver requests on threads |
//! | `spans` | the spans of driver requests |
//! | `transfers` | waiters for the end of a transfer |
//! | `service` | what conductors call |
//! | `console` | the serial consoles of guests, read and typed on |
//! | `driver_call` | calls of the driver for clients, and what they are answered when it fails |
//! | `host_check` | what is right and wrong with this host, and whether it reaches others |
//! | `grants` | whether the scheduler granted a call |
//! | `disks` | the disks of guests that are off, fetched from and served to other agents |
//! | `guest_volumes` | the volumes of guests, marked as theirs while they run |
//! | `registration` | registration and heartbeats with the scheduler |
//! | `signals` | the memory of the host and of its guests, measured periodically |
//! | `self_fencing` | the self-fencing promise registered for the guests |
//! | `pmem` | the persistent memory that is configured: discovered and erased |
//! | [`volumes`] | the volumes of persistent memory, made and erased as the leader records |
//! | `watchdog` | the device that resets the machine if this agent does not feed it |
//! | `hypervisor` | the machine and the driver that are configured |
//! | `metrics` | metrics, and health over HTTP |
//! | `no_driver` | driver of a host that exists for its volumes and runs no guests |
//! | [`config`], [`flags`] | configuration and command line |
//! | [`server`], [`process`] | all of it, as one of several in a process or as one process |
//!
//! Invariant: an agent owns no state. Claim, epoch and the whole record of a guest are stored with
//! the guest by the hypervisor. Self-fencing promises are written down beside the guests, or
//! beside their sockets.

pub mod config;
mod console;
mod disks;
mod driver_call;
pub mod error;
mod feature;
pub mod flags;
mod grants;
mod guest_volumes;
mod host_check;
mod hypervisor;
mod images;
mod metrics;
pub mod migration_tls;
mod networks;
mod no_driver;
mod pmem;
pub mod process;
mod reality;
mod registration;
mod self_fencing;
pub mod server;
mod service;
mod shell;
mod signals;
mod spans;
mod traits;
mod transfers;
pub mod volumes;
pub mod watchdog;

pub use config::Config;
pub use error::Error;
pub use process::main;
pub use server::{ComputeAgent, run};
