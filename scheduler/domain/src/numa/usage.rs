//! What the guests of a host take from its cells.
//!
//! Invariant: the usage of a host is the sum of the assignments of its claims, no more, no less;
//! `State::check` recomputes it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Assignment, CellAssignment, fit};
use crate::cpu_set::{CpuId, CpuSet};
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

impl CellUsage {
    /// Returns the memory in MiB that is taken without accounting for its pages.
    #[must_use]
    pub fn unaccounted_mib(&self) -> u64 {
        let accounted: u128 = self
            .pages
            .iter()
            .map(|(size_kib, count)| u128::from(*size_kib) * u128::from(*count))
            .sum();
        let accounted_mib = u64::try_from(accounted / 1024).unwrap_or(u64::MAX);
        self.memory_mib.saturating_sub(accounted_mib)
    }

    fn add(&mut self, cell: &CellAssignment, cpus: impl Iterator<Item = CpuId>) {
        self.pinned.extend(cpus);
        self.shared_vcpus += cell.shared_vcpus;
        self.memory_mib += cell.memory_mib;
        if let Some(size_kib) = cell.page_size_kib {
            *self.pages.entry(size_kib).or_default() += cell.pages();
        }
    }

    fn remove(&mut self, cell: &CellAssignment, cpus: impl Iterator<Item = CpuId>) {
        let why = "what is given back was taken before";
        for cpu in cpus {
            self.pinned.remove(cpu);
        }
        self.shared_vcpus = self.shared_vcpus.checked_sub(cell.shared_vcpus).expect(why);
        self.memory_mib = self.memory_mib.checked_sub(cell.memory_mib).expect(why);
        if let Some(size_kib) = cell.page_size_kib {
            let taken = self.pages.entry(size_kib).or_default();
            *taken = taken.checked_sub(cell.pages()).expect(why);
            if *taken == 0 {
                self.pages.remove(&size_kib);
            }
        }
    }
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

    /// Returns the sum of assignments.
    pub fn sum<'a>(
        topology: &HostTopology,
        assignments: impl IntoIterator<Item = &'a Assignment>,
    ) -> Self {
        let mut usage = Self::empty(topology);
        for assignment in assignments {
            usage.add(topology, assignment);
        }
        usage
    }

    /// Takes what an assignment takes. Cells that the host no longer has are passed over: a host
    /// that reports another shape has its usage summed anew.
    pub fn add(&mut self, topology: &HostTopology, assignment: &Assignment) {
        for (index, cell) in assignment.cells.iter().enumerate() {
            if let Some(position) = topology.position(cell.host_cell) {
                self.cells[position].add(cell, cpus_of(assignment, index));
            }
        }
    }

    /// Gives back what [`Self::add`] took.
    ///
    /// # Panics
    ///
    /// When it was not taken before.
    pub fn remove(&mut self, topology: &HostTopology, assignment: &Assignment) {
        for (index, cell) in assignment.cells.iter().enumerate() {
            if let Some(position) = topology.position(cell.host_cell) {
                self.cells[position].remove(cell, cpus_of(assignment, index));
            }
        }
    }
}

/// Returns the dedicated CPUs of one guest cell, with those of the emulator where they belong.
fn cpus_of(assignment: &Assignment, index: usize) -> impl Iterator<Item = CpuId> + '_ {
    let cell = &assignment.cells[index];
    let emulator = (fit::emulator_cell(assignment) == Some(cell.host_cell))
        .then(|| assignment.emulator.iter());
    cell.pins
        .values()
        .copied()
        .chain(emulator.into_iter().flatten())
}
