//! What a choice costs: 1,000 hosts of 8 cells, loaded to 70 % of their dedicated CPUs.
//!
//! `cargo bench -p berth-selection`. It prints microseconds per choice for each flavor of the
//! mix, for a guest that fits nowhere, for the hints of refusals, and for bringing the table up to
//! date; the last figure is the mean of the thread's CPU time, which other programs disturb less.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_domain::claim::Claim;
use berth_domain::constraint::Demand;
use berth_domain::hint::RequestChange;
use berth_domain::host_view::HostView;
use berth_domain::name::{HostName, VmName};
use berth_selection::hint::{Cluster, Exit, Moves, Occupant};
use berth_selection::{Index, Request, explain};
use berth_testkit::selection::hosts::Shape;
use berth_testkit::selection::{change, claim, request, spec, view};
use imbl::OrdMap;

const HOSTS: usize = 1000;
const LOAD: f64 = 0.7;

/// Two sockets of four cells, eight cores of two threads each, two of the cores shared.
const LARGE: Shape = Shape {
    cells: 8,
    cores: 8,
    threads: 2,
    shared_cores: 2,
    memory_gib: 64,
    pages_2m_gib: 16,
    pages_1g: 16,
};

/// Flavors that are often asked for, with how often: vCPUs, MiB, extra specs.
type Mix = &'static [(u32, u32, u64, &'static [(&'static str, &'static str)])];

const MIX: Mix = &[
    (26, 1, 2048, &[]),
    (18, 2, 4096, &[]),
    (8, 4, 8192, &[("hw:numa_nodes", "1")]),
    (10, 2, 8192, &[("hw:cpu_policy", "dedicated")]),
    (9, 4, 16384, &[("hw:cpu_policy", "dedicated")]),
    (
        6,
        8,
        16384,
        &[("hw:cpu_policy", "dedicated"), ("hw:mem_page_size", "2MB")],
    ),
    (
        3,
        8,
        8192,
        &[("hw:cpu_policy", "dedicated"), ("hw:mem_page_size", "1GB")],
    ),
    (
        4,
        16,
        65536,
        &[("hw:cpu_policy", "dedicated"), ("hw:numa_nodes", "2")],
    ),
    (
        2,
        32,
        131_072,
        &[("hw:cpu_policy", "dedicated"), ("hw:numa_nodes", "4")],
    ),
    (
        3,
        6,
        12288,
        &[
            ("hw:cpu_policy", "dedicated"),
            ("hw:emulator_threads_policy", "isolate"),
        ],
    ),
];

type Hosts = OrdMap<HostName, Arc<HostView>>;

fn main() {
    let mut hosts: Hosts = (0..HOSTS)
        .map(|n| view(&format!("host-{n:04}"), LARGE))
        .map(|v| (v.host.name.clone(), Arc::new(v)))
        .collect();
    let mut index = Index::new();
    index.sync(&hosts);
    let occupants = fill(&mut hosts, &mut index);
    let guests: usize = occupants.values().map(Vec::len).sum();
    println!("{HOSTS} hosts of {} cells, {guests} guests", LARGE.cells);
    for (_, vcpus, memory_mib, specs) in MIX {
        let label = format!("{vcpus} vCPUs, {memory_mib} MiB, {specs:?}");
        let guest = spec(*vcpus, *memory_mib, specs);
        measure(&label, 2000, |n| {
            let _ = std::hint::black_box(index.select(&request_of(&guest, n)));
        });
    }
    let nowhere = request(&spec(100, 1 << 20, &[("hw:cpu_policy", "dedicated")]), 1);
    measure("nowhere to go", 200, |_| {
        let _ = std::hint::black_box(index.select(&nowhere));
    });
    println!("{}", explain::nowhere(&nowhere, hosts.values()));
    measure("… explained", 20, |_| {
        std::hint::black_box(explain::nowhere(&nowhere, hosts.values()));
    });
    hints(&hosts, &occupants);
    let guest = spec(2, 4096, &[("hw:cpu_policy", "dedicated")]);
    let choice = index.select(&request_of(&guest, 0)).unwrap();
    let view = hosts
        .get(&choice.host)
        .expect("the host was chosen")
        .clone();
    measure("copy the host's view and claim on it", 1000, |_| {
        let mut copy = HostView::clone(&view);
        copy.place(&claim(&choice));
        std::hint::black_box(copy);
    });
    let mut give_back = None;
    measure("choose, claim, bring the table up to date", 1000, |n| {
        if let Some(choice) = give_back.take() {
            release(&mut hosts, &choice);
        }
        let choice = index.select(&request_of(&guest, n)).unwrap();
        take(&mut hosts, &choice);
        index.sync(&hosts);
        give_back = Some(choice);
    });
    let mut odd = false;
    measure("bring the table up to date", 1000, |_| {
        odd = !odd;
        let view = Arc::make_mut(hosts.get_mut(&choice.host).expect("the host was chosen"));
        change(view, |host| host.cordoned = odd);
        index.sync(&hosts);
    });
}

fn release(hosts: &mut Hosts, choice: &berth_selection::Choice) {
    let view = hosts.get_mut(&choice.host).expect("the host was chosen");
    Arc::make_mut(view).release(&claim(choice));
}

fn request_of(guest: &berth_domain::vm::VmSpec, n: usize) -> Request {
    request(guest, n as u128 * 0x1234_5678_9abc_def1)
}

