//! Whether given PCI functions answer a guest's requests.

use std::collections::BTreeSet;

use super::mismatch;
use crate::numa::fit::{ExactDemand, Ground};
use crate::numa::{Assignment, FitRefusal, HostUsage};
use crate::pci::{PciAddress, PciDevice, PciNumaPolicy, PciRequest};
use crate::topology::{CellId, HostTopology, SocketId};

/// Checks the PCI functions of an assignment whose cells are good.
pub(super) fn verify(
    ground: Ground<'_>,
    demand: ExactDemand<'_>,
    assignment: &Assignment,
) -> Result<(), FitRefusal> {
    if assignment.pci.len() != demand.pci.len() {
        let what = format!(
            "answers {} requests for PCI devices, the guest has {}",
            assignment.pci.len(),
            demand.pci.len()
        );
        return Err(mismatch(None, what));
    }
    let near = Near::new(ground.topology, demand, assignment);
    let mut given: BTreeSet<PciAddress> = BTreeSet::new();
    for (request, addresses) in demand.pci.iter().zip(&assignment.pci) {
        if addresses.len() != request.count as usize {
            let what = format!(
                "gives {} devices {request}, requested are {}",
                addresses.len(),
                request.count
            );
            return Err(mismatch(None, what));
        }
        for address in addresses {
            let device = find(ground.topology, *address).filter(|d| request.accepts(d));
            let Some(device) = device else {
                let what = format!("gives device {address}, which is no {request}");
                return Err(mismatch(None, what));
            };
            if !near.allows(request, device) {
                let what = format!("gives device {address}, which is not near enough to the guest");
                return Err(mismatch(None, what));
            }
            if !given.insert(*address) {
                return Err(mismatch(None, format!("gives device {address} twice")));
            }
        }
    }
    untaken(ground, &given)
}

fn find(topology: &HostTopology, address: PciAddress) -> Option<&PciDevice> {
    let at = topology.pci().binary_search_by_key(&address, |d| d.address);
    at.ok().map(|at| &topology.pci()[at])
}

/// Checks that no other guest has these functions, and that they do not exclude each other.
fn untaken(ground: Ground<'_>, given: &BTreeSet<PciAddress>) -> Result<(), FitRefusal> {
    let usage: &HostUsage = ground.usage;
    let parent = |address: &PciAddress| find(ground.topology, *address).and_then(|d| d.parent);
    let mut taken: BTreeSet<PciAddress> = given.intersection(&usage.pci).copied().collect();
    // Virtual functions whose physical one is taken, by others or by this guest.
    taken.extend(given.iter().filter(|address| {
        parent(address).is_some_and(|p| usage.pci.contains(&p) || given.contains(&p))
    }));
    // Physical functions of which others have a virtual one.
    taken.extend(
        usage
            .pci
            .iter()
            .filter_map(parent)
            .filter(|p| given.contains(p)),
    );
    if taken.is_empty() {
        Ok(())
    } else {
        Err(FitRefusal::PciTaken { addresses: taken })
    }
}

/// The cells and sockets that a guest is on.
struct Near<'a> {
    /// Absent for a guest without cells, which does not care.
    cells: Option<BTreeSet<CellId>>,
    /// Absent where the socket of any cell of the host is not known.
    sockets: Option<BTreeSet<SocketId>>,
    topology: &'a HostTopology,
}

impl<'a> Near<'a> {
    fn new(topology: &'a HostTopology, demand: ExactDemand<'_>, assignment: &Assignment) -> Self {
        let cells: BTreeSet<CellId> = assignment.cells.iter().map(|c| c.host_cell).collect();
        let all_known = topology.cells().iter().all(|cell| cell.socket.is_some());
        let sockets = cells.iter().filter_map(|id| topology.cell(*id)?.socket);
        Self {
            sockets: all_known.then(|| sockets.collect()),
            cells: demand.topology.map(|_| cells),
            topology,
        }
    }

    fn allows(&self, request: &PciRequest, device: &PciDevice) -> bool {
        let Some(cells) = &self.cells else {
            return true;
        };
        if device.cell.is_some_and(|cell| cells.contains(&cell)) {
            return true;
        }
        match request.policy {
            PciNumaPolicy::Required => false,
            PciNumaPolicy::Preferred => true,
            PciNumaPolicy::Legacy => device.cell.is_none(),
            PciNumaPolicy::Socket => self.is_on_socket(device),
        }
    }

    fn is_on_socket(&self, device: &PciDevice) -> bool {
        let cell = device.cell.and_then(|cell| self.topology.cell(cell));
        let socket = cell.and_then(|cell| cell.socket);
        let sockets = self.sockets.as_ref();
        socket.is_some_and(|socket| sockets.is_some_and(|all| all.contains(&socket)))
    }
}
