//! Reports of drawn hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::cpu_set::{CpuId, CpuSet};
use berth_domain::host::HostReport;
use berth_domain::id::Incarnation;
use berth_domain::name::PmemName;
use berth_domain::network::HostNetwork;
use berth_domain::pci::{PciDevice, PciId, PciKind};
use berth_domain::pmem::{Label, PmemNamespace};
use berth_domain::resource::Trait;
use berth_domain::topology::{CellId, HostCell, HostTopology, PagePool, SocketId};
use berth_domain::version::ServiceVersion;
use berth_testkit::state::host_network;
use uuid::Uuid;

use super::dice::Dice;

/// The run of every agent.
pub(super) const INCARNATION: Incarnation = Incarnation(Uuid::from_u128(1));
/// Memory of a NUMA node.
const CELL_MIB: u64 = 4096;

/// Returns what the agent of a drawn host reports.
pub(super) fn draw(dice: &mut Dice) -> HostReport {
    let cells = 1 + u32::try_from(dice.below(3)).unwrap();
    let threads = dice.pick(&[1, 1, 2]);
    let cores = 2 + u32::try_from(dice.below(3)).unwrap();
    let cells: Vec<HostCell> = (0..cells)
        .map(|id| cell(dice, id, cores, threads))
        .collect();
    let count = cells.len();
    let distance = |a, b| if a == b { 10 } else { 20 };
    let distances = (0..count).map(|a| (0..count).map(|b| distance(a, b)).collect());
    let topology = HostTopology::new(cells, distances.collect()).unwrap();
    let topology = topology.with_pci(functions(dice, count)).unwrap();
    let topology = topology.with_pmem(namespaces(dice, count)).unwrap();
    HostReport {
        networks: networks(&mut dice.aside()),
        agent_address: "http://127.0.0.1:1".into(),
        incarnation: INCARNATION,
        // Now and then an agent is too old for a move.
        service_version: match dice.chance(2) {
            true => ServiceVersion(1),
            false => ServiceVersion::CURRENT,
        },
        driver: "sim".into(),
        migration_uri: String::new(),
        topology: Arc::new(topology),
        memory_reserved_mib: 0,
        disk_gib: 100,
        storage_id: "s".into(),
        traits: traits(dice),
        platform: Default::default(),
        self_fence_ms: 0,
        regions: Vec::new(),
        cpu: None,
    }
}

/// Returns what every agent reports, and a trait of an operator's own on some.
fn traits(dice: &mut Dice) -> BTreeSet<Trait> {
    let fast = dice.chance(40).then_some("CUSTOM_FAST");
    let always = ["COMPUTE_NODE", "COMPUTE_SOCKET_PCI_NUMA_AFFINITY"];
    let all = always.into_iter().chain(fast);
    all.map(|text| Trait::new(text).unwrap()).collect()
}

/// Returns what most hosts reach; some do not, or not as it takes.
fn networks(dice: &mut Dice) -> Vec<HostNetwork> {
    let reached = host_network();
    match dice.below(8) {
        0 => Vec::new(),
        1 => vec![HostNetwork {
            can_tag: false,
            ..reached
        }],
        2 => vec![HostNetwork {
            mtu: 1400,
            ..reached
        }],
        _ => vec![reached],
    }
}

fn cell(dice: &mut Dice, id: u32, cores: u32, threads: u32) -> HostCell {
    let width = (cores + 1) * threads;
    let core = |number: u32| -> CpuSet {
        let first = id * width + number * threads;
        (first..first + threads).map(CpuId).collect()
    };
    let all: Vec<CpuSet> = (0..=cores).map(core).collect();
    let join = |cores: &[CpuSet]| cores.iter().fold(CpuSet::new(), |all, c| all.union(c));
    let huge_mib = dice.pick(&[0, 0, 512, 1024]);
    let pool = |size_kib: u64, mib: u64| PagePool {
        size_kib,
        total: mib * 1024 / size_kib,
        reserved: 0,
    };
    let pages = [pool(4, CELL_MIB - huge_mib), pool(2048, huge_mib)];
    HostCell {
        id: CellId(id),
        socket: Some(SocketId(id / 2)),
        shared: join(&all[..1]),
        dedicated: join(&all[1..]),
        cores: all,
        memory_mib: CELL_MIB,
        pages: pages.into_iter().filter(|pool| pool.total > 0).collect(),
    }
}

fn functions(dice: &mut Dice, cells: usize) -> Vec<PciDevice> {
    let count = dice.pick(&[0_u32, 0, 1, 2]);
    let function = |bus: u32| PciDevice {
        address: format!("0000:{:02x}:00.0", bus + 1).parse().unwrap(),
        vendor: PciId(0x8086),
        product: PciId(0x1572),
        cell: Some(CellId(u32::try_from(dice.below(cells as u64)).unwrap())),
        kind: PciKind::Pci,
        parent: None,
        tags: BTreeMap::new(),
    };
    (0..count).map(function).collect()
}

fn namespaces(dice: &mut Dice, cells: usize) -> Vec<PmemNamespace> {
    let count = dice.pick(&[0_u32, 0, 1, 2]);
    let namespace = |number: u32| PmemNamespace {
        name: PmemName::new(&format!("p{number}")).unwrap(),
        class: Label::parse("small").unwrap().class(),
        size_bytes: 1 << 30,
        align_bytes: 2 << 20,
        path: format!("/dev/dax0.{number}"),
        cell: Some(CellId(u32::try_from(dice.below(cells as u64)).unwrap())),
        region: "region0".to_owned(),
        trouble: String::new(),
    };
    (0..count).map(namespace).collect()
}
