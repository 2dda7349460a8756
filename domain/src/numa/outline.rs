//! A host's cells in numbers: all that the fit looks at to decide whether a guest fits.
//!
//! It is made from a host's shape, its usage and its limits, and kept beside them, so that a
//! decision over many hosts reads a few numbers of each instead of sets of CPUs.
//!
//! Invariant: it follows from these three alone; [`Outline::refresh`] after every change of them, or
//! `refresh_cells` where only the usage of some cells changed.

use serde::{Deserialize, Serialize};

use super::usage::{CellUsage, HostUsage};

use crate::memory::{CellBooks, pool_mib};
use crate::overcommit::AllocationRatio;
use crate::topology::{HostCell, HostTopology, PagePool};

/// Which cores may hold isolated vCPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ThreadRules {
    /// Those of OpenStack Nova: where cores have several threads and a cell's shared CPUs are not
    /// its dedicated ones, isolated vCPUs are refused; elsewhere they need cores with as many
    /// free threads as the largest core of the cell has, and a cell without a free core is
    /// refused even to a guest cell without dedicated vCPUs.
    #[default]
    Nova,
    /// A core may hold an isolated vCPU if all its threads are dedicated and free. A guest cell
    /// without dedicated vCPUs needs none.
    Sensible,
}

/// Up to which ratios shared CPUs and memory of a cell are given away, and by which rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Limits {
    /// Shared vCPUs per shared CPU; absent: it is not looked at.
    pub cpu_ratio: Option<AllocationRatio>,
    /// Memory; absent: it is not looked at.
    pub ram_ratio: Option<AllocationRatio>,
    /// Whether small pages are given by the rule of [`crate::memory`]: those that are promised once
    /// are never taken for over-commitment, and those that are shared are over-committed up to the
    /// ratio of what is left. OpenStack does not do that: there, shared memory can be overcommitted
    /// even by guests that never overcommit themselves.
    pub exact_memory: bool,
    /// Which cores may hold isolated vCPUs.
    pub threads: ThreadRules,
}

impl Limits {
    /// No ratio is looked at.
    pub const NONE: Self = Self {
        cpu_ratio: None,
        ram_ratio: None,
        exact_memory: false,
        threads: ThreadRules::Nova,
    };
}

/// The free dedicated CPUs of a cell, by what lies on their cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct CoreHeadroom {
    /// All dedicated CPUs, free or not.
    pub(crate) all: u32,
    /// Free dedicated CPUs.
    pub(crate) free: u32,
    /// Those of them that have a free sibling.
    pub(crate) paired: u32,
    /// Cores that may hold an isolated vCPU.
    pub(crate) full: u32,
    /// Cores that may hold the emulator beside isolated vCPUs: none of their threads is taken.
    pub(crate) whole: u32,
    /// Whether any core has several threads.
    pub(crate) has_siblings: bool,
    /// Whether isolated vCPUs are let in at all.
    pub(crate) may_isolate: bool,
    /// Whether a guest cell with isolated threads needs a full core even if it has no dedicated
    /// vCPU.
    pub(crate) lone_needs_core: bool,
}

/// The free pages of one size in one cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PoolHeadroom {
    /// The size of a page in KiB.
    pub(crate) size_kib: u64,
    /// One less, where it is a power of two: what is none of these bits is a multiple of it.
    mask: u64,
    /// Free memory in KiB.
    pub(crate) free_kib: u64,
}

impl PoolHeadroom {
    /// Returns whether this memory is made of whole pages.
    pub(crate) fn divides(&self, memory_kib: u64) -> bool {
        if self.mask == u64::MAX {
            memory_kib.is_multiple_of(self.size_kib)
        } else {
            memory_kib & self.mask == 0
        }
    }
}

/// One host cell in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CellHeadroom {
    /// Its free dedicated CPUs.
    pub(crate) cores: CoreHeadroom,
    /// Its shared CPUs.
    pub(crate) shared: u32,
    /// vCPUs for which these have capacity, under the ratio; less than nothing where there are too
    /// many already.
    pub(crate) vcpus: i64,
    /// vCPUs that float over them.
    pub(crate) vcpus_used: u32,
    /// Memory in MiB that is free under the ratio; less than nothing where too much is taken.
    pub(crate) memory_mib: i64,
    /// Memory in MiB without accounting for pages that may be promised to exclusive guests.
    pub(crate) exclusive_mib: u64,
    /// The same for guests that may overcommit it.
    pub(crate) floating_mib: u64,
    /// The same for guests that float and whose memory devices lock.
    pub(crate) locked_mib: u64,
    /// Memory in MiB that are free; less than nothing where it is overcommitted.
    pub(crate) unused_mib: i64,
    /// Free PCI functions attached to it.
    pub(crate) pci: u32,
    /// Where its pools are in [`Outline::pools`].
    pools: (u32, u32),
}

