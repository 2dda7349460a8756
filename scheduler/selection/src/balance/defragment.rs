//! Room for guests that fit nowhere now: the cheapest moves found after which they do.
//!
//! ```text
//! sets of guests to leave a host, the cheapest first
//!   └─ the new guest fits there without them? ─▶ each of them fits elsewhere? ─▶ found
//!                                                  └─ no: where one other guest moves first?
//! ```
//!
//! What is sent over the network is what counts. For one new guest, and where the budget suffices
//! ([`Way::is_cheapest`]), nothing cheaper exists among plans that empty one host of some guests, each of which goes where there is room, or, for one of
//! them, where a single further guest makes room. For several, room is made one after the other.
//!
//! Not here: the new guest. Its claim is made when the moves are done, by the choice itself.
//!
//! Invariant: each move keeps every rule on the fleet as the moves before it leave it, and the
//! placements fit beside each other at the end. *Impossible* is only said where a bound shows it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use berth_domain::claim::{Claim, Owner, State};
use berth_domain::constraint::{Demand, PreparedDemand};
use berth_domain::id::ClaimId;
use berth_domain::name::{HostName, VmName};
use berth_domain::numa::{Assignment, Strategy};
use berth_domain::resource::ResourceClass;
use uuid::Uuid;

use super::evict::Search;
use super::sets;
use crate::fleet::{Fleet, FleetGuest, Rescue};

/// How much is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// How often a guest is fitted to a host.
    pub placements: u64,
    /// How many sets of guests are looked at.
    pub sets: u64,
    /// How many guests leave one host at most.
    pub leavers: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            placements: 300_000,
            sets: 1_000_000,
            leavers: 6,
        }
    }
}

/// For whom there is to be room.
#[derive(Clone, Copy, Debug)]
pub struct Goal<'a> {
    /// What each of them demands.
    pub demand: &'a Demand,
    /// How many there are.
    pub count: usize,
    /// Which cells of a host guests get.
    pub cells: Strategy,
}

/// One move.
#[derive(Clone, Debug, PartialEq)]
pub struct Shift {
    /// The guest.
    pub vm: VmName,
    /// The host that it leaves.
    pub from: HostName,
    /// The host that it goes to.
    pub to: HostName,
    /// What it takes there.
    pub assignment: Assignment,
    /// What is sent, in MiB.
    pub sent_mib: u64,
    /// When: moves of one set may be made at the same time, sets one after the other.
    pub set: usize,
}

/// A placement for one new guest.
#[derive(Clone, Debug, PartialEq)]
pub struct FreedPlacement {
    /// Where.
    pub host: HostName,
    /// What it would take there.
    pub assignment: Assignment,
}

/// Moves that make room.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Way {
    /// The moves, in an order in which each has room.
    pub moves: Vec<Shift>,
    /// The number of sets that they are in.
    pub sets: usize,
    /// The placements that are free then.
    pub placements: Vec<FreedPlacement>,
    /// What is sent in all, in MiB.
    pub sent_mib: u64,
    /// Whether the budget sufficed to look at all that is cheaper, among the plans that are looked
    /// for; for several guests, one after the other.
    pub is_cheapest: bool,
}

/// Why there can be no room, whatever is moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Impossible {
    /// All hosts that are open have too little left of a resource, and moves free nothing.
    Total {
        /// The resource.
        class: ResourceClass,
        /// What is left of it on all hosts together.
        free: u64,
        /// What the new guests would take.
        requested: u64,
    },
    /// No host could take even one of them without all guests that can be moved.
    NoHost {
        /// How many hosts there are, by why they could not.
        causes: BTreeMap<String, u32>,
    },
}

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Total {
                class,
                free,
                requested,
            } => write!(
                f,
                "all hosts together have {free} of {class} left, {requested} are requested, and moving \
                 guests frees none"
            ),
            Self::NoHost { causes } => {
                let each: Vec<String> =
                    causes.iter().map(|(why, n)| format!("{n} {why}")).collect();
                write!(
                    f,
                    "no host could take the guest if all guests that can be moved were away ({})",
                    each.join(", ")
                )
            }
        }
    }
}

/// Whether room can be made.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It can: so. Without moves, there is room now.
    Possible(Way),
    /// It cannot.
    Impossible(Impossible),
    /// No way was found.
    NotFound {
        /// How far it goes: what is found for the first of them.
        so_far: Way,
        /// How often a guest was fitted to a host.
        tried: u64,
        /// Whether the budget is spent; if not, no plan of the kind that is looked for exists.
        is_spent: bool,
    },
}

