//! The operator: makes and maintains the Kubernetes objects of a deployment of Berth's volumes.
//!
//! ```text
//!   Deployment v1alpha1 ─────────┐
//!   PmemCSIDeployment v1beta1 ───┼─▶ convert ─▶ BerthStorage ─▶ desired ─▶ plan ─▶ writes
//!   BerthStorage v1alpha1 ───────┘                  │
//!                                                   └─▶ safety: refused, with the reason
//!
//!   election, permit: may it write?    watches ─▶ queue ─▶ deployment: one pass ─▶ status, event
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`spec`] | the three resources, with their schemas |
//! | [`convert`] | both of PMEM-CSI's resources as Berth's own |
//! | [`resource`] | a resource as the API server returned it |
//! | [`desired`] | the objects of a deployment |
//! | [`diff`] | whether an object in the cluster is as desired |
//! | [`plan`] | the writes that make the cluster's objects the desired ones |
//! | [`safety`] | what is refused: objects of others, stranded volumes, nodes selected twice |
//! | [`upgrade`] | which agents are replaced now |
//! | [`status`], [`event`] | the reported state, computed from what is observed, and its events |
//! | [`queue`], [`backoff`] | which deployments need a pass, and when |
//! | [`election`] | which of several operators is active |
//! | [`certificates`] | kept, made or taken from the resource |
//! | [`reconcile`] | the objects of a deployment: observe, plan, write |
//! | [`cluster`] | everything else that is read from and written to the API server |
//! | [`schedulers`] | hosts and volumes, read from Berth's schedulers |
//! | [`deployment`] | one whole pass over a resource |
//! | [`permit`], [`lease`] | until when this operator may write, and the lease that says so |
//! | [`watches`] | what says that a pass is needed |
//! | [`metrics`] | what is counted |
//! | [`manifests`], [`yaml`] | the operator's own manifests, and the objects of a resource |
//! | [`config`], [`flags`], [`process`], [`server`] | the program |
//!
//! Invariant: down to `election` in this table all are functions of their arguments and do no I/O.

pub mod backoff;
pub mod certificates;
pub mod cluster;
pub mod config;
pub mod convert;
pub mod deployment;
pub mod desired;
pub mod diff;
pub mod election;
pub mod event;
#[cfg(test)]
mod fake_scheduler;
#[cfg(test)]
mod fake_server;
pub mod flags;
pub mod lease;
pub mod manifests;
pub mod metrics;
pub mod permit;
pub mod plan;
pub mod process;
pub mod queue;
pub mod reconcile;
pub mod resource;
pub mod safety;
pub mod schedulers;
pub mod server;
pub mod spec;
pub mod status;
pub mod upgrade;
pub mod watches;
pub mod yaml;

pub use process::main;
