//! The exact CPUs, pages, PCI functions and namespaces of persistent memory of one host that a
//! guest was given.
//!
//! Invariant (kept by [`crate::numa::fit()`], checked by `State::check`): the guest cells of one
//! assignment sit on distinct host cells, and no host CPU is pinned twice.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::cell_id::CellId;
use crate::cpu_set::{CpuId, CpuSet, VcpuId};
use crate::pci::PciAddress;
use crate::pmem::PmemDevice;

/// What one guest cell was given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CellAssignment {
    /// The guest's number of the cell.
    pub guest_cell: u32,
    /// The host cell that it sits on.
    pub host_cell: CellId,
    /// The host CPU of each dedicated vCPU.
    pub pins: BTreeMap<VcpuId, CpuId>,
    /// Dedicated CPUs that are taken and stay idle, since they share a core with one of `pins` or
    /// with the emulator, and the guest requires exclusive cores there.
    #[serde(default)]
    pub idle: CpuSet,
    /// How many vCPUs of this cell float over the host cell's shared CPUs.
    pub shared_vcpus: u32,
    /// The host CPUs over which they float; empty when none does.
    pub floating: CpuSet,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// The size of its pages in KiB; absent where pages are not accounted one by one.
    pub page_size_kib: Option<u64>,
}

impl CellAssignment {
    /// Returns the number of pages taken from the pool of [`Self::page_size_kib`].
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.page_size_kib
            .map_or(0, |size| self.memory_mib * 1024 / size.max(1))
    }
}

/// What a guest was given on one host. A guest without a NUMA topology has no cells here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Assignment {
    /// In ascending order of the guest's cells.
    pub cells: Vec<CellAssignment>,
    /// Dedicated CPUs taken for the emulator's threads (policy `isolate`); empty otherwise.
    pub emulator: CpuSet,
    /// The PCI functions given to each of the guest's requests, in their order.
    #[serde(default)]
    pub pci: Vec<BTreeSet<PciAddress>>,
    /// The namespaces of persistent memory given to each of the guest's devices, in their order.
    /// All of them are devices of guest cell 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pmem: Vec<PmemDevice>,
}

impl Assignment {
    /// Returns whether nothing exact was given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
            && self.emulator.is_empty()
            && self.pci.is_empty()
            && self.pmem.is_empty()
    }

    /// Returns whether the guest's memory is never swapped out whatever the guest requires: devices
    /// that it has to itself write to it at any time.
    #[must_use]
    pub fn locks_memory(&self) -> bool {
        self.pci.iter().any(|functions| !functions.is_empty())
    }

    /// Returns whether the guest has CPUs of its own.
    #[must_use]
    pub fn has_pins(&self) -> bool {
        self.cells.iter().any(|cell| !cell.pins.is_empty())
    }

    /// Returns whether the guest's memory is promised once, in pages without an explicit
    /// size: small ones.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.locks_memory() || self.has_pins()
    }

    /// Returns the host CPU of every dedicated vCPU.
    #[must_use]
    pub fn pins(&self) -> BTreeMap<VcpuId, CpuId> {
        self.cells
            .iter()
            .flat_map(|c| c.pins.iter().map(|(v, p)| (*v, *p)))
            .collect()
    }

    /// Returns all dedicated host CPUs taken, those that stay idle included.
    #[must_use]
    pub fn taken(&self) -> CpuSet {
        let idle = self.cells.iter().map(|cell| &cell.idle);
        idle.fold(self.dedicated(), |all, idle| all.union(idle))
    }

    /// Returns all dedicated host CPUs used, the emulator's included.
    #[must_use]
    pub fn dedicated(&self) -> CpuSet {
        self.cells
            .iter()
            .flat_map(|c| c.pins.values().copied())
            .chain(self.emulator.iter())
            .collect()
    }
}
