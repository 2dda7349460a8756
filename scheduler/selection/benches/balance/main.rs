//! What planning costs, and what it reaches:
//! `cargo bench -p berth-selection --bench balance -- [moves] [guard] [room] [count] HOSTS…`.
//!
//! Then what making room for a guest costs ([`room`]), and counting how many fit ([`count`]).
//!
//! Clusters filled unevenly from a fixed seed, ten guests a host. One thread; seconds are of the
//! process's own CPU, so that other work on the machine says little.

mod count;
mod room;
mod world;

use berth_selection::Fleet;
use berth_selection::balance::{Guard, Options, Proposal, plan};
use berth_selection::failover::{Budget, Domain, evaluate};
use world::Kind;

const SEED: u64 = 7;

fn main() {
    let arguments = std::env::args().skip(1).filter(|a| !a.starts_with('-'));
    let arguments: Vec<String> = arguments.collect();
    let mut counts: Vec<usize> = arguments.iter().filter_map(|a| a.parse().ok()).collect();
    if counts.is_empty() {
        // `cargo test --benches` and `cargo bench` of everything come here: the quick ones.
        counts = vec![10, 20, 40];
    }
    let is_asked = |part: &str| {
        let parts = ["moves", "guard", "room", "count"];
        let mut named = arguments.iter().filter(|a| parts.contains(&a.as_str()));
        named.clone().next().is_none() || named.any(|a| a == part)
    };
    if is_asked("moves") {
        moves(&counts);
    }
    if is_asked("guard") {
        guarded(&counts);
    }
    if is_asked("room") {
        room::run(&counts);
    }
    if is_asked("count") {
        count::run(&counts);
    }
}

fn moves(counts: &[usize]) {
    println!(
        "| guests | hosts | guests | moves | sets | GiB sent | score before | after | sweeps | \
         hosts asked | CPU s |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for kind in [Kind::Floating, Kind::Distinct, Kind::Exact] {
        for count in counts {
            balance(kind, *count);
        }
    }
}

/// Plans with every proof of N+1 kept.
fn guarded(counts: &[usize]) {
    println!("\n| guests | hosts | proven | CPU s | moves | not admitted | score after | CPU s |");
    println!("|---|---|---|---|---|---|---|---|");
    for kind in [Kind::Floating, Kind::Exact] {
        for count in counts {
            let mut fleet = world::fleet(kind, *count, SEED);
            let start = cpu_seconds();
            let names: Vec<_> = fleet.views().iter().map(|v| v.host.name.clone()).collect();
            let domains: Vec<Domain> = names.iter().map(Domain::host).collect();
            let budget = Budget::default();
            let verdicts = domains
                .iter()
                .map(|domain| evaluate(&mut fleet, domain, budget));
            let verdicts: Vec<_> = verdicts.collect();
            let judged = cpu_seconds();
            let mut guard = Guard::new(domains.iter().zip(&verdicts), budget);
            let proven = guard.proven().count();
            let mut admit = |fleet: &mut Fleet, step: &Proposal| guard.admit(fleet, step);
            let plan = plan(&mut fleet, &Options::default(), Some(&mut admit));
            println!(
                "| {kind:?} | {count} | {proven} | {:.2} | {} | {} | {:.4} | {:.2} |",
                judged - start,
                plan.moves.len(),
                plan.refused.values().sum::<usize>(),
                plan.after.total,
                cpu_seconds() - judged,
            );
        }
    }
}

fn balance(kind: Kind, count: usize) {
    let mut fleet = world::fleet(kind, count, SEED);
    let guests = fleet.guests().count();
    let options = Options::default();
    let start = cpu_seconds();
    let plan = plan(&mut fleet, &options, None);
    let seconds = cpu_seconds() - start;
    let sent: u64 = plan.moves.iter().map(|m| m.sent_mib).sum();
    println!(
        "| {kind:?} | {count} | {guests} | {} | {} | {} | {:.4} | {:.4} | {} | {} | {seconds:.2} |",
        plan.moves.len(),
        plan.sets,
        sent / 1024,
        plan.before.total,
        plan.after.total,
        plan.effort.sweeps,
        plan.effort.hosts,
    );
}

/// Returns the CPU time of this process, in seconds.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<&str> = after.split_whitespace().collect();
    let ticks = |at: usize| {
        fields
            .get(at)
            .and_then(|f| f.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    // User and system time, in hundredths as Linux counts them.
    (ticks(11) + ticks(12)) / 100.0
}
