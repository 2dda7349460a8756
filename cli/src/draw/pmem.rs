//! The persistent memory of a host, drawn under the NUMA node that it is attached to: namespaces of
//! one label together, each with its owner or the progress of its erasure; and why some are unusable.

use std::collections::BTreeMap;

use berth_domain::claim::Claim;
use berth_domain::name::PmemName;
use berth_domain::pmem::{CLASS_PREFIX, PmemDevice, PmemNamespace};
use berth_domain::topology::{CellId, HostTopology};
use berth_process::terminal::escape;

use super::{WIDTH, wrap};
use crate::output::Lines;

/// Draws the namespaces that are attached to a NUMA node, or of unknown node.
pub(super) fn draw(
    out: &mut Lines,
    topology: &HostTopology,
    cell: Option<CellId>,
    claims: &[Claim],
    letters: &[String],
) {
    let mut owners: BTreeMap<&PmemName, String> = BTreeMap::new();
    for (claim, letter) in claims.iter().zip(letters) {
        for device in &claim.assignment.pmem {
            let holder = match claim.erasures.contains_key(&device.name) {
                true => erasure(claim, &device.name, device.size_bytes),
                false => letter.clone(),
            };
            owners.insert(&device.name, holder);
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
        let holder = owners.get(name).map_or("·", String::as_str);
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

/// Returns a device of a guest, for people.
pub(super) fn device(device: &PmemDevice) -> String {
    let label = device.class.as_str();
    let label = label.strip_prefix(CLASS_PREFIX).unwrap_or(label);
    format!("{}={label}({})", device.name, size(device.size_bytes))
}

/// Returns how far erasing a namespace is, for people.
pub(super) fn erasure(claim: &Claim, name: &PmemName, size_bytes: u64) -> String {
    let Some(erasure) = claim.erasures.get(name) else {
        return String::new();
    };
    if erasure.written_off {
        return "written-off".to_owned();
    }
    if erasure.is_quarantined() {
        return "quarantined".to_owned();
    }
    let percent = u128::from(erasure.erased_bytes) * 100 / u128::from(size_bytes.max(1));
    match erasure.failures {
        0 => format!("erasing-{percent}%"),
        failures => format!("erasing-{percent}%-failed-{failures}x"),
    }
}

/// Returns a size in MiB or GiB; metadata makes namespaces slightly smaller than round numbers.
fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 10 << 30 => format!("{} GiB", b >> 30),
        b => format!("{} MiB", b >> 20),
    }
}

/// Cuts a text into pieces that fit into a line.
fn pieces(text: &str) -> Vec<String> {
    let shown = escape(text);
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

#[cfg(test)]
mod tests {
    use berth_domain::claim::{self, Erasure};
    use berth_domain::host::HostReport;
    use berth_domain::id::{ClaimId, TimeMs};
    use berth_domain::name::{HostName, VmName};
    use berth_domain::numa::Assignment;
    use berth_domain::pmem::Label;

    use super::*;

    fn namespace(name: &str, label: &str, gib: u64, trouble: &str) -> PmemNamespace {
        PmemNamespace {
            name: PmemName::new(name).unwrap(),
            class: Label::parse(label).unwrap().class(),
            size_bytes: gib << 30,
            align_bytes: 2 << 20,
            path: format!("/dev/{name}"),
            cell: Some(CellId(0)),
            region: "region0".to_owned(),
            trouble: trouble.to_owned(),
        }
    }

    fn claim(vm: &str, names: &[&PmemNamespace], erasure: Option<Erasure>) -> Claim {
        let erasures = names
            .iter()
            .filter_map(|n| Some((n.name.clone(), erasure.clone()?)));
        Claim {
            id: ClaimId(Default::default()),
            vm: VmName::new(vm).unwrap(),
            owner: claim::Owner::Vm,
            host: HostName::new("h1").unwrap(),
            state: match erasure {
                Some(_) => claim::State::Releasing,
                None => claim::State::Active,
            },
            resources: Default::default(),
            assignment: Assignment {
                pmem: names.iter().map(|n| (*n).into()).collect(),
                ..Assignment::default()
            },
            erasures: erasures.collect(),
            cpu: None,
        }
    }

    /// Goal: a person sees the owner of each namespace, how far erasing is, and what is unusable. Method:
    /// the lines about namespaces, and about claims that were given back.
    #[test]
    fn namespaces_are_drawn_under_their_cell() {
        let all = [
            namespace("ns0", "LARGE", 128, ""),
            namespace("ns1", "LARGE", 128, ""),
            namespace("ns2", "LARGE", 128, ""),
            namespace("ns3", "SMALL", 16, ""),
            namespace("ns4", "SMALL", 0, "this host has no namespace of that name"),
        ];
        let erasure = |failures, failure: &str| Erasure {
            since: TimeMs(0),
            failures,
            failure: failure.to_owned(),
            erased_bytes: 32 << 30,
            written_off: false,
        };
        let failed = "daxio ended with status 1";
        let claims = [
            claim("db", &[&all[0]], None),
            claim("gone", &[&all[1]], Some(erasure(0, ""))),
            claim("bad", &[&all[3]], Some(erasure(3, failed))),
        ];
        let report: HostReport = super::super::tests::report();
        let topology = (*report.topology).clone().with_pmem(all.to_vec()).unwrap();
        let report = HostReport {
            topology: topology.into(),
            ..report
        };
        let drawn = super::super::host(
            &HostName::new("h1").unwrap(),
            &report,
            &claims,
            &Default::default(),
        )
        .to_string();
        let is_relevant = |line: &&str| {
            let words = ["pmem", "ns", "erasing", "quarantined", "this host"];
            words.iter().any(|word| line.contains(word))
        };
        let lines: Vec<&str> = drawn
            .lines()
            .filter(is_relevant)
            .map(str::trim_end)
            .collect();
        let expected = [
            "    pmem       LARGE  128 GiB",
            "               ns0=A ns1=erasing-25% ns2=·",
            "    pmem       SMALL",
            "               ns4=·!",
            "    pmem       SMALL  16 GiB",
            "               ns3=quarantined",
            "      !        ns4: this host has no namespace of that name",
            "  B = gone (RELEASING, ns1 erasing-25%)",
            "  C = bad (RELEASING, ns3 quarantined: daxio ended with status 1)",
        ];
        assert_eq!(lines, expected, "{drawn}");
    }
}
