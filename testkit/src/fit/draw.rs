//! Random hosts and guests from a seed.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::cpu_set::{CpuId, CpuSet};
use berth_domain::instance::{
    CpuPolicy, EmulatorThreads, InstanceCell, InstanceTopology, PageSize, ThreadPolicy, VcpuId,
};
use berth_domain::numa::{Assignment, CellUsage, HostUsage, Limits, ThreadRules};
use berth_domain::overcommit::AllocationRatio;
use berth_domain::pci::{PciDevice, PciId, PciKind, PciMatch, PciNumaPolicy, PciRequest};
use berth_domain::topology::{CellId, HostCell, HostTopology, PagePool, SocketId};

/// How large the hosts and guests are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Up to 4 host cells.
    Small,
    /// 16 host cells, of few CPUs each.
    Wide,
}

/// A host and a guest.
#[derive(Clone, Debug)]
pub struct Case {
    /// The host.
    pub topology: HostTopology,
    /// What other guests use of it.
    pub usage: HostUsage,
    /// How far it is over-committed.
    pub limits: Limits,
    /// The topology that the guest requests.
    pub demand: InstanceTopology,
    /// The PCI functions that it requests.
    pub pci: Vec<PciRequest>,
}

/// A small generator of numbers (SplitMix64): a seed has the same case everywhere.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number, at least `min` and at most `max`.
    fn number(&mut self, min: u64, max: u64) -> u64 {
        min + self.next() % (max - min + 1)
    }

    fn small(&mut self, min: u32, max: u32) -> u32 {
        u32::try_from(self.number(min.into(), max.into())).unwrap()
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.number(0, 99) < percent
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        let at = self.number(0, of.len() as u64 - 1);
        of[usize::try_from(at).unwrap()].clone()
    }
}

/// Returns the case of a seed.
pub fn case(seed: u64, size: Size) -> Case {
    let mut dice = Dice(seed);
    let cells = match size {
        Size::Small => dice.number(1, 4),
        Size::Wide => 16,
    };
    let (topology, mut usage) = host(&mut dice, usize::try_from(cells).unwrap(), size);
    let has_pci = dice.chance(60);
    let devices = if has_pci {
        devices(&mut dice, cells)
    } else {
        Vec::new()
    };
    for device in &devices {
        let is_taken = dice.chance(8);
        // Nobody has both sides of a pair.
        let clashes = |d: &&PciDevice| {
            let is_pair = d.parent == Some(device.address) || device.parent == Some(d.address);
            is_pair && usage.pci.contains(&d.address)
        };
        if is_taken && !devices.iter().any(|d| clashes(&d)) {
            usage.pci.insert(device.address);
        }
    }
    let topology = topology.with_pci(devices).unwrap();
    let ratio = |dice: &mut Dice| {
        let milli = dice.pick(&[None, Some(1000), Some(1500), Some(2000), Some(16_000)]);
        milli.map(AllocationRatio::from_milli)
    };
    let limits = Limits {
        cpu_ratio: ratio(&mut dice),
        ram_ratio: ratio(&mut dice),
        exact_memory: false,
        threads: ThreadRules::Nova,
    };
    let demand = guest(&mut dice, size);
    let pci = if has_pci {
        requests(&mut dice)
    } else {
        Vec::new()
    };
    Case {
        topology,
        usage,
        limits,
        demand,
        pci,
    }
}

