//! What scheduler, conductor and compute agent have in common as processes, and nothing of what
//! they do.
//!
//! | module | what |
//! |---|---|
//! | `allocator` | the allocator of all of them |
//! | [`configuration`] | one struct, read from TOML, overridden by flags; all faults at once |
//! | [`keys`] | the keys of a file: those read are known, the others are faults |
//! | [`encryption`] | which certificates a server has |
//! | [`access`] | which role may call what |
//! | [`bounds`] | how much of a server one caller may hold |
//! | `kinds` | counts by kind, for a log that is bounded |
//! | [`flags`] | the flags that every server has |
//! | [`listening`] | where a server listens, and the address that others dial |
//! | [`schedulers`] | the list of schedulers that a program calls |
//! | [`secrecy`] | no core dumps, files of the user alone |
//! | [`terminal`] | texts of others as they are shown to people |
//! | [`socket`] | a Unix socket, for clients on this machine only |
//! | [`log`], [`recent`] | log lines; the latest ones in memory |
//! | [`http1`] | HTTP/1.1 for clients outside the cluster, bounded in everything |
//! | [`metrics`] | metrics and health over HTTP, for those who watch a program |
//! | [`server`] | the gRPC server that they all start from, and its reflection |
//! | [`traces`] | whether and where traces are sent |
//! | [`service_manager`] | notifies systemd that a program serves |
//! | [`usage`] | wrong usage of a command line, for programs |
//! | `wall_clock` | the wall clock of this machine |
//! | [`run`] | from the command line to the exit status |
//!
//! Invariant: it depends on `berth-tls` and `berth-traces` alone among Berth's crates. Keys, flags and services are passed in.

pub mod access;
mod allocator;
pub mod bounds;
pub mod configuration;
pub mod encryption;
pub mod flags;
pub mod http1;
pub mod keys;
mod kinds;
pub mod listening;
pub mod locations;
pub mod log;
pub mod metrics;
pub mod recent;
pub mod run;
pub mod schedulers;
pub mod secrecy;
pub mod server;
pub mod service_manager;
pub mod socket;
pub mod terminal;
pub mod traces;
pub mod usage;
mod wall_clock;

pub use configuration::{Configuration, Faults};
pub use encryption::Encryption;
pub use keys::Keys;
pub use listening::{ListenError, Listening};
pub use locations::KeyLocations;
pub use log::{Log, LogFormat};
pub use run::{
    BoxFuture, Cause, Explain, Failed, Remedy, Shutdown, error_chain, main, panic_message, print,
    print_rendered, unexplained,
};
pub use traces::Traces;
pub use wall_clock::wall_clock_ms;
