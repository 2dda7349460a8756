//! What the tests know of scores and moves, without the planner.

use std::collections::BTreeSet;

use berth_domain::claim::Claim;
use berth_domain::constraint::admit;
use berth_domain::name::VmName;
use berth_domain::numa::{Assignment, Strategy};
use berth_selection::Fleet;
use berth_selection::balance::{Metric, Move, Options, Score, Standing};

/// Returns the score of a fleet, made anew.
pub(crate) fn score(fleet: &Fleet, options: &Options) -> Score {
    let mut metric = Metric::new(options.weights, options.signals.n1_cnt);
    for (at, view) in fleet.views().iter().enumerate() {
        metric.add(&Standing::of(view, fleet.guests_at(at).count(), None));
    }
    metric.score()
}

/// Returns the number of hosts that guests may stay on.
pub(crate) fn online(fleet: &Fleet) -> f64 {
    let views = fleet.views().iter();
    views.filter(|view| view.host.is_open()).count() as f64
}

/// Makes a move, after checking it by the rules that a claim is checked by.
pub(crate) fn make(fleet: &mut Fleet, vm: &VmName, to: usize, given: &Assignment) {
    let guest = fleet.guest(vm).unwrap().clone();
    let demand = fleet.demand(&guest).into_owned();
    let claim = Claim {
        host: fleet.name(to).clone(),
        resources: demand.resources.clone(),
        assignment: given.clone(),
        ..(*guest.claim).clone()
    };
    admit(&fleet.views()[to], &demand, &claim).unwrap();
    assert_eq!(guest.fixed, None, "{vm} cannot be moved");
    fleet.shift(vm, to, given.clone());
}

/// Makes the moves of a plan in the order that is given.
pub(crate) fn replay<'a>(fleet: &mut Fleet, moves: impl IntoIterator<Item = &'a Move>) {
    for step in moves {
        let from = fleet.place_of(&step.vm).unwrap();
        assert_eq!(*fleet.name(from), step.from);
        let to = fleet.place(&step.to).unwrap();
        make(fleet, &step.vm, to, &step.assignment);
    }
}

/// Returns the most that any single move gains by host beyond its cost, with the move.
pub(crate) fn best_move(
    fleet: &mut Fleet,
    options: &Options,
    allowed: impl Fn(&VmName, usize) -> bool,
) -> Option<(f64, VmName, usize)> {
    let before = score(fleet, options).total;
    let scale = online(fleet);
    let mut best: Option<(f64, VmName, usize)> = None;
    let all: Vec<VmName> = fleet.guests().map(|guest| guest.vm.clone()).collect();
    for vm in all {
        let guest = fleet.guest(&vm).unwrap().clone();
        let from = fleet.place_of(&vm).unwrap();
        let is_up = fleet.views()[from].host.liveness == berth_domain::host::Liveness::Up;
        if guest.fixed.is_some() || !is_up {
            continue;
        }
        for to in (0..fleet.len()).filter(|to| *to != from && allowed(&vm, *to)) {
            let Some(assignment) = fleet.try_place(&vm, to, Strategy::Pack) else {
                continue;
            };
            let mark = fleet.mark();
            fleet.shift(&vm, to, assignment);
            let after = score(fleet, options).total;
            fleet.undo(mark);
            let net = (before - after) * scale - cost(options, &guest.claim);
            if best.as_ref().is_none_or(|(most, ..)| net > *most) {
                best = Some((net, vm.clone(), to));
            }
        }
    }
    best
}

fn cost(options: &Options, claim: &Claim) -> f64 {
    let memory = berth_domain::resource::ResourceClass::memory_mb();
    let pmem: u64 = claim.assignment.pmem.iter().map(|d| d.size_bytes).sum();
    let mib = claim.resources[&memory] + pmem / (1 << 20);
    options.cost_per_gib * mib as f64 / 1024.0
}

/// Asserts that the moves of each set have hosts of their own.
pub(crate) fn assert_apart(moves: &[Move], sets: usize) {
    for set in 0..sets {
        let mut hosts = BTreeSet::new();
        let here: Vec<&Move> = moves.iter().filter(|m| m.set == set).collect();
        assert!(!here.is_empty(), "set {set} of {sets} is empty");
        for step in here {
            assert!(hosts.insert(&step.from), "{} twice in set {set}", step.from);
            assert!(hosts.insert(&step.to), "{} twice in set {set}", step.to);
        }
    }
}
