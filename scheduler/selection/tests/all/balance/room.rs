//! Room that is made for guests.

use berth_domain::constraint::{Demand, PreparedDemand, admit};
use berth_domain::name::VmName;
use berth_domain::numa::Strategy;
use berth_domain::resource::ResourceClass;
use berth_selection::Fleet;
use berth_selection::balance::defragment::Budget;
use berth_selection::balance::{Goal, Impossible, Verdict, Way, defragment};

use super::rules;
use crate::failover::draw::{self, Cluster};

fn cluster(seed: u64) -> (Cluster, Demand) {
    let mut cluster = Cluster::new(seed, 3);
    cluster.fill(16 + (seed % 5) as usize * 4);
    let wanted = draw::demand(&mut cluster.dice);
    (cluster, wanted)
}

fn goal(demand: &Demand, count: usize) -> Goal<'_> {
    Goal {
        demand,
        count,
        cells: Strategy::Pack,
    }
}

fn fits(fleet: &Fleet, demand: &Demand) -> bool {
    let applicant = PreparedDemand::new(demand);
    let mut views = fleet.views().iter();
    views.any(|view| applicant.try_place(view, Strategy::Pack).is_some())
}

/// Does a way again by the rules, and asserts that the rooms are there.
fn assert_is_so(cluster: &Cluster, demand: &Demand, way: &Way) {
    let mut fleet = cluster.fleet();
    for step in &way.moves {
        assert_eq!(fleet.name(fleet.place_of(&step.vm).unwrap()), &step.from);
        let to = fleet.place(&step.to).unwrap();
        rules::make(&mut fleet, &step.vm, to, &step.assignment);
    }
    let mut views = fleet.views().to_vec();
    for placement in &way.placements {
        let at = fleet.place(&placement.host).unwrap();
        let claim = berth_domain::claim::Claim {
            host: placement.host.clone(),
            resources: demand.resources.clone(),
            assignment: placement.assignment.clone(),
            ..(*cluster.guests[0].claim).clone()
        };
        admit(&views[at], demand, &claim).unwrap();
        std::sync::Arc::make_mut(&mut views[at]).place(&claim);
    }
    let sent: u64 = way.moves.iter().map(|step| step.sent_mib).sum();
    assert_eq!(way.sent_mib, sent);
}

/// Returns what at most so many moves send at least until the guest fits: all of them tried.
fn exhaustive(fleet: &mut Fleet, demand: &Demand, moves: usize) -> Option<u64> {
    if fits(fleet, demand) {
        return Some(0);
    }
    if moves == 0 {
        return None;
    }
    let mut best: Option<u64> = None;
    let all: Vec<VmName> = fleet.guests().map(|guest| guest.vm.clone()).collect();
    for vm in all {
        let from = fleet.place_of(&vm).unwrap();
        for to in (0..fleet.len()).filter(|to| *to != from) {
            let Some(assignment) = fleet.try_place(&vm, to, Strategy::Pack) else {
                continue;
            };
            let claim = fleet.guest(&vm).unwrap().claim.clone();
            let pmem: u64 = claim.assignment.pmem.iter().map(|d| d.size_bytes).sum();
            let own = claim.resources[&ResourceClass::memory_mb()] + (pmem >> 20);
            let mark = fleet.mark();
            fleet.shift(&vm, to, assignment);
            let rest = exhaustive(fleet, demand, moves - 1);
            fleet.undo(mark);
            best = best.into_iter().chain(rest.map(|rest| rest + own)).min();
        }
    }
    best
}

