//! What of a host no guest can take: free CPUs of NUMA nodes on which no guest NUMA node fits.
//!
//! Pure. It depends on the guests that are expected; which these are, the caller knows. PCI functions
//! do not count: a guest that lacks one is refused for that, and the CPUs are not lost.

use berth_domain::host_view::HostView;
use berth_domain::instance::InstanceTopology;
use berth_domain::numa::{ExactDemand, Ground, Guest, HostUsage, Outline, is_feasible};
use berth_domain::topology::{HostCell, HostTopology};

/// Returns the NUMA nodes of guests, each as a guest of its own.
#[must_use]
pub fn single_nodes<'a>(
    topologies: impl IntoIterator<Item = &'a InstanceTopology>,
) -> Vec<InstanceTopology> {
    let nodes = topologies.into_iter().flat_map(|topology| {
        topology.cells.iter().map(|cell| InstanceTopology {
            cells: vec![cell.clone()],
            ..topology.clone()
        })
    });
    nodes.collect()
}

/// Returns whether any of these guests of one NUMA node fits on the NUMA node of a host at this
/// position of its topology.
#[must_use]
pub fn takes_any(view: &HostView, at: usize, guests: &[InstanceTopology]) -> bool {
    let cell: HostCell = view.host.report.topology.cells()[at].clone();
    let Ok(alone) = HostTopology::new(vec![cell], vec![vec![10]]) else {
        return false;
    };
    let usage = HostUsage {
        cells: vec![view.usage.cells[at].clone()],
        pci: Default::default(),
        pmem: Default::default(),
    };
    let outline = Outline::new(&alone, &usage, &view.limits());
    let ground = Ground {
        topology: &alone,
        usage: &usage,
        outline: &outline,
    };
    let mut guests = guests.iter();
    guests.any(|guest| is_feasible(ground, &Guest::new(ExactDemand::cells(guest))))
}

/// Returns how many dedicated CPUs of a host are free on NUMA nodes that take none of these guests.
#[must_use]
pub fn stranded_cpus(view: &HostView, guests: &[InstanceTopology]) -> u64 {
    let topology = &view.host.report.topology;
    let nodes = topology.cells().iter().zip(&view.usage.cells).enumerate();
    let stranded = nodes.map(|(at, (cell, used))| {
        let free = cell.dedicated.len().saturating_sub(used.pinned.len());
        match free > 0 && !takes_any(view, at, guests) {
            true => free as u64,
            false => 0,
        }
    });
    stranded.sum()
}
