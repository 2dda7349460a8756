//! Goal: no verdict is wrong, and verdicts that are kept up to date are those made from scratch.
//! Method: an exhaustive search on small random clusters; every plan is carried out step by step;
//! random changes, one at a time.

use std::collections::BTreeSet;

use berth_domain::name::VmName;
use berth_selection::failover::{Bound, Budget, Domain, Verdict, VerdictTracker, evaluate};
use berth_selection::{Fleet, Rescue};

use super::draw::Cluster;
use super::oracle;

/// The exhaustive search takes so many steps at most.
const STEPS: u32 = 20_000;

#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    proven: u32,
    refuted: u32,
    unknown: u32,
    /// Of these, there is a plan after all.
    missed: u32,
    /// The exhaustive search was given up.
    open: u32,
}

fn check(fleet: &mut Fleet, domain: &Domain, counts: &mut Counts) {
    let verdict = evaluate(fleet, domain, Budget::default());
    if let Verdict::Proven(plan) = &verdict {
        plan.verify(fleet, domain).unwrap();
        counts.proven += 1;
        return;
    }
    let mark = fleet.mark();
    let places: Vec<usize> = domain.hosts.iter().filter_map(|h| fleet.place(h)).collect();
    let guests = places.iter().flat_map(|at| fleet.guests_at(*at));
    let guests: Vec<_> = guests.cloned().collect();
    for at in places {
        fleet.fail(at);
    }
    let exists = oracle::exists(fleet, &guests, &mut STEPS.clone());
    fleet.undo(mark);
    counts.open += u32::from(exists.is_none());
    match &verdict {
        Verdict::Proven(_) => unreachable!("looked at above"),
        Verdict::Refuted(bound) => {
            assert_ne!(exists, Some(true), "{domain:?}: {bound}");
            counts.refuted += 1;
        }
        Verdict::Unknown { .. } => {
            counts.unknown += 1;
            counts.missed += u32::from(exists == Some(true));
        }
    }
}

#[test]
fn no_verdict_contradicts_an_exhaustive_search() {
    let mut counts = Counts::default();
    for seed in 0..1500 {
        let mut cluster = Cluster::new(seed, 2 + seed as usize % 3);
        let guests = 4 + cluster.dice.below(18);
        cluster.fill(guests);
        let mut fleet = cluster.fleet();
        for view in &cluster.hosts {
            check(&mut fleet, &Domain::host(&view.host.name), &mut counts);
        }
    }
    eprintln!("{counts:?}");
    assert!(counts.proven > 300 && counts.refuted > 300, "{counts:?}");
    assert!(counts.missed * 100 < counts.proven, "{counts:?}");
}

fn kind(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Proven(_) => "proven",
        Verdict::Refuted(_) => "refuted",
        Verdict::Unknown { .. } => "unknown",
    }
}

/// Checks every verdict that is kept against one made from scratch. Returns how many differ since
/// one of both is open.
fn compare(tracker: &VerdictTracker, cluster: &Cluster, what: &str) -> u32 {
    let mut fleet = cluster.fleet();
    let mut differ = 0;
    for (domain, kept) in tracker.verdicts() {
        let anew = evaluate(&mut fleet, domain, Budget::default());
        if let Verdict::Proven(plan) = kept {
            plan.verify(&mut fleet, domain)
                .unwrap_or_else(|fault| panic!("{what}, {}: {fault}", domain.name));
        }
        let (kept, anew) = (kind(kept), kind(&anew));
        if kept != anew {
            assert!(
                kept == "unknown" || anew == "unknown",
                "{what}: {kept}, {anew}"
            );
            differ += 1;
        }
    }
    differ
}

#[test]
fn verdicts_that_are_kept_are_those_from_scratch() {
    follow(1000..1040, Budget::default());
    // A budget that is too small for any change: all is caught up later.
    let per_change = 0;
    follow(
        1000..1010,
        Budget {
            per_change,
            ..Budget::default()
        },
    );
}