impl Verdict {
    /// Returns the way, if one was found.
    #[must_use]
    pub fn way(&self) -> Option<&Way> {
        match self {
            Self::Possible(way) => Some(way),
            Self::Impossible(_) | Self::NotFound { .. } => None,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Possible(way) if way.moves.is_empty() => {
                let hosts: Vec<&str> = way.placements.iter().map(|r| r.host.as_str()).collect();
                write!(f, "there is room now: on {}", hosts.join(", "))
            }
            Self::Possible(way) => {
                let hosts: Vec<&str> = way.placements.iter().map(|r| r.host.as_str()).collect();
                let moves = way.moves.iter();
                let moves = moves.map(|m| format!("{} from {} to {}", m.vm, m.from, m.to));
                write!(
                    f,
                    "{} MiB to send make room on {}: {}",
                    way.sent_mib,
                    hosts.join(", "),
                    moves.collect::<Vec<_>>().join(", ")
                )
            }
            Self::Impossible(why) => why.fmt(f),
            Self::NotFound {
                so_far,
                tried,
                is_spent,
            } => {
                let how = match is_spent {
                    true => "within the budget",
                    false => "that empties one host, with one further move",
                };
                write!(
                    f,
                    "no way was found {how}, after {tried} placements; room for {} was",
                    so_far.placements.len()
                )
            }
        }
    }
}

/// Returns how room can be made. The fleet is left as it was.
pub fn defragment(fleet: &mut Fleet, goal: &Goal<'_>, budget: Budget) -> Verdict {
    let mark = fleet.mark();
    let verdict = match bound(fleet, goal) {
        Some(why) => Verdict::Impossible(why),
        None => free_placements(fleet, goal, budget),
    };
    fleet.undo(mark);
    verdict
}

fn free_placements(fleet: &mut Fleet, goal: &Goal<'_>, mut budget: Budget) -> Verdict {
    let mut way = Way {
        is_cheapest: true,
        ..Way::default()
    };
    let given = budget.placements;
    for number in 0..goal.count {
        let mut search = Search::new(fleet, goal.demand, goal.cells, budget);
        let found = search.run();
        budget = search.left();
        let Some(found) = found else {
            return Verdict::NotFound {
                tried: given - budget.placements,
                is_spent: budget.placements == 0 || budget.sets == 0,
                so_far: arranged(way),
            };
        };
        way.is_cheapest &= found.is_cheapest;
        way.sent_mib += found.moves.iter().map(|m| m.sent_mib).sum::<u64>();
        way.moves.extend(found.moves);
        occupy(fleet, goal.demand, &found.placement, number);
        way.placements.push(found.placement);
    }
    Verdict::Possible(arranged(way))
}

fn arranged(mut way: Way) -> Way {
    let hosts = way.moves.iter().map(|step| (&step.from, &step.to));
    let (of_moves, sets) = sets::arrange(hosts);
    for (step, set) in way.moves.iter_mut().zip(of_moves) {
        step.set = set;
    }
    way.sets = sets;
    way
}

/// Puts a guest at a placement, so that the next one is another.
fn occupy(fleet: &mut Fleet, demand: &Demand, placement: &FreedPlacement, number: usize) {
    let mut name = format!("room-{number}");
    let vm = loop {
        let vm = VmName::new(&name).expect("a good name");
        if fleet.guest(&vm).is_none() {
            break vm;
        }
        name.push('-');
        name.push('x');
    };
    let claim = Claim {
        id: ClaimId(Uuid::nil()),
        vm: vm.clone(),
        owner: Owner::Vm,
        host: placement.host.clone(),
        state: State::Held,
        resources: demand.resources.clone(),
        assignment: placement.assignment.clone(),
        erasures: BTreeMap::default(),
        cpu: None,
    };
    let guest = FleetGuest {
        vm,
        claim: Arc::new(claim),
        also_on: Vec::new(),
        demand: Arc::new(demand.clone()),
        fixed: Some("it is to come".to_owned()),
        rescue: Rescue::Restart,
    };
    fleet.join(guest).expect("its host is there");
}

/// Returns a bound that shows that there can be no room.
fn bound(fleet: &Fleet, goal: &Goal<'_>) -> Option<Impossible> {
    let open = |at: &usize| fleet.views()[*at].host.is_open() && !fleet.has_failed_at(*at);
    let open: Vec<usize> = (0..fleet.len()).filter(open).collect();
    for (class, amount) in &goal.demand.resources {
        let left = |at: &usize| {
            let view = &fleet.views()[*at];
            let inventory = view.inventories.get(class);
            inventory.map_or(0, |inventory| inventory.free(view.used_of(class)))
        };
        let free: u64 = open.iter().map(left).sum();
        let requested = amount.saturating_mul(goal.count as u64);
        if free < requested {
            return Some(Impossible::Total {
                class: class.clone(),
                free,
                requested,
            });
        }
    }
    let applicant = PreparedDemand::new(goal.demand);
    let mut causes = BTreeMap::new();
    for at in 0..fleet.len() {
        let mut view = (*fleet.views()[at]).clone();
        let movable = fleet.guests_at(at).filter(|guest| guest.fixed.is_none());
        for guest in movable {
            view.release(&guest.claim);
        }
        match applicant.place(&view, goal.cells) {
            // Several may compete for it; only the search knows.
            Ok(_) => return None,
            Err(violation) => *causes.entry(violation.cause().into_owned()).or_insert(0) += 1,
        }
    }
    Some(Impossible::NoHost { causes })
}
