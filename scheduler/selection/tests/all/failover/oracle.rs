//! Every way to place guests, written anew: all host cells for all guest cells, all pages, all PCI
//! functions, all namespaces. What is allowed is said by the rule that claims are checked by.

use std::collections::BTreeSet;
use std::sync::Arc;

use berth_domain::claim::Claim;
use berth_domain::constraint::{Demand, admit};
use berth_domain::host_view::HostView;
use berth_domain::instance::{InstanceCell, PageSize};
use berth_domain::numa::{Assignment, CellAssignment};
use berth_domain::pci::PciAddress;
use berth_domain::pmem::PmemDevice;
use berth_domain::topology::HostCell;
use berth_selection::{Fleet, FleetGuest};

/// Returns whether the guests, which are on no host, can be placed; `None` after too many steps.
pub(crate) fn exists(
    fleet: &mut Fleet,
    guests: &[Arc<FleetGuest>],
    steps: &mut u32,
) -> Option<bool> {
    let Some((guest, rest)) = guests.split_first() else {
        return Some(true);
    };
    let demand = fleet.demand(guest).into_owned();
    for at in 0..fleet.len() {
        if fleet.has_failed_at(at) {
            continue;
        }
        for assignment in assignments(&fleet.views()[at], &demand) {
            let claim = Claim {
                resources: demand.resources.clone(),
                assignment: assignment.clone(),
                ..(*guest.claim).clone()
            };
            if admit(&fleet.views()[at], &demand, &claim).is_err() {
                continue;
            }
            *steps = steps.checked_sub(1)?;
            let mark = fleet.mark();
            fleet.put(&guest.vm, at, assignment);
            let found = exists(fleet, rest, steps);
            fleet.undo(mark);
            if found != Some(false) {
                return found;
            }
        }
    }
    Some(false)
}

/// Returns assignments of a guest on a host: all that differ in more than the number of a CPU.
fn assignments(view: &HostView, demand: &Demand) -> Vec<Assignment> {
    let topology = &view.host.report.topology;
    let mut all = vec![Assignment::default()];
    for wished in demand.topology.iter().flat_map(|wish| &wish.cells) {
        let mut longer = Vec::new();
        for before in &all {
            for (at, cell) in topology.cells().iter().enumerate() {
                if before.cells.iter().all(|other| other.host_cell != cell.id) {
                    longer.extend(on_cell(view, at, cell, wished).into_iter().map(|one| {
                        let mut after = before.clone();
                        after.cells.push(one);
                        after
                    }));
                }
            }
        }
        all = longer;
    }
    for request in &demand.pci {
        let devices = topology.pci().iter();
        let free = devices
            .filter(|device| request.accepts(device) && !view.usage.pci.contains(&device.address));
        let free: Vec<PciAddress> = free.map(|device| device.address).collect();
        let sets = subsets(&free, request.count as usize);
        all = each(&all, &sets, |assignment, set| assignment.pci.push(set));
    }
    for request in &demand.pmem.requests {
        let namespaces = topology.pmem().iter();
        let free = namespaces.filter(|namespace| {
            request.accepts(namespace) && !view.usage.pmem.contains(&namespace.name)
        });
        let free: Vec<PmemDevice> = free.map(PmemDevice::from).collect();
        all = each(&all, &free, |assignment, device| {
            assignment.pmem.push(device)
        });
    }
    all
}

fn each<T: Clone>(
    all: &[Assignment],
    ways: &[T],
    add: impl Fn(&mut Assignment, T),
) -> Vec<Assignment> {
    let pairs = all
        .iter()
        .flat_map(|one| ways.iter().map(move |way| (one, way)));
    let longer = pairs.map(|(one, way)| {
        let mut longer = one.clone();
        add(&mut longer, way.clone());
        longer
    });
    longer.collect()
}

fn on_cell(
    view: &HostView,
    at: usize,
    cell: &HostCell,
    wished: &InstanceCell,
) -> Vec<CellAssignment> {
    let free = cell.dedicated.difference(&view.usage.cells[at].pinned);
    if free.len() < wished.dedicated.len() {
        return Vec::new();
    }
    let sizes: Vec<Option<u64>> = match wished.page_size {
        PageSize::Unspecified => vec![None],
        PageSize::Kib(size) => vec![Some(size)],
        PageSize::Small | PageSize::Large | PageSize::Any => {
            cell.pages.iter().map(|pool| Some(pool.size_kib)).collect()
        }
    };
    let one = |page_size_kib| CellAssignment {
        guest_cell: wished.id,
        host_cell: cell.id,
        pins: wished.dedicated.iter().copied().zip(free.iter()).collect(),
        idle: Default::default(),
        shared_vcpus: wished.shared.len() as u32,
        floating: if wished.shared.is_empty() {
            Default::default()
        } else {
            cell.shared.clone()
        },
        memory_mib: wished.memory_mib,
        page_size_kib,
    };
    sizes.into_iter().map(one).collect()
}

fn subsets(all: &[PciAddress], count: usize) -> Vec<BTreeSet<PciAddress>> {
    let Some((first, rest)) = all.split_first() else {
        return if count == 0 {
            vec![BTreeSet::new()]
        } else {
            Vec::new()
        };
    };
    let mut sets = subsets(rest, count);
    if count > 0 {
        sets.extend(subsets(rest, count - 1).into_iter().map(|mut set| {
            set.insert(*first);
            set
        }));
    }
    sets
}
