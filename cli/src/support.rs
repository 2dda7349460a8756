//! What may leave a cluster in a support bundle.
//!
//! | module | contents |
//! |---|---|
//! | `calls` | which calls are recorded |
//! | `messages` | messages as JSON |
//! | `redact` | what of a message leaves the cluster |
//! | `state` | the state as a backup without secrets |
//!
//! Invariant: a text without a class is removed.

#![expect(dead_code, reason = "support bundles are made of it")]

mod calls;
mod messages;
mod redact;
mod state;
