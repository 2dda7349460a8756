//! What a decision costs among many hosts: `cargo bench -p berth-selection --bench fleet -- scale`.
//!
//! Hosts of 8 cells at 70 % of their dedicated CPUs, filled with the mix of [`berth_testkit::selection::mix`]. The
//! guests that are measured have pins, huge pages and a PCI function on their socket. A decision is
//! the choice alone; what claiming it and bringing the table up to date costs is in `select`. One
//! thread. Memory is what the process has resident, by the number of hosts, which share one shape.

use std::hint::black_box;
use std::time::Instant;

use super::world::World;
use berth_domain::numa::Strategy;
use berth_domain::policy::SchedulingPolicy;
use berth_selection::{NoHost, explain};
use berth_testkit::selection::claims::claim;
use berth_testkit::selection::mix;

const LOAD: f64 = 0.7;
const SEED: u64 = 7;
const ROUNDS: usize = 2000;

pub(super) fn run() {
    println!("| hosts | policy | what | p50 us | p99 us | greatest us | refused |");
    println!("|---|---|---|---|---|---|---|");
    for hosts in [1000, 10_000, 100_000] {
        for strategy in [Strategy::Spread, Strategy::Pack] {
            let before = resident_kib();
            let policy = SchedulingPolicy {
                hosts: strategy,
                cells: strategy,
                ..SchedulingPolicy::default()
            };
            let mut world = World::new(hosts, policy, "", SEED);
            let start = Instant::now();
            let guests = world.fill_to(LOAD);
            let seconds = start.elapsed().as_secs_f64();
            let kib = (resident_kib() - before) / hosts as u64;
            let label = format!("{hosts} | {strategy:?}");
            measure(&label, &mut world);
            eprintln!(
                "{hosts} hosts, {strategy:?}: {guests} guests placed in {seconds:.1} s, {kib} KiB a host"
            );
        }
    }
}

fn measure(label: &str, world: &mut World) {
    for kind in mix::measured() {
        let at = world.kinds.len();
        let name = kind.name;
        world.kinds.push(kind);
        let mut times = Vec::new();
        let mut refused = 0;
        for _ in 0..ROUNDS {
            let request = world.request(at);
            let start = Instant::now();
            let choice = black_box(world.index.select(&request));
            times.push(start.elapsed());
            match choice {
                Ok(choice) => {
                    // What is chosen is taken and given back, so that the next meets the same load
                    // but not the same caches.
                    let claim = claim(&choice);
                    world.change(&claim.host, |view| view.place(&claim));
                    world.change(&claim.host, |view| view.release(&claim));
                }
                Err(NoHost::Nowhere) => refused += 1,
                Err(NoHost::Named) => panic!("no host is named"),
            }
        }
        print(label, name, times, refused);
    }
    let at = world.kinds.len();
    world.kinds.push(mix::impossible());
    let request = world.request(at);
    let times = (0..20).map(|_| {
        let start = Instant::now();
        black_box(explain::nowhere(&request, world.hosts.values()));
        start.elapsed()
    });
    print(label, "the reason where nothing fits", times.collect(), 20);
}

fn print(label: &str, name: &str, times: Vec<std::time::Duration>, refused: usize) {
    let mut micros: Vec<f64> = times.iter().map(|t| t.as_secs_f64() * 1e6).collect();
    micros.sort_by(f64::total_cmp);
    let at = |part: f64| micros[((micros.len() - 1) as f64 * part) as usize];
    println!(
        "| {label} | {name} | {:.1} | {:.1} | {:.1} | {refused} of {} |",
        at(0.5),
        at(0.99),
        at(1.0),
        micros.len()
    );
}

/// Returns the memory that the process has resident.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|n| n.parse().ok()).unwrap_or(0)
}
