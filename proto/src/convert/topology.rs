//! The shape of a host.

use berth_domain::pmem::NAMESPACES_MAX;
use berth_domain::topology::{
    CELLS_MAX, CellId, FarMemory, HostCell, HostTopology, PCI_DEVICES_MAX, PagePool, SocketId,
};

use super::field::{self, Invalid};
use crate::types::v1;

/// The most cores of a cell: one for each CPU number there is.
const CORES_MAX: usize = 8192;
/// The most page sizes of a cell.
const PAGE_SIZES_MAX: usize = 16;

impl From<&HostTopology> for v1::HostTopology {
    fn from(topology: &HostTopology) -> Self {
        let row = |distances: &Vec<u32>| v1::CellDistances {
            distances: distances.clone(),
        };
        Self {
            cells: topology.cells().iter().map(Into::into).collect(),
            distances: topology.distances().iter().map(row).collect(),
            pci_devices: topology.pci().iter().map(Into::into).collect(),
            pmem_namespaces: topology.pmem().iter().map(Into::into).collect(),
            far_memory: topology.far_memory().iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<v1::HostTopology> for HostTopology {
    type Error = Invalid;

    fn try_from(wire: v1::HostTopology) -> Result<Self, Invalid> {
        let cells = field::each(wire.cells, "cells", CELLS_MAX)?;
        let distances = field::each_by(wire.distances, "distances", CELLS_MAX, |row| {
            field::bounded(row.distances.len(), "distances", CELLS_MAX)?;
            Ok(row.distances)
        })?;
        let devices = field::each(wire.pci_devices, "pci_devices", PCI_DEVICES_MAX)?;
        let namespaces = field::each(wire.pmem_namespaces, "pmem_namespaces", NAMESPACES_MAX)?;
        let far_memory = field::each(wire.far_memory, "far_memory", CELLS_MAX)?;
        Self::new(cells, distances)
            .and_then(|topology| topology.with_pci(devices))
            .and_then(|topology| topology.with_pmem(namespaces))
            .and_then(|topology| topology.with_far_memory(far_memory))
            .map_err(Invalid::here)
    }
}

impl From<&FarMemory> for v1::FarMemory {
    fn from(far: &FarMemory) -> Self {
        Self {
            id: far.id.0,
            memory_mib: far.memory_mib,
        }
    }
}

impl TryFrom<v1::FarMemory> for FarMemory {
    type Error = Invalid;

    fn try_from(wire: v1::FarMemory) -> Result<Self, Invalid> {
        Ok(Self {
            id: CellId(wire.id),
            memory_mib: wire.memory_mib,
        })
    }
}

impl From<&HostCell> for v1::HostCell {
    fn from(cell: &HostCell) -> Self {
        Self {
            id: cell.id.0,
            socket: cell.socket.map(|s| s.0),
            shared_cpus: cell.shared.to_string(),
            dedicated_cpus: cell.dedicated.to_string(),
            cores: cell.cores.iter().map(ToString::to_string).collect(),
            memory_mib: cell.memory_mib,
            pages: cell.pages.iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<v1::HostCell> for HostCell {
    type Error = Invalid;

    fn try_from(wire: v1::HostCell) -> Result<Self, Invalid> {
        Ok(Self {
            id: CellId(wire.id),
            socket: wire.socket.map(SocketId),
            shared: field::cpus(&wire.shared_cpus, "shared_cpus")?,
            dedicated: field::cpus(&wire.dedicated_cpus, "dedicated_cpus")?,
            cores: field::each_by(wire.cores, "cores", CORES_MAX, |core| {
                core.parse().map_err(Invalid::here)
            })?,
            memory_mib: wire.memory_mib,
            pages: field::each(wire.pages, "pages", PAGE_SIZES_MAX)?,
        })
    }
}

impl From<&PagePool> for v1::PagePool {
    fn from(pool: &PagePool) -> Self {
        Self {
            size_kib: pool.size_kib,
            total: pool.total,
            reserved: pool.reserved,
        }
    }
}

impl TryFrom<v1::PagePool> for PagePool {
    type Error = Invalid;

    fn try_from(wire: v1::PagePool) -> Result<Self, Invalid> {
        Ok(Self {
            size_kib: wire.size_kib,
            total: wire.total,
            reserved: wire.reserved,
        })
    }
}