fn host(dice: &mut Dice, cells: usize, size: Size) -> (HostTopology, HostUsage) {
    let threads = dice.pick(&[1, 1, 2, 2, 2, 4, 8]);
    let layout = dice.pick(&[Layout::Legacy, Layout::Legacy, Layout::Split, Layout::Mixed]);
    let sockets = dice.pick(&[1, 2, 2, 4, 0]);
    let busy = dice.pick(&[0, 0, 10, 30]);
    let mut first = 0;
    let (mut shapes, mut used) = (Vec::new(), Vec::new());
    for id in 0..u32::try_from(cells).unwrap() {
        let cpus_max = if size == Size::Wide { 4 } else { 8 };
        let mut cores: Vec<CpuSet> = Vec::new();
        let end = first + dice.small(1, cpus_max);
        while first < end {
            let asymmetric = dice.chance(15);
            let count = if asymmetric {
                dice.small(1, threads)
            } else {
                threads
            };
            let last = (first + count).min(end);
            cores.push((first..last).map(CpuId).collect());
            first = last;
        }
        let (shared, dedicated) = split(dice, &cores, layout);
        let pinned = dedicated.iter().filter(|_| dice.chance(busy)).collect();
        let (pages, used_pages) = pages(dice);
        shapes.push(HostCell {
            id: CellId(id * 2),
            socket: (sockets > 0 || dice.chance(80)).then(|| SocketId(id % sockets.max(1))),
            shared,
            dedicated,
            cores,
            memory_mib: dice.number(2, 8) * 1024,
            pages,
        });
        used.push(CellUsage {
            pinned,
            shared_vcpus: dice.small(0, 4),
            memory_mib: dice.number(0, 2) * 512,
            pages: used_pages,
            locked_mib: 0,
        });
    }
    let distances = vec![vec![10; cells]; cells];
    let usage = HostUsage {
        cells: used,
        pci: BTreeSet::new(),
        pmem: BTreeSet::new(),
    };
    (HostTopology::new(shapes, distances).unwrap(), usage)
}

/// Which CPUs are shared, and which dedicated.
#[derive(Clone, Copy, Debug)]
enum Layout {
    /// All are both.
    Legacy,
    /// By cores.
    Split,
    /// By threads.
    Mixed,
}

fn split(dice: &mut Dice, cores: &[CpuSet], layout: Layout) -> (CpuSet, CpuSet) {
    let all: CpuSet = cores.iter().flat_map(CpuSet::iter).collect();
    let shared: CpuSet = match layout {
        Layout::Legacy => return (all.clone(), all),
        Layout::Split => {
            let some = cores.iter().filter(|_| dice.chance(30));
            some.flat_map(CpuSet::iter).collect()
        }
        Layout::Mixed => all.iter().filter(|_| dice.chance(30)).collect(),
    };
    let dedicated = all.difference(&shared);
    (shared, dedicated)
}

fn pages(dice: &mut Dice) -> (Vec<PagePool>, BTreeMap<u64, u64>) {
    let (mut pools, mut used) = (Vec::new(), BTreeMap::new());
    if dice.chance(10) {
        return (pools, used);
    }
    for (size_kib, per_gib, percent) in [(4, 262_144, 100), (2048, 512, 70), (1_048_576, 1, 60)] {
        if dice.chance(percent) {
            let total = dice.number(1, 5) * per_gib;
            let reserved = dice.pick(&[0, 0, 0, 1]);
            pools.push(PagePool {
                size_kib,
                total,
                reserved,
            });
            let taken = dice.pick(&[0, 0, total / 3, total - reserved]);
            if taken > 0 {
                used.insert(size_kib, taken);
            }
        }
    }
    (pools, used)
}

fn guest(dice: &mut Dice, size: Size) -> InstanceTopology {
    let count = match size {
        Size::Small => dice.small(1, 3),
        Size::Wide => dice.small(1, 6),
    };
    let policies = [
        CpuPolicy::Shared,
        CpuPolicy::Dedicated,
        CpuPolicy::Dedicated,
        CpuPolicy::Mixed,
    ];
    let mut cpu_policy = dice.pick(&policies);
    let thread_policy = dice.pick(&[
        ThreadPolicy::Prefer,
        ThreadPolicy::Prefer,
        ThreadPolicy::Isolate,
        ThreadPolicy::Require,
    ]);
    let page_size = dice.pick(&[
        PageSize::Unspecified,
        PageSize::Unspecified,
        PageSize::Small,
        PageSize::Large,
        PageSize::Any,
        PageSize::Kib(2048),
        PageSize::Kib(1_048_576),
    ]);
    // No flavor makes such guests, but the rules are those of each cell.
    let differ = dice.chance(5);
    let mut next = 0;
    let mut vcpus = |wanted: u32| -> BTreeSet<VcpuId> {
        next += wanted;
        (next - wanted..next).map(VcpuId).collect()
    };
    let cells = (0..count).map(|id| {
        if differ {
            cpu_policy = dice.pick(&policies);
        }
        let (shared, dedicated) = (dice.small(0, 2), dice.small(0, 3));
        InstanceCell {
            id,
            cpu_policy,
            thread_policy,
            shared: vcpus(if cpu_policy == CpuPolicy::Dedicated {
                0
            } else {
                shared
            }),
            dedicated: vcpus(if cpu_policy == CpuPolicy::Shared {
                0
            } else {
                dedicated
            }),
            memory_mib: dice.pick(&[512, 1024, 1024, 2048]),
            page_size,
        }
    });
    let cells = cells.collect();
    InstanceTopology {
        cells,
        emulator_threads: dice.pick(&[
            EmulatorThreads::Unspecified,
            EmulatorThreads::Isolate,
            EmulatorThreads::Share,
        ]),
        ..InstanceTopology::default()
    }
}

