//! The shape of a host: sockets, NUMA cells, cores with their sibling threads, page pools,
//! distances. It says what is there, never what is used: see [`crate::numa::usage`].
//!
//! ```text
//! socket 0                         socket 1
//! ├── cell 0  CPUs 0-3  4 GiB      ├── cell 2 …
//! │   └── cores {0,1} {2,3}        └── cell 3 …
//! └── cell 1 …
//! ```
//!
//! Invariant ([`HostTopology::new`]): cell ids are distinct and ascending, no CPU is in two cells
//! or in two cores of a cell, and the distance matrix is square over the cells.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cpu_set::CpuSet;

/// The id of a host's NUMA cell, as the kernel numbers its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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

/// The pages of one size in one cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PagePool {
    /// The size of one page in KiB: 4 for small pages, 2048, 1048576.
    pub size_kib: u64,
    /// How many pages the cell has.
    pub total: u64,
    /// How many of them no guest may take.
    pub reserved: u64,
}

/// One NUMA cell of a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostCell {
    /// The kernel's number of the node.
    pub id: CellId,
    /// The socket that the cell is on; absent where the host does not tell, or tells several.
    pub socket: Option<SocketId>,
    /// CPUs on which vCPUs without a pin may float.
    pub shared: CpuSet,
    /// CPUs that are given to one vCPU each.
    pub dedicated: CpuSet,
    /// The cores, each as the set of its sibling threads among `shared` and `dedicated`.
    pub cores: Vec<CpuSet>,
    /// All memory of the cell in MiB, huge pages included.
    pub memory_mib: u64,
    /// Page pools in ascending order of size, each size once; the first is the small one.
    pub pages: Vec<PagePool>,
}

/// The shape of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostTopology {
    cells: Vec<HostCell>,
    /// `distances[a][b]` as in the kernel's SLIT, by position of the cells.
    distances: Vec<Vec<u32>>,
}

/// Why cells do not make a topology.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no cell.
    #[error("the host has no NUMA cell with CPUs or memory")]
    NoCell,
    /// Two cells have one id, or they are not in ascending order.
    #[error("cell {cell} appears twice or out of order")]
    CellOrder {
        /// The later one.
        cell: CellId,
    },
    /// A CPU is in two places.
    #[error("CPUs {cpus} of cell {cell} appear in a second cell or core")]
    CpuTwice {
        /// The cell at which it was noticed.
        cell: CellId,
        /// The CPUs.
        cpus: CpuSet,
    },
    /// A core holds a CPU that is neither shared nor dedicated, or a CPU has no core.
    #[error("the cores of cell {cell} do not match its CPUs: {cpus} differ")]
    CoreMismatch {
        /// The cell.
        cell: CellId,
        /// The CPUs in question.
        cpus: CpuSet,
    },
    /// A page pool is wrong.
    #[error("page pool of {size_kib} KiB in cell {cell} is wrong: {what}")]
    PagePool {
        /// The cell.
        cell: CellId,
        /// The size of the pool.
        size_kib: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The distance matrix is not square over the cells.
    #[error("the distance matrix is not {cells} x {cells}")]
    Distances {
        /// The number of cells.
        cells: usize,
    },
}

impl HostTopology {
    /// Returns the topology after checking the invariant.
    ///
    /// # Errors
    ///
    /// The first thing that breaks it.
    pub fn new(cells: Vec<HostCell>, distances: Vec<Vec<u32>>) -> Result<Self, Error> {
        if cells.is_empty() {
            return Err(Error::NoCell);
        }
        let mut seen = CpuSet::new();
        let mut last = None;
        for cell in &cells {
            if last.is_some_and(|l| l >= cell.id) {
                return Err(Error::CellOrder { cell: cell.id });
            }
            last = Some(cell.id);
            check_cell(cell, &mut seen)?;
        }
        let square =
            distances.len() == cells.len() && distances.iter().all(|row| row.len() == cells.len());
        if !square {
            return Err(Error::Distances { cells: cells.len() });
        }
        Ok(Self { cells, distances })
    }

    /// Returns the cells in ascending order of id.
    #[must_use]
    pub fn cells(&self) -> &[HostCell] {
        &self.cells
    }

    /// Returns the cell with this id.
    #[must_use]
    pub fn cell(&self, id: CellId) -> Option<&HostCell> {
        self.position(id).map(|index| &self.cells[index])
    }

    /// Returns the position of the cell with this id in [`Self::cells`].
    #[must_use]
    pub fn position(&self, id: CellId) -> Option<usize> {
        self.cells.binary_search_by_key(&id, |c| c.id).ok()
    }

    /// Returns the distance matrix, by position of the cells.
    #[must_use]
    pub fn distances(&self) -> &[Vec<u32>] {
        &self.distances
    }

    /// Returns all dedicated CPUs.
    #[must_use]
    pub fn dedicated(&self) -> CpuSet {
        self.cells
            .iter()
            .fold(CpuSet::new(), |all, c| all.union(&c.dedicated))
    }

    /// Returns all shared CPUs.
    #[must_use]
    pub fn shared(&self) -> CpuSet {
        self.cells
            .iter()
            .fold(CpuSet::new(), |all, c| all.union(&c.shared))
    }

    /// Returns all memory in MiB.
    #[must_use]
    pub fn memory_mib(&self) -> u64 {
        self.cells.iter().map(|c| c.memory_mib).sum()
    }

    /// Returns the number of sockets that are known.
    #[must_use]
    pub fn sockets(&self) -> usize {
        self.cells
            .iter()
            .filter_map(|c| c.socket)
            .collect::<BTreeSet<_>>()
            .len()
    }
}

fn check_cell(cell: &HostCell, seen: &mut CpuSet) -> Result<(), Error> {
    let cpus = cell.shared.union(&cell.dedicated);
    if !cpus.is_disjoint(seen) {
        return Err(Error::CpuTwice {
            cell: cell.id,
            cpus: cpus.intersection(seen),
        });
    }
    *seen = seen.union(&cpus);
    let mut in_cores = CpuSet::new();
    for core in &cell.cores {
        if !core.is_disjoint(&in_cores) {
            return Err(Error::CpuTwice {
                cell: cell.id,
                cpus: core.intersection(&in_cores),
            });
        }
        in_cores = in_cores.union(core);
    }
    if in_cores != cpus {
        let differ = in_cores
            .union(&cpus)
            .difference(&in_cores.intersection(&cpus));
        return Err(Error::CoreMismatch {
            cell: cell.id,
            cpus: differ,
        });
    }
    let mut last = 0;
    for pool in &cell.pages {
        let wrong = |what| Error::PagePool {
            cell: cell.id,
            size_kib: pool.size_kib,
            what,
        };
        if pool.size_kib <= last {
            return Err(wrong("sizes must be greater than zero and ascend"));
        }
        if pool.reserved > pool.total {
            return Err(wrong("more pages are reserved than there are"));
        }
        last = pool.size_kib;
    }
    Ok(())
}
