//! What the guests of a host take from its cells.
//!
//! Invariant: the usage of a host is the sum of the assignments of its claims, no more, no less;
//! `State::check` recomputes it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Assignment, CellAssignment, fit};
use crate::cpu_set::{CpuId, CpuSet};
use crate::name::PmemName;
use crate::pci::PciAddress;
use crate::topology::{HostCell, HostTopology};

/// What is taken from one cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CellUsage {
    /// Dedicated CPUs that are taken, for vCPUs or emulators.
    pub pinned: CpuSet,
    /// How many vCPUs float over the shared CPUs.
    pub shared_vcpus: u32,
    /// Memory in MiB, whatever its pages.
    pub memory_mib: u64,
    /// Pages taken, by size in KiB. Guests with dedicated CPUs take small pages where they did not
    /// report which: theirs are never given to two.
    pub pages: BTreeMap<u64, u64>,
    /// Memory in MiB that is taken without accounting for its pages and locked by devices of the
    /// guests: it is never given to two either, but by [`crate::memory`] alone.
    #[serde(default)]
    pub locked_mib: u64,
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

    /// Returns what of [`Self::unaccounted_mib`] may be over-committed.
    #[must_use]
    pub fn shared_mib(&self) -> u64 {
        self.unaccounted_mib().saturating_sub(self.locked_mib)
    }

    fn add(&mut self, taken: &Taken<'_>) {
        self.pinned.extend(taken.cpus());
        self.shared_vcpus += taken.cell.shared_vcpus;
        self.memory_mib += taken.cell.memory_mib;
        if let Some((size_kib, count)) = taken.pages() {
            *self.pages.entry(size_kib).or_default() += count;
        } else if taken.assignment.locks_memory() {
            self.locked_mib += taken.cell.memory_mib;
        }
    }

    fn remove(&mut self, taken: &Taken<'_>) {
        let why = "what is given back was taken before";
        for cpu in taken.cpus() {
            self.pinned.remove(cpu);
        }
        let cell = taken.cell;
        self.shared_vcpus = self.shared_vcpus.checked_sub(cell.shared_vcpus).expect(why);
        self.memory_mib = self.memory_mib.checked_sub(cell.memory_mib).expect(why);
        if let Some((size_kib, count)) = taken.pages() {
            let pages = self.pages.entry(size_kib).or_default();
            *pages = pages.checked_sub(count).expect(why);
            if *pages == 0 {
                self.pages.remove(&size_kib);
            }
        } else if taken.assignment.locks_memory() {
            let left = self.locked_mib.checked_sub(cell.memory_mib);
            self.locked_mib = left.expect(why);
        }
    }
}

/// What one guest cell takes from the host cell that it sits on.
struct Taken<'a> {
    assignment: &'a Assignment,
    cell: &'a CellAssignment,
    host: &'a HostCell,
}

impl Taken<'_> {
    /// Returns the dedicated CPUs, those that stay idle included, with that of the emulator where
    /// it belongs.
    fn cpus(&self) -> impl Iterator<Item = CpuId> + '_ {
        let is_home = fit::emulator_cell(self.assignment) == Some(self.cell.host_cell);
        let emulator = is_home.then(|| self.assignment.emulator.iter());
        let pins = self.cell.pins.values().copied();
        let idle = self.cell.idle.iter();
        pins.chain(idle).chain(emulator.into_iter().flatten())
    }

    /// Returns the size of its pages in KiB and their number.
    fn pages(&self) -> Option<(u64, u64)> {
        let small = || self.host.pages.first().map(|p| p.size_kib);
        let size_kib = match self.cell.page_size_kib {
            Some(size_kib) => size_kib,
            None if self.assignment.has_pins() => small()?,
            None => return None,
        };
        Some((size_kib, self.cell.memory_mib * 1024 / size_kib.max(1)))
    }
}

/// Returns what an assignment takes, with the positions of the host cells.
fn each<'a>(
    topology: &'a HostTopology,
    assignment: &'a Assignment,
) -> impl Iterator<Item = (usize, Taken<'a>)> {
    assignment.cells.iter().filter_map(move |cell| {
        let position = topology.position(cell.host_cell)?;
        let taken = Taken {
            assignment,
            cell,
            host: &topology.cells()[position],
        };
        Some((position, taken))
    })
}

/// Returns the positions of the host cells that an assignment takes something of.
pub(crate) fn positions<'a>(
    topology: &'a HostTopology,
    assignment: &'a Assignment,
) -> impl Iterator<Item = usize> + 'a {
    each(topology, assignment).map(|(position, _)| position)
}

/// What is taken from the cells of a host, by position of the cells in its topology.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostUsage {
    /// One per cell.
    pub cells: Vec<CellUsage>,
    /// PCI functions that are given to guests.
    pub pci: BTreeSet<PciAddress>,
    /// Namespaces of persistent memory that are given to guests, or not erased yet after that.
    #[serde(default)]
    pub pmem: BTreeSet<PmemName>,
}

impl HostUsage {
    /// Returns the usage of a host without guests.
    #[must_use]
    pub fn empty(topology: &HostTopology) -> Self {
        Self {
            cells: vec![CellUsage::default(); topology.cells().len()],
            pci: BTreeSet::new(),
            pmem: BTreeSet::new(),
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
    /// that reports another shape has its usage summed again.
    pub fn add(&mut self, topology: &HostTopology, assignment: &Assignment) {
        for (position, taken) in each(topology, assignment) {
            self.cells[position].add(&taken);
        }
        self.pci.extend(assignment.pci.iter().flatten());
        let names = assignment.pmem.iter().map(|device| device.name.clone());
        self.pmem.extend(names);
    }

    /// Gives back what [`Self::add`] took.
    ///
    /// # Panics
    ///
    /// When it was not taken before.
    pub fn remove(&mut self, topology: &HostTopology, assignment: &Assignment) {
        for (position, taken) in each(topology, assignment) {
            self.cells[position].remove(&taken);
        }
        let why = "what is given back was taken before";
        for address in assignment.pci.iter().flatten() {
            assert!(self.pci.remove(address), "{why}");
        }
        for device in &assignment.pmem {
            assert!(self.pmem.remove(&device.name), "{why}");
        }
    }
}
