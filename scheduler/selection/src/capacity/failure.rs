//! How many guests fit once a host has failed and its guests were started elsewhere.
//!
//! Its guests go where the proof of N+1 puts them ([`crate::failover`]): that is where they really
//! go. Where there is no proof, they cannot all be started, and nothing further fits.
//!
//! Not here: how many fit so that all that were added survive a failure, too. Where hosts are alike
//! and filled alike, it is the same; elsewhere admission control says it, claim by claim.

use std::collections::BTreeSet;

use berth_domain::constraint::{Demand, Violation};
use berth_domain::numa::Strategy;

use super::{Fill, Filler, Stop, summed};
use crate::failover::{Domain, Verdict};
use crate::fleet::Fleet;

/// How many guests fit after one failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfterFailure {
    /// What fails.
    pub domain: String,
    /// How many fit then.
    pub count: u64,
    /// Whether its guests can be started elsewhere at all; if not, none fit.
    pub is_survived: bool,
    /// What ends it then.
    pub binding: Option<String>,
}

/// The worst failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worst {
    /// The one after which the fewest fit; of equal ones the first.
    pub worst: AfterFailure,
    /// How many failures were looked at.
    pub looked_at: usize,
    /// How many of them are not survived, or not known to be.
    pub unsurvived: usize,
}

/// Returns how many guests fit after the worst of these failures; none, where there are none.
/// `now` is how many fit before any. The fleet is left as it was.
pub fn after_failures<'a>(
    fleet: &mut Fleet,
    now: &Fill,
    demand: &Demand,
    cells: Strategy,
    verdicts: impl IntoIterator<Item = (&'a Domain, &'a Verdict)>,
) -> Option<Worst> {
    let mut filler = Filler::new(demand, cells);
    let mut worst: Option<Worst> = None;
    for (domain, verdict) in verdicts {
        let after = after(fleet, now, &mut filler, domain, verdict);
        let unsurvived = usize::from(!after.is_survived);
        worst = Some(match worst {
            None => Worst {
                worst: after,
                looked_at: 1,
                unsurvived,
            },
            Some(known) => Worst {
                looked_at: known.looked_at + 1,
                unsurvived: known.unsurvived + unsurvived,
                worst: match after.count < known.worst.count {
                    true => after,
                    false => known.worst,
                },
            },
        });
    }
    worst
}

fn after(
    fleet: &mut Fleet,
    now: &Fill,
    filler: &mut Filler<'_>,
    domain: &Domain,
    verdict: &Verdict,
) -> AfterFailure {
    let none = |is_survived| AfterFailure {
        domain: domain.name.clone(),
        count: 0,
        is_survived,
        binding: None,
    };
    let Some(plan) = verdict.plan() else {
        return none(false);
    };
    let mark = fleet.mark();
    let failed: Vec<usize> = domain.hosts.iter().filter_map(|h| fleet.place(h)).collect();
    for at in &failed {
        if !fleet.has_failed_at(*at) {
            fleet.fail(*at);
        }
    }
    let mut each = now.each.clone();
    for at in failed {
        each[at] = (0, Stop::rule(&Violation::Down));
    }
    let mut touched = BTreeSet::new();
    for step in &plan.moves {
        if let Some(to) = fleet.place(&step.to) {
            fleet.put(&step.vm, to, step.assignment.clone());
            touched.insert(to);
        }
    }
    for at in touched {
        each[at] = filler.fill(&fleet.views()[at]);
    }
    let fill = summed(filler.demand(), each);
    fleet.undo(mark);
    AfterFailure {
        count: fill.count,
        binding: fill.binding,
        ..none(true)
    }
}
