//! What it costs to find the moves that make room for a guest that fits nowhere.
//!
//! Hosts are filled with the fifteen kinds of guests until the guest that is measured has no room.

use berth_domain::numa::Strategy;
use berth_selection::Fleet;
use berth_selection::balance::defragment::{self, Verdict};
use berth_selection::balance::{Goal, defragment as make_room};
use berth_testkit::selection::mix;

use super::world;

pub(crate) fn run(counts: &[usize]) {
    println!("\n| hosts | CPUs, memory taken | room for | verdict | moves | MiB sent | CPU s |");
    println!("|---|---|---|---|---|---|---|");
    for count in counts {
        for kind in mix::kinds("") {
            if ["d32n", "d16n", "a12", "e6"].contains(&kind.name) {
                let mut fleet = world::without_room(*count, super::SEED, &kind.demand);
                make(&mut fleet, kind.name, &kind.demand);
            }
        }
    }
}

/// Returns how much of the dedicated CPUs and of the memory is taken, in percent.
fn load(fleet: &Fleet) -> (f64, f64) {
    let (mut free, mut all, mut left, mut memory) = (0, 0, 0, 0);
    for view in fleet.views() {
        free += view.headroom.dedicated;
        all += view.cells().map(|cell| cell.dedicated_all).sum::<u32>();
        left += u64::from(view.headroom.memory_mib);
        memory += view.host.report.topology.memory_mib();
    }
    let part = |free: f64, all: f64| 100.0 - 100.0 * free / all;
    let cpus = part(f64::from(free), f64::from(all));
    (cpus, part(left as f64, memory as f64))
}

fn make(fleet: &mut Fleet, name: &str, demand: &berth_domain::constraint::Demand) {
    let goal = Goal {
        demand,
        count: 1,
        cells: Strategy::Pack,
    };
    let start = super::cpu_seconds();
    let verdict = make_room(fleet, &goal, defragment::Budget::default());
    let seconds = super::cpu_seconds() - start;
    let told = match &verdict {
        Verdict::Possible(way) if way.is_cheapest => "possible, the cheapest",
        Verdict::Possible(_) => "possible",
        Verdict::Impossible(_) => "impossible",
        Verdict::NotFound { is_spent: true, .. } => "not found, budget spent",
        Verdict::NotFound { .. } => "not found",
    };
    let moves = verdict.way().map_or(0, |way| way.moves.len());
    let sent = verdict.way().map_or(0, |way| way.sent_mib);
    let (cpus, memory) = load(fleet);
    println!(
        "| {} | {cpus:.0} %, {memory:.0} % | {name} | {told} | {moves} | {sent} | {seconds:.2} |",
        fleet.len()
    );
}
