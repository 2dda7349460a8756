//! How long the fit takes: `cargo bench -p berth-domain`.
//!
//! A host of 2 sockets with 8 cells of 16 CPUs (8 cores of 2 threads), pages of 4 KiB and 2 MiB,
//! and every guest with dedicated CPUs, so that all rules are looked at. On each cell, half of the
//! cores are taken. Each figure is the median of 101 rounds of a millisecond, on one thread; the
//! least one stands beside it, since other programs may run.

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::time::{Duration, Instant};

use berth_domain::cpu_set::{CpuId, CpuSet};
use berth_domain::instance::{CpuPolicy, InstanceCell, InstanceTopology, PageSize, VcpuId};
use berth_domain::numa::{
    CellUsage, ExactDemand, Ground, Guest, HostUsage, Limits, Outline, Strategy, ThreadRules, fit,
    is_feasible, try_fit, verify,
};
use berth_domain::overcommit::AllocationRatio;
use berth_domain::pci::{PciDevice, PciId, PciKind, PciMatch, PciNumaPolicy, PciRequest};
use berth_domain::topology::{CellId, HostCell, HostTopology, PagePool, SocketId};

const ROUNDS: usize = 101;
const ROUND: Duration = Duration::from_millis(1);

const CPUS: u32 = 16;

struct Host {
    topology: HostTopology,
    usage: HostUsage,
    outline: Outline,
}

impl Host {
    fn new(cells: u32, taken: &str, devices: Vec<PciDevice>) -> Self {
        let limits = Limits {
            cpu_ratio: Some(AllocationRatio::from_milli(16_000)),
            ram_ratio: Some(AllocationRatio::from_milli(1000)),
            exact_memory: true,
            threads: ThreadRules::Nova,
        };
        let cell = |id| {
            let first = id * CPUS;
            let cpus: CpuSet = (first..first + CPUS).map(CpuId).collect();
            let core = |n| {
                let threads = [first + n, first + n + CPUS / 2];
                threads.map(CpuId).into_iter().collect()
            };
            let pool = |size_kib, total| PagePool {
                size_kib,
                total,
                reserved: 0,
            };
            HostCell {
                id: CellId(id),
                socket: Some(SocketId(id * 2 / cells)),
                shared: cpus.clone(),
                dedicated: cpus,
                cores: (0..CPUS / 2).map(core).collect(),
                memory_mib: 65_536,
                pages: vec![pool(4, 8_388_608), pool(2048, 16_384)],
            }
        };
        let distance = |a, b| if a == b { 10 } else { 20 };
        let row = |a| (0..cells).map(|b| distance(a, b)).collect();
        let topology = HostTopology::new(
            (0..cells).map(cell).collect(),
            (0..cells).map(row).collect(),
        );
        let topology = topology
            .and_then(|t| t.with_pci(devices))
            .expect("a good host");
        let taken: CpuSet = taken.parse().expect("a CPU list");
        let pinned = |id| taken.iter().map(|cpu| CpuId(cpu.0 + id * CPUS)).collect();
        let usage = HostUsage {
            cells: (0..cells)
                .map(|id| CellUsage {
                    pinned: pinned(id),
                    memory_mib: 16_384,
                    pages: BTreeMap::from([(2048, 8192)]),
                    ..CellUsage::default()
                })
                .collect(),
            pmem: Default::default(),
            pci: BTreeSet::new(),
        };
        Self {
            outline: Outline::new(&topology, &usage, &limits),
            topology,
            usage,
        }
    }

    fn ground(&self) -> Ground<'_> {
        Ground {
            topology: &self.topology,
            usage: &self.usage,
            outline: &self.outline,
        }
    }
}

/// Returns a guest with so many dedicated vCPUs in each cell, and so much memory in large pages.
fn guest(cells: &[(u32, u64)]) -> InstanceTopology {
    let mut next = 0;
    let cell = |(id, (vcpus, memory_mib)): (u32, &(u32, u64))| {
        let first = next;
        next += vcpus;
        InstanceCell {
            id,
            cpu_policy: CpuPolicy::Dedicated,
            dedicated: (first..next).map(VcpuId).collect(),
            memory_mib: *memory_mib,
            page_size: PageSize::Large,
            ..InstanceCell::default()
        }
    };
    InstanceTopology {
        cells: (0..).zip(cells).map(cell).collect(),
        ..InstanceTopology::default()
    }
}

fn device(cell: u32, number: u32, product: u16) -> PciDevice {
    PciDevice {
        address: format!("0000:{:02x}:{number:02x}.0", cell + 1)
            .parse()
            .expect("an address"),
        vendor: PciId(0x8086),
        product: PciId(product),
        cell: Some(CellId(cell)),
        kind: PciKind::Pci,
        parent: None,
        tags: BTreeMap::new(),
    }
}

fn request(count: u32, product: u16, policy: PciNumaPolicy) -> PciRequest {
    PciRequest {
        count,
        any_of: vec![PciMatch {
            vendor: Some(PciId(0x8086)),
            product: Some(PciId(product)),
            ..PciMatch::default()
        }],
        policy,
    }
}

/// Prints how long one call takes.
fn measure<T>(what: &str, goal: &str, mut call: impl FnMut() -> T) {
    let mut round = |calls: u32| {
        let start = Instant::now();
        for _ in 0..calls {
            black_box(call());
        }
        start.elapsed()
    };
    let mut calls = 1;
    while round(calls) < ROUND {
        calls *= 2;
    }
    let mut nanos: Vec<f64> = (0..ROUNDS)
        .map(|_| round(calls).as_nanos() as f64 / f64::from(calls))
        .collect();
    nanos.sort_by(f64::total_cmp);
    let (median, least) = (nanos[ROUNDS / 2], nanos[0]);
    println!("| {what} | {median:.0} | {least:.0} | {goal} |");
}

