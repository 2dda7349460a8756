//! Why a guest does not fit on one host: which guest cell, the host cell that came nearest, and
//! what is missing there. Host-wide reasons are in [`crate::constraint`].
//!
//! What is missing of PCI functions is in `pci`, of persistent memory in `pmem`.
//!
//! Invariant: every variant names the smallest shortfall that it knows of, so that a reader
//! always learns what would have to change.

mod pci;
mod pmem;

use std::collections::BTreeSet;
use std::fmt;

use crate::cpu_set::CpuSet;
use crate::missing::Missing;
use crate::name::PmemName;
use crate::pci::PciAddress;
use crate::topology::CellId;

pub use pci::{PciRegion, PciShortfall};
pub use pmem::PmemShortfall;

/// What a guest cell can lack on a host cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// CPUs for one vCPU each (or the emulator) that are free.
    DedicatedCpus,
    /// Cores with several threads (`hw:cpu_thread_policy=require`).
    Siblings,
    /// Free dedicated CPUs on cores with another free one.
    SiblingCpus,
    /// Cores on which isolated vCPUs are let in at all (`hw:cpu_thread_policy=isolate`).
    Isolation,
    /// Cores without any used thread.
    FreeCores,
    /// Shared CPUs at all: vCPUs of one guest never share a CPU with each other.
    SharedCpus,
    /// Capacity for more vCPUs on the shared CPUs, under the ratio.
    SharedVcpus,
    /// Memory in MiB, under the ratio.
    Memory,
    /// Free pages of this size in KiB.
    Pages(u64),
    /// Pages of this size in KiB at all; `None`: of any size that was requested.
    PageSize(Option<u64>),
    /// The guest cell's memory is not a multiple of this page size in KiB.
    PageMultiple(u64),
}

impl Resource {
    /// Returns the cause for programs.
    #[must_use]
    pub fn cause(self) -> &'static str {
        match self {
            Self::DedicatedCpus => "DEDICATED_CPUS",
            Self::Siblings | Self::SiblingCpus | Self::Isolation | Self::FreeCores => "CPU_THREADS",
            Self::SharedCpus | Self::SharedVcpus => "SHARED_CPUS",
            Self::Memory => "MEMORY",
            Self::Pages(_) => "PAGES",
            Self::PageSize(_) | Self::PageMultiple(_) => "PAGE_SIZE",
        }
    }
}

impl Resource {
    /// Returns whether a host cell has none of it, whatever guests are there: it is absent rather than taken.
    #[must_use]
    pub fn is_absent(self) -> bool {
        match self {
            Self::Siblings
            | Self::Isolation
            | Self::SharedCpus
            | Self::PageSize(_)
            | Self::PageMultiple(_) => true,
            Self::DedicatedCpus
            | Self::SiblingCpus
            | Self::FreeCores
            | Self::SharedVcpus
            | Self::Memory
            | Self::Pages(_) => false,
        }
    }
}

/// Writes a page size in its usual form, as `2 MiB`.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut amount, mut units) = (self.0, ["KiB", "MiB", "GiB"].into_iter().peekable());
        let mut unit = "KiB";
        while let Some(next) = units.next() {
            unit = next;
            if amount == 0 || !amount.is_multiple_of(1024) || units.peek().is_none() {
                break;
            }
            amount /= 1024;
        }
        write!(f, "{amount} {unit}")
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DedicatedCpus => f.write_str("dedicated CPUs"),
            Self::Siblings => f.write_str("cores with several threads"),
            Self::SiblingCpus => f.write_str("dedicated CPUs with a free sibling"),
            Self::Isolation => f.write_str("cores for isolated threads"),
            Self::FreeCores => f.write_str("wholly free cores"),
            Self::SharedCpus => f.write_str("shared CPUs"),
            Self::SharedVcpus => f.write_str("vCPUs on its shared CPUs"),
            Self::Memory => f.write_str("MiB of memory"),
            Self::Pages(size) | Self::PageSize(Some(size)) => write!(f, "{} pages", Size(*size)),
            Self::PageSize(None) => f.write_str("pages of the requested size"),
            Self::PageMultiple(size) => write!(f, "memory in whole {} pages", Size(*size)),
        }
    }
}

/// One thing that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shortage {
    /// What.
    pub resource: Resource,
    /// The requested amount.
    pub requested: u64,
    /// How much there is.
    pub available: u64,
}

impl Shortage {
    /// Returns the missing part in thousandths of the requested amount: comparable across
    /// resources.
    #[must_use]
    pub fn milli(&self) -> u64 {
        let short = u128::from(self.requested.saturating_sub(self.available));
        u64::try_from(short * 1000 / u128::from(self.requested.max(1))).unwrap_or(u64::MAX)
    }

