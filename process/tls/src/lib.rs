//! Who is on the other end: mutual TLS, its certificates, and the authority that makes them.
//!
//! ```text
//!   files ─▶ Material ─▶ Tls (looked at every few seconds) ─┬▶ incoming: connections with a Peer
//!   ca, cert, key        what is broken is not taken         └▶ Connector: to a server of a Role
//! ```
//!
//! | room | what |
//! |---|---|
//! | [`role`], [`identity`] | what a certificate says of whoever shows it |
//! | [`material`] | three files, read and judged |
//! | [`live`] | the files as they are now |
//! | [`server`] | connections that come in, encrypted or not |
//! | `room`, `refusals` | how many shake hands at a time; who was turned away, for the log |
//! | [`standing`] | what a connection rests on, and its end when that is gone |
//! | [`client`] | connections that go out, and to whom |
//! | [`told`] | what a failed handshake means, and what to do |
//! | [`authority`] | making certificates |
//!
//! Not here: who may do what. That is `berth_process::access`.
//!
//! Invariant: it knows no other crate of ours, and no key ever leaves it as text but into a file that
//! only its owner can read.

pub mod authority;
pub mod client;
pub mod identity;
pub mod live;
pub mod material;
mod refusals;
pub mod role;
mod room;
pub mod server;
pub mod standing;
mod stream;
pub mod told;

pub use client::{Connector, Expected};
pub use identity::Identity;
pub use live::Tls;
pub use material::{Fault, Files, Material};
pub use role::Role;
pub use server::{Incoming, Peer};
pub use standing::Standing;
pub use stream::{Either, Outgoing};
