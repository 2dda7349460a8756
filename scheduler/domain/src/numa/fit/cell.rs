//! Whether one guest cell fits on one host cell.
//!
//! The rules are those of OpenStack Nova; [`Limits::exact_memory`] makes those of memory stricter.
//!
//! Invariant: [`Site::check`] succeeds exactly if [`Site::shortages`] is empty.

use crate::instance::{EmulatorThreads, InstanceTopology, PageSize};
use crate::numa::fit::Limits;
use crate::numa::refusal::{Resource, Shortage};
use crate::numa::usage::CellUsage;
use crate::topology::{HostCell, PagePool};

/// What one guest cell needs, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// Dedicated CPUs, the emulator's included.
    pub(crate) dedicated: u32,
    /// vCPUs that float.
    pub(crate) shared: u32,
    /// Memory in MiB.
    pub(crate) memory_mib: u64,
    /// Its pages.
    pub(crate) page_size: PageSize,
}

/// What a guest needs, in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Guest {
    /// By position of the guest's cells.
    pub(crate) cells: Vec<Need>,
    /// Whether any vCPU is dedicated: then its memory is never overcommitted.
    pub(crate) has_dedicated: bool,
    /// Whether any vCPU floats: then the ratios are looked at.
    pub(crate) has_shared: bool,
}

impl Guest {
    /// Returns what a wish needs.
    #[must_use]
    pub(crate) fn new(wish: &InstanceTopology) -> Self {
        let emulator = u32::from(wish.emulator_threads == EmulatorThreads::Isolate);
        let count = |n: usize| u32::try_from(n).expect("a guest has few vCPUs");
        Self {
            cells: wish
                .cells
                .iter()
                .enumerate()
                .map(|(index, cell)| Need {
                    dedicated: count(cell.dedicated.len()) + if index == 0 { emulator } else { 0 },
                    shared: count(cell.shared.len()),
                    memory_mib: cell.memory_mib,
                    page_size: cell.page_size,
                })
                .collect(),
            has_dedicated: wish.cells.iter().any(|c| !c.dedicated.is_empty()),
            has_shared: wish.cells.iter().any(|c| !c.shared.is_empty()),
        }
    }
}

/// A host cell with what is taken from it.
#[derive(Clone, Copy, Debug)]
pub(in crate::numa) struct Site<'a> {
    pub(in crate::numa) cell: &'a HostCell,
    pub(in crate::numa) usage: &'a CellUsage,
}