    /// Returns how many taken things it counts as: what is absent does not become free, so that a
    /// cell that lacks it is farther than any where all is taken.
    #[must_use]
    pub fn weight(&self) -> usize {
        if self.resource.is_absent() { 8 } else { 1 }
    }

    /// Returns the shortage as refusals carry it.
    #[must_use]
    pub fn to_missing(&self) -> Missing {
        Missing {
            resource: self.resource.to_string(),
            requested: self.requested,
            available: self.available,
        }
    }
}

impl Shortage {
    /// Writes what a cell has of what `who` needs, to stand behind "cell 3: ".
    fn write(&self, f: &mut fmt::Formatter<'_>, who: &str) -> fmt::Result {
        let Self {
            resource,
            requested,
            available,
        } = self;
        match resource {
            Resource::DedicatedCpus | Resource::SiblingCpus | Resource::Pages(_) => {
                write!(f, "{available} free {resource}, {who}needs {requested}")
            }
            Resource::SharedCpus | Resource::FreeCores => {
                write!(f, "{available} {resource}, {who}needs {requested}")
            }
            Resource::Memory => {
                write!(f, "{available} MiB of free memory, {who}needs {requested}")
            }
            Resource::SharedVcpus => {
                write!(
                    f,
                    "room for {available} more {resource}, {who}needs {requested}"
                )
            }
            Resource::Siblings => write!(
                f,
                "no {resource}, {who}needs them (hw:cpu_thread_policy=require)"
            ),
            Resource::Isolation => write!(
                f,
                "its cores have several threads and are not for guests of both kinds \
                 (vcpu_pin_set), {who}needs isolated threads, which are refused there"
            ),
            Resource::PageSize(_) => write!(f, "no {resource}, {who}needs such"),
            Resource::PageMultiple(size) => write!(
                f,
                "{} pages, {who}needs {requested} KiB, which are no multiple",
                Size(*size)
            ),
        }
    }
}

/// What one guest cell lacks on the host cell that comes nearest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellShortfall {
    /// The guest's number of the cell.
    pub guest_cell: u32,
    /// The host cell.
    pub host_cell: CellId,
    /// What is missing there, the worst first; never empty.
    pub shortages: Vec<Shortage>,
}

impl CellShortfall {
    /// Returns the worst shortage.
    #[must_use]
    pub fn worst(&self) -> &Shortage {
        self.shortages
            .first()
            .expect("a shortfall lacks at least one thing")
    }

    /// Returns how far the cell is from fitting; less is nearer.
    #[must_use]
    pub fn distance(&self) -> (usize, u64) {
        let weights = self.shortages.iter().map(Shortage::weight);
        (weights.sum(), self.worst().milli())
    }
}

impl fmt::Display for CellShortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NUMA node {}: ", self.host_cell)?;
        let who = format!("guest NUMA node {} ", self.guest_cell);
        for (index, shortage) in self.shortages.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            shortage.write(f, if index == 0 { &who } else { "" })?;
        }
        Ok(())
    }
}

/// Why a guest does not fit on one host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FitRefusal {
    /// The guest has more cells than the host.
    TooFewCells {
        /// Of the guest.
        requested: usize,
        /// Of the host.
        available: usize,
    },
    /// A guest cell fits on no host cell.
    Cell {
        /// What it lacks where it comes nearest.
        shortfall: CellShortfall,
    },
    /// Each guest cell fits somewhere, but these have fewer host cells among them than they are.
    Compete {
        /// The guest cells, ascending.
        guest_cells: Vec<u32>,
        /// All host cells on which any of them fits, ascending.
        host_cells: Vec<CellId>,
        /// What the nearest further host cell lacks for one of them.
        nearest: Option<CellShortfall>,
    },
    /// PCI functions are missing.
    Pci(PciShortfall),
    /// The search for PCI functions was given up: it took too many steps.
    GaveUp,
    /// PCI functions of the assignment are another's already, or exclude each other.
    PciTaken {
        /// Which.
        addresses: BTreeSet<PciAddress>,
    },
    /// Namespaces of persistent memory are missing.
    Pmem(PmemShortfall),
    /// Namespaces of the assignment are another's already, or not erased yet after they were.
    PmemTaken {
        /// Which.
        names: BTreeSet<PmemName>,
    },
    /// CPUs of the assignment are another's already.
    Taken {
        /// Where.
        host_cell: CellId,
        /// Which.
        cpus: CpuSet,
    },
    /// The assignment does not meet the demand on a host of this shape.
    Mismatch {
        /// The guest cell where it was noticed.
        guest_cell: Option<u32>,
        /// What is wrong, as a sentence without a subject.
        what: String,
    },
}

