//! Whether one guest cell fits on one host cell.
//!
//! The rules are those of OpenStack Nova, with the exceptions that [`Limits`] switches on.
//!
//! Invariant: [`Spot::check`] succeeds exactly if [`Spot::shortages`] is empty.
//!
//! [`Limits`]: crate::numa::Limits

use super::need::Need;
use crate::instance::{PageSize, ThreadPolicy};
use crate::numa::outline::{CellHeadroom, Outline, PoolHeadroom};
use crate::numa::refusal::{Resource, Shortage};

/// A host cell in numbers, with its pools.
#[derive(Clone, Copy, Debug)]
pub(in crate::numa) struct Spot<'a> {
    pub(in crate::numa) headroom: &'a CellHeadroom,
    pools: &'a [PoolHeadroom],
}

impl<'a> Spot<'a> {
    pub(in crate::numa) fn new(outline: &'a Outline, position: usize) -> Self {
        let headroom = &outline.cells[position];
        Self {
            headroom,
            pools: outline.pools(headroom),
        }
    }

    /// Returns the page size that the guest cell gets (`None`: not accounted), or the first thing
    /// that is missing.
    pub(in crate::numa) fn check(&self, need: &Need) -> Result<Option<u64>, Shortage> {
        self.dedicated(need)?;
        self.cores(need)?;
        self.shared_cpus(need)?;
        self.shared_vcpus(need)?;
        self.memory(need)?;
        self.pages(need)
    }

    /// Returns everything that is missing, the worst first.
    pub(in crate::numa) fn shortages(&self, need: &Need) -> Vec<Shortage> {
        let mut found: Vec<_> = self.missing(need).collect();
        found.sort_by_key(|s| (std::cmp::Reverse(s.milli()), s.resource));
        found
    }

    /// Returns how far the guest cell is from fitting, as [`CellShortfall::distance`] does, without
    /// listing what is missing; `None` where it fits.
    ///
    /// [`CellShortfall::distance`]: crate::numa::CellShortfall::distance
    pub(in crate::numa) fn distance(&self, need: &Need) -> Option<(usize, u64)> {
        let distance = self.missing(need).fold((0, 0), |(count, worst), s| {
            (count + s.weight(), worst.max(s.milli()))
        });
        (distance.0 > 0).then_some(distance)
    }

    fn missing(&self, need: &Need) -> impl Iterator<Item = Shortage> {
        // Where CPUs are missing at all, it does not matter yet on which cores they lie.
        let all = [
            self.dedicated(need).and_then(|()| self.cores(need)),
            self.shared_cpus(need),
            self.shared_vcpus(need),
            self.memory(need),
            self.pages(need).map(drop),
        ];
        all.into_iter().filter_map(Result::err)
    }

    fn dedicated(&self, need: &Need) -> Result<(), Shortage> {
        if !need.cpu_policy.is_exclusive() {
            return Ok(());
        }
        require(
            Resource::DedicatedCpus,
            need.cpus().into(),
            self.headroom.cores.free.into(),
        )
    }

    /// Checks that the dedicated CPUs lie on cores as the guest requires.
    fn cores(&self, need: &Need) -> Result<(), Shortage> {
        if !need.cpu_policy.is_exclusive() {
            return Ok(());
        }
        let cores = &self.headroom.cores;
        match need.thread_policy {
            ThreadPolicy::Prefer => Ok(()),
            ThreadPolicy::Require if !cores.has_siblings => Err(Shortage {
                resource: Resource::Siblings,
                requested: u64::from(need.dedicated).max(1),
                available: 0,
            }),
            ThreadPolicy::Require => require(
                Resource::SiblingCpus,
                need.dedicated.into(),
                cores.paired.into(),
            ),
            ThreadPolicy::Isolate if !cores.may_isolate => Err(Shortage {
                resource: Resource::Isolation,
                requested: u64::from(need.cpus()).max(1),
                available: 0,
            }),
            ThreadPolicy::Isolate => {
                let lone = u32::from(cores.lone_needs_core);
                let required = need.dedicated.max(lone);
                require(Resource::FreeCores, required.into(), cores.full.into())?;
                require(Resource::FreeCores, need.cpus().into(), cores.whole.into())
            }
        }
    }

