//! Balancing that keeps hosts able to fail.

use std::collections::BTreeSet;

use berth_selection::Fleet;
use berth_selection::balance::{Guard, Options, Plan, Proposal, plan};
use berth_selection::failover::{Budget, Domain, Verdict, evaluate};

use super::rules;
use crate::failover::draw::Cluster;

fn judged(fleet: &mut Fleet) -> Vec<(Domain, Verdict)> {
    let hosts: Vec<_> = fleet.views().iter().map(|v| v.host.name.clone()).collect();
    let domains = hosts.iter().map(Domain::host);
    domains
        .map(|domain| {
            let verdict = evaluate(fleet, &domain, Budget::default());
            (domain, verdict)
        })
        .collect()
}

fn proven(fleet: &mut Fleet) -> BTreeSet<String> {
    let all = judged(fleet).into_iter();
    all.filter(|(_, verdict)| verdict.plan().is_some())
        .map(|(domain, _)| domain.name)
        .collect()
}

/// Returns how many moves of a plan take away a proof.
fn losses(cluster: &Cluster, planned: &Plan) -> usize {
    let mut fleet = cluster.fleet();
    let mut before = proven(&mut fleet);
    let mut lost = 0;
    for step in &planned.moves {
        rules::replay(&mut fleet, [step]);
        let after = proven(&mut fleet);
        lost += usize::from(!after.is_superset(&before));
        before = after;
    }
    lost
}

/// Goal: no move takes away a proof of N+1. Method: every host judged anew after every move of the
/// plan; without the guard, some moves do.
#[test]
fn no_move_takes_away_a_proof() {
    let (mut without, mut refused, mut made) = (0, 0, 0);
    for seed in 0..120 {
        let mut cluster = Cluster::new(seed, 4);
        cluster.fill(12 + (seed % 6) as usize * 3);
        let options = Options::default();
        let free = plan(&mut cluster.fleet(), &options, None);
        without += losses(&cluster, &free);

        let mut fleet = cluster.fleet();
        let verdicts = judged(&mut fleet);
        let pairs = verdicts.iter().map(|(domain, verdict)| (domain, verdict));
        let mut guard = Guard::new(pairs, Budget::default());
        let before: BTreeSet<String> = guard.proven().map(str::to_owned).collect();
        let mut admit = |fleet: &mut Fleet, move_: &Proposal| guard.admit(fleet, move_);
        let planned = plan(&mut fleet, &options, Some(&mut admit));
        refused += planned.refused.values().sum::<usize>();
        made += planned.moves.len();
        let mut end = cluster.fleet();
        for step in &planned.moves {
            rules::replay(&mut end, [step]);
            let now = proven(&mut end);
            assert!(now.is_superset(&before), "seed {seed}: {}", step.why);
        }
    }
    let told = format!("{without} lost without the guard, {refused} refused, {made} made");
    assert!(without > 3 && refused > 3 && made > 100, "{told}");
}