impl FitRefusal {
    /// Returns the cause for programs.
    #[must_use]
    pub fn cause(&self) -> &'static str {
        match self {
            Self::TooFewCells { .. } => "CELLS",
            Self::Cell { shortfall } => shortfall.worst().resource.cause(),
            Self::Compete { .. } => "CELLS_COMPETE",
            Self::Pci(_) => "PCI_DEVICES",
            Self::GaveUp => "SEARCH_GAVE_UP",
            Self::PciTaken { .. } => "PCI_DEVICES_TAKEN",
            Self::Pmem(_) => "PMEM",
            Self::PmemTaken { .. } => "PMEM_TAKEN",
            Self::Taken { .. } => "CPUS_TAKEN",
            Self::Mismatch { .. } => "ASSIGNMENT_MISMATCH",
        }
    }

    /// Returns the guest cell that did not fit, where it is one.
    #[must_use]
    pub fn guest_cell(&self) -> Option<u32> {
        match self {
            Self::Cell { shortfall } => Some(shortfall.guest_cell),
            Self::Compete { nearest, .. } => nearest.as_ref().map(|n| n.guest_cell),
            Self::Mismatch { guest_cell, .. } => *guest_cell,
            Self::TooFewCells { .. }
            | Self::Pci(_)
            | Self::GaveUp
            | Self::PciTaken { .. }
            | Self::Pmem(_)
            | Self::PmemTaken { .. }
            | Self::Taken { .. } => None,
        }
    }

    /// Returns the host cell that came nearest.
    #[must_use]
    pub fn host_cell(&self) -> Option<CellId> {
        match self {
            Self::Cell { shortfall } => Some(shortfall.host_cell),
            Self::Compete { nearest, .. } => nearest.as_ref().map(|n| n.host_cell),
            Self::Taken { host_cell, .. } => Some(*host_cell),
            Self::TooFewCells { .. }
            | Self::Pci(_)
            | Self::GaveUp
            | Self::PciTaken { .. }
            | Self::Pmem(_)
            | Self::PmemTaken { .. }
            | Self::Mismatch { .. } => None,
        }
    }

    /// Returns the smallest shortfall, where something countable is missing.
    #[must_use]
    pub fn missing(&self) -> Option<Missing> {
        match self {
            Self::TooFewCells {
                requested,
                available,
            } => Some(Missing {
                resource: "host cells".to_owned(),
                requested: *requested as u64,
                available: *available as u64,
            }),
            Self::Cell { shortfall } => Some(shortfall.worst().to_missing()),
            Self::Compete { nearest, .. } => nearest.as_ref().map(|n| n.worst().to_missing()),
            Self::Pci(shortfall) => Some(Missing {
                resource: format!("devices {}", shortfall.what),
                requested: shortfall.requested,
                available: shortfall.available,
            }),
            Self::Pmem(shortfall) => Some(Missing {
                resource: shortfall.what(),
                requested: shortfall.requested,
                available: shortfall.available,
            }),
            Self::GaveUp
            | Self::PciTaken { .. }
            | Self::PmemTaken { .. }
            | Self::Taken { .. }
            | Self::Mismatch { .. } => None,
        }
    }

    /// Returns how far the host is from fitting; less is nearer. Comparable between hosts.
    #[must_use]
    pub fn distance(&self) -> (u32, usize, u64) {
        match self {
            Self::Cell { shortfall } => {
                let (kinds, milli) = shortfall.distance();
                (0, kinds, milli)
            }
            Self::Compete { nearest, .. } => {
                let (kinds, milli) = nearest
                    .as_ref()
                    .map_or((usize::MAX, u64::MAX), CellShortfall::distance);
                (0, kinds, milli)
            }
            Self::TooFewCells {
                requested,
                available,
            } => (1, requested.saturating_sub(*available), 0),
            // It never had as many: as far as a host with too few cells.
            Self::Pci(shortfall) if shortfall.is_absent() => {
                let short = shortfall.requested.saturating_sub(shortfall.available);
                (1, usize::try_from(short).unwrap_or(usize::MAX), 0)
            }
            // The guest's cells fit: nearer than any that do not.
            Self::Pci(shortfall) => {
                let short = shortfall.requested.saturating_sub(shortfall.available);
                (
                    0,
                    0,
                    short.saturating_mul(1000) / shortfall.requested.max(1),
                )
            }
            Self::Pmem(shortfall) => {
                let short = shortfall.requested.saturating_sub(shortfall.available);
                (0, 0, short * 1000 / shortfall.requested.max(1))
            }
            Self::GaveUp
            | Self::PciTaken { .. }
            | Self::PmemTaken { .. }
            | Self::Taken { .. }
            | Self::Mismatch { .. } => (2, 0, 0),
        }
    }
}

