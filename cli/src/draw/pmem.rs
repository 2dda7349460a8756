//! The persistent memory of a host, drawn under the cell that it is attached to: namespaces of one
//! label together, each with who has it or how far erasing it is; and why some are of no use.

use std::collections::BTreeMap;

use berth_domain::claim::Claim;
use berth_domain::name::PmemName;
use berth_domain::pmem::{CLASS_PREFIX, PmemNamespace};
use berth_domain::topology::{CellId, HostTopology};

use super::{WIDTH, wrap};

/// Draws the namespaces that are attached to a cell, or whose cell is not known.
pub(super) fn draw(
    out: &mut String,
    topology: &HostTopology,
    cell: Option<CellId>,
    claims: &[Claim],
    letters: &BTreeMap<usize, String>,
) {
    let mut whose: BTreeMap<&PmemName, String> = BTreeMap::new();
    for (claim, letter) in claims.iter().zip(letters.values()) {
        for device in &claim.assignment.pmem {
            let holder = match claim.erasures.contains_key(&device.name) {
                true => erasure(claim, &device.name, device.size_bytes),
                false => letter.clone(),
            };
            whose.insert(&device.name, holder);
        }
    }
    let mut groups: BTreeMap<(&str, u64), Vec<String>> = BTreeMap::new();
    let mut troubles = Vec::new();
    for namespace in topology.pmem().iter().filter(|n| n.cell == cell) {
        let PmemNamespace {
            name,
            class,
            trouble,
            ..
        } = namespace;
        let holder = whose.get(name).map_or("·", String::as_str);
        let mark = if trouble.is_empty() { "" } else { "!" };
        let label = class.as_str();
        let label = label.strip_prefix(CLASS_PREFIX).unwrap_or(label);
        let group = (label, namespace.size_bytes);
        let drawn = format!("{name}={holder}{mark}");
        groups.entry(group).or_default().push(drawn);
        if !trouble.is_empty() {
            troubles.push(format!("{name}: {trouble}"));
        }
    }
    for ((label, size_bytes), drawn) in groups {
        let head = match size_bytes {
            0 => vec![label.to_owned()],
            _ => vec![label.to_owned(), size(size_bytes)],
        };
        wrap(out, "    pmem       ", &head, "  ");
        wrap(out, "               ", &drawn, " ");
    }
    for trouble in troubles {
        wrap(out, "      !        ", &pieces(&trouble), " ");
    }
}

/// Returns how far erasing a namespace is, for people.
pub(super) fn erasure(claim: &Claim, name: &PmemName, size_bytes: u64) -> String {
    let Some(erasure) = claim.erasures.get(name) else {
        return String::new();
    };
    if erasure.is_quarantined() {
        return "quarantined".to_owned();
    }
    let percent = u128::from(erasure.erased_bytes) * 100 / u128::from(size_bytes.max(1));
    match erasure.failures {
        0 => format!("erasing-{percent}%"),
        failures => format!("erasing-{percent}%-failed-{failures}x"),
    }
}

/// Returns a size as people say it; namespaces are as large as their metadata leaves room for.
fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 10 << 30 => format!("{} GiB", b >> 30),
        b => format!("{} MiB", b >> 20),
    }
}

/// Cuts a text into pieces that fit into a line.
fn pieces(text: &str) -> Vec<String> {
    let shown: Vec<char> = text.escape_debug().collect();
    let shown: String = shown.into_iter().collect();
    let words = shown.split(' ');
    words
        .flat_map(|word| {
            let word: Vec<char> = word.chars().collect();
            let pieces = word.chunks(WIDTH - 15);
            pieces
                .map(|p| p.iter().collect::<String>())
                .collect::<Vec<_>>()
        })
        .collect()
}
