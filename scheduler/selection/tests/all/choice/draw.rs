//! Random hosts, guests and policies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::aggregate::HostAggregates;
use berth_domain::constraint::{Demand, Leaving, MoveKind};
use berth_domain::cpu_set::{CpuId, CpuSet};
use berth_domain::flavor::Flavor;
use berth_domain::host::Liveness;
use berth_domain::host_view::HostView;
use berth_domain::image::ImageProperties;
use berth_domain::name::{FlavorName, HostName, ServerGroupName, ZoneName};
use berth_domain::numa::Strategy;
use berth_domain::ownership::Ownership;
use berth_domain::pci::{
    PciAddress, PciAliases, PciDevice, PciId, PciKind, PciMatch, PciNumaPolicy, PciRequest,
};
use berth_domain::platform::PlatformDemand;
use berth_domain::policy::{SchedulingPolicy, Weights};
use berth_domain::server_group::{GroupDemand, GroupPolicy};
use berth_domain::topology::{CellId, HostCell, HostTopology, PagePool, SocketId};
use berth_domain::version::ServiceVersion;
use berth_selection::Request;
use berth_testkit::selection::hosts::{host, name};
use uuid::Uuid;

/// What is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mix {
    /// Hosts of a few cells, now and then of many.
    Usual,
    /// Hosts and guests of many cells.
    ManyCells,
}

/// A small generator of numbers (SplitMix64): a seed has the same case everywhere.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    fn small(&mut self, end: u32) -> u32 {
        u32::try_from(self.below(end.into())).unwrap()
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).unwrap()].clone()
    }

    pub(crate) fn shuffle<T>(&mut self, mut all: Vec<T>) -> Vec<T> {
        for at in (1..all.len()).rev() {
            all.swap(at, usize::try_from(self.below(at as u64 + 1)).unwrap());
        }
        all
    }
}

/// Returns hosts of a few shapes, some of them closed.
pub(crate) fn hosts(dice: &mut Dice, mix: Mix) -> BTreeMap<HostName, Arc<HostView>> {
    let shapes = 1 + dice.below(3);
    let shapes: Vec<_> = (0..shapes).map(|_| Arc::new(shape(dice, mix))).collect();
    let mut view = |number| {
        let mut host = host(&format!("h{number}"), &dice.pick(&shapes));
        host.cordoned = dice.chance(6);
        if dice.chance(6) {
            host.liveness = Liveness::Down;
        }
        host.report.disk_gib = dice.pick(&[0, 50, 10_000, 10_000, u64::from(u32::MAX) + 5]);
        let mut view = HostView::new(Arc::new(host), []);
        if dice.chance(40) {
            let values = BTreeSet::from([dice.pick(&["a", "b"]).to_owned()]);
            view.set_aggregates(Arc::new(HostAggregates {
                zone: Some(zone(dice)),
                metadata: [("k".to_owned(), values)].into(),
            }));
        }
        (view.host.name.clone(), Arc::new(view))
    };
    (0..8).map(&mut view).collect()
}

fn zone(dice: &mut Dice) -> ZoneName {
    ZoneName::new(dice.pick(&["z1", "z2"])).unwrap()
}

/// Page sizes of several architectures.
const SIZES: &[&[u64]] = &[
    &[],
    &[4],
    &[4, 2048],
    &[4, 2048, 1_048_576],
    &[64, 2048, 524_288, 16_777_216],
    &[16, 32_768],
    &[2048, 1_048_576],
    &[4, 1_048_576],
];

fn shape(dice: &mut Dice, mix: Mix) -> HostTopology {
    let cells = match mix {
        Mix::Usual if dice.chance(96) => 1 + dice.small(4),
        Mix::Usual | Mix::ManyCells => dice.pick(&[16, 17, 20]),
    };
    let threads = dice.pick(&[1, 2, 2, 4]);
    let sizes = dice.pick(SIZES);
    let is_for_both = dice.chance(15);
    let mut next = 0;
    let cells: Vec<HostCell> = (0..cells)
        .map(|id| cell(dice, id, threads, sizes, is_for_both, &mut next))
        .collect();
    let distance = |a, b| if a == b { 10 } else { 20 };
    let row = |a| (0..cells.len()).map(|b| distance(a, b)).collect();
    let distances = (0..cells.len()).map(row).collect();
    let ends = u32::try_from(cells.len()).unwrap() + 1;
    let devices = if dice.chance(60) {
        devices(dice, ends)
    } else {
        Vec::new()
    };
    let topology = HostTopology::new(cells, distances).unwrap();
    topology.with_pci(devices).unwrap()
}

