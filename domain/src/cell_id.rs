//! The ids of a host's NUMA cells and sockets, as the kernel numbers them. What they have is in
//! [`crate::topology`], which re-exports them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The id of a host's NUMA cell, as the kernel numbers its nodes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct CellId(pub u32);

/// The id of a processor socket (the kernel's `physical_package_id`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SocketId(pub u32);

impl fmt::Display for CellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for SocketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
