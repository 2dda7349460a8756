//! Pools of huge pages that are enlarged, at the expense of the small pages of the same NUMA node.
//!
//! Invariant: what is taken of the small pages is free, under every ratio and for every guest that
//! is there.

use std::collections::BTreeSet;
use std::sync::Arc;

use berth_domain::hint::{Hint, PoolChange};
use berth_domain::host::Host;
use berth_domain::host_view::HostView;
use berth_domain::instance::{InstanceTopology, PageSize};
use berth_domain::topology::{HostCell, HostTopology, PagePool};

use super::Search;
use crate::explain::Refused;

/// How many hosts are tried, those that are alike counted once.
const HOSTS_MAX: usize = 16;

impl Search<'_> {
    /// Tries hosts with more pages of the size that the guest requests.
    pub(super) fn resize_pools(&mut self) -> Option<Hint> {
        let topology = self.request.demand.topology.as_ref()?;
        let size_kib = requested_size(topology)?;
        let pages = pages_of(topology, size_kib);
        let refused = self.refused;
        let causes = ["PAGES", "PAGE_SIZE", "CELLS_COMPETE"];
        let lacking = |host: &&Refused<'_>| {
            let refusal = host.violation.fit();
            refusal.is_some_and(|refusal| causes.contains(&refusal.cause()))
        };
        let mut seen = BTreeSet::new();
        let hosts = refused.iter().filter(lacking);
        let hosts = hosts.filter(|host| seen.insert(host.view.likeness()));
        for host in hosts.take(HOSTS_MAX) {
            let Some((view, pools)) = enlarged(host.view, size_kib, &pages) else {
                continue;
            };
            if !self.spend() {
                return None;
            }
            let placed = self.applicant.try_place(&view, self.request.policy.cells);
            let Some(assignment) = placed else { continue };
            let used: BTreeSet<_> = assignment.cells.iter().map(|c| c.host_cell).collect();
            let pools: Vec<PoolChange> = pools
                .into_iter()
                .filter(|p| used.contains(&p.node))
                .collect();
            // Only the pools that are named are changed.
            let named = with_pools(host.view, &pools)?;
            if !pools.is_empty() && self.is_decided(named, &self.request.demand) {
                let host = host.view.host.name.clone();
                return Some(Hint::ResizePools { host, pools });
            }
        }
        None
    }
}

/// Returns the page size that all NUMA nodes of the guest request by name.
fn requested_size(topology: &InstanceTopology) -> Option<u64> {
    let mut sizes = topology.cells.iter().map(|cell| match cell.page_size {
        PageSize::Kib(size) => Some(size),
        PageSize::Unspecified | PageSize::Small | PageSize::Large | PageSize::Any => None,
    });
    let first = sizes.next()??;
    sizes.all(|size| size == Some(first)).then_some(first)
}

/// Returns how many pages each NUMA node of the guest needs, the most first.
fn pages_of(topology: &InstanceTopology, size_kib: u64) -> Vec<u64> {
    let cells = topology.cells.iter();
    let mut pages: Vec<u64> = cells
        .map(|cell| (cell.memory_mib * 1024).div_ceil(size_kib))
        .collect();
    pages.sort_unstable_by(|a, b| b.cmp(a));
    pages
}

/// Returns the host with more pages on the NUMA nodes that lack fewest, and the pools that are
/// changed; nothing where its small pages do not suffice.
fn enlarged(view: &HostView, size_kib: u64, pages: &[u64]) -> Option<(HostView, Vec<PoolChange>)> {
    let most = *pages.first()?;
    let mut pools: Vec<(u64, PoolChange)> = Vec::new();
    let cells = view.host.report.topology.cells().iter();
    for ((cell, usage), left) in cells.zip(&view.usage.cells).zip(view.cells()) {
        let pool = cell.pages.iter().find(|pool| pool.size_kib == size_kib);
        let (total, reserved) = pool.map_or((0, 0), |pool| (pool.total, pool.reserved));
        let used = usage.pages.get(&size_kib).copied().unwrap_or(0);
        let free = total.saturating_sub(reserved).saturating_sub(used);
        let more = most.saturating_sub(free);
        let more_mib = (more * size_kib).div_ceil(1024);
        if more_mib <= left.small_mib {
            let change = PoolChange {
                node: cell.id,
                size_kib,
                pages: total,
                needed: total + more,
            };
            pools.push((more, change));
        }
    }
    pools.sort_by_key(|(more, change)| (*more, change.node));
    let changed: Vec<PoolChange> = pools
        .into_iter()
        .filter(|(more, _)| *more > 0)
        .map(|(_, change)| change)
        .collect();
    Some((with_pools(view, &changed)?, changed))
}

/// Returns the host with pools of these sizes.
fn with_pools(view: &HostView, pools: &[PoolChange]) -> Option<HostView> {
    let topology = &view.host.report.topology;
    let cells = topology.cells().iter().map(|cell| {
        let change = pools.iter().find(|pool| pool.node == cell.id);
        change.map_or_else(|| Some(cell.clone()), |change| with_pool(cell, change))
    });
    let cells: Vec<HostCell> = cells.collect::<Option<_>>()?;
    let changed = HostTopology::new(cells, topology.distances().to_vec()).ok()?;
    let changed = changed.with_pci(topology.pci().to_vec()).ok()?;
    let changed = changed.with_pmem(topology.pmem().to_vec()).ok()?;
    let mut host = Host::clone(&view.host);
    host.report.topology = Arc::new(changed);
    let mut view = view.clone();
    view.set_host(Arc::new(host));
    Some(view)
}

fn with_pool(cell: &HostCell, change: &PoolChange) -> Option<HostCell> {
    let mut cell = cell.clone();
    let more_kib = (change.needed - change.pages) * change.size_kib;
    let smallest = cell.pages.first_mut()?;
    if smallest.size_kib >= change.size_kib {
        return None;
    }
    smallest.total = smallest
        .total
        .checked_sub(more_kib.div_ceil(smallest.size_kib))?;
    match cell
        .pages
        .iter_mut()
        .find(|pool| pool.size_kib == change.size_kib)
    {
        Some(pool) => pool.total = change.needed,
        None => {
            cell.pages.push(PagePool {
                size_kib: change.size_kib,
                total: change.needed,
                reserved: 0,
            });
            cell.pages.sort_unstable_by_key(|pool| pool.size_kib);
        }
    }
    Some(cell)
}
