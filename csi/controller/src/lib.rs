//! What Kubernetes calls of Berth's volumes.
//!
//! ```text
//!   external-provisioner ─▶ controller ─▶ scheduler: choose and claim, in one command
//!                               └───────▶ agent: make it now
//!   kube-scheduler ─▶ extender ─┐ which nodes fit, and how well
//!                               ├─▶ kubernetes ─▶ API server: claims, classes
//!   API server ─────▶ webhook ──┘        └──────▶ scheduler: FitVolumes
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`controller`] | Identity and Controller of the Container Storage Interface |
//! | [`extender`] | `filter` and `prioritize` for the Kubernetes scheduler |
//! | [`webhook`] | marks pods for which the extender has to be called |
//! | [`kubernetes`] | the API server's objects, the client that reads them, what a pod needs; options |
//! | `https` | the server for extender and webhook, bounded in everything |
//! | `metrics` | metrics, and health over HTTP |
//! | `reach` | whether schedulers are reached, in the log |
//! | [`config`], [`flags`] | its configuration and its command line |
//! | [`server`], [`process`] | all of it, as one of several in a process or as one process |
//!
//! Invariant: it keeps nothing, so any number of them may run, and each may end at any time. What
//! extender and webhook answer about a node is a forecast: the claim is made by CreateVolume.

pub mod config;
pub mod controller;
pub mod error;
pub mod extender;
pub mod flags;
mod https;
pub mod kubernetes;
mod metrics;
pub mod process;
mod reach;
pub mod server;
pub mod webhook;

pub use config::Config;
pub use error::Error;
pub use process::main;
pub use server::run;
