//! What it costs to find the moves that make room for a guest that fits nowhere.
//!
//! Hosts are filled with the fifteen kinds of guests until the guest that is measured has no room.

use berth_domain::numa::Strategy;
use berth_selection::Fleet;
use berth_selection::balance::defragment::{self, Verdict};
use berth_selection::balance::{Goal, defragment as make_room};

use super::mix;
use super::world::{self, Kind};

pub(crate) fn run(counts: &[usize]) {
    println!("\n| hosts | room for | verdict | moves | MiB sent | CPU s |");
    println!("|---|---|---|---|---|---|");
    for count in counts {
        let mut fleet = world::full(Kind::Exact, *count, super::SEED);
        for kind in mix::kinds("") {
            if ["d32n", "d16n", "a12", "g8"].contains(&kind.name) {
                make(&mut fleet, kind.name, &kind.demand);
            }
        }
    }
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
        Verdict::Possible(_) => "possible",
        Verdict::Impossible(_) => "impossible",
        Verdict::NotFound { is_spent: true, .. } => "not found, budget spent",
        Verdict::NotFound { .. } => "not found",
    };
    let moves = verdict.way().map_or(0, |way| way.moves.len());
    let sent = verdict.way().map_or(0, |way| way.sent_mib);
    println!(
        "| {} | {name} | {told} | {moves} | {sent} | {seconds:.2} |",
        fleet.len()
    );
}
