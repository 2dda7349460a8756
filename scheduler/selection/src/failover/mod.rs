//! Whether the guests of a host can be started on others when it dies: exact N+1.
//!
//! ```text
//!                       ┌─ every guest has a place ──▶ Proven: the plan
//! guests of the host ───┼─ a bound forbids it ───────▶ Refuted: the bound
//!  greedy, repair       └─ the budget is spent ──────▶ Unknown
//! ```
//!
//! Packing is hard in the worst case, so there are three verdicts, and none of them is a guess: a
//! plan says where each guest goes with its exact assignment, in an order in which each step keeps
//! every rule of [`berth_domain::constraint`]; a bound shows by numbers that no plan exists. The
//! budget is counted in placements tried, never in time, so that every member finds the same.
//!
//! Guests on the other hosts stay where they are. All guests of the host count, stopped ones too:
//! their claims move with them; those that are not to be started say so
//! ([`Rescue::Spare`](crate::fleet::Rescue)). Members of a server group on hosts that fail are on no
//! host any more.
//!
//! | module | what |
//! |---|---|
//! | [`plan`] | where each guest goes, and whether that is still so |
//! | [`bound`] | why there is no plan |
//! | `kinds` | guests that are the same to a search, and what it need not try twice |
//! | `need` | what guests need and hosts have left, in amounts that add up |
//! | `reach` | which hosts have room for which guests, known for all domains |
//! | `search` | the search for a plan |
//! | [`tracker`] | the verdicts of all hosts, kept up to date by what changed |
//! | [`admission`] | which proofs a new claim would break |

pub mod admission;
pub mod bound;
mod kinds;
mod need;
pub mod plan;
mod reach;
mod search;
pub mod tracker;

pub use admission::Broken;
pub use bound::Bound;
pub use plan::{Move, Plan};
pub use tracker::{Tally, VerdictTracker};

use std::collections::BTreeSet;

use berth_domain::name::{HostName, VmName};

use crate::fleet::Fleet;

/// How much is tried before a verdict is left open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// How often a guest is fitted to a host, for one verdict.
    pub placements: u64,
    /// The same for all verdicts that one change touches; those that are left are open until
    /// [`VerdictTracker::catch_up`]. So are those that a short search did not find.
    pub per_change: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            placements: 5_000,
            per_change: 10_000,
        }
    }
}

/// Hosts that fail together: one, or all of a rack, a zone or an aggregate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// What it is called to people; no two domains share a name.
    pub name: String,
    /// Its hosts. Those that the fleet does not have are passed over.
    pub hosts: BTreeSet<HostName>,
}

impl Domain {
    /// Returns the domain of one host.
    #[must_use]
    pub fn host(name: &HostName) -> Self {
        Self {
            name: name.to_string(),
            hosts: [name.clone()].into(),
        }
    }
}

/// Whether the guests of a domain can be started elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They can: so.
    Proven(Plan),
    /// They cannot.
    Refuted(Bound),
    /// Neither was found within the budget.
    Unknown {
        /// How often a guest was fitted to a host.
        tried: u64,
        /// A guest for which no host was left.
        stuck: VmName,
    },
}

impl Verdict {
    /// Returns the plan, if there is one.
    #[must_use]
    pub fn plan(&self) -> Option<&Plan> {
        match self {
            Self::Proven(plan) => Some(plan),
            Self::Refuted(_) | Self::Unknown { .. } => None,
        }
    }

    /// Returns the bound, if there is one.
    #[must_use]
    pub fn bound(&self) -> Option<&Bound> {
        match self {
            Self::Refuted(bound) => Some(bound),
            Self::Proven(_) | Self::Unknown { .. } => None,
        }
    }
}

/// Returns whether the guests of a domain can be started elsewhere when all its hosts fail at once.
/// The fleet is as before afterwards.
pub fn evaluate(fleet: &mut Fleet, domain: &Domain, budget: Budget) -> Verdict {
    let reach = &mut reach::Reach::default();
    evaluate_counted(fleet, reach, domain, budget, search::Depth::Whole).0
}

/// Returns what [`evaluate`] returns, and how often a guest was fitted to a host.
fn evaluate_counted(
    fleet: &mut Fleet,
    reach: &mut reach::Reach,
    domain: &Domain,
    budget: Budget,
    depth: search::Depth,
) -> (Verdict, u64) {
    let mark = fleet.mark();
    let mut search = search::Search::new(fleet, reach, domain, budget);
    let verdict = search.run(depth);
    let tried = search.tried();
    fleet.undo(mark);
    (verdict, tried)
}

/// Takes all hosts of a domain to have failed.
fn fail(fleet: &mut Fleet, domain: &Domain) {
    for host in &domain.hosts {
        if let Some(at) = fleet.place(host)
            && !fleet.has_failed_at(at)
        {
            fleet.fail(at);
        }
    }
}
