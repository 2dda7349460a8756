//! How full hosts get: `cargo bench -p berth-selection --bench fleet -- packing [POLICY…]`.
//!
//! 1,000 hosts and the mix of guests in [`berth_testkit::selection::mix`]. How much is used when, without departures,
//! the first guest of up to eight vCPUs is refused; and what is used, refused and stranded in the
//! steady state, over 100,000 arrivals at loads of 70, 85 and 100 % of the dedicated CPUs. The seed is
//! fixed. It prints a table in Markdown.

use super::report::Report;
use super::world::World;
use berth_domain::numa::Strategy;
use berth_domain::policy::{SchedulingPolicy, Weights};
use berth_testkit::selection::mix::{self, DEDICATED};

const HOSTS: usize = 1000;
const ARRIVALS: usize = 100_000;
const SEED: u64 = 7;
/// Two guest cells of so many CPUs have no room on one host cell.
const LARGE: usize = 7;

pub(super) fn run(names: &[String]) {
    println!("{HOSTS} hosts of {DEDICATED} dedicated CPUs in 8 cells, seed {SEED}\n");
    println!(
        "| policy | load % | CPUs % | small pages % | 2 MiB % | 1 GiB % | stranded CPUs % | stranded \
         pages % | empty hosts | refused | of these |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let mut fills = Vec::new();
    for (name, policy, pages) in policies() {
        if !names.is_empty() && !names.iter().any(|n| n == name) {
            continue;
        }
        let mut world = World::new(HOSTS, policy.clone(), pages, SEED);
        world.fill();
        print(name, "fill", &world, None);
        fills.push((name, world.cells_with(LARGE)));
        for load in [0.7, 0.85, 1.0] {
            let mut world = World::new(HOSTS, policy.clone(), pages, SEED);
            let mean = world.run(load, ARRIVALS);
            print(name, &format!("{:.0}", load * 100.0), &world, Some(mean));
        }
    }
    println!();
    for (name, cells) in fills {
        println!(
            "{name}, fill: {cells} of {} cells hold a guest cell of {LARGE} or more dedicated CPUs",
            HOSTS * mix::SHAPE.cells as usize
        );
    }
}

/// Returns what is compared: names, policies, and the pages of guests that do not say which.
fn policies() -> Vec<(&'static str, SchedulingPolicy, &'static str)> {
    let of = |strategy, numa, fragmentation| SchedulingPolicy {
        hosts: strategy,
        cells: strategy,
        weights: Weights {
            numa,
            fragmentation,
            ..Weights::default()
        },
        ..SchedulingPolicy::default()
    };
    vec![
        ("spread", of(Strategy::Spread, 0, 0), ""),
        ("spread, large holes kept", of(Strategy::Spread, 0, 100), ""),
        ("pack, tightness not weighed", of(Strategy::Pack, 0, 0), ""),
        ("pack", of(Strategy::Pack, 1000, 0), ""),
        ("spread, any pages", of(Strategy::Spread, 0, 0), "any"),
        ("pack, any pages", of(Strategy::Pack, 1000, 0), "any"),
    ]
}

fn print(name: &str, load: &str, world: &World, mean: Option<f64>) {
    let report = Report::new(world);
    let cpus = mean.map_or(report.cpus.percent(), |mean| {
        100.0 * mean / world.cpus() as f64
    });
    let [small, large, huge] = report.pages.map(|part| part.percent());
    let refused: u32 = world.refused.values().sum();
    let each = world.refused.iter().map(|(kind, n)| format!("{kind} {n}"));
    let each: Vec<_> = each.collect();
    println!(
        "| {name} | {load} | {cpus:.1} | {small:.1} | {large:.1} | {huge:.1} | {:.1} | {:.1} | {} | \
         {refused} of {} | {} |",
        report.stranded_cpus.percent(),
        report.stranded_pages.percent(),
        report.empty_hosts,
        world.asked,
        each.join(", "),
    );
}