fn follow(seeds: std::ops::Range<u64>, budget: Budget) {
    let mut differ = 0;
    let mut all = 0;
    for seed in seeds {
        let mut cluster = Cluster::new(seed, 3 + seed as usize % 3);
        cluster.fill(14);
        let pair: BTreeSet<_> = cluster.hosts[..2]
            .iter()
            .map(|v| v.host.name.clone())
            .collect();
        let pair = Domain {
            name: "rack".to_owned(),
            hosts: pair,
        };
        let mut tracker = VerdictTracker::new(cluster.fleet(), vec![pair], budget);
        for turn in 0..16 {
            let changed = match cluster.dice.below(5) {
                0 | 1 => cluster.arrive(),
                2 | 3 => cluster.depart(),
                _ => Some(cluster.turn_over()),
            };
            let Some(host) = changed else {
                continue;
            };
            let (view, guests) = cluster.host(&host);
            tracker.renew(view, guests).unwrap();
            while tracker.is_behind() || tracker.is_searching() {
                tracker.catch_up(1);
            }
            differ += compare(&tracker, &cluster, &format!("seed {seed}, turn {turn}"));
            all += tracker.verdicts().count();
        }
        let gone = cluster.hosts.remove(1).host.name.clone();
        cluster.guests.retain(|guest| guest.claim.host != gone);
        tracker.remove(&gone);
        tracker.catch_up(u64::MAX);
        differ += compare(&tracker, &cluster, &format!("seed {seed}, a host less"));
        let back = cluster.new_host(&gone);
        tracker.renew(&back, []).unwrap();
        tracker.catch_up(u64::MAX);
        differ += compare(&tracker, &cluster, &format!("seed {seed}, a host more"));
    }
    eprintln!("{differ} of {all} differ since one is open");
    assert!(differ * 50 < all as u32, "{differ} of {all}");
}

/// Returns a verdict without how much was tried: that is less where others looked before.
fn without_effort(verdict: &Verdict) -> Verdict {
    match verdict.clone() {
        Verdict::Refuted(Bound::Searched { guests, .. }) => {
            Verdict::Refuted(Bound::Searched { guests, tried: 0 })
        }
        Verdict::Unknown { .. } => Verdict::Unknown {
            tried: 0,
            stuck: VmName::new("any").unwrap(),
        },
        known @ (Verdict::Proven(_) | Verdict::Refuted(_)) => known,
    }
}

/// What one verdict finds of the hosts is used by the others. Every verdict is evaluated among
/// others, and alone on a fleet of its own: plans and bounds are the same to the last CPU. Between
/// them hosts change, come and go, and claims are only considered.
#[test]
fn verdicts_that_share_what_they_find_are_those_that_share_nothing() {
    let (mut proven, mut refuted) = (0, 0);
    for seed in 3000..3060 {
        let mut cluster = Cluster::new(seed, 3 + seed as usize % 6);
        cluster.fill(10 + seed as usize % 24);
        let rack = cluster.hosts[1..3].iter().map(|v| v.host.name.clone());
        let rack = Domain {
            name: "rack".to_owned(),
            hosts: rack.collect(),
        };
        let mut tracker = VerdictTracker::new(cluster.fleet(), vec![rack], Budget::default());
        for turn in 0..10 {
            let changed = match cluster.dice.below(8) {
                0..=2 => {
                    let host = cluster.arrive();
                    let guest = cluster.guests.last().filter(|_| host.is_some());
                    guest.map(|guest| tracker.would_break(guest).unwrap());
                    host
                }
                3..=5 => cluster.depart(),
                6 => Some(cluster.turn_over()),
                _ if turn == 4 => {
                    let gone = cluster.hosts.remove(0).host.name.clone();
                    cluster.guests.retain(|guest| guest.claim.host != gone);
                    tracker.remove(&gone);
                    cluster.new_host(&gone);
                    Some(gone)
                }
                _ => None,
            };
            let Some(host) = changed else {
                continue;
            };
            let (view, guests) = cluster.host(&host);
            tracker.renew(view, guests).unwrap();
            let domains: Vec<Domain> = tracker.verdicts().map(|(d, _)| d.clone()).collect();
            for domain in domains {
                tracker.add(domain.clone());
                let (_, shared) = tracker.verdict(&domain.name).unwrap();
                let alone = evaluate(&mut tracker.fleet().clone(), &domain, Budget::default());
                let what = format!("seed {seed}, turn {turn}, {}", domain.name);
                assert_eq!(without_effort(shared), without_effort(&alone), "{what}");
                proven += u32::from(shared.plan().is_some());
                refuted += u32::from(shared.bound().is_some());
            }
        }
    }
    assert!(proven > 500 && refuted > 500, "{proven} {refuted}");
}