fn decisions() {
    let host = Host::new(8, "0-3,8-11", Vec::new());
    let one = guest(&[(8, 8192)]);
    let four = guest(&[(8, 8192); 4]);
    let unequal = guest(&[(8, 8192), (6, 4096), (4, 2048), (2, 1024)]);
    let large = guest(&[(12, 8192); 4]);
    for (what, demand, goal) in [
        ("is it feasible, 1 cell", &one, "300"),
        ("is it feasible, 4 equal cells", &four, "300"),
        ("is it feasible, 4 unequal cells", &unequal, "300"),
        ("is it feasible, 4 x 12 CPUs: no", &large, ""),
    ] {
        let guest = Guest::new(ExactDemand::cells(demand));
        measure(what, goal, || is_feasible(host.ground(), &guest));
    }
    for (what, demand, goal) in [
        ("fit with pins, 1 cell x 8", &one, "2,000"),
        ("fit with pins, 4 cells x 8", &four, "6,000"),
        ("fit with pins, 4 unequal cells", &unequal, "6,000"),
    ] {
        let guest = Guest::new(ExactDemand::cells(demand));
        measure(what, goal, || {
            try_fit(host.ground(), &guest, Strategy::Spread)
        });
    }
    let guest = Guest::new(ExactDemand::cells(&large));
    let reason = || {
        fit(host.ground(), &guest, Strategy::Spread)
            .expect_err("it is full")
            .to_string()
    };
    measure("no fit, 4 x 12 CPUs, with the reason in words", "", reason);
    let taken = fit(
        host.ground(),
        &Guest::new(ExactDemand::cells(&four)),
        Strategy::Spread,
    );
    let taken = taken.expect("it has room");
    let check = || verify(host.ground(), ExactDemand::cells(&four), &taken);
    measure("verify, 4 cells x 8", "", check);
    measure("a guest's needs, 4 cells", "", || {
        Guest::new(ExactDemand::cells(&four))
    });
    let limits = Limits::NONE;
    let outline = || Outline::new(&host.topology, &host.usage, &limits);
    measure("a host's outline, 8 cells", "", outline);
}

/// The 16 cells and 6 guest cells for which Nova tries millions of permutations.
fn permutations() {
    let mut host = Host::new(16, "", Vec::new());
    // Five cells have room for the large guest cells, the others for small ones only.
    for cell in &mut host.usage.cells[5..] {
        cell.pages.insert(2048, 14_000);
    }
    host.outline = Outline::new(&host.topology, &host.usage, &Limits::NONE);
    let demand = guest(&[(8, 8192); 6]);
    let guest = Guest::new(ExactDemand::cells(&demand));
    let goal = "20,000";
    let what = "no fit, 16 cells, 6 guest cells that compete for 5";
    measure(what, goal, || is_feasible(host.ground(), &guest));
    let reason = || {
        fit(host.ground(), &guest, Strategy::Spread)
            .expect_err("it is full")
            .to_string()
    };
    measure("the same with the reason in words", goal, reason);
}

fn functions() {
    let devices = (0..8).flat_map(|cell| (0..4).map(move |number| device(cell, number, 1)));
    let host = Host::new(8, "", devices.collect());
    let one = guest(&[(8, 8192)]);
    let four = guest(&[(4, 1024); 4]);
    for (what, demand, requests, goal) in [
        (
            "fit with pins, 1 cell x 8, 1 device of 32 on its socket",
            &one,
            vec![request(1, 1, PciNumaPolicy::Socket)],
            "",
        ),
        (
            "no fit, 4 guest cells, a device that the host lacks",
            &four,
            vec![request(1, 2, PciNumaPolicy::Required)],
            "50,000",
        ),
        (
            "no fit, 4 guest cells, 17 devices, any 4 cells have 16",
            &four,
            vec![request(17, 1, PciNumaPolicy::Required)],
            "50,000",
        ),
    ] {
        let guest = Guest::new(ExactDemand {
            topology: Some(demand),
            pci: &requests,
            ..ExactDemand::default()
        });
        measure(what, goal, || {
            try_fit(host.ground(), &guest, Strategy::Spread)
        });
    }
    // Each cell has another number of devices of two kinds: none are alike, and the guest would
    // have to be near five cells at once.
    let devices = (0..8_u32).flat_map(|cell| {
        let first = (0..=cell % 4).map(move |number| device(cell, number, 1));
        first.chain((0..=(7 - cell) % 3).map(move |number| device(cell, 16 + number, 2)))
    });
    let host = Host::new(8, "", devices.collect());
    let requests = [
        request(12, 1, PciNumaPolicy::Required),
        request(11, 2, PciNumaPolicy::Required),
    ];
    let guest = Guest::new(ExactDemand {
        topology: Some(&four),
        pci: &requests,
        ..ExactDemand::default()
    });
    let call = || try_fit(host.ground(), &guest, Strategy::Spread);
    assert!(call().is_none());
    let what = "no fit, 4 guest cells, two kinds of device, no two cells alike";
    measure(what, "50,000", call);
}

fn main() {
    println!("| what | median ns | least ns | goal |");
    println!("|---|---|---|---|");
    decisions();
    permutations();
    functions();
}
