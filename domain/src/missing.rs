//! How much of a resource is missing, where something countable is. Part of a
//! [`Refusal`](crate::refusal::Refusal), which re-exports it.

use serde::{Deserialize, Serialize};

/// How much is missing, where something countable is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Missing {
    /// What is missing, as `dedicated CPUs` or `2 MiB pages`.
    pub resource: String,
    /// The requested amount.
    pub requested: u64,
    /// How much there is.
    pub available: u64,
}