    fn shared_cpus(&self, need: &Need) -> Result<(), Shortage> {
        if !need.cpu_policy.has_floating() {
            return Ok(());
        }
        require(
            Resource::SharedCpus,
            need.shared.into(),
            self.headroom.shared.into(),
        )
    }

    fn shared_vcpus(&self, need: &Need) -> Result<(), Shortage> {
        if !need.cpu_policy.has_floating() {
            return Ok(());
        }
        under(
            Resource::SharedVcpus,
            need.shared.into(),
            self.headroom.vcpus,
        )
    }

    fn memory(&self, need: &Need) -> Result<(), Shortage> {
        if !need.cpu_policy.has_floating() {
            return Ok(());
        }
        under(Resource::Memory, need.memory_mib, self.headroom.memory_mib)
    }

    fn pages(&self, need: &Need) -> Result<Option<u64>, Shortage> {
        let pools = self.pools;
        let large = pools.get(1..).unwrap_or_default();
        match need.page_size {
            PageSize::Unspecified => self.unaccounted(need).map(|()| None),
            PageSize::Small => first_pool(need, pools.iter().take(1)).map(Some),
            PageSize::Large => first_pool(need, large.iter().rev()).map(Some),
            PageSize::Any => first_pool(need, pools.iter().rev()).map(Some),
            PageSize::Kib(size) => {
                let exact = pools.iter().filter(|p| p.size_kib == size);
                first_pool(need, exact).map(Some)
            }
        }
    }

    /// Checks memory whose pages are not accounted: small pages. It must be free; only guests
    /// whose vCPUs all float and that have no devices may overcommit it, where that is allowed at
    /// all, up to the ratio, but never with themselves.
    fn unaccounted(&self, need: &Need) -> Result<(), Shortage> {
        if let Some(pool) = self.pools.first() {
            whole_pages(need, pool)?;
        }
        let available = if need.cpu_policy.is_exclusive() {
            self.headroom.exclusive_mib
        } else if need.is_locked {
            self.headroom.locked_mib
        } else {
            self.headroom.floating_mib
        };
        require(Resource::Memory, need.memory_mib, available)
    }
}

/// Returns the size of the first pool that has space, or the smallest shortage.
fn first_pool<'p>(
    need: &Need,
    pools: impl Iterator<Item = &'p PoolHeadroom>,
) -> Result<u64, Shortage> {
    let memory_kib = need.memory_mib.saturating_mul(1024);
    let mut nearest: Option<Shortage> = None;
    for pool in pools {
        let shortage = match whole_pages(need, pool) {
            Ok(()) if memory_kib <= pool.free_kib => return Ok(pool.size_kib),
            Ok(()) => Shortage {
                resource: Resource::Pages(pool.size_kib),
                requested: memory_kib / pool.size_kib,
                available: pool.free_kib / pool.size_kib,
            },
            Err(shortage) => shortage,
        };
        if nearest.is_none_or(|nearest| shortage.milli() < nearest.milli()) {
            nearest = Some(shortage);
        }
    }
    let size_kib = match need.page_size {
        PageSize::Kib(size) => Some(size),
        PageSize::Unspecified | PageSize::Small | PageSize::Large | PageSize::Any => None,
    };
    Err(nearest.unwrap_or(Shortage {
        resource: Resource::PageSize(size_kib),
        // In pages; without a size there is one size missing.
        requested: size_kib.map_or(1, |size| memory_kib.div_ceil(size.max(1))),
        available: 0,
    }))
}

fn whole_pages(need: &Need, pool: &PoolHeadroom) -> Result<(), Shortage> {
    let memory_kib = need.memory_mib.saturating_mul(1024);
    if pool.divides(memory_kib) {
        return Ok(());
    }
    Err(Shortage {
        resource: Resource::PageMultiple(pool.size_kib),
        requested: memory_kib,
        available: 0,
    })
}

/// Checks what is limited by a ratio: where more than that is taken already, not even nothing fits.
fn under(resource: Resource, requested: u64, available: i64) -> Result<(), Shortage> {
    match u64::try_from(available) {
        Ok(available) => require(resource, requested, available),
        Err(_) => require(resource, requested.max(1), 0),
    }
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