/// Goal: what can be done with two moves is found, and nothing dearer. Method: all sequences of up to
/// two moves; where more may be cheaper, it may be.
#[test]
fn nothing_is_missed_that_two_moves_can_do() {
    let (mut found, mut none, mut dearer) = (0, 0, Vec::new());
    for seed in 0..200 {
        let (cluster, wanted) = cluster(seed);
        let known = exhaustive(&mut cluster.fleet(), &wanted, 2);
        let verdict = defragment(&mut cluster.fleet(), &goal(&wanted, 1), Budget::default());
        if let Some(way) = verdict.way() {
            assert_is_so(&cluster, &wanted, way);
        }
        match (known, &verdict) {
            (Some(least), Verdict::Possible(way)) => {
                found += usize::from(least > 0);
                if way.sent_mib > least {
                    dearer.push((seed, least, way.sent_mib));
                }
            }
            (Some(least), other) => dearer.push((seed, least, {
                eprintln!("{other}");
                0
            })),
            (None, Verdict::Possible(way)) => assert!(way.moves.len() > 2, "{verdict}"),
            (None, _) => none += 1,
        }
    }
    assert_eq!(dearer, []);
    assert!(found > 20 && none > 10, "{found} found, {none} without");
}

/// Goal: rooms for several guests are beside each other, and what cannot be is told so. Method: the
/// way done again; a bound checked by its numbers.
#[test]
fn rooms_for_several_are_beside_each_other() {
    let (mut possible, mut impossible, mut open) = (0, 0, 0);
    for seed in 0..120 {
        let (cluster, wanted) = cluster(seed);
        let mut fleet = cluster.fleet();
        let verdict = defragment(&mut fleet, &goal(&wanted, 3), Budget::default());
        assert_eq!(fleet.views(), cluster.fleet().views());
        match &verdict {
            Verdict::Possible(way) => {
                assert_is_so(&cluster, &wanted, way);
                assert_eq!(way.placements.len(), 3);
                possible += 1;
            }
            Verdict::Impossible(Impossible::Total {
                free, requested, ..
            }) => {
                assert!(free < requested, "{verdict}");
                impossible += 1;
            }
            Verdict::Impossible(Impossible::NoHost { .. }) => impossible += 1,
            Verdict::NotFound { so_far, .. } => {
                assert_is_so(&cluster, &wanted, so_far);
                open += 1;
            }
        }
    }
    let told = format!("{possible} possible, {impossible} impossible, {open} open");
    assert!(possible > 10 && impossible > 10 && open > 0, "{told}");
}

/// Goal: a bound is said only where nothing helps. Method: guests that must not be moved.
#[test]
fn where_nothing_can_be_moved_a_bound_says_so() {
    let (mut cluster, wanted) = cluster(1);
    let fits_now = fits(&cluster.fleet(), &wanted);
    for guest in &mut cluster.guests {
        guest.fixed = Some("it has a device".to_owned());
    }
    let verdict = defragment(&mut cluster.fleet(), &goal(&wanted, 1), Budget::default());
    assert_eq!(fits_now, verdict.way().is_some());
    let huge = Demand {
        resources: [(ResourceClass::memory_mb(), 1 << 40)].into(),
        ..wanted
    };
    let verdict = defragment(&mut cluster.fleet(), &goal(&huge, 1), Budget::default());
    let told = verdict.to_string();
    assert!(matches!(verdict, Verdict::Impossible(_)), "{told}");
    assert!(
        told.contains("MEMORY_MB left, 1099511627776 are requested"),
        "{told}"
    );
}

/// Goal: the budget ends the search, and that is told.
#[test]
fn a_budget_that_is_spent_is_told() {
    for seed in 0..120 {
        let (cluster, wanted) = cluster(seed);
        let budget = Budget {
            placements: 2,
            ..Budget::default()
        };
        let all = defragment(&mut cluster.fleet(), &goal(&wanted, 1), Budget::default());
        let few = defragment(&mut cluster.fleet(), &goal(&wanted, 1), budget);
        let needs_moves = all.way().is_some_and(|way| !way.moves.is_empty());
        if needs_moves && few.way().is_none() {
            let told = few.to_string();
            assert!(told.contains("within the budget"), "{told}");
            return;
        }
    }
    panic!("no cluster needs more than two placements");
}
