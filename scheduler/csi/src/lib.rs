//! What Kubernetes calls of Berth's volumes.
//!
//! ```text
//!   external-provisioner ─▶ controller ─▶ scheduler: choose and claim, in one command
//!                               └───────▶ agent: make it now
//! ```
//!
//! | room | what |
//! |---|---|
//! | [`controller`] | Identity and Controller of the Container Storage Interface |
//! | [`config`], [`flags`] | what it is told, and what it tells |
//! | [`server`], [`process`] | all of it, as one of several in a process or as one process |
//!
//! Invariant: it keeps nothing, so any number of them may run, and each may end at any time.

pub mod config;
pub mod controller;
pub mod error;
pub mod flags;
pub mod process;
pub mod server;

pub use config::Config;
pub use error::Error;
pub use process::main;
pub use server::run;
