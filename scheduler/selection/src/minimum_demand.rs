//! The least that a guest demands, in the same few numbers in which [`Headroom`] describes a host.
//!
//! Invariant: necessary, never sufficient. A host that has less in any number cannot take the
//! guest; one that has enough of all may still refuse it.
//!
//! [`Headroom`]: berth_domain::host_view::Headroom

use berth_domain::allocation::Resources;
use berth_domain::constraint::Demand;
use berth_domain::instance::{InstanceTopology, PageSize};
use berth_domain::resource::ResourceClass;

/// The least that a guest demands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MinimumDemand {
    /// Its cells.
    pub cells: u16,
    /// Counted `VCPU`.
    pub vcpu: u32,
    /// Counted `PCPU`.
    pub pcpu: u32,
    /// Counted `MEMORY_MB`.
    pub memory_mib: u32,
    /// Counted `DISK_GB`.
    pub disk_gib: u32,
    /// Dedicated CPUs of all its cells.
    pub dedicated: u32,
    /// Dedicated CPUs of the cell that demands most.
    pub dedicated_max: u32,
    /// Floating vCPUs of the cell that demands most.
    pub shared_max: u32,
    /// Memory in MiB under the ratio, of the cell that demands most.
    pub memory_max: u32,
    /// Memory in MiB in free small pages, of the cell that demands most.
    pub small_max: u32,
    /// Pages of 2 MiB of the cell that demands most.
    pub pages_2m_max: u32,
    /// Pages of 1 GiB of the cell that demands most.
    pub pages_1g_max: u32,
}

impl MinimumDemand {
    /// Returns the least that a host must have for `demand`.
    #[must_use]
    pub fn new(demand: &Demand) -> Self {
        let mut ask = Self {
            vcpu: counted(&demand.resources, &ResourceClass::vcpu()),
            pcpu: counted(&demand.resources, &ResourceClass::pcpu()),
            memory_mib: counted(&demand.resources, &ResourceClass::memory_mb()),
            disk_gib: counted(&demand.resources, &ResourceClass::disk_gb()),
            ..Self::default()
        };
        if let Some(topology) = &demand.topology {
            ask.add_cells(topology);
        }
        ask
    }

    fn add_cells(&mut self, topology: &InstanceTopology) {
        self.cells = u16::try_from(topology.cells.len()).unwrap_or(u16::MAX);
        for (index, cell) in topology.cells.iter().enumerate() {
            let is_exclusive = cell.cpu_policy.is_exclusive();
            let isolate = index == 0 && topology.isolates_emulator();
            let dedicated = small(cell.dedicated.len() as u64) + u32::from(isolate);
            self.dedicated += dedicated;
            raise(&mut self.dedicated_max, dedicated);
            raise(&mut self.shared_max, small(cell.shared.len() as u64));
            if cell.cpu_policy.has_floating() {
                raise(&mut self.memory_max, small(cell.memory_mib));
            }
            let pages = |size_mib| small(cell.memory_mib.div_ceil(size_mib));
            match cell.page_size {
                PageSize::Kib(2048) => raise(&mut self.pages_2m_max, pages(2)),
                PageSize::Kib(1_048_576) => raise(&mut self.pages_1g_max, pages(1024)),
                PageSize::Small => raise(&mut self.small_max, small(cell.memory_mib)),
                PageSize::Unspecified if is_exclusive => {
                    raise(&mut self.small_max, small(cell.memory_mib));
                }
                // Several pools may do; only the exact fit knows.
                PageSize::Unspecified | PageSize::Large | PageSize::Any | PageSize::Kib(_) => {}
            }
        }
    }
}

fn counted(resources: &Resources, class: &ResourceClass) -> u32 {
    resources.get(class).map_or(0, |amount| small(*amount))
}

fn small(amount: u64) -> u32 {
    u32::try_from(amount).unwrap_or(u32::MAX)
}

fn raise(most: &mut u32, amount: u32) {
    *most = (*most).max(amount);
}
