//! The shape of a host: sockets, NUMA cells, cores with their sibling threads, page pools,
//! distances. It holds what is there, never what is used: see [`crate::numa::usage`].
//!
//! ```text
//! socket 0                         socket 1
//! ├── cell 0  CPUs 0-3  4 GiB      ├── cell 2 …
//! │   └── cores {0,1} {2,3}        └── cell 3 …
//! └── cell 1 …
//! ```
//!
//! Invariant ([`HostTopology::new`]): cell ids are distinct and ascending, no CPU is in two cells
//! or in two cores of a cell, the distance matrix is square over the cells, and amounts are small
//! enough that sums over a host do not overflow. [`HostTopology::with_pci`]: each PCI function is
//! there once, in ascending order of address, and only virtual ones have a parent, which is a
//! physical one as far as it is there. [`HostTopology::with_pmem`]: each namespace is there once,
//! in ascending order of name, with a class of persistent memory, and one that is of use has a
//! size. [`HostTopology::with_far_memory`]: a node of far memory has no CPUs, so it is no cell; the
//! nodes are distinct and ascending, and not all of the host's memory is far.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::cpu_set::CpuSet;
use crate::name::PmemName;
use crate::pci::{PciAddress, PciDevice, PciKind};
use crate::pmem::{self, PmemNamespace};

pub use crate::cell_id::{CellId, SocketId};

/// The most cells of a host: what Linux can be built for.
pub const CELLS_MAX: usize = 1024;
/// The most PCI functions of a host that are for guests.
pub const PCI_DEVICES_MAX: usize = 4096;
/// The most memory of a cell in MiB: an exbibyte.
pub const MEMORY_MIB_MAX: u64 = 1 << 40;

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
    /// The socket that the cell is on; absent where the host does not report it, or reports
    /// several.
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

/// A NUMA node with memory and without CPUs, as of CXL: its memory is far from every CPU.
///
/// It is counted apart: no part of the host's `MEMORY_MB`, of a cell, or of any fit. So a guest gets
/// none of it, which a guest that was promised memory at the speed of the others would notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FarMemory {
    /// The kernel's number of the node.
    pub id: CellId,
    /// Its memory in MiB.
    pub memory_mib: u64,
}

/// The shape of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Parts")]
pub struct HostTopology {
    cells: Vec<HostCell>,
    /// `distances[a][b]` as in the kernel's SLIT, by position of the cells.
    distances: Vec<Vec<u32>>,
    /// In ascending order of address.
    pci: Vec<PciDevice>,
    /// In ascending order of name.
    pmem: Vec<PmemNamespace>,
    /// In ascending order of id.
    far_memory: Vec<FarMemory>,
}

/// A topology before its invariant is checked.
#[derive(Deserialize)]
struct Parts {
    cells: Vec<HostCell>,
    distances: Vec<Vec<u32>>,
    #[serde(default)]
    pci: Vec<PciDevice>,
    #[serde(default)]
    pmem: Vec<PmemNamespace>,
    #[serde(default)]
    far_memory: Vec<FarMemory>,
}

impl TryFrom<Parts> for HostTopology {
    type Error = Error;

    fn try_from(parts: Parts) -> Result<Self, Error> {
        Self::new(parts.cells, parts.distances)?
            .with_pci(parts.pci)?
            .with_pmem(parts.pmem)?
            .with_far_memory(parts.far_memory)
    }
}