impl Site<'_> {
    /// Returns the page size that the guest cell gets (`None`: not accounted), or the first thing
    /// that is missing.
    pub(in crate::numa) fn check(
        &self,
        guest: &Guest,
        index: usize,
        limits: &Limits,
    ) -> Result<Option<u64>, Shortage> {
        let need = &guest.cells[index];
        self.dedicated(need)?;
        self.shared_cpus(need)?;
        if guest.has_shared {
            self.shared_vcpus(need, limits)?;
            self.memory(need, limits)?;
        }
        self.pages(need, guest.has_dedicated, limits)
    }

    /// Returns everything that is missing, the worst first.
    pub(in crate::numa) fn shortages(
        &self,
        guest: &Guest,
        index: usize,
        limits: &Limits,
    ) -> Vec<Shortage> {
        let mut found: Vec<_> = self.missing(guest, index, limits).collect();
        found.sort_by_key(|s| (std::cmp::Reverse(s.milli()), s.resource));
        found
    }

    /// Returns how far the guest cell is from fitting, as [`CellShortfall::distance`] does, without
    /// listing what is missing; `None` where it fits.
    ///
    /// [`CellShortfall::distance`]: crate::numa::CellShortfall::distance
    pub(in crate::numa) fn distance(
        &self,
        guest: &Guest,
        index: usize,
        limits: &Limits,
    ) -> Option<(usize, u64)> {
        let missing = self.missing(guest, index, limits);
        let distance = missing.fold((0, 0), |(count, worst), s| {
            (count + 1, worst.max(s.milli()))
        });
        (distance.0 > 0).then_some(distance)
    }

    fn missing(
        &self,
        guest: &Guest,
        index: usize,
        limits: &Limits,
    ) -> impl Iterator<Item = Shortage> {
        let need = &guest.cells[index];
        let ratios = guest
            .has_shared
            .then(|| [self.shared_vcpus(need, limits), self.memory(need, limits)]);
        let [vcpus, memory] = ratios.unwrap_or([Ok(()), Ok(())]);
        let pages = self.pages(need, guest.has_dedicated, limits).map(drop);
        let all = [
            self.dedicated(need),
            self.shared_cpus(need),
            vcpus,
            memory,
            pages,
        ];
        all.into_iter().filter_map(Result::err)
    }

    /// Returns how much the cell has left of what the guest mainly takes, then of memory: the
    /// order in which cells are preferred.
    pub(in crate::numa) fn room_for(&self, guest: &Guest) -> (i64, i64) {
        let memory = signed(self.cell.memory_mib) - signed(self.usage.memory_mib);
        let cpus = if guest.has_dedicated {
            signed(self.free_dedicated())
        } else {
            -i64::from(self.usage.shared_vcpus)
        };
        (cpus, memory)
    }

    fn free_dedicated(&self) -> u64 {
        self.cell.dedicated.difference_len(&self.usage.pinned) as u64
    }

    fn dedicated(&self, need: &Need) -> Result<(), Shortage> {
        require(
            Resource::DedicatedCpus,
            u64::from(need.dedicated),
            self.free_dedicated(),
        )
    }

    fn shared_cpus(&self, need: &Need) -> Result<(), Shortage> {
        require(
            Resource::SharedCpus,
            u64::from(need.shared),
            self.cell.shared.len() as u64,
        )
    }

    fn shared_vcpus(&self, need: &Need, limits: &Limits) -> Result<(), Shortage> {
        let all = scaled(self.cell.shared.len() as u64, limits.cpu_ratio_milli);
        require(
            Resource::SharedVcpus,
            u64::from(need.shared),
            all.saturating_sub(u64::from(self.usage.shared_vcpus)),
        )
    }

    fn memory(&self, need: &Need, limits: &Limits) -> Result<(), Shortage> {
        let all = scaled(self.cell.memory_mib, limits.ram_ratio_milli);
        require(
            Resource::Memory,
            need.memory_mib,
            all.saturating_sub(self.usage.memory_mib),
        )
    }

    fn pages(
        &self,
        need: &Need,
        exclusive: bool,
        limits: &Limits,
    ) -> Result<Option<u64>, Shortage> {
        let pools = &self.cell.pages[..];
        let large = pools.get(1..).unwrap_or_default();
        match need.page_size {
            PageSize::Unspecified => self.unaccounted(need, exclusive, limits).map(|()| None),
            PageSize::Small => self
                .first_pool(need, limits, pools.iter().take(1))
                .map(Some),
            PageSize::Large => self.first_pool(need, limits, large.iter().rev()).map(Some),
            PageSize::Any => self.first_pool(need, limits, pools.iter().rev()).map(Some),
            PageSize::Kib(size) => {
                let exact = pools.iter().filter(|p| p.size_kib == size);
                self.first_pool(need, limits, exact).map(Some)
            }
        }
    }

    /// Returns the size of the first pool that has room, or the smallest shortage.
    fn first_pool<'p>(
        &self,
        need: &Need,
        limits: &Limits,
        pools: impl Iterator<Item = &'p PagePool>,
    ) -> Result<u64, Shortage> {
        let absent = match need.page_size {
            PageSize::Kib(size) => Resource::PageSize(Some(size)),
            PageSize::Unspecified | PageSize::Small | PageSize::Large | PageSize::Any => {
                Resource::PageSize(None)
            }
        };
        let mut nearest = Shortage {
            resource: absent,
            requested: need.memory_mib,
            available: 0,
        };
        let memory_kib = need.memory_mib.saturating_mul(1024);
        for pool in pools {
            let shortage = if memory_kib.is_multiple_of(pool.size_kib) {
                let wanted = memory_kib / pool.size_kib;
                match require(
                    Resource::Pages(pool.size_kib),
                    wanted,
                    self.free_pages(pool, limits),
                ) {
                    Ok(()) => return Ok(pool.size_kib),
                    Err(shortage) => shortage,
                }
            } else {
                Shortage {
                    resource: Resource::PageMultiple(pool.size_kib),
                    requested: memory_kib,
                    available: 0,
                }
            };
            let first = nearest.resource == absent;
            if first || shortage.milli() < nearest.milli() {
                nearest = shortage;
            }
        }
        Err(nearest)
    }

    /// Checks memory whose pages are not accounted: small pages. It must be free; only guests
    /// without dedicated CPUs may overcommit it, where that is allowed at all, up to the ratio
    /// (which was looked at before), but never with themselves.
    fn unaccounted(&self, need: &Need, exclusive: bool, limits: &Limits) -> Result<(), Shortage> {
        let pool = self.cell.pages.first();
        if let Some(pool) = pool {
            multiple_of(need, pool)?;
        }
        let available = if exclusive || limits.exact_memory {
            free_small_mib(self.cell, self.usage, limits)
        } else {
            pool.map_or(self.cell.memory_mib, |p| mib(p.total, p.size_kib))
        };
        require(Resource::Memory, need.memory_mib, available)
    }

    fn free_pages(&self, pool: &PagePool, limits: &Limits) -> u64 {
        let small = self.cell.pages.first().map(|p| p.size_kib) == Some(pool.size_kib);
        let unaccounted = if small && limits.exact_memory {
            (self.usage.unaccounted_mib() * 1024).div_ceil(pool.size_kib)
        } else {
            0
        };
        free_pages(pool, self.usage).saturating_sub(unaccounted)
    }
}