fn cell(
    dice: &mut Dice,
    id: u32,
    threads: u32,
    sizes: &[u64],
    is_for_both: bool,
    next: &mut u32,
) -> HostCell {
    let cores = 1 + dice.below(4);
    let cores: Vec<CpuSet> = (0..cores)
        .map(|_| {
            let first = *next;
            *next += threads;
            (first..*next).map(CpuId).collect()
        })
        .collect();
    let join = |cores: &[CpuSet]| cores.iter().fold(CpuSet::new(), |all, c| all.union(c));
    let cut = usize::try_from(dice.below(cores.len() as u64 + 1)).unwrap();
    let (shared, dedicated) = if is_for_both {
        (join(&cores), join(&cores))
    } else {
        (join(&cores[..cut]), join(&cores[cut..]))
    };
    let pool = |size_kib: &u64| PagePool {
        size_kib: *size_kib,
        total: (dice.pick(&[1, 2, 4, 8, 5000]) * 1024 * 1024 / size_kib).max(1),
        reserved: 0,
    };
    let pages: Vec<PagePool> = sizes.iter().map(pool).collect();
    let memory_kib: u64 = pages.iter().map(|p| p.total * p.size_kib).sum();
    HostCell {
        id: CellId(id * 2),
        socket: Some(SocketId(id / 2)),
        shared,
        dedicated,
        cores,
        memory_mib: if pages.is_empty() {
            4096
        } else {
            memory_kib / 1024
        },
        pages,
    }
}

fn devices(dice: &mut Dice, ends: u32) -> Vec<PciDevice> {
    let mut all = Vec::new();
    for bus in 1..2 + dice.small(4) {
        let address = |function: u32| -> PciAddress {
            format!("0000:{bus:02x}:00.{function}").parse().unwrap()
        };
        let is_shared = dice.chance(50);
        let cell = dice.chance(85).then(|| CellId(dice.small(ends) * 2));
        for function in 0..1 + dice.small(4) {
            let kind = match (is_shared, function) {
                (false, _) => PciKind::Pci,
                (true, 0) => PciKind::Physical,
                (true, _) => PciKind::Virtual,
            };
            all.push(PciDevice {
                address: address(function),
                vendor: PciId(dice.pick(&[1, 2])),
                product: PciId(dice.pick(&[1, 1, 2])),
                cell,
                kind,
                parent: (kind == PciKind::Virtual).then(|| address(0)),
                tags: BTreeMap::new(),
            });
        }
    }
    all
}

/// Returns what a guest asks, that some flavor can say.
pub(crate) fn request(dice: &mut Dice, mix: Mix) -> Request {
    let demand = loop {
        if let Some(demand) = demand(dice, mix) {
            break demand;
        }
    };
    let strategy = |dice: &mut Dice| dice.pick(&[Strategy::Spread, Strategy::Pack]);
    let weight = |dice: &mut Dice| dice.pick(&[0, 1, 100, 1000]);
    let host = name(&format!("h{}", dice.below(8)));
    Request {
        demand,
        requested: None,
        excluded: if dice.chance(10) {
            vec![host]
        } else {
            Vec::new()
        },
        seed: Uuid::from_u128(dice.below(1 << 30).into()),
        policy: SchedulingPolicy {
            hosts: strategy(dice),
            cells: strategy(dice),
            weights: Weights {
                load: weight(dice),
                numa: weight(dice),
                pci: weight(dice),
                fragmentation: weight(dice),
                soft_affinity: weight(dice),
            },
            ..SchedulingPolicy::default()
        },
    }
}

