//! PCI functions: which ones a machine has, and which of them are for guests.
//!
//! | module | what |
//! |---|---|
//! | `function` | the properties of a function |
//! | `read` | reads functions from the kernel's files |
//! | `host_use` | determines which functions the host itself depends on |
//! | [`rule`] | the operator's rules: which functions are for guests |
//! | `offer` | functions and rules together: what is offered |
//!
//! Invariant: only what a rule names is offered, and never a bridge or a function that the host
//! lives on.

pub(crate) mod function;
pub(crate) mod host_use;
pub(crate) mod offer;
pub(crate) mod read;
pub mod rule;

pub use rule::{AddressPattern, Rule};
