//! Mutual TLS between Berth's programs: certificates, connections, and the authority that issues them.
//!
//! ```text
//!   files ─▶ Material ─▶ Tls (polled every few seconds) ─┬▶ Incoming: connections with a Peer
//!   ca, cert, key        invalid files are not used       └▶ Connector: to a server of a Role
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`role`], [`identity`] | role and name in a certificate |
//! | [`material`] | three files, read and validated |
//! | [`live`] | the current files, reloaded when they change |
//! | [`server`] | incoming connections, encrypted or not |
//! | `handshakes`, `refusals` | the limit of concurrent handshakes; refused connections, for the log |
//! | [`revoked`] | the certificates that the cluster has revoked |
//! | [`trust`] | the trust in the peer of an open connection, and its end |
//! | [`client`] | outgoing connections, and which servers they accept |
//! | `inside` | connections between a client and a server of one process |
//! | [`explain`] | what a failed handshake means, and what to do |
//! | [`authority`] | making certificates |
//! | [`hypervisor`] | certificates of libvirtd and QEMU, which no program of Berth accepts |
//! | [`pem`] | certificates and keys in memory, for programs that keep them elsewhere |
//!
//! Not here: which role may call what. That is `berth_process::access`.
//!
//! Invariant: of Berth's crates it depends on `berth-files` alone, and a key leaves it as text only into a file that
//! only its owner can read, or through [`authority::Authority::sign`].

pub mod authority;
pub mod client;
pub mod explain;
mod handshakes;
pub mod hypervisor;
pub mod identity;
mod inside;
pub mod live;
pub mod material;
pub mod pem;
mod refusals;
pub mod revoked;
pub mod role;
pub mod server;
mod stream;
pub mod trust;

pub use client::{Connector, Expected};
pub use handshakes::source;
pub use identity::Identity;
pub use inside::Inside;
pub use live::Tls;
pub use material::{Fault, Files, Material};
pub use revoked::Revoked;
pub use role::Role;
pub use server::{Incoming, Peer};
pub use stream::{Either, Outgoing};
pub use trust::Trust;
