//! The operator: makes and maintains the Kubernetes objects of a deployment of Berth's volumes.
//!
//! | module | what |
//! |---|---|
//! | [`spec`] | the three resources, with their schemas |
//! | [`status`] | the reported state, computed from what is observed |
//!
//! Invariant: these modules are functions of their arguments; no object is changed by them.

pub mod spec;
pub mod status;
