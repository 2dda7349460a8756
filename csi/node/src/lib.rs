//! The Container Storage Interface on a host: Identity and Node, on a socket of this machine.
//!
//! ```text
//!   kubelet ─▶ socket ─▶ identity
//!                  └───▶ node ─▶ trait Host ─▶ volumes, mounts, and claims for pods
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`identity`] | the name and capabilities of the driver |
//! | [`node`] | stage, publish, and their reverse; statistics |
//! | [`host`] | the interface to the host that they run on |
//!
//! What it is not: stateful. Where a volume is staged and published is recorded with the
//! volume, so that a new run of the program knows it.
//!
//! Invariant: a call that is repeated has no further effect and the same result. One call at a time
//! is under way for a volume; another one gets `ABORTED`, as the specification requires.

pub mod host;
pub mod identity;
mod locks;
pub mod node;

pub use host::{Host, Local, Mount, Space};
pub use identity::IdentityApi;
pub use node::NodeApi;
