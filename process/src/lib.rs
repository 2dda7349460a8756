//! What scheduler, conductor and compute agent have in common as processes, and nothing of what
//! they do.
//!
//! | room | what |
//! |---|---|
//! | `allocator` | the allocator of all of them |
//! | [`configuration`] | one struct, read from TOML, overridden by flags; all faults at once |
//! | [`keys`] | the keys of a file: what is taken is known, what is left is a fault |
//! | [`encryption`] | which certificates a server has |
//! | [`access`] | which role may call what |
//! | [`flags`] | the flags that every server has |
//! | [`listening`] | where a server listens, what others dial, and the word that it needs |
//! | [`schedulers`] | the list of schedulers that a program calls |
//! | [`socket`] | a socket of this machine, for who must not come from elsewhere |
//! | [`log`] | log lines |
//! | [`http1`] | HTTP/1.1 for whoever is no part of the cluster, bounded in everything |
//! | [`server`] | the gRPC server that they all start from, and what it says about itself |
//! | [`run`] | from the command line to the exit status |
//!
//! Invariant: of our crates it knows `berth-tls` alone. Whoever has a key, a flag or a service passes it.

pub mod access;
mod allocator;
pub mod configuration;
pub mod encryption;
pub mod flags;
pub mod http1;
pub mod keys;
pub mod listening;
pub mod log;
pub mod places;
pub mod run;
pub mod schedulers;
pub mod server;
pub mod socket;

pub use configuration::{Configuration, Faults};
pub use encryption::Encryption;
pub use keys::Keys;
pub use listening::{ListenError, Listening};
pub use log::{Log, LogFormat};
pub use places::Places;
pub use run::main;
