//! Plans that balance hosts.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_domain::fault::Fault;
use berth_domain::host::{Host, Liveness};
use berth_domain::name::HostName;
use berth_selection::Fleet;
use berth_selection::balance::{End, Options, Plan, Proposal, Signals, Threshold, Weights, plan};

use super::rules;
use crate::failover::draw::Cluster;

/// Numbers that differ by less come from rounding.
const NEAR: f64 = 1e-9;

/// Returns a cluster; in two of three, one host has less memory for guests than the others.
fn cluster(seed: u64) -> Cluster {
    let mut cluster = Cluster::new(seed, 3 + (seed % 3) as usize);
    change(&mut cluster, 2, |host| {
        host.report.memory_reserved_mib = [0, 3000, 9000][(seed % 3) as usize];
    });
    cluster.fill(10 + (seed % 7) as usize * 3);
    cluster
}

/// Changes the record of a host.
fn change(cluster: &mut Cluster, at: usize, change: impl FnOnce(&mut Host)) {
    let view = Arc::make_mut(&mut cluster.hosts[at]);
    let mut host = (*view.host).clone();
    change(&mut host);
    view.set_host(Arc::new(host));
}

/// Does a plan again by the rules, and asserts that every number in it is so.
fn assert_is_so(cluster: &Cluster, options: &Options, plan: &Plan) -> Fleet {
    let mut fleet = cluster.fleet();
    let scale = rules::online(&fleet);
    assert_eq!(plan.before, rules::score(&fleet, options));
    for step in &plan.moves {
        assert!((rules::score(&fleet, options).total - step.score_before).abs() < NEAR);
        rules::replay(&mut fleet, [step]);
        let after = rules::score(&fleet, options).total;
        assert!((after - step.score_after).abs() < NEAR, "{}", step.why);
        let gain = (step.score_before - after) * scale;
        assert!(gain > options.gain_min + step.cost - NEAR, "{}", step.why);
    }
    assert_eq!(plan.after, rules::score(&fleet, options));
    fleet
}

/// Goal: a plan holds, and ends where no single move is worth it. Method: replay; every move of
/// every guest tried on the end.
#[test]
fn plans_hold_and_end_where_nothing_is_left_to_gain() {
    let mut made = 0;
    for seed in 0..300 {
        let cluster = cluster(seed);
        let mut fleet = cluster.fleet();
        let options = Options {
            gain_min: [0.0, 0.01, 0.1][(seed % 3) as usize],
            cost_per_gib: [0.0, 0.002][(seed % 2) as usize],
            ..Options::default()
        };
        let planned = plan(&mut fleet, &options, None);
        assert_eq!(planned.end, End::Balanced);
        assert_eq!(planned, plan(&mut cluster.fleet(), &options, None));
        let mut end = assert_is_so(&cluster, &options, &planned);
        let best = rules::best_move(&mut end, &options, |_, _| true);
        if let Some((net, vm, to)) = best {
            let limit = options.gain_min.max(1e-6) + NEAR;
            assert!(net <= limit, "seed {seed}: {vm} to place {to} gains {net}");
        }
        made += planned.moves.len();
    }
    assert!(made > 300, "the clusters were filled unevenly: {made}");
}

/// Goal: planning leaves the fleet as it was. Method: all that can be seen of it.
#[test]
fn a_plan_changes_nothing() {
    let cluster = cluster(5);
    let mut fleet = cluster.fleet();
    plan(&mut fleet, &Options::default(), None);
    assert_eq!(fleet.views(), cluster.fleet().views());
    for guest in &cluster.guests {
        assert_eq!(**fleet.guest(&guest.vm).unwrap(), *guest);
    }
}

/// Goal: moves of one set do not need each other. Method: the plan done set by set, each backwards.
#[test]
fn the_moves_of_a_set_can_be_made_in_any_order() {
    for seed in 0..60 {
        let cluster = cluster(seed);
        let planned = plan(&mut cluster.fleet(), &Options::default(), None);
        rules::assert_apart(&planned.moves, planned.sets);
        let mut fleet = cluster.fleet();
        for set in 0..planned.sets {
            let moves = planned.moves.iter().rev();
            rules::replay(&mut fleet, moves.filter(|m| m.set == set));
        }
        let score = rules::score(&fleet, &Options::default());
        assert_eq!(score, planned.after);
    }
}

/// Goal: what is not admitted is not planned, and does not end the plan. Method: a place that
/// nothing may go to; every other move tried on the end.
#[test]
fn what_is_not_admitted_is_not_planned() {
    let mut refused = 0;
    for seed in 0..40 {
        let cluster = cluster(seed);
        let options = Options::default();
        let mut fleet = cluster.fleet();
        let mut admit = |fleet: &mut Fleet, proposal: &Proposal| {
            assert_eq!(fleet.place_of(&proposal.vm), Some(proposal.to));
            match proposal.to {
                1 => Err("not there".to_owned()),
                _ => Ok(()),
            }
        };
        let planned = plan(&mut fleet, &options, Some(&mut admit));
        assert_eq!(planned.end, End::Balanced);
        assert!(planned.moves.iter().all(|m| m.to.as_str() != "h1"));
        let mut end = assert_is_so(&cluster, &options, &planned);
        let best = rules::best_move(&mut end, &options, |_, to| to != 1);
        assert!(best.is_none_or(|(net, ..)| net <= options.gain_min + NEAR));
        refused += planned.refused.get("not there").copied().unwrap_or(0);
    }
    assert!(refused > 10);
}

