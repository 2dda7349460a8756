//! The PCI functions of a host, drawn under the NUMA node that they are attached to: equal ones
//! together, each with its owner.

use std::collections::BTreeMap;

use berth_domain::claim::Claim;
use berth_domain::pci::{PciAddress, PciKind};
use berth_domain::topology::{CellId, HostTopology};
use berth_process::terminal::escape;

use super::{WIDTH, wrap};
use crate::output::Lines;

/// Draws the functions that are attached to a NUMA node, or of unknown node.
pub(super) fn draw(
    out: &mut Lines,
    topology: &HostTopology,
    cell: Option<CellId>,
    claims: &[Claim],
    letters: &[String],
) {
    let mut owners: BTreeMap<PciAddress, &str> = BTreeMap::new();
    for (claim, letter) in claims.iter().zip(letters) {
        let given = claim.assignment.pci.iter().flatten();
        owners.extend(given.map(|address| (*address, letter.as_str())));
    }
    let mut groups: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for device in topology.pci().iter().filter(|d| d.cell == cell) {
        let group = (device.vendor, device.product, device.kind, &device.tags);
        let holder = owners.get(&device.address).unwrap_or(&"·");
        let drawn = format!("{}={holder}", device.address);
        groups.entry(group).or_default().push(drawn);
    }
    for ((vendor, product, kind, tags), drawn) in groups {
        let mut head = vec![format!("{vendor}:{product}"), word(kind).to_owned()];
        // A value may be long, and holds what its host's operator wrote.
        head.extend(
            tags.iter()
                .flat_map(|(key, value)| pieces(&format!("{key}={value}"))),
        );
        wrap(out, "    pci        ", &head, " ");
        wrap(out, "               ", &drawn, " ");
    }
}

/// Cuts a text that is too long for a line, as it is shown.
fn pieces(text: &str) -> Vec<String> {
    let shown: Vec<char> = escape(text).chars().collect();
    let pieces = shown.chunks(WIDTH - 15);
    pieces.map(|piece| piece.iter().collect()).collect()
}

/// Returns the word for a kind of function.
fn word(kind: PciKind) -> &'static str {
    match kind {
        PciKind::Pci => "PCI",
        PciKind::Virtual => "VF",
        PciKind::Physical => "PF",
    }
}