/// Why cells do not make a topology.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no cell.
    #[error("the host has no NUMA node with CPUs or memory")]
    NoCell,
    /// There are more cells than any host has.
    #[error("the host has {cells} NUMA nodes, more than the supported 1024")]
    TooManyCells {
        /// How many.
        cells: usize,
    },
    /// A cell has more memory than any host has.
    #[error("NUMA node {cell} has {memory_mib} MiB of memory, more than the supported 2^40")]
    Memory {
        /// The cell.
        cell: CellId,
        /// Its memory.
        memory_mib: u64,
    },
    /// Two cells have one id, or they are not in ascending order.
    #[error("NUMA node {cell} appears twice or out of order")]
    CellOrder {
        /// The later one.
        cell: CellId,
    },
    /// Far memory is on a node that is a cell, or twice, or out of order.
    #[error("far memory of NUMA node {cell} appears twice or out of order, or the node has CPUs")]
    FarMemoryOrder {
        /// The later one.
        cell: CellId,
    },
    /// No memory is near a CPU.
    #[error(
        "all memory of the host, {memory_mib} MiB, is in NUMA nodes without CPUs, and guests get none \
         of it: the host needs memory in a NUMA node with CPUs"
    )]
    OnlyFarMemory {
        /// How much is far.
        memory_mib: u64,
    },
    /// A CPU is in two places.
    #[error("CPUs {cpus} of NUMA node {cell} appear in a second NUMA node or core")]
    CpuTwice {
        /// The cell at which it was noticed.
        cell: CellId,
        /// The CPUs.
        cpus: CpuSet,
    },
    /// A core holds a CPU that is neither shared nor dedicated, or a CPU has no core.
    #[error("the cores of NUMA node {cell} do not match its CPUs: {cpus} differ")]
    CoreMismatch {
        /// The cell.
        cell: CellId,
        /// The CPUs in question.
        cpus: CpuSet,
    },
    /// A core has no CPU.
    #[error("NUMA node {cell} has a core without CPUs")]
    EmptyCore {
        /// The cell.
        cell: CellId,
    },
    /// A page pool is wrong.
    #[error("page pool of {size_kib} KiB in NUMA node {cell} is wrong: {what}")]
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
    /// There are more PCI functions than are supported.
    #[error("the host has {devices} PCI functions for guests, more than the supported 4096")]
    TooManyDevices {
        /// How many.
        devices: usize,
    },
    /// Two PCI functions have one address.
    #[error("PCI function {address} appears twice")]
    DeviceTwice {
        /// Theirs.
        address: PciAddress,
    },
    /// A PCI function has a parent that it cannot have.
    #[error(
        "PCI function {address} cannot belong to {parent}: only a virtual one has a parent, which \
         is a physical one"
    )]
    Parent {
        /// The function.
        address: PciAddress,
        /// The socket that it is given.
        parent: PciAddress,
    },
    /// There are more namespaces of persistent memory than are supported.
    #[error("the host has {namespaces} pmem namespaces for guests, more than the supported 1024")]
    TooManyNamespaces {
        /// How many.
        namespaces: usize,
    },
    /// Two namespaces of persistent memory have one name.
    #[error("pmem namespace {name} appears twice")]
    NamespaceTwice {
        /// Theirs.
        name: PmemName,
    },
    /// A namespace of persistent memory is wrong.
    #[error("pmem namespace {name} is wrong: {what}")]
    Namespace {
        /// Its name.
        name: PmemName,
        /// What is wrong.
        what: &'static str,
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
        if cells.len() > CELLS_MAX {
            return Err(Error::TooManyCells { cells: cells.len() });
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
        Ok(Self {
            cells,
            distances,
            pci: Vec::new(),
            pmem: Vec::new(),
            far_memory: Vec::new(),
        })
    }

    /// Returns the topology with these PCI functions, in place of those that it had. One that is
    /// attached to a cell that the host does not have is near to nothing.
    ///
    /// # Errors
    ///
    /// The first thing that breaks the invariant.
    pub fn with_pci(mut self, mut devices: Vec<PciDevice>) -> Result<Self, Error> {
        if devices.len() > PCI_DEVICES_MAX {
            return Err(Error::TooManyDevices {
                devices: devices.len(),
            });
        }
        devices.sort_by_key(|d| d.address);
        let twice = devices.windows(2).find(|w| w[0].address == w[1].address);
        if let Some(twice) = twice {
            return Err(Error::DeviceTwice {
                address: twice[0].address,
            });
        }
        let kind_of = |address: &PciAddress| {
            let found = devices.binary_search_by_key(address, |device| device.address);
            found.map(|at| devices[at].kind)
        };
        for device in &devices {
            let Some(parent) = device.parent else {
                continue;
            };
            let is_physical = kind_of(&parent).is_ok_and(|kind| kind == PciKind::Physical);
            let is_there = kind_of(&parent).is_ok();
            if device.kind != PciKind::Virtual || (is_there && !is_physical) {
                return Err(Error::Parent {
                    address: device.address,
                    parent,
                });
            }
        }
        self.pci = devices;
        Ok(self)
    }

    /// Returns the topology with these namespaces of persistent memory, in place of those that it
    /// had. One that is attached to a cell that the host does not have is near to nothing.
    ///
    /// # Errors
    ///
    /// The first thing that breaks the invariant.
    pub fn with_pmem(mut self, mut namespaces: Vec<PmemNamespace>) -> Result<Self, Error> {
        if namespaces.len() > pmem::NAMESPACES_MAX {
            return Err(Error::TooManyNamespaces {
                namespaces: namespaces.len(),
            });
        }
        namespaces.sort_by(|a, b| a.name.cmp(&b.name));
        let twice = namespaces.windows(2).find(|w| w[0].name == w[1].name);
        if let Some(twice) = twice {
            let name = twice[0].name.clone();
            return Err(Error::NamespaceTwice { name });
        }
        for namespace in &namespaces {
            check_namespace(namespace)?;
        }
        self.pmem = namespaces;
        Ok(self)
    }

    /// Returns the topology with this far memory, in place of what it had.
    ///
    /// # Errors
    ///
    /// The first thing that breaks the invariant.
    pub fn with_far_memory(mut self, far_memory: Vec<FarMemory>) -> Result<Self, Error> {
        let cells = self.cells.len() + far_memory.len();
        if cells > CELLS_MAX {
            return Err(Error::TooManyCells { cells });
        }
        let mut last = None;
        for far in &far_memory {
            let FarMemory { id, memory_mib } = *far;
            if last.is_some_and(|last| last >= id) || self.cell(id).is_some() {
                return Err(Error::FarMemoryOrder { cell: id });
            }
            if memory_mib > MEMORY_MIB_MAX {
                return Err(Error::Memory {
                    cell: id,
                    memory_mib,
                });
            }
            last = Some(id);
        }
        let memory_mib: u64 = far_memory.iter().map(|far| far.memory_mib).sum();
        if memory_mib > 0 && self.memory_mib() == 0 {
            return Err(Error::OnlyFarMemory { memory_mib });
        }
        self.far_memory = far_memory;
        Ok(self)
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

    /// Returns the PCI functions for guests, in ascending order of address.
    #[must_use]
    pub fn pci(&self) -> &[PciDevice] {
        &self.pci
    }

    /// Returns the namespaces of persistent memory for guests, in ascending order of name.
    #[must_use]
    pub fn pmem(&self) -> &[PmemNamespace] {
        &self.pmem
    }

    /// Returns the memory in NUMA nodes without CPUs, which no guest gets, in ascending order of id.
    #[must_use]
    pub fn far_memory(&self) -> &[FarMemory] {
        &self.far_memory
    }

    /// Returns the namespace of persistent memory with this name.
    #[must_use]
    pub fn namespace(&self, name: &PmemName) -> Option<&PmemNamespace> {
        let at = self.pmem.binary_search_by(|n| n.name.cmp(name));
        at.ok().map(|at| &self.pmem[at])
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

    /// Returns all memory of the cells in MiB: without far memory.
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

fn check_namespace(namespace: &PmemNamespace) -> Result<(), Error> {
    let is_of_use = namespace.trouble.is_empty();
    let what = if !namespace.class.as_str().starts_with(pmem::CLASS_PREFIX) {
        "its class is none of persistent memory"
    } else if namespace.path.len() > pmem::PATH_LENGTH_MAX
        || namespace.region.len() > pmem::REGION_LENGTH_MAX
        || namespace.trouble.len() > pmem::TROUBLE_LENGTH_MAX
    {
        "its texts are too long"
    } else if namespace.size_bytes / (1 << 20) > MEMORY_MIB_MAX {
        "it is larger than any host's memory"
    } else if is_of_use && (namespace.size_bytes == 0 || namespace.align_bytes == 0) {
        "it has no size or no alignment"
    } else if is_of_use && !namespace.size_bytes.is_multiple_of(namespace.align_bytes) {
        "its size is no multiple of its alignment"
    } else if is_of_use && !namespace.path.starts_with('/') {
        "the path of its device is not absolute"
    } else {
        return Ok(());
    };
    Err(Error::Namespace {
        name: namespace.name.clone(),
        what,
    })
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
        if core.is_empty() {
            return Err(Error::EmptyCore { cell: cell.id });
        }
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
    if cell.memory_mib > MEMORY_MIB_MAX {
        return Err(Error::Memory {
            cell: cell.id,
            memory_mib: cell.memory_mib,
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
        let kib = u128::from(pool.total) * u128::from(pool.size_kib);
        if kib > u128::from(MEMORY_MIB_MAX) * 1024 {
            return Err(wrong("it has more memory than any host"));
        }
        last = pool.size_kib;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::pci::{PciId, PciKind};

    fn cell() -> HostCell {
        let set = |list: &str| list.parse::<CpuSet>().unwrap();
        HostCell {
            id: CellId(0),
            socket: Some(SocketId(0)),
            shared: set("0"),
            dedicated: set("1-3"),
            cores: vec![set("0-1"), set("2-3")],
            memory_mib: 1024,
            pages: vec![PagePool {
                size_kib: 4,
                total: 262_144,
                reserved: 0,
            }],
        }
    }

    fn check(change: impl FnOnce(&mut HostCell), expected: &str) {
        let mut changed = cell();
        change(&mut changed);
        let result = HostTopology::new(vec![changed], vec![vec![10]]);
        let message = result.map_or_else(|e| e.to_string(), |_| String::new());
        assert_eq!(message.is_empty(), expected.is_empty(), "{message}");
        assert!(message.contains(expected), "{message:?} lacks {expected:?}");
    }

    /// Goal: each broken rule is reported. Method: one change to a good cell each.
    #[test]
    fn a_cell_that_cannot_be_is_refused() {
        check(|_| {}, "");
        check(|c| c.cores[1] = "2".parse().unwrap(), "3 differ");
        check(
            |c| c.cores[1] = "1-3".parse().unwrap(),
            "CPUs 1 of NUMA node 0",
        );
        check(|c| c.cores.push(CpuSet::new()), "a core without CPUs");
        check(|c| c.memory_mib = u64::MAX, "more than the supported");
        check(|c| c.pages[0].total = u64::MAX, "more memory than any host");
        check(|c| c.pages[0].reserved = 262_145, "more pages are reserved");
        check(|c| c.pages[0].size_kib = 0, "ascend");
        check(|c| c.pages.push(c.pages[0]), "ascend");
    }

    #[test]
    fn cells_that_do_not_go_together_are_refused() {
        let second = |id, first_cpu: u32| {
            let cpus: CpuSet = (first_cpu..first_cpu + 4)
                .map(crate::cpu_set::CpuId)
                .collect();
            HostCell {
                id: CellId(id),
                shared: CpuSet::new(),
                cores: vec![cpus.clone()],
                dedicated: cpus,
                ..cell()
            }
        };
        let near = || vec![vec![10, 20], vec![20, 10]];
        let make = |other| HostTopology::new(vec![cell(), other], near());
        assert!(make(second(1, 4)).is_ok());
        assert_eq!(
            make(second(0, 4)),
            Err(Error::CellOrder { cell: CellId(0) })
        );
        assert!(matches!(make(second(1, 3)), Err(Error::CpuTwice { .. })));
        let lopsided = HostTopology::new(vec![cell()], near());
        assert_eq!(lopsided, Err(Error::Distances { cells: 1 }));
        assert_eq!(HostTopology::new(vec![], vec![]), Err(Error::NoCell));
    }

    /// Goal: memory without CPUs near it is counted apart, and a host has memory near its CPUs.
    #[test]
    fn far_memory_is_counted_apart() {
        let far = |id, memory_mib| FarMemory {
            id: CellId(id),
            memory_mib,
        };
        let host = HostTopology::new(vec![cell()], vec![vec![10]]).unwrap();
        let (own, near) = (host.cells()[0].id.0, host.memory_mib());
        let with = |far_memory| host.clone().with_far_memory(far_memory);
        let both = with(vec![far(own + 1, 1 << 16), far(own + 3, 5)]).unwrap();
        assert_eq!((both.memory_mib(), both.cells().len()), (near, 1));
        assert_eq!(both.far_memory().len(), 2);
        let read: HostTopology =
            serde_json::from_value(serde_json::to_value(&both).unwrap()).unwrap();
        assert_eq!(read, both);
        for (wrong, cell) in [
            (vec![far(own, 1)], own),
            (vec![far(own + 2, 1), far(own + 1, 1)], own + 1),
            (vec![far(own + 1, 1), far(own + 1, 1)], own + 1),
        ] {
            let cell = CellId(cell);
            assert_eq!(with(wrong), Err(Error::FarMemoryOrder { cell }));
        }
        assert!(with(vec![far(own + 1, MEMORY_MIB_MAX + 1)]).is_err());
        let mut empty = cell();
        empty.memory_mib = 0;
        empty.pages.clear();
        let empty = HostTopology::new(vec![empty], vec![vec![10]]).unwrap();
        let refused = empty.with_far_memory(vec![far(own + 1, 7)]);
        assert_eq!(refused, Err(Error::OnlyFarMemory { memory_mib: 7 }));
    }

    #[test]
    fn pci_functions_that_cannot_be_are_refused() {
        let device = |address: &str, cell| PciDevice {
            address: address.parse().unwrap(),
            vendor: PciId(0x8086),
            product: PciId(0x1572),
            cell: Some(CellId(cell)),
            kind: PciKind::Pci,
            parent: None,
            tags: BTreeMap::new(),
        };
        let check = |devices: Vec<PciDevice>| {
            let host = HostTopology::new(vec![cell()], vec![vec![10]]).unwrap();
            host.with_pci(devices).map_err(|e| e.to_string())
        };
        let sorted = check(vec![device("0000:02:00.0", 0), device("0000:01:00.0", 0)]).unwrap();
        assert!(sorted.pci().is_sorted());
        let text = serde_json::to_string(&sorted).unwrap();
        assert_eq!(serde_json::from_str::<HostTopology>(&text).unwrap(), sorted);
        let twice = check(vec![device("0000:02:00.0", 0), device("0000:02:00.0", 0)]);
        assert!(twice.unwrap_err().contains("0000:02:00.0 appears twice"));
        let child = |kind, of: &str| PciDevice {
            kind,
            parent: Some(of.parse().unwrap()),
            ..device("0000:02:00.1", 0)
        };
        let other = device("0000:02:00.0", 0);
        for (kind, of) in [
            (PciKind::Pci, "0000:02:00.0"),
            (PciKind::Physical, "0000:03:00.0"),
            (PciKind::Virtual, "0000:02:00.0"),
            (PciKind::Virtual, "0000:02:00.1"),
        ] {
            let refused = check(vec![other.clone(), child(kind, of)]).unwrap_err();
            let part = format!("0000:02:00.1 cannot belong to {of}");
            assert!(refused.contains(&part), "{refused}");
        }
        let elsewhere = child(PciKind::Virtual, "0000:03:00.0");
        assert!(check(vec![other, elsewhere]).is_ok());
    }

    #[test]
    fn a_text_is_checked_like_everything_else() {
        let good = HostTopology::new(vec![cell()], vec![vec![10]]).unwrap();
        let text = serde_json::to_string(&good).unwrap();
        assert_eq!(serde_json::from_str::<HostTopology>(&text).unwrap(), good);
        let bad = text.replace("\"cores\":[\"0-1\"", "\"cores\":[\"0-2\"");
        assert_ne!(bad, text);
        assert!(serde_json::from_str::<HostTopology>(&bad).is_err());
    }
}