/// Goal: guests that must not be moved are not; a cordoned host is emptied, one that is down is
/// left alone, and neither gets anything.
#[test]
fn hosts_and_guests_that_are_out_are_left_so() {
    for seed in 0..30 {
        let mut cluster = cluster(seed);
        change(&mut cluster, 0, |host| host.cordoned = true);
        change(&mut cluster, 1, |host| host.liveness = Liveness::Down);
        let fixed = cluster.guests[0].vm.clone();
        cluster.guests[0].fixed = Some("its devices cannot be moved".to_owned());
        let options = Options::default();
        let planned = plan(&mut cluster.fleet(), &options, None);
        for step in &planned.moves {
            assert_ne!(step.vm, fixed);
            assert_ne!(step.from.as_str(), "h1");
            assert!(!["h0", "h1"].contains(&step.to.as_str()), "{}", step.why);
        }
        let mut end = assert_is_so(&cluster, &options, &planned);
        let best = rules::best_move(&mut end, &options, |_, _| true);
        assert!(best.is_none_or(|(net, ..)| net <= options.gain_min + NEAR));
    }
}

/// Goal: nothing is done below the thresholds, and no more than may be.
#[test]
fn thresholds_and_the_number_of_moves_are_kept() {
    let cluster = cluster(12);
    let of = |options: &Options| plan(&mut cluster.fleet(), options, None);
    let all = of(&Options::default());
    assert!(all.moves.len() > 2, "{}", all.moves.len());
    let threshold = Threshold {
        score: all.before.total + 1.0,
        usage: 1.1,
    };
    let below = of(&Options {
        threshold,
        ..Options::default()
    });
    assert_eq!((below.end, below.moves.len()), (End::BelowThreshold, 0));
    assert_eq!(below.before, below.after);
    let above = Threshold {
        score: all.before.total / 2.0,
        ..threshold
    };
    let above = of(&Options {
        threshold: above,
        ..Options::default()
    });
    assert_eq!(above.moves, all.moves);
    let two = of(&Options {
        moves_max: 2,
        ..Options::default()
    });
    assert_eq!((two.end, two.moves.len()), (End::MovesMax, 2));
    let dear = of(&Options {
        cost_per_gib: 1000.0,
        ..Options::default()
    });
    assert_eq!((dear.end, dear.moves.len()), (End::Balanced, 0));
}

/// Goal: where more memory is promised than there is, what guests really hold counts. Method: hosts
/// that are the same on the books.
#[test]
fn what_guests_really_hold_counts_where_memory_is_over_committed() {
    let mut cluster = Cluster::new(3, 2);
    cluster.fill(14);
    let planned = plan(&mut cluster.fleet(), &Options::default(), None);
    let mut fleet = cluster.fleet();
    rules::replay(&mut fleet, &planned.moves);
    let name = |text: &str| HostName::new(text).unwrap();
    let live_mib = BTreeMap::from([(name("h0"), 6000), (name("h1"), 100)]);
    let at_ratio = |ratio| Options {
        weights: Weights::at_ratio(ratio),
        signals: Signals {
            live_mib: live_mib.clone(),
            n1_cnt: None,
        },
        ..Options::default()
    };
    assert_eq!(plan(&mut fleet, &at_ratio(1.0), None).moves, []);
    let planned = plan(&mut fleet, &at_ratio(2.0), None);
    let first = &planned.moves[0];
    assert_eq!(first.component, "mem_load_cv", "{}", first.why);
    assert_eq!(first.from, name("h0"));
    let load = |score: &berth_selection::balance::Score| score.value("mem_load_cv").unwrap();
    assert!(load(&planned.after) < load(&planned.before));
}

/// Goal: a person reads why.
#[test]
fn a_move_is_told_with_its_numbers() {
    let cluster = cluster(12);
    let planned = plan(&mut cluster.fleet(), &Options::default(), None);
    let step = &planned.moves[0];
    let wanted = format!("from {} (", step.from);
    assert!(step.why.starts_with(&wanted), "{}", step.why);
    let wanted = format!(
        "score {:.4} -> {:.4}, ",
        step.score_before, step.score_after
    );
    assert!(step.why.contains(&wanted), "{}", step.why);
    assert!(step.why.ends_with(&format!("mostly {}", step.component)));
    assert!(step.why.contains(" %) to "), "{}", step.why);
}

#[test]
fn what_makes_no_sense_is_told() {
    let faults: Vec<Fault> = Options {
        gain_min: f64::INFINITY,
        ..Options::default()
    }
    .faults();
    assert_eq!(faults.len(), 1);
    assert!(faults[0].to_string().starts_with("gain_min"));
}