/// A question changes nothing: neither what is to be caught up.
#[test]
fn a_question_leaves_what_is_behind_as_it_was() {
    let budget = Budget {
        per_change: 0,
        ..Budget::default()
    };
    let mut questions = 0;
    for seed in 4000..4040 {
        let mut cluster = Cluster::new(seed, 4);
        cluster.fill(12);
        let mut tracker = VerdictTracker::new(cluster.fleet(), Vec::new(), budget);
        let Some(host) = cluster.depart() else {
            continue;
        };
        let (view, guests) = cluster.host(&host);
        tracker.renew(view, guests).unwrap();
        let Some(_) = cluster.arrive() else {
            continue;
        };
        let before = (tracker.is_behind(), tracker.unsearched());
        tracker.would_break(cluster.guests.last().unwrap()).unwrap();
        assert_eq!((tracker.is_behind(), tracker.unsearched()), before);
        questions += u32::from(before.0);
        tracker.catch_up(u64::MAX);
        cluster.leave_last();
        compare(&tracker, &cluster, &format!("seed {seed}"));
    }
    assert!(questions > 10, "{questions}");
}

#[test]
fn a_claim_breaks_what_is_not_proven_after_it() {
    let (mut broke, mut harmless) = (0, 0);
    for seed in 2000..2060 {
        let mut cluster = Cluster::new(seed, 4);
        cluster.fill(12);
        let mut tracker = VerdictTracker::new(cluster.fleet(), Vec::new(), Budget::default());
        for _ in 0..6 {
            let Some(host) = cluster.arrive() else {
                continue;
            };
            let proven = |tracker: &VerdictTracker| -> BTreeSet<String> {
                let all = tracker.verdicts().filter(|(_, v)| v.plan().is_some());
                all.map(|(domain, _)| domain.name.clone()).collect()
            };
            let before = proven(&tracker);
            let guest = cluster.guests.last().unwrap();
            let broken = tracker.would_break(guest).unwrap();
            assert_eq!(proven(&tracker), before, "asking changes nothing");
            let (view, guests) = cluster.host(&host);
            tracker.renew(view, guests).unwrap();
            let lost: BTreeSet<String> = before.difference(&proven(&tracker)).cloned().collect();
            let told: BTreeSet<String> = broken.iter().map(|b| b.domain.name.clone()).collect();
            assert_eq!(told, lost, "seed {seed}");
            broke += u32::from(!told.is_empty());
            harmless += u32::from(told.is_empty());
        }
    }
    assert!(broke > 20 && harmless > 20, "{broke} {harmless}");
}

#[test]
fn guests_that_cannot_or_need_not_be_restarted_are_told() {
    let mut cluster = Cluster::new(7, 2);
    cluster.fill(3);
    let host = cluster.guests[0].claim.host.clone();
    cluster.guests.retain(|guest| guest.claim.host == host);
    for guest in &mut cluster.guests {
        guest.rescue = Rescue::Impossible("its function stays here".to_owned());
    }
    let domain = Domain::host(&host);
    let verdict = evaluate(&mut cluster.fleet(), &domain, Budget::default());
    let bound = verdict.bound().unwrap().to_string();
    assert!(
        bound.ends_with("cannot be started elsewhere: its function stays here"),
        "{bound}"
    );
    for guest in &mut cluster.guests {
        guest.rescue = Rescue::Spare("nobody needs it".to_owned());
    }
    let verdict = evaluate(&mut cluster.fleet(), &domain, Budget::default());
    assert_eq!(verdict.plan().map(|plan| plan.moves.len()), Some(0));
}