fn demand(dice: &mut Dice, mix: Mix) -> Option<Demand> {
    let is_wide = mix == Mix::ManyCells || dice.chance(3);
    let vcpus = 1 + dice.small(6) + if is_wide { 15 } else { 0 };
    let flavor = Flavor {
        name: FlavorName::new("f").unwrap(),
        vcpus,
        memory_mib: 64 * (1 + dice.below(64)) * u64::from(dice.pick(&[1, 1, vcpus])),
        disk_gib: dice.pick(&[0, 0, 1, 100]),
        extra_specs: specs(dice, vcpus, is_wide),
        ownership: Ownership::default(),
    };
    let requirements = flavor.requirements(&ImageProperties::default(), &PciAliases::new());
    let requirements = requirements.ok()?;
    let host = |dice: &mut Dice| name(&format!("h{}", dice.below(9)));
    let pci = if dice.chance(35) {
        (0..1 + dice.below(2)).map(|_| functions(dice)).collect()
    } else {
        Vec::new()
    };
    Some(Demand {
        networks: Vec::new(),
        resources: requirements.resources,
        topology: requirements.topology,
        pci,
        pmem: requirements.pmem,
        required: requirements.required_traits,
        forbidden: requirements.forbidden_traits,
        group: dice.chance(30).then(|| GroupDemand {
            name: ServerGroupName::new("g").unwrap(),
            policy: dice.pick(&GroupPolicy::ALL),
            limit: 1 + dice.small(2),
            hosts: (0..dice.below(4))
                .map(|_| (host(dice), 1 + dice.small(3)))
                .collect(),
            is_separated: dice.chance(30),
        }),
        volumes: Vec::new(),
        zone: dice.chance(10).then(|| zone(dice)),
        leaving: dice.chance(8).then(|| Leaving {
            kind: match dice.small(3) {
                0 => MoveKind::Live,
                1 => MoveKind::Cold { may_stay: false },
                _ => MoveKind::Cold { may_stay: true },
            },
            host: host(dice),
            version: ServiceVersion::CURRENT,
            driver: dice.pick(&["sim", "sim", "x"]).to_owned(),
            storage_id: dice.pick(&["s", "t"]).to_owned(),
            has_disks: dice.chance(50),
            can_be_read: dice.chance(50),
        }),
        aggregate_specs: if dice.chance(10) {
            let values = BTreeSet::from([dice.pick(&["a", "b"]).to_owned()]);
            [("k".to_owned(), values)].into()
        } else {
            BTreeMap::new()
        },
        platform: PlatformDemand::default(),
        has_seed: false,
        cpu: berth_domain::cpu_model::CpuDemand::HostDefault,
    })
}

fn specs(dice: &mut Dice, vcpus: u32, is_wide: bool) -> BTreeMap<String, String> {
    let mut specs = BTreeMap::new();
    let mut say = |key: &str, value: &str| specs.insert(format!("hw:{key}"), value.to_owned());
    match dice.below(7) {
        0..=2 => drop(say("cpu_policy", "dedicated")),
        3 => {
            say("cpu_policy", "mixed");
            say("cpu_dedicated_mask", "0");
        }
        _ => {}
    }
    if is_wide {
        say("numa_nodes", &vcpus.to_string());
    } else if dice.chance(45) {
        say("numa_nodes", dice.pick(&["1", "2", "3"]));
    }
    if dice.chance(35) {
        let policies = ["prefer", "isolate", "require"];
        say("cpu_thread_policy", dice.pick(&policies));
    }
    if dice.chance(25) {
        say("emulator_threads_policy", dice.pick(&["isolate", "share"]));
    }
    if dice.chance(if is_wide { 15 } else { 55 }) {
        let sizes = [
            "small", "large", "any", "2MB", "1GB", "64KB", "16KB", "32MB",
        ];
        say("mem_page_size", dice.pick(&sizes));
    }
    specs
}

fn functions(dice: &mut Dice) -> PciRequest {
    let one = |dice: &mut Dice| PciMatch {
        vendor: dice.chance(60).then(|| PciId(dice.pick(&[1, 2]))),
        product: dice.chance(40).then(|| PciId(dice.pick(&[1, 2]))),
        kind: dice
            .chance(50)
            .then(|| dice.pick(&[PciKind::Pci, PciKind::Virtual, PciKind::Physical])),
        tags: BTreeMap::new(),
    };
    use PciNumaPolicy::{Legacy, Preferred, Required, Socket};
    PciRequest {
        count: 1 + dice.small(3),
        any_of: (0..1 + dice.below(2)).map(|_| one(dice)).collect(),
        policy: dice.pick(&[Required, Preferred, Legacy, Socket]),
    }
}
