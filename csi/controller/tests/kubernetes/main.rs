//! Extender and webhook as Kubernetes sees them: over real TLS, with an API server and a scheduler
//! at the other ends that speak the real protocols.
//!
//! | file | what |
//! |---|---|
//! | `filter` | which nodes are left; the scenarios of PMEM-CSI, and those it fails |
//! | `prioritize` | how well nodes fit |
//! | `mutate` | which pods are marked |
//! | `recorded` | what a real Kubernetes asked, and the answers byte for byte |
//! | `bad_input` | what is broken, wrong, long or slow |
//! | `files` | certificates and tokens that are renewed while it runs |
//! | `real_scheduler` | the same with Berth's own scheduler at the other end |
//! | `manifests` | deploy/kubernetes: every file is read and held against the programs |

mod bad_input;
mod files;
mod filter;
mod manifests;
mod mutate;
mod prioritize;
mod real_scheduler;
mod recorded;
mod support;
