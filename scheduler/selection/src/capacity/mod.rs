//! How many more guests of a shape fit, and what ends it.
//!
//! Guests are really placed, one after the other, by the rules of the choice, until no host takes
//! one more. Guests that are alike do not compete across hosts, so each host is filled by itself,
//! and hosts that are alike are filled once.
//!
//! | module | what |
//! |---|---|
//! | here | how many fit now |
//! | [`failure`] | how many fit after the worst failure |
//! | [`mod@tiered`] | how many of a shape that shrinks while it fits nowhere |
//!
//! Invariant: the count is what is reached with the given choice of cells. A host that was filled
//! takes no further one; that another arrangement of its guests would take more is not ruled out
//! where guests have several cells.

pub mod failure;
pub mod tiered;

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_domain::claim::{Claim, Owner, State};
use berth_domain::constraint::{Demand, PreparedDemand, Violation};
use berth_domain::host_view::HostView;
use berth_domain::id::ClaimId;
use berth_domain::name::VmName;
use berth_domain::numa::{Assignment, Strategy};
use berth_domain::server_group::GroupPolicy;
use uuid::Uuid;

pub use failure::{AfterFailure, Worst, after_failures};
pub use tiered::{Least, Shape, Steps, Tier, Tiered, tiered};

use crate::fleet::Fleet;

/// So many guests are put on one host at most: a guest that takes nothing fits for ever.
pub const PER_HOST_MAX: u64 = 100_000;

/// How many guests fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fill {
    /// On all hosts together.
    pub count: u64,
    /// By place: on each host.
    pub by_host: Vec<u64>,
    /// Why hosts take no further one: how many there are for each cause.
    pub causes: BTreeMap<String, u64>,
    /// The cause of most hosts that are full; of all, where none is full. None without hosts.
    pub binding: Option<String>,
    /// The same as `by_host`, with why.
    each: Vec<(u64, Stop)>,
}

/// Returns how many guests with this demand fit now.
#[must_use]
pub fn fill(fleet: &Fleet, demand: &Demand, cells: Strategy) -> Fill {
    let mut filler = Filler::new(demand, cells);
    let views = fleet.views().iter().enumerate();
    let each = views.map(|(at, view)| match fleet.has_failed_at(at) {
        true => (0, Stop::rule(&Violation::Down)),
        false => filler.fill(view),
    });
    summed(demand, each.collect())
}

/// Why a host takes no further guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    pub(super) cause: Arc<str>,
    /// Whether it is full.
    pub(super) is_full: bool,
}

impl Stop {
    pub(super) fn rule(violation: &Violation) -> Self {
        Self {
            cause: violation.cause().into(),
            is_full: violation.is_lack_of_capacity(),
        }
    }
}

fn summed(demand: &Demand, each: Vec<(u64, Stop)>) -> Fill {
    let mut fill = Fill::default();
    let (mut full, mut all) = (Counts::default(), Counts::default());
    for (count, stop) in &each {
        if stop.is_full {
            full.add(&stop.cause);
        }
        all.add(&stop.cause);
        fill.by_host.push(*count);
    }
    fill.each = each;
    // All members of a group that stays together are on one host.
    let together = demand.group.as_ref();
    let is_together = together.is_some_and(|g| g.policy == GroupPolicy::Affinity);
    let counts = fill.by_host.iter().copied();
    fill.count = if is_together {
        counts.max().unwrap_or(0)
    } else {
        counts.sum()
    };
    fill.binding = full.most().or_else(|| all.most());
    fill.causes = all.0;
    fill
}

/// How often there is each cause.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts(pub(super) BTreeMap<String, u64>);

impl Counts {
    pub(super) fn add(&mut self, cause: &str) {
        if let Some(count) = self.0.get_mut(cause) {
            *count += 1;
        } else {
            self.0.insert(cause.to_owned(), 1);
        }
    }

    /// Returns the cause that there is most often; of equal ones the first by name.
    fn most(&self) -> Option<String> {
        let most = self.0.values().max()?;
        let mut all = self.0.iter();
        all.find(|(_, count)| *count == most)
            .map(|(cause, _)| cause.clone())
    }
}

/// Fills hosts with guests of one demand.
pub(super) struct Filler<'a> {
    demand: &'a Demand,
    applicant: PreparedDemand<'a>,
    cells: Strategy,
    /// By likeness.
    known: BTreeMap<u64, (u64, Stop)>,
}

impl<'a> Filler<'a> {
    pub(super) fn new(demand: &'a Demand, cells: Strategy) -> Self {
        Self {
            demand,
            applicant: PreparedDemand::new(demand),
            cells,
            known: BTreeMap::new(),
        }
    }

    pub(super) fn demand(&self) -> &'a Demand {
        self.demand
    }

    /// Returns how many fit on a host, and why no further one does.
    pub(super) fn fill(&mut self, view: &Arc<HostView>) -> (u64, Stop) {
        if let Err(violation) = self.applicant.check_host(view) {
            return (0, Stop::rule(&violation));
        }
        let likeness = view.likeness();
        if let Some(known) = self.known.get(&likeness)
            && self.demand.group.is_none()
        {
            return known.clone();
        }
        let (count, stop, _) = self.fill_copy(view);
        self.known.insert(likeness, (count, stop.clone()));
        (count, stop)
    }

    /// Returns how many fit on a host, why no further one does, and the host with them.
    pub(super) fn fill_copy(&self, view: &HostView) -> (u64, Stop, HostView) {
        let mut view = view.clone();
        let (most, why) = self.limit(&view);
        let mut count = 0;
        loop {
            match self.applicant.place(&view, self.cells) {
                Err(violation) => return (count, Stop::rule(&violation), view),
                Ok(_) if count >= most => return (count, why, view),
                Ok(assignment) => {
                    // Where nothing exact is taken, all that fit are taken at once.
                    let more = match assignment.is_empty() {
                        true => self.counted(&view).min(most - count).max(1),
                        false => 1,
                    };
                    view.place(&claim(self.demand, &view, assignment, more));
                    count += more;
                }
            }
        }
    }

    /// Returns how many may be on a host, whatever room it has, and what that is called.
    fn limit(&self, view: &HostView) -> (u64, Stop) {
        let (most, cause) = match &self.demand.group {
            Some(group) if group.policy == GroupPolicy::AntiAffinity => {
                let members = group.members_on(&view.host.name);
                (group.limit.saturating_sub(members).into(), "ANTI_AFFINITY")
            }
            Some(_) | None => (PER_HOST_MAX, "PER_HOST_MAX"),
        };
        let cause = cause.into();
        let is_full = false;
        (most, Stop { cause, is_full })
    }

    /// Returns how many fit by counted amounts, once one does.
    fn counted(&self, view: &HostView) -> u64 {
        let taken = self.demand.resources.iter().filter(|(_, n)| **n > 0);
        let each = taken.map(|(class, amount)| {
            let inventory = view.inventories.get(class);
            inventory.map_or(0, |i| i.free(view.used_of(class)) / amount)
        });
        each.min().unwrap_or(PER_HOST_MAX)
    }
}

/// Returns the claim of so many guests at once.
fn claim(demand: &Demand, view: &HostView, assignment: Assignment, count: u64) -> Claim {
    let resources = demand.resources.iter();
    Claim {
        id: ClaimId(Uuid::nil()),
        vm: VmName::new("more").expect("a good name"),
        owner: Owner::Vm,
        host: view.host.name.clone(),
        state: State::Held,
        resources: resources.map(|(c, n)| (c.clone(), n * count)).collect(),
        assignment,
        erasures: BTreeMap::default(),
        cpu: None,
    }
}
