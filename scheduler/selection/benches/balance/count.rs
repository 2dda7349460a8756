//! What it costs to count how many more guests fit, now and after the worst failure.

use berth_domain::numa::Strategy;
use berth_selection::capacity::{Least, Shape, Steps, after_failures, fill, tiered};
use berth_selection::failover::{self, Domain};

use super::world::{self, Kind};

const ASKED: Shape = Shape {
    memory_mib: 8192,
    disk_gib: 40,
    vcpus: 4,
};
const LARGEST: Shape = Shape {
    memory_mib: 65_536,
    disk_gib: 400,
    vcpus: 16,
};
const LEAST: Shape = Shape {
    memory_mib: 512,
    disk_gib: 1,
    vcpus: 1,
};

pub(crate) fn run(counts: &[usize]) {
    println!(
        "\n| guests | hosts | fit now | ended by | CPU s | after the worst failure | CPU s | tiered: shapes | guests | CPU s |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for kind in [Kind::Floating, Kind::Exact] {
        for count in counts {
            measure(kind, *count);
        }
    }
}

fn measure(kind: Kind, count: usize) {
    let mut fleet = world::fleet(kind, count, super::SEED);
    let demand = world::floating_of(&ASKED);
    let cells = Strategy::Pack;
    let start = super::cpu_seconds();
    let now = fill(&fleet, &demand, cells);
    let filled = super::cpu_seconds();
    let names: Vec<_> = fleet.views().iter().map(|v| v.host.name.clone()).collect();
    let domains: Vec<Domain> = names.iter().map(Domain::host).collect();
    let judged: Vec<_> = domains
        .iter()
        .map(|domain| failover::evaluate(&mut fleet, domain, failover::Budget::default()))
        .collect();
    let proven = super::cpu_seconds();
    let pairs = domains.iter().zip(&judged);
    let worst = after_failures(&mut fleet, &now, &demand, cells, pairs).expect("there are hosts");
    let failed = super::cpu_seconds();
    let demand_of = |shape: &Shape| Some(world::floating_of(shape));
    let tiers = tiered(
        &fleet,
        LARGEST,
        Least(LEAST),
        Steps::default(),
        cells,
        demand_of,
    );
    let end = super::cpu_seconds();
    println!(
        "| {kind:?} | {count} | {} | {} | {:.2} | {} ({} not survived) | {:.2} + {:.2} for the proofs | {} | {} | {:.2} |",
        now.count,
        now.binding.unwrap_or_default(),
        filled - start,
        worst.worst.count,
        worst.unsurvived,
        failed - proven,
        proven - filled,
        tiers.tiers.len(),
        tiers.count(),
        end - failed,
    );
}