/// Returns the memory of small pages that can be promised, in MiB.
#[must_use]
pub(crate) fn free_small_mib(cell: &HostCell, usage: &CellUsage, limits: &Limits) -> u64 {
    let Some(pool) = cell.pages.first() else {
        return cell.memory_mib.saturating_sub(usage.memory_mib);
    };
    let unaccounted = if limits.exact_memory {
        usage.unaccounted_mib()
    } else {
        0
    };
    mib(free_pages(pool, usage), pool.size_kib).saturating_sub(unaccounted)
}

fn free_pages(pool: &PagePool, usage: &CellUsage) -> u64 {
    let used = usage.pages.get(&pool.size_kib).copied().unwrap_or(0);
    (pool.total - pool.reserved).saturating_sub(used)
}

fn multiple_of(need: &Need, pool: &PagePool) -> Result<(), Shortage> {
    let memory_kib = need.memory_mib.saturating_mul(1024);
    if memory_kib.is_multiple_of(pool.size_kib) {
        return Ok(());
    }
    Err(Shortage {
        resource: Resource::PageMultiple(pool.size_kib),
        requested: memory_kib,
        available: 0,
    })
}

fn require(resource: Resource, requested: u64, available: u64) -> Result<(), Shortage> {
    if requested <= available {
        Ok(())
    } else {
        Err(Shortage {
            resource,
            requested,
            available,
        })
    }
}

fn mib(pages: u64, size_kib: u64) -> u64 {
    u64::try_from(u128::from(pages) * u128::from(size_kib) / 1024).unwrap_or(u64::MAX)
}

fn scaled(amount: u64, ratio_milli: u64) -> u64 {
    let scaled = u128::from(amount) * u128::from(ratio_milli) / 1000;
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}
