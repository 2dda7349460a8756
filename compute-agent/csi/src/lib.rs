//! The Container Storage Interface on a host: Identity and Node, on a socket of this machine.
//!
//! ```text
//!   kubelet ─▶ socket ─▶ identity
//!                  └───▶ node ─▶ trait Host ─▶ volumes, mounts, and claims for pods
//! ```
//!
//! | room | what |
//! |---|---|
//! | [`identity`] | what the driver is called, and what it can do |
//! | [`node`] | stage, publish, and what takes them back; statistics |
//! | [`host`] | what these need of the host that they run on |
//!
//! What it is not: a keeper of anything. Where a volume is staged and published is kept with the
//! volume, so that a new run of the program knows it.
//!
//! Invariant: a call that is repeated has no further effect and the same answer. One call at a time
//! deals with a volume; another one is told `ABORTED`, as the interface says.

pub mod host;
pub mod identity;
mod locks;
pub mod node;

pub use host::{Host, Local, Mount, Space};
pub use identity::IdentityApi;
pub use node::NodeApi;
