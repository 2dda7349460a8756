//! The fit of a guest that is to come: its held claim is confirmed, swapped or refused.
//!
//! The scheduler fitted it to what the host reported; the agent fits it to the host as it is now:
//! its own guests, and the huge pages that are really free. What the agent does not know are
//! claims held for guests that have not come yet; the state refuses a swap that touches one.
//!
//! Invariant: pure, and a verdict always passes [`verify`] against the live host.

use std::collections::BTreeMap;

use berth_domain::agent::FitVerdict;
use berth_domain::instance::{InstanceNumaTopology, InstanceTopology, PageSize};
use berth_domain::name::HostName;
use berth_domain::numa::{
    Assignment, ExactDemand, FitRefusal, Ground, Guest, HostUsage, Limits, Outline, Strategy, fit,
    verify,
};
use berth_domain::pci::PciRequest;
use berth_domain::pmem::PmemDemand;
use berth_domain::refusal::{Code, HostRefusal, Refusal};
use berth_domain::topology::{CellId, HostTopology};
use berth_driver_api::FreePages;

/// A guest that is to come, as the source describes it.
#[derive(Clone, Copy)]
pub(super) struct Coming<'a> {
    /// Its topology with what it has on the source; absent for a guest that does not care.
    pub(super) topology: Option<&'a InstanceNumaTopology>,
    /// The PCI functions that it requests.
    pub(super) pci: &'a [PciRequest],
    /// The persistent memory that it requests.
    pub(super) pmem: &'a PmemDemand,
}

/// Decides on a held claim.
pub(super) fn decide(
    host: &HostName,
    live: &HostTopology,
    others: &HostUsage,
    coming: Coming<'_>,
    held: &Assignment,
) -> Result<FitVerdict, Refusal> {
    let source = coming.topology;
    let topology = source.map(|source| with_page_sizes(&source.requested, &source.assignment));
    let outline = Outline::new(live, others, &Limits::NONE);
    let ground = Ground {
        topology: live,
        usage: others,
        outline: &outline,
    };
    let given = source.map_or(&[][..], |source| &source.assignment.pmem);
    let demand = ExactDemand {
        topology: topology.as_ref(),
        pci: coming.pci,
        pmem: &coming.pmem.clone().settled(given),
        near: &[],
    };
    if verify(ground, demand, held).is_ok() {
        return Ok(FitVerdict::Confirm);
    }
    match fit(ground, &Guest::new(demand), Strategy::Spread) {
        Ok(assignment) => Ok(FitVerdict::Swap(assignment)),
        Err(reason) => Err(refusal(host, &reason)),
    }
}

/// Checks that an assignment is good on the host and free of its other guests.
pub(super) fn check(
    host: &HostName,
    topology: &HostTopology,
    others: &HostUsage,
    demand: ExactDemand<'_>,
    assignment: &Assignment,
) -> Result<(), Refusal> {
    let outline = Outline::new(topology, others, &Limits::NONE);
    let ground = Ground {
        topology,
        usage: others,
        outline: &outline,
    };
    verify(ground, demand, assignment).map_err(|reason| refusal(host, &reason))
}

/// Returns the wish with the page sizes that the guest has: they cannot change while it runs.
fn with_page_sizes(demand: &InstanceTopology, now: &Assignment) -> InstanceTopology {
    let sizes: BTreeMap<u32, u64> = now
        .cells
        .iter()
        .filter_map(|c| Some((c.guest_cell, c.page_size_kib?)))
        .collect();
    let mut demand = demand.clone();
    for cell in &mut demand.cells {
        if let Some(size) = sizes.get(&cell.id) {
            cell.page_size = PageSize::Kib(*size);
        }
    }
    demand
}

/// Returns the topology with every huge page reserved that neither is free nor belongs to a guest
/// of ours: another process on the host has it.
pub(super) fn live_topology(
    topology: &HostTopology,
    ours: &HostUsage,
    free: &FreePages,
) -> HostTopology {
    let mut cells = topology.cells().to_vec();
    for (cell, used) in cells.iter_mut().zip(&ours.cells) {
        let id: CellId = cell.id;
        // The first pool is that of small pages, whose free count is no limit: the kernel gives
        // its caches back.
        for pool in cell.pages.iter_mut().skip(1) {
            let Some(free) = free.get(&id).and_then(|pools| pools.get(&pool.size_kib)) else {
                continue;
            };
            let ours = used.pages.get(&pool.size_kib).copied().unwrap_or(0);
            let foreign = pool.total.saturating_sub(free.saturating_add(ours));
            pool.reserved = pool.reserved.max(foreign);
        }
    }
    HostTopology::new(cells, topology.distances().to_vec())
        .and_then(|live| live.with_pci(topology.pci().to_vec()))
        .and_then(|live| live.with_pmem(topology.pmem().to_vec()))
        .and_then(|live| live.with_far_memory(topology.far_memory().to_vec()))
        .expect("raising reserved pages up to their total keeps the topology valid")
}

fn refusal(host: &HostName, reason: &FitRefusal) -> Refusal {
    let mut refusal = Refusal::new(
        Code::ResourceExhausted,
        "DOES_NOT_FIT",
        format!("the guest does not fit on host {host}: {reason}"),
    );
    refusal.causes.insert(reason.cause().to_owned(), 1);
    refusal.hosts.push(HostRefusal {
        host: host.clone(),
        cause: reason.cause().to_owned(),
        message: reason.to_string(),
        guest_cell: reason.guest_cell(),
        host_cell: reason.host_cell(),
        missing: reason.missing(),
    });
    refusal
}