/// A host's cells in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Outline {
    /// By position of the cells in the topology.
    pub(crate) cells: Vec<CellHeadroom>,
    /// The pools of all cells, one cell after the other, each in ascending order of size.
    pools: Vec<PoolHeadroom>,
    /// Whether some CPU is both dedicated and shared, so that it is for guests of one kind at a time.
    pub(crate) has_common_cpus: bool,
}

impl Outline {
    /// Returns the outline of a host of this shape with this usage.
    ///
    /// # Panics
    ///
    /// When the usage is not of this shape.
    #[must_use]
    pub fn new(topology: &HostTopology, usage: &HostUsage, limits: &Limits) -> Self {
        let mut outline = Self::default();
        outline.refresh(topology, usage, limits);
        outline
    }

    /// Recomputes it.
    ///
    /// # Panics
    ///
    /// When the usage is not of this shape.
    pub fn refresh(&mut self, topology: &HostTopology, usage: &HostUsage, limits: &Limits) {
        assert_eq!(
            topology.cells().len(),
            usage.cells.len(),
            "usage is by position of the topology's cells"
        );
        self.cells.clear();
        self.pools.clear();
        self.has_common_cpus = false;
        for (cell, used) in topology.cells().iter().zip(&usage.cells) {
            let start = index(self.pools.len());
            self.pools.extend(pools(cell, used, limits));
            let headroom = cell_headroom(cell, used, limits, (start, index(self.pools.len())));
            self.cells.push(headroom);
            self.has_common_cpus |= !cell.shared.is_disjoint(&cell.dedicated);
        }
        self.count_pci(topology, usage);
    }

    /// Recomputes what is said of the cells at these positions, and the free PCI functions of all: the
    /// usage of no other cell changed since, and neither did the shape nor the limits.
    ///
    /// # Panics
    ///
    /// When a position is not of this shape.
    pub(crate) fn refresh_cells(
        &mut self,
        topology: &HostTopology,
        usage: &HostUsage,
        limits: &Limits,
        positions: impl Iterator<Item = usize>,
    ) {
        for position in positions {
            let (cell, used) = (&topology.cells()[position], &usage.cells[position]);
            let CellHeadroom { pools: range, .. } = self.cells[position];
            let kept = &mut self.pools[range.0 as usize..range.1 as usize];
            for (kept, pool) in kept.iter_mut().zip(pools(cell, used, limits)) {
                *kept = pool;
            }
            self.cells[position] = cell_headroom(cell, used, limits, range);
        }
        for cell in &mut self.cells {
            cell.pci = 0;
        }
        self.count_pci(topology, usage);
    }

    /// Counts the free PCI functions of each cell; none are counted yet.
    fn count_pci(&mut self, topology: &HostTopology, usage: &HostUsage) {
        for device in topology.pci() {
            let position = device.cell.and_then(|cell| topology.position(cell));
            if let Some(position) = position.filter(|_| !usage.pci.contains(&device.address)) {
                self.cells[position].pci += 1;
            }
        }
    }

    /// Returns the pools of a cell, in ascending order of size.
    pub(crate) fn pools(&self, cell: &CellHeadroom) -> &[PoolHeadroom] {
        &self.pools[cell.pools.0 as usize..cell.pools.1 as usize]
    }
}

fn index(length: usize) -> u32 {
    u32::try_from(length).expect("a host has few pools")
}

fn cell_headroom(
    cell: &HostCell,
    used: &CellUsage,
    limits: &Limits,
    pools: (u32, u32),
) -> CellHeadroom {
    let shared = cell.shared.len();
    let left = |ratio: Option<AllocationRatio>, total: u64, used: u64| {
        ratio.map_or(i64::MAX, |ratio| less(ratio.capacity(total, 0), used))
    };
    let exclusive_mib = free_small_mib(cell, used, limits);
    let floating_mib = match (limits.exact_memory, cell.pages.first()) {
        (true, Some(pool)) => books(pool, used).shared_headroom_mib(ratio_of(limits)),
        // Which of the memory is promised exactly is not known without pools.
        (true, None) => exclusive_mib,
        (false, Some(pool)) => pool_mib(pool.total, pool.size_kib),
        (false, None) => cell.memory_mib,
    };
    let locked_mib = match limits.exact_memory {
        true => exclusive_mib,
        false => floating_mib,
    };
    CellHeadroom {
        cores: core_headroom(cell, used, limits.threads),
        shared: small(shared),
        vcpus: left(limits.cpu_ratio, shared as u64, used.shared_vcpus.into()),
        vcpus_used: used.shared_vcpus,
        memory_mib: left(limits.ram_ratio, cell.memory_mib, used.memory_mib),
        exclusive_mib,
        floating_mib,
        locked_mib,
        unused_mib: less(cell.memory_mib, used.memory_mib),
        pci: 0,
        pools,
    }
}