fn take(hosts: &mut Hosts, choice: &berth_selection::Choice) {
    let view = hosts.get_mut(&choice.host).expect("the host was chosen");
    Arc::make_mut(view).place(&claim(choice));
}

/// The guests of each host, with what they demand of another one.
type Occupants = BTreeMap<HostName, Vec<(Occupant, Demand)>>;

/// The guests, all of which can be moved while they run.
struct Guests<'a>(&'a Occupants, BTreeMap<VmName, &'a Demand>);

impl Cluster for Guests<'_> {
    fn occupants(&self, host: &HostName) -> Vec<Occupant> {
        let of_host = self.0.get(host).into_iter().flatten();
        of_host.map(|(occupant, _)| occupant.clone()).collect()
    }

    fn moves(&self, vm: &VmName) -> Moves {
        Moves {
            live: self.1.get(vm).map(|demand| (*demand).clone()),
            cold: None,
        }
    }

    fn erasing(&self, _: &HostName) -> Vec<Arc<Claim>> {
        Vec::new()
    }

    fn changes(&self) -> Vec<RequestChange> {
        Vec::new()
    }

    fn changed(&self, _: &RequestChange) -> Option<Demand> {
        None
    }

    fn size(&self) -> Option<(u32, u64)> {
        None
    }
}

/// Measures the explanation of refusals without and with the search for a hint.
fn hints(hosts: &Hosts, occupants: &Occupants) {
    let all = occupants.values().flatten();
    let moves = all.map(|(occupant, demand)| (occupant.vm.clone(), demand));
    let cluster = Guests(occupants, moves.collect());
    let pinned = ("hw:cpu_policy", "dedicated");
    for (label, guest) in [
        ("12 pins in a cell", spec(12, 4096, &[pinned])),
        (
            "24 pins in 2 cells",
            spec(24, 4096, &[pinned, ("hw:numa_nodes", "2")]),
        ),
        (
            "96 pins in 8 cells",
            spec(96, 8192, &[pinned, ("hw:numa_nodes", "8")]),
        ),
        (
            "16 pages of 1 GiB",
            spec(4, 16384, &[pinned, ("hw:mem_page_size", "1GB")]),
        ),
        (
            "24 pages of 1 GiB",
            spec(4, 24576, &[pinned, ("hw:mem_page_size", "1GB")]),
        ),
        ("13 pins in a cell: never", spec(13, 4096, &[pinned])),
    ] {
        let request = request(&guest, 1);
        let index = Index::from_hosts(hosts.values());
        if index.select(&request).is_ok() {
            println!("{label}: it fits");
            continue;
        }
        let refusal = explain::refusal(&request, hosts.values(), &cluster);
        println!("{label}: {}", refusal.hint.unwrap_or_default());
        measure("… refused, explained", 100, |_| {
            std::hint::black_box(explain::nowhere(&request, hosts.values()));
        });
        measure("… refused, explained with VMs", 300, |_| {
            std::hint::black_box(explain::refusal(&request, hosts.values(), &cluster));
        });
    }
}

/// Places the mix until the load is reached; returns the guests.
fn fill(hosts: &mut Hosts, index: &mut Index) -> Occupants {
    let shapes: Vec<_> = MIX
        .iter()
        .flat_map(|(weight, vcpus, memory_mib, specs)| {
            std::iter::repeat_n((*vcpus, *memory_mib, *specs), *weight as usize)
        })
        .collect();
    let all = HOSTS * (LARGE.cells * (LARGE.cores - LARGE.shared_cores) * LARGE.threads) as usize;
    let (mut taken, mut turn) = (0, 0);
    let mut guests = Occupants::new();
    while (taken as f64) < all as f64 * LOAD {
        // A stride that meets every shape as often as its weight says.
        turn += 37;
        let (vcpus, memory_mib, specs) = shapes[turn % shapes.len()];
        let guest = spec(vcpus, memory_mib, specs);
        if let Ok(choice) = index.select(&request_of(&guest, turn)) {
            taken += choice.assignment.dedicated().len();
            let claim = Claim {
                vm: VmName::new(&format!("v{turn}")).expect("a good name"),
                ..claim(&choice)
            };
            let source = &hosts.get(&choice.host).expect("the host was chosen").host;
            let demand = Demand::migration(&guest, &claim, source).expect("a good guest");
            let occupant = Occupant {
                vm: claim.vm.clone(),
                claim: Arc::new(claim),
                group: None,
                exit: Exit::Move,
            };
            let of_host = guests.entry(choice.host.clone()).or_default();
            of_host.push((occupant, demand));
            take(hosts, &choice);
            index.sync(hosts);
        }
    }
    guests
}

fn measure(label: &str, rounds: usize, mut run: impl FnMut(usize)) {
    let cpu = cpu_time();
    let mut micros: Vec<f64> = (0..rounds)
        .map(|n| {
            let start = Instant::now();
            run(n);
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    let cpu = cpu_time().saturating_sub(cpu).as_secs_f64() * 1e6 / rounds as f64;
    micros.sort_by(f64::total_cmp);
    let at = |part: f64| micros[((micros.len() - 1) as f64 * part) as usize];
    let (p50, p99) = (at(0.5), at(0.99));
    println!("p50 {p50:9.1} µs  p99 {p99:9.1} µs  CPU {cpu:9.1} µs  {label}");
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|text| text.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}
