//! PCI functions of the host as devices of a guest.

use berth_domain::numa::Assignment;
use berth_domain::pci::PciAddress;

use super::node::Node;

/// Returns an element for each assigned function, request by request.
pub(super) fn elements(given: &Assignment) -> impl Iterator<Item = Node> {
    given.pci.iter().flatten().copied().map(element)
}

/// With `managed` the hypervisor takes the function from its driver when the guest begins, and
/// gives it back when the guest ends.
fn element(address: PciAddress) -> Node {
    let place = Node::new("address")
        .with("domain", format!("0x{:04x}", address.domain()))
        .with("bus", format!("0x{:02x}", address.bus()))
        .with("slot", format!("0x{:02x}", address.slot()))
        .with("function", format!("0x{:x}", address.function()));
    Node::new("hostdev")
        .with("mode", "subsystem")
        .with("type", "pci")
        .with("managed", "yes")
        .child(Node::new("source").child(place))
}
