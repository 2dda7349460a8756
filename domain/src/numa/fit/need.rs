//! What a guest needs, in numbers.

use crate::instance::{CpuPolicy, InstanceCell, InstanceTopology, PageSize, ThreadPolicy};
use crate::pci::PciRequest;
use crate::pmem::PmemDemand;
use crate::topology::CellId;

/// Everything that a guest demands exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExactDemand<'a> {
    /// Its cells; absent for a guest that does not care.
    pub topology: Option<&'a InstanceTopology>,
    /// The PCI functions that it requests.
    pub pci: &'a [PciRequest],
    /// The persistent memory that it requests. A guest that requests some has cells.
    pub pmem: &'a PmemDemand,
    /// Host cells that its first cell is to be near to, the same one several times where that is to
    /// weigh more. What fits far away still fits.
    pub near: &'a [CellId],
}

static NO_PMEM: PmemDemand = PmemDemand::NONE;

impl Default for ExactDemand<'_> {
    fn default() -> Self {
        Self {
            topology: None,
            pci: &[],
            pmem: &NO_PMEM,
            near: &[],
        }
    }
}

impl<'a> ExactDemand<'a> {
    /// Returns the demand of a guest that requests cells alone.
    #[must_use]
    pub fn cells(topology: &'a InstanceTopology) -> Self {
        Self {
            topology: Some(topology),
            ..Self::default()
        }
    }
}

/// What one guest cell needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// How its vCPUs get host CPUs.
    pub(crate) cpu_policy: CpuPolicy,
    /// How the dedicated ones lie on cores.
    pub(crate) thread_policy: ThreadPolicy,
    /// vCPUs with a CPU of their own.
    pub(crate) dedicated: u32,
    /// CPUs for the emulator: 1 or none.
    pub(crate) emulator: u32,
    /// vCPUs that float.
    pub(crate) shared: u32,
    /// Memory in MiB.
    pub(crate) memory_mib: u64,
    /// Its pages.
    pub(crate) page_size: PageSize,
    /// Whether devices of the guest lock its memory, so that none of it is over-committed.
    pub(crate) is_locked: bool,
}

impl Need {
    /// Returns what the cell at this position needs.
    pub(crate) fn of(demand: &InstanceTopology, index: usize) -> Self {
        let cell: &InstanceCell = &demand.cells[index];
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Self {
            cpu_policy: cell.cpu_policy,
            thread_policy: cell.thread_policy,
            dedicated: count(cell.dedicated.len()),
            emulator: u32::from(index == 0 && demand.isolates_emulator()),
            shared: count(cell.shared.len()),
            memory_mib: cell.memory_mib,
            page_size: cell.page_size,
            is_locked: false,
        }
    }

    /// Returns the need as it is where the guest has these requests for PCI functions.
    pub(crate) fn beside(self, pci: &[PciRequest]) -> Self {
        let is_locked = pci.iter().any(|request| request.count > 0);
        Self { is_locked, ..self }
    }

    /// Returns the dedicated CPUs that it takes, the emulator's included.
    pub(crate) fn cpus(&self) -> u32 {
        self.dedicated.saturating_add(self.emulator)
    }
}

/// What a guest needs, worked out once for many hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest<'a> {
    pub(super) demand: ExactDemand<'a>,
    /// By position of the guest's cells.
    pub(super) cells: Vec<Need>,
    /// Whether it takes dedicated CPUs rather than shared ones.
    pub(super) is_exclusive: bool,
    pub(super) pci: super::pci::Demand,
}

impl<'a> Guest<'a> {
    /// Returns what a demand needs.
    #[must_use]
    pub fn new(demand: ExactDemand<'a>) -> Self {
        let cells: Vec<Need> = demand.topology.map_or_else(Vec::new, |topology| {
            let all = 0..topology.cells.len();
            all.map(|index| Need::of(topology, index).beside(demand.pci))
                .collect()
        });
        Self {
            is_exclusive: cells.iter().any(|need| need.cpu_policy.is_exclusive()),
            cells,
            pci: super::pci::Demand::new(demand.pci),
            demand,
        }
    }

    /// Returns the guest with other host cells that its first cell is to be near to.
    #[must_use]
    pub fn near<'b>(&self, near: &'b [CellId]) -> Guest<'b>
    where
        'a: 'b,
    {
        Guest {
            demand: ExactDemand {
                near,
                ..self.demand
            },
            cells: self.cells.clone(),
            is_exclusive: self.is_exclusive,
            pci: self.pci.clone(),
        }
    }
}
