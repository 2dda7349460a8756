//! What lives on the host fits the shape that its agent reports.

use std::collections::BTreeSet;

use super::{Demand, Violation};
use crate::host_view::HostView;
use crate::numa::Assignment;
use crate::pci::PciAddress;
use crate::topology::HostTopology;

/// Returns the PCI functions of an assignment that the shape does not have. One that nobody has may
/// go; one that a guest has may not.
#[must_use]
pub fn lost_functions(topology: &HostTopology, assignment: &Assignment) -> BTreeSet<PciAddress> {
    let has = |address: &PciAddress| {
        let devices = topology.pci();
        let found = devices.binary_search_by_key(address, |device| device.address);
        found.is_ok()
    };
    let given = assignment.pci.iter().flatten().copied();
    given.filter(|address| !has(address)).collect()
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
        let lost = |all| lost_functions(&topology, &given(all));
        assert!(lost(&["0000:81:00.1"]).is_empty());
        let gone = ["0000:81:00.1", "0000:81:00.0"];
        assert_eq!(lost(&gone), [address("0000:81:00.0")].into());
    }
}
