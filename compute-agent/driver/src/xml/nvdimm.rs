//! Persistent memory of a guest: one nvdimm for each namespace, in the order of the flavor, and then
//! one for each volume that is to be seen so. The latter is a file on a file system that is mounted
//! with DAX: its pages are the memory itself, as those of a namespace are.

use std::borrow::Cow;

use berth_domain::vm::AttachedAs;
use quick_xml::Reader;
use quick_xml::events::Event;

use super::node::Node;
use super::read::{self, attribute};
use crate::domain::DomainSpec;

/// The label area at the end of each device, in which the guest keeps namespaces of its own.
const LABEL_KIB: u64 = 2048;

/// To what the memory of a file is aligned in the emulator's: a large page, so that one can map it.
const FILE_ALIGN_BYTES: u64 = 2 << 20;

/// Where a hypervisor put a device in the guest's memory, in its own words. The guest sees that, and
/// another hypervisor that takes the guest over would put it nowhere by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    slot: String,
    base: String,
}

/// Reads where the devices of a running guest are, in their order.
///
/// # Errors
///
/// When the XML is damaged.
pub fn places(xml: &str) -> Result<Vec<Place>, read::Error> {
    let mut reader = Reader::from_str(xml);
    let (mut places, mut is_device) = (Vec::new(), false);
    loop {
        match reader.read_event()? {
            Event::Start(element) | Event::Empty(element) => match element.local_name().as_ref() {
                b"memory" => is_device = attribute(&element, "model")?.as_deref() == Some("nvdimm"),
                b"address" if is_device => {
                    places.push(Place {
                        slot: attribute(&element, "slot")?.unwrap_or_default(),
                        base: attribute(&element, "base")?.unwrap_or_default(),
                    });
                }
                _ => {}
            },
            Event::End(element) if element.local_name().as_ref() == b"memory" => is_device = false,
            Event::Eof => return Ok(places),
            Event::End(_)
            | Event::Text(_)
            | Event::CData(_)
            | Event::Comment(_)
            | Event::Decl(_)
            | Event::PI(_)
            | Event::DocType(_)
            | Event::GeneralRef(_) => {}
        }
    }
}

/// Returns how much memory the guest has at most: as much as it has, with each device in a slot.
pub(super) fn max_memory(guest: &DomainSpec) -> Option<Node> {
    let slots = modules(guest).count();
    let most = Node::new("maxMemory").with("slots", slots);
    (slots > 0).then(|| most.with("unit", "KiB").text(all_kib(guest)))
}

/// Returns how much memory the guest has, its devices among it: a hypervisor that takes the guest
/// over subtracts them. One that starts it does not, and only looks at what its cells have.
pub(super) fn memory(name: &'static str, guest: &DomainSpec) -> Node {
    let node = Node::new(name);
    match modules(guest).next().is_none() {
        true => node.with("unit", "MiB").text(guest.spec.flavor.memory_mib),
        false => node.with("unit", "KiB").text(all_kib(guest)),
    }
}

fn all_kib(guest: &DomainSpec) -> u64 {
    let sizes = modules(guest).map(|module| kib(module.size_bytes));
    guest.spec.flavor.memory_mib * 1024 + sizes.sum::<u64>()
}

/// One nvdimm.
struct Module<'g> {
    path: Cow<'g, str>,
    align_bytes: u64,
    size_bytes: u64,
    read_only: bool,
}

fn modules(guest: &DomainSpec) -> impl Iterator<Item = Module<'_>> {
    let namespaces = guest.assignment.pmem.iter().map(|device| Module {
        path: Cow::Borrowed(&device.path),
        align_bytes: device.align_bytes,
        size_bytes: device.size_bytes,
        read_only: false,
    });
    let volumes = guest.volumes.iter();
    let volumes = volumes.filter(|v| v.attached_as == AttachedAs::Nvdimm);
    namespaces.chain(volumes.map(|volume| Module {
        path: volume.path.to_string_lossy(),
        align_bytes: FILE_ALIGN_BYTES,
        size_bytes: volume.size_bytes,
        read_only: volume.read_only,
    }))
}

/// Returns the devices, each at its address if it has one already. All of them are in the guest's first
/// cell.
pub(super) fn elements(guest: &DomainSpec, places: &[Place]) -> Vec<Node> {
    let cell = guest.assignment.cells.first();
    let cell = cell.map_or(0, |cell| cell.guest_cell);
    let size = |name, kib| Node::new(name).with("unit", "KiB").text(kib);
    let address = |place: &Place| {
        Node::new("address")
            .with("type", "dimm")
            .with("slot", &place.slot)
            .with("base", &place.base)
    };
    let devices = modules(guest).enumerate();
    let element = |(index, device): (usize, Module<'_>)| {
        let source = Node::new("source")
            .child(Node::new("path").text(&device.path))
            .child(size("alignsize", kib(device.align_bytes)))
            .child(Node::new("pmem"));
        let target = Node::new("target")
            .child(size("size", kib(device.size_bytes)))
            .child(Node::new("node").text(cell))
            .child(Node::new("label").child(size("size", LABEL_KIB)))
            .children(device.read_only.then(|| Node::new("readonly")));
        // The guest is only notified that it must not write. What one writes all the same goes into pages of
        // its own, never into the file.
        let access = match device.read_only {
            true => "private",
            false => "shared",
        };
        Node::new("memory")
            .with("model", "nvdimm")
            .with("access", access)
            .child(source)
            .child(target)
            .children(places.get(index).map(address))
    };
    devices.map(element).collect()
}

fn kib(bytes: u64) -> u64 {
    bytes / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_persistent_memory() {
        let xml = "<domain><memory unit='KiB'>327680</memory><devices><memory model='dimm'>\
                   <address type='dimm' slot='7' base='0x1'/></memory><memory model='nvdimm' \
                   access='shared'><target><node>0</node></target><address type='dimm' slot='0' \
                   base='0x100000000'/></memory><serial><address type='isa'/></serial>\
                   <memory model='nvdimm'><address type='dimm' slot='1' base='0x104000000'/>\
                   </memory></devices></domain>";
        let place = |slot: &str, base: &str| Place {
            slot: slot.to_owned(),
            base: base.to_owned(),
        };
        let expected = [place("0", "0x100000000"), place("1", "0x104000000")];
        assert_eq!(places(xml).unwrap(), expected);
        assert_eq!(places("<domain/>").unwrap(), []);
        assert!(places("<a></b>").is_err());
    }
}
