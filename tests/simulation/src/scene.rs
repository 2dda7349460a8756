//! What a simulated cluster consists of: small hosts, and flavors of which they run out.

use std::collections::BTreeMap;

use berth_domain::cpu_set::{CpuId, CpuSet};
use berth_domain::flavor::Flavor;
use berth_domain::name::{FlavorName, PciAliasName, PmemName};
use berth_domain::ownership::Ownership;
use berth_domain::pci::{LIVE_MIGRATABLE, PciAlias, PciDevice, PciId, PciKind, PciMatch};
use berth_domain::pmem::{Label, PmemNamespace};
use berth_domain::topology::{CellId, HostCell, HostTopology, PagePool, SocketId};

use crate::chance::Chance;

/// Returns small flavors that hosts run out of.
#[must_use]
pub fn flavors() -> Vec<Flavor> {
    let flavor = |name: &str, vcpus, specs: &[(&str, &str)]| Flavor {
        name: FlavorName::new(name).expect("a good name"),
        vcpus,
        memory_mib: 256 * u64::from(vcpus),
        disk_gib: 1,
        extra_specs: specs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect(),
        ownership: Ownership::default(),
    };
    let dedicated = ("hw:cpu_policy", "dedicated");
    let card = ("pci_passthrough:alias", "card:1");
    let near = ("hw:pci_numa_affinity_policy", "required");
    vec![
        flavor("one", 1, &[dedicated]),
        flavor("two", 2, &[dedicated]),
        flavor("wide", 2, &[dedicated, ("hw:numa_nodes", "2")]),
        flavor("plain", 1, &[]),
        flavor("card", 1, &[card]),
        flavor("near", 1, &[dedicated, card, near]),
        flavor("pmem", 1, &[("hw:pmem", "SMALL")]),
        flavor("both", 1, &[dedicated, ("hw:pmem", "LARGE,SMALL")]),
    ]
}

/// Returns the alias of the functions that every host has.
#[must_use]
pub fn alias() -> PciAlias {
    PciAlias {
        name: PciAliasName::new("card").expect("a good name"),
        any_of: vec![PciMatch {
            vendor: Some(PciId(0x8086)),
            tags: movable(),
            ..PciMatch::default()
        }],
        policy: None,
    }
}

fn movable() -> BTreeMap<String, String> {
    [(LIVE_MIGRATABLE.to_owned(), "yes".to_owned())].into()
}

/// Returns two functions, fewer than guests wish for.
fn functions() -> Vec<PciDevice> {
    let function = |number: u32| PciDevice {
        address: format!("0000:81:00.{number}").parse().expect("an address"),
        vendor: PciId(0x8086),
        product: PciId(0x154c),
        cell: Some(CellId(0)),
        kind: PciKind::Pci,
        parent: None,
        tags: movable(),
    };
    (0..2).map(function).collect()
}

/// Returns a host with enough persistent memory that no guest has to wait for an erasure.
#[must_use]
pub fn with_plenty_of_pmem(topology: HostTopology) -> HostTopology {
    let all = (0..16).map(|number| namespace((number, "SMALL")));
    let with = topology.with_pmem(all.collect());
    with.expect("the namespaces are in order")
}

/// Returns three namespaces of persistent memory, fewer than guests wish for.
fn namespaces() -> Vec<PmemNamespace> {
    let all = [(0, "SMALL"), (1, "SMALL"), (2, "LARGE")];
    all.into_iter().map(namespace).collect()
}

fn namespace((number, label): (u32, &str)) -> PmemNamespace {
    PmemNamespace {
        name: PmemName::new(&format!("ns{number}")).expect("a good name"),
        class: Label::parse(label).expect("a good label").class(),
        size_bytes: 1 << 30,
        align_bytes: 2 << 20,
        path: format!("/dev/dax0.{number}"),
        cell: Some(CellId(0)),
        region: String::new(),
        trouble: String::new(),
    }
}

/// Returns a small host of one or two cells.
#[must_use]
pub fn topology(chance: &mut Chance) -> HostTopology {
    let cells = u32::try_from(chance.between(1, 2)).expect("a small number");
    let width = u32::try_from(chance.between(3, 5)).expect("a small number");
    let cell = |id: u32| {
        let cpus: Vec<CpuId> = (id * width..(id + 1) * width).map(CpuId).collect();
        HostCell {
            id: CellId(id),
            socket: Some(SocketId(id)),
            shared: cpus[..1].iter().copied().collect(),
            dedicated: cpus[1..].iter().copied().collect(),
            cores: cpus
                .iter()
                .map(|c| [*c].into_iter().collect::<CpuSet>())
                .collect(),
            memory_mib: 4096,
            pages: vec![PagePool {
                size_kib: 4,
                total: 1_048_576,
                reserved: 0,
            }],
        }
    };
    let distance = |a: u32, b: u32| if a == b { 10 } else { 20 };
    let distances = (0..cells)
        .map(|a| (0..cells).map(|b| distance(a, b)).collect())
        .collect();
    HostTopology::new((0..cells).map(cell).collect(), distances)
        .and_then(|topology| topology.with_pci(functions()))
        .and_then(|topology| topology.with_pmem(namespaces()))
        .expect("the cells and functions are in order")
}
