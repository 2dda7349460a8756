//! Kubernetes: its objects, the client of its API server, and the server of what it calls.
//!
//! | module | what |
//! |---|---|
//! | [`object`] | pods, claims and classes, as much of them as counts here |
//! | [`quantity`] | `40Gi`, `1e9`, `500m` |
//! | [`api`] | the client of the API server |
//! | [`lookup`] | claims and classes by name, remembered for a moment |
//! | [`need`] | which volumes a pod still needs |
//! | [`options`] | the configuration of all of it |
//! | [`serve()`] | extender and webhook over HTTPS |

pub mod api;
pub mod lookup;
pub mod need;
pub mod object;
pub mod options;
pub mod quantity;
mod serve;

pub use options::{Flags, Options};
pub use serve::{Error, Serving, bind, serve};