fn list<T: fmt::Display>(items: &[T]) -> String {
    let mut text = String::new();
    for (index, item) in items.iter().enumerate() {
        let separator = match index {
            0 => "",
            _ if index + 1 == items.len() => " and ",
            _ => ", ",
        };
        text.push_str(separator);
        text.push_str(&item.to_string());
    }
    text
}

impl fmt::Display for FitRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFewCells {
                requested,
                available,
            } => write!(
                f,
                "the guest has {requested} NUMA nodes, the host only {available}"
            ),
            Self::Cell { shortfall } => shortfall.fmt(f),
            Self::Pci(shortfall) => shortfall.fmt(f),
            Self::GaveUp => f.write_str(
                "the search for NUMA nodes near the PCI devices was given up: it took too many steps",
            ),
            Self::PciTaken { addresses } => {
                let addresses: Vec<_> = addresses.iter().collect();
                write!(f, "PCI devices {} are taken already", list(&addresses))
            }
            Self::Pmem(shortfall) => shortfall.fmt(f),
            Self::PmemTaken { names } => {
                let names: Vec<_> = names.iter().collect();
                write!(f, "pmem namespaces {} are taken already", list(&names))
            }
            Self::Compete {
                guest_cells,
                host_cells,
                nearest,
            } => {
                let plural = if host_cells.len() == 1 { "" } else { "s" };
                write!(
                    f,
                    "guest NUMA nodes {} fit only on NUMA node{plural} {}, one on each",
                    list(guest_cells),
                    list(host_cells)
                )?;
                if let Some(nearest) = nearest {
                    write!(f, "; {nearest}")?;
                }
                Ok(())
            }
            Self::Taken { host_cell, cpus } => {
                write!(f, "CPUs {cpus} of NUMA node {host_cell} are taken already")
            }
            Self::Mismatch { guest_cell, what } => match guest_cell {
                Some(cell) => write!(f, "the assignment of guest NUMA node {cell} {what}"),
                None => write!(f, "the assignment {what}"),
            },
        }
    }
}

impl std::error::Error for FitRefusal {}

#[cfg(test)]
mod tests {
    use super::*;

    fn shortfall(resource: Resource, requested: u64, available: u64) -> CellShortfall {
        CellShortfall {
            guest_cell: 1,
            host_cell: CellId(0),
            shortages: vec![Shortage {
                resource,
                requested,
                available,
            }],
        }
    }

    /// Goal: people read which cell lacks how much. Method: a table of sentences.
    #[test]
    fn sentences_name_the_cell_and_the_shortfall() {
        let cell = |resource, requested, available| FitRefusal::Cell {
            shortfall: shortfall(resource, requested, available),
        };
        for (refusal, expected) in [
            (
                cell(Resource::DedicatedCpus, 8, 6),
                "NUMA node 0: 6 free dedicated CPUs, guest NUMA node 1 needs 8",
            ),
            (
                cell(Resource::Pages(1_048_576), 4, 2),
                "NUMA node 0: 2 free 1 GiB pages, guest NUMA node 1 needs 4",
            ),
            (
                cell(Resource::FreeCores, 3, 1),
                "NUMA node 0: 1 wholly free cores, guest NUMA node 1 needs 3",
            ),
            (
                cell(Resource::PageSize(Some(2048)), 4, 0),
                "NUMA node 0: no 2 MiB pages, guest NUMA node 1 needs such",
            ),
            (
                cell(Resource::SharedVcpus, 4, 2),
                "NUMA node 0: room for 2 more vCPUs on its shared CPUs, guest NUMA node 1 needs 4",
            ),
            (
                FitRefusal::TooFewCells {
                    requested: 4,
                    available: 2,
                },
                "the guest has 4 NUMA nodes, the host only 2",
            ),
            (
                FitRefusal::Compete {
                    guest_cells: vec![0, 1, 2],
                    host_cells: vec![CellId(0), CellId(3)],
                    nearest: Some(shortfall(Resource::Memory, 10, 4)),
                },
                "guest NUMA nodes 0, 1 and 2 fit only on NUMA nodes 0 and 3, one on each; \
                 NUMA node 0: 4 MiB of free memory, guest NUMA node 1 needs 10",
            ),
        ] {
            assert_eq!(refusal.to_string(), expected);
        }
    }
}
