//! What lives on the host fits the shape that its agent reports.

use std::collections::BTreeSet;

use super::{Demand, Violation};
use crate::cpu_set::{CpuId, CpuSet};
use crate::host_view::HostView;
use crate::numa::Assignment;
use crate::numa::fit::emulator_cell;
use crate::pci::PciAddress;
use crate::topology::{CellId, HostTopology};

/// Returns the PCI functions of an assignment that the shape does not have. One that are free may
/// go; one that a guest has may not.
#[must_use]
pub fn missing_functions(topology: &HostTopology, assignment: &Assignment) -> BTreeSet<PciAddress> {
    let has = |address: &PciAddress| {
        let devices = topology.pci();
        let found = devices.binary_search_by_key(address, |device| device.address);
        found.is_ok()
    };
    let given = assignment.pci.iter().flatten().copied();
    given.filter(|address| !has(address)).collect()
}

/// Returns the CPUs that an assignment has for itself and that the shape has in another cell, or
/// for everybody. CPUs that it does not have at all are not among them.
#[must_use]
pub fn moved_cpus(topology: &HostTopology, assignment: &Assignment) -> CpuSet {
    let home = emulator_cell(assignment);
    let given = assignment.cells.iter().flat_map(|cell| {
        let is_home = home == Some(cell.host_cell);
        let emulator = assignment.emulator.iter().filter(move |_| is_home);
        let own = cell.pins.values().copied().chain(cell.idle.iter());
        own.chain(emulator).map(|cpu| (cell.host_cell, cpu))
    });
    let is_unmoved = |(id, cpu): &(CellId, CpuId)| {
        let mut cells = topology.cells().iter();
        let now = cells.find(|c| c.dedicated.contains(*cpu) || c.shared.contains(*cpu));
        now.is_none_or(|now| now.id == *id && now.dedicated.contains(*cpu))
    };
    given
        .filter(|at| !is_unmoved(at))
        .map(|(_, cpu)| cpu)
        .collect()
}

/// Returns what is missing of what an assignment holds, as text as text for people; where no single
/// thing is, there is too little for all.
#[must_use]
pub fn describe_missing(topology: &HostTopology, assignment: &Assignment) -> String {
    let mut missing = Vec::new();
    let cells = assignment.cells.iter().map(|cell| cell.host_cell);
    let cells: BTreeSet<CellId> = cells
        .filter(|id| topology.position(*id).is_none())
        .collect();
    for cell in &cells {
        missing.push(format!("NUMA node {cell} is gone"));
    }
    let there = topology.dedicated().union(&topology.shared());
    let offline = assignment.taken().difference(&there);
    if !offline.is_empty() {
        missing.push(format!("CPUs {offline} are offline"));
    }
    let functions = missing_functions(topology, assignment);
    for function in &functions {
        missing.push(format!("PCI function {function} is gone"));
    }
    for device in &assignment.pmem {
        let trouble = topology.namespace(&device.name).map(|n| n.trouble.as_str());
        match trouble {
            Some("") => {}
            Some(trouble) => missing.push(format!("pmem namespace {}: {trouble}", device.name)),
            None => missing.push(format!("pmem namespace {} is gone", device.name)),
        }
    }
    if missing.is_empty() {
        missing.push(
            "there is less memory, or fewer pages or shared CPUs, than is claimed, or the policy \
             allows less memory"
                .to_owned(),
        );
    }
    missing.join("; ")
}

/// Refuses a host whose agent reports a shape that was not taken over.
///
/// # Errors
///
/// [`Violation::ShapeRefused`].
pub fn check(view: &HostView, _demand: &Demand) -> Result<(), Violation> {
    if view.host.shape_refused.is_some() {
        return Err(Violation::ShapeRefused);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pci::{PciDevice, PciId, PciKind};
    use crate::topology::HostCell;

    /// Goal: a function that goes matters only to who has it. Method: a host of which one of two
    /// functions went.
    #[test]
    fn functions_that_a_guest_has_may_not_go() {
        let address = |text: &str| text.parse::<PciAddress>().unwrap();
        let cell = HostCell {
            id: crate::topology::CellId(0),
            socket: None,
            shared: Default::default(),
            dedicated: Default::default(),
            cores: Vec::new(),
            memory_mib: 1,
            pages: Vec::new(),
        };
        let device = PciDevice {
            address: address("0000:81:00.1"),
            vendor: PciId(0x8086),
            product: PciId(0x1572),
            cell: None,
            kind: PciKind::Pci,
            parent: None,
            tags: Default::default(),
        };
        let topology = HostTopology::new(vec![cell], vec![vec![10]]).unwrap();
        let topology = topology.with_pci(vec![device]).unwrap();
        let given = |all: &[&str]| Assignment {
            pci: vec![all.iter().map(|a| address(a)).collect()],
            ..Assignment::default()
        };
        let missing_of = |all| missing_functions(&topology, &given(all));
        assert!(missing_of(&["0000:81:00.1"]).is_empty());
        let both = ["0000:81:00.1", "0000:81:00.0"];
        assert_eq!(missing_of(&both), [address("0000:81:00.0")].into());
    }
}