fn core_headroom(cell: &HostCell, used: &CellUsage, rules: ThreadRules) -> CoreHeadroom {
    let free = cell.dedicated.difference(&used.pinned);
    let threads = cell.cores.iter().map(|core| core.len()).max().unwrap_or(0);
    let is_legacy = cell.dedicated == cell.shared;
    let mut headroom = CoreHeadroom {
        all: small(cell.dedicated.len()),
        free: small(free.len()),
        has_siblings: threads > 1,
        ..CoreHeadroom::default()
    };
    let by_nova = match rules {
        ThreadRules::Nova => true,
        ThreadRules::Sensible => false,
    };
    headroom.may_isolate = !by_nova || threads <= 1 || is_legacy;
    headroom.lone_needs_core = by_nova;
    for core in &cell.cores {
        let left = core.intersection_len(&free);
        if left > 1 {
            headroom.paired += small(left);
        }
        let is_whole = left > 0 && left == core.len();
        headroom.whole += u32::from(is_whole);
        headroom.full += u32::from(is_whole && (left >= threads || !by_nova));
    }
    headroom
}

fn pools<'a>(
    cell: &'a HostCell,
    used: &'a CellUsage,
    limits: &Limits,
) -> impl Iterator<Item = PoolHeadroom> + 'a {
    let unaccounted_kib = kept_mib(used, limits).saturating_mul(1024);
    cell.pages.iter().enumerate().map(move |(at, pool)| {
        let taken = used.pages.get(&pool.size_kib).copied().unwrap_or(0);
        let hidden = if at == 0 {
            unaccounted_kib.div_ceil(pool.size_kib)
        } else {
            0
        };
        let left = (pool.total - pool.reserved).saturating_sub(taken.saturating_add(hidden));
        let is_power = pool.size_kib.is_power_of_two();
        PoolHeadroom {
            size_kib: pool.size_kib,
            mask: if is_power {
                pool.size_kib - 1
            } else {
                u64::MAX
            },
            free_kib: left.saturating_mul(pool.size_kib),
        }
    })
}

/// Returns the memory of small pages that can be promised, in MiB.
#[must_use]
pub(crate) fn free_small_mib(cell: &HostCell, used: &CellUsage, limits: &Limits) -> u64 {
    let Some(pool) = cell.pages.first() else {
        return cell.memory_mib.saturating_sub(used.memory_mib);
    };
    let taken = used.pages.get(&pool.size_kib).copied().unwrap_or(0);
    let left = (pool.total - pool.reserved).saturating_sub(taken);
    pool_mib(left, pool.size_kib).saturating_sub(kept_mib(used, limits))
}

/// Returns how much of the small pages has to stay for guests whose pages are not accounted.
fn kept_mib(used: &CellUsage, limits: &Limits) -> u64 {
    if limits.exact_memory {
        let shared = ratio_of(limits).needed(used.shared_mib());
        shared.saturating_add(used.locked_mib)
    } else {
        0
    }
}

/// Returns how often shared memory is given away; where that is not looked at, once.
fn ratio_of(limits: &Limits) -> AllocationRatio {
    limits.ram_ratio.unwrap_or(AllocationRatio::ONE)
}

fn books(pool: &PagePool, used: &CellUsage) -> CellBooks {
    let taken = used.pages.get(&pool.size_kib).copied().unwrap_or(0);
    let there = pool.total - pool.reserved;
    let left = there.saturating_sub(taken);
    CellBooks {
        small_mib: pool_mib(there, pool.size_kib),
        open_mib: pool_mib(left, pool.size_kib).saturating_sub(used.locked_mib),
        shared_mib: used.shared_mib(),
    }
}

/// Returns the difference, or the nearest number that there is.
fn less(total: u64, used: u64) -> i64 {
    let difference = i128::from(total) - i128::from(used);
    let nearest = difference.clamp(i64::MIN.into(), i64::MAX.into());
    i64::try_from(nearest).expect("it was brought between the bounds")
}

fn small(amount: usize) -> u32 {
    u32::try_from(amount).unwrap_or(u32::MAX)
}
