//! Goal: what is done to a fleet is what it would be without one, and undone to the last detail.
//! Method: random steps on random clusters; the fleet made anew of the same hosts and guests.

use std::sync::Arc;

use berth_domain::numa::Strategy;
use berth_selection::{Fleet, FleetGuest, fleet};

use super::draw::Cluster;

/// All that can be seen of a fleet.
fn picture(fleet: &Fleet) -> String {
    let hosts = (0..fleet.len()).map(|at| {
        let guests: Vec<&FleetGuest> = fleet.guests_at(at).map(|guest| &**guest).collect();
        let demands = guests.iter().map(|guest| fleet.demand(guest));
        let demands: Vec<_> = demands.collect();
        let view = &fleet.views()[at];
        // Whether they were read before is no part of it.
        let _ = (view.class(), view.likeness());
        format!("{view:?}\n{guests:?}\n{demands:?}\n")
    });
    let mut hosts: Vec<String> = hosts.collect();
    hosts.sort();
    hosts.join("\n")
}

/// Moves a random guest to a random host, if it fits there.
fn step(cluster: &mut Cluster, fleet: &mut Fleet) {
    let dice = &mut cluster.dice;
    let vm = dice.pick(&cluster.guests).vm.clone();
    let to = dice.below(fleet.len());
    let Some(assignment) = fleet.try_place(&vm, to, Strategy::Pack) else {
        return;
    };
    if dice.below(2) == 0 {
        fleet.shift(&vm, to, assignment);
    } else {
        fleet.take(&vm);
        fleet.put(&vm, to, assignment);
    }
}

#[test]
fn steps_are_undone_to_the_last_detail() {
    for seed in 0..60 {
        let mut cluster = Cluster::new(seed, 3);
        cluster.fill(12);
        let mut fleet = cluster.fleet();
        let before = picture(&fleet);
        let start = fleet.mark();
        for _ in 0..6 {
            step(&mut cluster, &mut fleet);
        }
        let dice = &mut cluster.dice;
        let known = dice.pick(&cluster.guests).clone();
        let to = dice.below(fleet.len());
        if let Some(assignment) = fleet.try_place(&known.vm, to, Strategy::Spread) {
            let mark = fleet.mark();
            let (before, mut claim) = (picture(&fleet), (*known.claim).clone());
            claim.host = fleet.name(to).clone();
            claim.assignment = assignment;
            claim.resources = known.demand.resources.clone();
            let claim = Arc::new(claim);
            fleet.join(FleetGuest { claim, ..known }).unwrap();
            assert_ne!(picture(&fleet), before, "seed {seed}: the claim counts");
            fleet.undo(mark);
            assert_eq!(picture(&fleet), before, "seed {seed}");
        }
        let (middle, later) = (picture(&fleet), fleet.mark());
        let failing = cluster.dice.below(3);
        let homeless: Vec<_> = fleet.guests_at(failing).map(|g| g.vm.clone()).collect();
        fleet.fail(failing);
        for vm in &homeless {
            for to in 0..3 {
                if fleet.place_of(vm).is_none()
                    && let Some(assignment) = fleet.try_place(vm, to, Strategy::Spread)
                {
                    assert_ne!(to, failing, "nothing comes to a host that failed");
                    fleet.put(vm, to, assignment);
                }
            }
        }
        fleet.undo(later);
        assert_eq!(picture(&fleet), middle, "seed {seed}");
        let anew = Fleet::new(fleet.views(), fleet.guests().map(|g| (**g).clone()));
        assert_eq!(picture(&anew.unwrap()), middle, "seed {seed}");
        fleet.undo(start);
        assert_eq!(picture(&fleet), before, "seed {seed}");
    }
}

#[test]
fn a_fleet_that_is_told_of_changes_is_as_one_made_anew() {
    for seed in 0..40 {
        let mut cluster = Cluster::new(seed, 4);
        cluster.fill(10);
        let mut fleet = cluster.fleet();
        for turn in 0..12 {
            let changed = if cluster.dice.below(2) == 0 {
                cluster.arrive()
            } else {
                cluster.depart()
            };
            if let Some(name) = changed {
                let (view, guests) = cluster.host(&name);
                fleet.renew(view, guests).unwrap();
            }
            assert_eq!(
                picture(&fleet),
                picture(&cluster.fleet()),
                "seed {seed}, {turn}"
            );
        }
        let gone = cluster.hosts.remove(1).host.name.clone();
        cluster.guests.retain(|guest| guest.claim.host != gone);
        fleet.remove(&gone);
        assert_eq!(picture(&fleet), picture(&cluster.fleet()), "seed {seed}");
    }
}

#[test]
fn a_guest_of_no_host_and_one_given_twice_are_refused() {
    let mut cluster = Cluster::new(1, 2);
    cluster.fill(4);
    let guest = cluster.guests[0].clone();
    let twice = Fleet::new(&cluster.hosts, [guest.clone(), guest.clone()]);
    assert!(matches!(twice, Err(fleet::Error::Twice { .. })));
    cluster
        .hosts
        .retain(|view| view.host.name != guest.claim.host);
    let lost = Fleet::new(&cluster.hosts, [guest]);
    let why = lost.unwrap_err().to_string();
    assert!(why.contains("which is not part of the fleet"), "{why}");
}
