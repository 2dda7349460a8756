//! Persistent memory of a guest: one nvdimm for each namespace, in the order of the flavor.

use super::node::Node;
use crate::domain::DomainSpec;

/// The label area at the end of each device, in which the guest keeps namespaces of its own.
const LABEL_KIB: u64 = 2048;

/// Returns how much memory the guest has at most: its own and all devices, each in a slot.
pub(super) fn max_memory(guest: &DomainSpec) -> Option<Node> {
    let devices = &guest.assignment.pmem;
    if devices.is_empty() {
        return None;
    }
    let sizes = devices.iter().map(|device| kib(device.size_bytes));
    let most_kib = guest.spec.flavor.memory_mib * 1024 + sizes.sum::<u64>();
    let most = Node::new("maxMemory").with("slots", devices.len());
    Some(most.with("unit", "KiB").text(most_kib))
}

/// Returns the devices. All of them are in the guest's first cell.
pub(super) fn elements(guest: &DomainSpec) -> Vec<Node> {
    let cell = guest.assignment.cells.first();
    let cell = cell.map_or(0, |cell| cell.guest_cell);
    let size = |name, kib| Node::new(name).with("unit", "KiB").text(kib);
    let devices = guest.assignment.pmem.iter();
    let element = |device: &berth_domain::pmem::PmemDevice| {
        let source = Node::new("source")
            .child(Node::new("path").text(&device.path))
            .child(size("alignsize", kib(device.align_bytes)))
            .child(Node::new("pmem"));
        let target = Node::new("target")
            .child(size("size", kib(device.size_bytes)))
            .child(Node::new("node").text(cell))
            .child(Node::new("label").child(size("size", LABEL_KIB)));
        Node::new("memory")
            .with("model", "nvdimm")
            .with("access", "shared")
            .child(source)
            .child(target)
    };
    devices.map(element).collect()
}

fn kib(bytes: u64) -> u64 {
    bytes / 1024
}