fn devices(dice: &mut Dice, cells: u64) -> Vec<PciDevice> {
    let mut devices = Vec::new();
    let groups = dice.number(1, 4 + cells / 3);
    for bus in 1..=groups {
        let cell = (!dice.chance(15))
            .then(|| CellId(2 * dice.small(0, u32::try_from(cells).unwrap() - 1)));
        let product = PciId(dice.pick(&[1, 2]));
        let device = |slot: u64, kind, product| PciDevice {
            address: format!("0000:{bus:02x}:{slot:02x}.0").parse().unwrap(),
            vendor: PciId(0x8086),
            product,
            cell,
            kind,
            parent: None,
            tags: BTreeMap::new(),
        };
        if dice.chance(65) {
            devices.push(device(0, PciKind::Pci, product));
            continue;
        }
        let physical = device(0, PciKind::Physical, product);
        let virtual_product = dice.pick(&[product, PciId(3)]);
        for slot in 1..=dice.number(1, 3) {
            devices.push(PciDevice {
                parent: Some(physical.address),
                ..device(slot, PciKind::Virtual, virtual_product)
            });
        }
        // The host may have only its virtual functions for guests.
        if dice.chance(80) {
            devices.push(physical);
        }
    }
    devices
}

fn requests(dice: &mut Dice) -> Vec<PciRequest> {
    let count = dice.number(1, 3);
    let mut requests = Vec::new();
    for _ in 0..count {
        let alternatives = dice.pick(&[1, 1, 2]);
        let any_of = (0..alternatives).map(|_| PciMatch {
            vendor: Some(PciId(0x8086)),
            product: dice.pick(&[None, Some(1), Some(2), Some(3)]).map(PciId),
            kind: dice.pick(&[
                None,
                None,
                None,
                Some(PciKind::Virtual),
                Some(PciKind::Physical),
            ]),
            tags: BTreeMap::new(),
        });
        let any_of = any_of.collect();
        requests.push(PciRequest {
            count: dice.pick(&[1, 1, 1, 2]),
            any_of,
            policy: dice.pick(&[
                PciNumaPolicy::Required,
                PciNumaPolicy::Preferred,
                PciNumaPolicy::Legacy,
                PciNumaPolicy::Socket,
            ]),
        });
    }
    requests
}

/// Returns the assignment with something in it exchanged.
pub fn change(case: &Case, mut given: Assignment, seed: u64) -> Assignment {
    let mut dice = Dice(seed ^ 0x5555);
    let cells = given.cells.len() as u64;
    let at = usize::try_from(dice.number(0, cells - 1)).unwrap();
    let host = case.topology.cell(given.cells[at].host_cell).unwrap();
    let cpus: Vec<CpuId> = host.dedicated.iter().collect();
    let other = |dice: &mut Dice| {
        if cpus.is_empty() {
            CpuId(0)
        } else {
            dice.pick(&cpus)
        }
    };
    let cell = &mut given.cells[at];
    match dice.number(0, 5) {
        0 => {
            if let Some(pin) = cell.pins.values_mut().next() {
                *pin = other(&mut dice);
            }
        }
        1 => {
            cell.idle.insert(other(&mut dice));
        }
        2 => {
            if let Some(idle) = cell.idle.first() {
                cell.idle.remove(idle);
            }
        }
        3 if !given.emulator.is_empty() => {
            given.emulator = [other(&mut dice)].into_iter().collect()
        }
        _ => {
            let addresses: Vec<_> = case.topology.pci().iter().map(|d| d.address).collect();
            if let (Some(first), false) = (given.pci.first_mut(), addresses.is_empty()) {
                first.pop_first();
                first.insert(dice.pick(&addresses));
            }
        }
    }
    given
}
