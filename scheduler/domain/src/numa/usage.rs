//! What the guests of a host take from its cells.
//!
//! Invariant: the usage of a host is the sum of the assignments of its claims, no more, no less;
//! `State::check` recomputes it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Assignment;
use crate::cpu_set::CpuSet;
use crate::topology::HostTopology;

/// What is taken from one cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CellUsage {
    /// Dedicated CPUs that are taken, for vCPUs or emulators.
    pub pinned: CpuSet,
    /// How many vCPUs float over the shared CPUs.
    pub shared_vcpus: u32,
    /// Memory in MiB, whatever its pages.
    pub memory_mib: u64,
    /// Pages taken, by size in KiB.
    pub pages: BTreeMap<u64, u64>,
}

/// What is taken from the cells of a host, by position of the cells in its topology.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostUsage {
    /// One per cell.
    pub cells: Vec<CellUsage>,
}

impl HostUsage {
    /// Returns the usage of a host without guests.
    #[must_use]
    pub fn empty(topology: &HostTopology) -> Self {
        Self {
            cells: vec![CellUsage::default(); topology.cells().len()],
        }
    }
}
