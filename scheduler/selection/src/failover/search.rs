//! The search for a plan: the hardest guests first, then repair.
//!
//! 1. Each guest goes to the first host that takes it, beginning at a place that differs from domain
//!    to domain: so the plans of many domains do not all lean on the same few hosts, and a change
//!    of one host touches few plans.
//! 2. Where one is left that some host could take alone, it goes first, and all start again, each on
//!    the host that it leaves the least room of. Where one is left again, all bounds are checked; if
//!    none forbids a plan, all start again a few times more: those first that could go to the fewest
//!    hosts, then each time the one that was left.
//! 3. If that does not help either, guests are taken back one by one and tried elsewhere, until the
//!    budget is spent or everything was tried.
//!
//! Members of a server group that have to stay together go as one party.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use berth_domain::constraint::Demand;
use berth_domain::name::{ServerGroupName, VmName};
use berth_domain::numa::Strategy;
use berth_domain::server_group::GroupPolicy;

use super::bound::{Bounds, is_plain};
use super::kinds::{DeadEnds, Kinds, Lodging};
use super::plan::{self, Move, Plan};
use super::reach::Reach;
use super::{Bound, Budget, Domain, Verdict, fail};
use crate::fleet::{Fleet, FleetGuest, Mark, Rescue, Seeker};

/// How often all start again with the one that was left.
const ROUNDS: usize = 6;
/// Up to so many hosts, the cells of a host are tried in both orders.
const FEW_HOSTS: usize = 16;

/// Guests that have to go to one host: most often one.
#[derive(Clone, Debug)]
pub(super) struct Party {
    /// At least one; the hardest first.
    pub(super) guests: Vec<Arc<FleetGuest>>,
}

/// How hard a guest is to place; the greater the harder: those with many cells find the fewest hosts
/// that have them, and any smaller guest may spoil one.
type Hardness = (usize, usize, u64, u64, u64, u64);

fn hardness(demand: &Demand) -> Hardness {
    let cells = demand.topology.iter().flat_map(|topology| &topology.cells);
    let greatest = cells.clone().map(|cell| cell.dedicated.len()).max();
    let memory = cells.map(|cell| cell.memory_mib).sum();
    let functions = demand.pci.iter().map(|request| u64::from(request.count));
    let counted = demand.resources.values().copied().max();
    (
        demand.topology.as_ref().map_or(0, |t| t.cells.len()),
        greatest.unwrap_or(0),
        functions.sum::<u64>() + demand.pmem.requests.len() as u64,
        demand.required.len() as u64 + u64::from(demand.zone.is_some()),
        memory,
        counted.unwrap_or(0),
    )
}

/// Returns the parties of these guests, the hardest first.
fn parties(guests: Vec<Arc<FleetGuest>>) -> Vec<Party> {
    let mut bound: BTreeMap<ServerGroupName, Vec<Arc<FleetGuest>>> = BTreeMap::new();
    let mut parties = Vec::new();
    for guest in guests {
        match guest.group() {
            Some(group) if group.policy == GroupPolicy::Affinity => {
                bound.entry(group.name.clone()).or_default().push(guest);
            }
            Some(_) | None => parties.push(Party {
                guests: vec![guest],
            }),
        }
    }
    parties.extend(bound.into_values().map(|guests| Party { guests }));
    for party in &mut parties {
        party
            .guests
            .sort_by_cached_key(|guest| Reverse(hardness(&guest.demand)));
    }
    parties.sort_by_cached_key(|party| {
        let head = &party.guests[0];
        (
            Reverse((party.guests.len() > 1, hardness(&head.demand))),
            head.vm.clone(),
        )
    });
    parties
}

/// What came of trying to place all.
enum Outcome {
    Placed,
    /// The party at this place of the order found no host.
    Stuck(usize),
    /// The budget is spent; the guest that was being placed.
    Spent(VmName),
}

/// How far a search goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// Bounds are checked, and guests placed in a few orders: what is found, mostly is by then.
    Short,
    /// Guests are taken back and tried elsewhere, too, until the budget is spent.
    Whole,
}

/// A search under way.
pub(super) struct Search<'f> {
    fleet: &'f mut Fleet,
    reach: &'f mut Reach,
    budget: Budget,
    tried: u64,
    /// Where the walk over the hosts goes on.
    at: usize,
    /// The domain has not failed.
    intact: Mark,
    parties: Vec<Party>,
    impossible: Option<Bound>,
    /// Known once a guest was left without a host.
    kinds: Kinds,
}

impl<'f> Search<'f> {
    /// Lets a domain fail.
    pub(super) fn new(
        fleet: &'f mut Fleet,
        reach: &'f mut Reach,
        domain: &Domain,
        budget: Budget,
    ) -> Self {
        let guests = plan::evacuees(fleet, domain);
        reach.begin(guests.len());
        let impossible = guests.iter().find_map(|guest| match &guest.rescue {
            Rescue::Impossible(why) => Some(Bound::Impossible {
                vm: guest.vm.clone(),
                why: why.clone(),
            }),
            Rescue::Restart | Rescue::Spare(_) => None,
        });
        fail(fleet, domain);
        Self {
            budget,
            tried: 0,
            at: start(domain, fleet.len()),
            intact: fleet.mark(),
            parties: parties(guests),
            impossible,
            kinds: Kinds::default(),
            fleet,
            reach,
        }
    }

    /// Returns how often a guest was fitted to a host.
    pub(super) fn tried(&self) -> u64 {
        self.tried
    }

    pub(super) fn run(&mut self, depth: Depth) -> Verdict {
        if let Some(bound) = self.impossible.take() {
            return Verdict::Refuted(bound);
        }
        let mut order = std::mem::take(&mut self.parties);
        let mut left = match self.all(&order, Self::first) {
            Outcome::Placed => return Verdict::Proven(self.plan()),
            Outcome::Spent(vm) => return self.spent(vm),
            Outcome::Stuck(left) => left,
        };
        self.fleet.undo(self.intact);
        if let Some(bound) = refute_one(self.fleet, self.reach, &order, left) {
            return Verdict::Refuted(bound);
        }
        self.kinds = Kinds::new(self.fleet, self.reach, &order);
        let mut ranked = Vec::new();
        for round in 0..ROUNDS {
            let party = order.remove(left);
            order.insert(0, party);
            left = match self.all(&order, Self::best) {
                Outcome::Placed => return Verdict::Proven(self.plan()),
                Outcome::Spent(vm) => return self.spent(vm),
                Outcome::Stuck(left) => left,
            };
            self.fleet.undo(self.intact);
            if round == 0 {
                if let Some(bound) = refute_all(self.fleet, self.reach, &mut self.kinds, &mut order)
                {
                    return Verdict::Refuted(bound);
                }
                ranked.clone_from(&order);
                left = 0;
            }
        }
        match depth {
            Depth::Short => self.spent(order[0].guests[0].vm.clone()),
            Depth::Whole => self.search_all(&ranked),
        }
    }

    /// Returns the fleet, to put guests on hosts beforehand.
    pub(super) fn fleet(&mut self) -> &mut Fleet {
        self.fleet
    }

    /// Lets the walk over the hosts go on from this place.
    pub(super) fn go_to(&mut self, at: usize) {
        self.at = at;
    }

    /// Adds these guests to those that were put on hosts beforehand; returns the plan of all, if
    /// each goes to the first host that takes it. Members of groups that have to stay together are
    /// not for it.
    pub(super) fn add(mut self, guests: Vec<Arc<FleetGuest>>) -> Option<Plan> {
        if self.impossible.is_some() {
            return None;
        }
        let order = parties(guests);
        let outcome = self.all(&order, Self::first);
        matches!(outcome, Outcome::Placed).then(|| self.plan())
    }

    fn spent(&self, stuck: VmName) -> Verdict {
        Verdict::Unknown {
            tried: self.tried,
            stuck,
        }
    }

    /// Returns what was done since the domain failed.
    fn plan(&self) -> Plan {
        let moves = self.fleet.put_since(self.intact).map(|guest| Move {
            vm: guest.vm.clone(),
            to: guest.claim.host.clone(),
            assignment: guest.claim.assignment.clone(),
        });
        Plan {
            moves: moves.collect(),
        }
    }

    /// Places all parties in this order, each by this rule.
    fn all(&mut self, order: &[Party], place: fn(&mut Self, &Party) -> bool) -> Outcome {
        for (at, party) in order.iter().enumerate() {
            if !place(self, party) {
                return if self.is_spent() {
                    Outcome::Spent(party.guests[0].vm.clone())
                } else {
                    Outcome::Stuck(at)
                };
            }
        }
        Outcome::Placed
    }

    fn is_spent(&self) -> bool {
        self.tried >= self.budget.placements
    }

    /// Puts a party on the first host that takes it, from where the last one was put.
    fn first(&mut self, party: &Party) -> bool {
        let head = Arc::clone(&party.guests[0]);
        let demand = self.fleet.demand(&head);
        let seeker = Seeker::new(self.fleet, &demand);
        let hosts = self.fleet.len();
        let shape = self.reach.shape(&head);
        for step in 0..hosts {
            let at = (self.at + step) % hosts;
            if self.reach.is_full(shape, at) {
                continue;
            }
            if self.put(party, &seeker, at, Strategy::Pack) {
                self.at = at;
                return true;
            }
            if self.is_spent() {
                return false;
            }
        }
        false
    }

    /// Puts a party on the host of which it leaves the least room.
    fn best(&mut self, party: &Party) -> bool {
        let head = Arc::clone(&party.guests[0]);
        let demand = self.fleet.demand(&head);
        let seeker = Seeker::new(self.fleet, &demand);
        for at in self.candidates(&head, &seeker) {
            if self.put(party, &seeker, at, Strategy::Pack) {
                return true;
            }
            if self.is_spent() {
                return false;
            }
        }
        false
    }

    /// Returns the hosts with room at a glance, those first of which least would be left. Those with
    /// free PCI functions come last for guests that do not ask for any.
    fn candidates(&self, head: &FleetGuest, seeker: &Seeker<'_>) -> Vec<usize> {
        let requests_pci = !seeker.demand.pci.is_empty();
        let hosts = self.kinds.hosts(self.kinds.of(head)).iter().copied();
        let all = hosts.filter_map(|at| {
            let left = seeker.glance(self.fleet, at, Strategy::Pack)?;
            let room = &self.fleet.views()[at].headroom;
            let load = room.memory_load.max(room.vcpu_load).max(room.pcpu_load);
            Some((!requests_pci && room.pci > 0, left, Reverse(load), at))
        });
        let mut all: Vec<_> = all.collect();
        all.sort_unstable();
        all.into_iter().map(|candidate| candidate.3).collect()
    }

    /// Puts a party on a host, if it takes all of it. The seeker is that of its first guest.
    fn put(&mut self, party: &Party, seeker: &Seeker<'_>, at: usize, cells: Strategy) -> bool {
        if seeker.glance(self.fleet, at, cells).is_none() {
            return false;
        }
        self.tried += 1;
        let Some(assignment) = seeker.try_place(self.fleet, at, cells) else {
            return false;
        };
        let mark = self.fleet.mark();
        self.fleet.put(&party.guests[0].vm, at, assignment);
        for guest in &party.guests[1..] {
            self.tried += 1;
            let Some(assignment) = self.fleet.try_place(&guest.vm, at, cells) else {
                self.fleet.undo(mark);
                return false;
            };
            self.fleet.put(&guest.vm, at, assignment);
        }
        true
    }

    /// Tries every host for every party, in an order in which those are first that could go to the
    /// fewest: where they spoil it for each other, that is found before the others are tried.
    fn search_all(&mut self, order: &[Party]) -> Verdict {
        let guests = || order.iter().flat_map(|party| &party.guests);
        let is_whole = guests().all(|guest| is_plain(&guest.demand));
        let names = guests().map(|guest| guest.vm.clone()).collect();
        let (mut lodgings, mut dead_ends) = (Vec::new(), DeadEnds::default());
        match self.descend(order, is_whole, &mut lodgings, &mut dead_ends) {
            Outcome::Placed => Verdict::Proven(self.plan()),
            Outcome::Stuck(_) if is_whole => Verdict::Refuted(Bound::Searched {
                guests: names,
                tried: self.tried,
            }),
            Outcome::Stuck(left) => Verdict::Unknown {
                tried: self.tried,
                stuck: order[left].guests[0].vm.clone(),
            },
            Outcome::Spent(stuck) => self.spent(stuck),
        }
    }

    fn descend(
        &mut self,
        order: &[Party],
        is_whole: bool,
        lodgings: &mut Vec<Lodging>,
        dead_ends: &mut DeadEnds,
    ) -> Outcome {
        let Some((party, rest)) = order.split_first() else {
            return Outcome::Placed;
        };
        if dead_ends.contains(lodgings) {
            return Outcome::Stuck(0);
        }
        let kind = self.kinds.of(&party.guests[0]);
        let head = Arc::clone(&party.guests[0]);
        let demand = self.fleet.demand(&head);
        let seeker = Seeker::new(self.fleet, &demand);
        let both = [Strategy::Pack, Strategy::Spread];
        let ways = if !is_whole && self.fleet.len() <= FEW_HOSTS {
            &both[..]
        } else {
            &both[..1]
        };
        for at in self.candidates(&head, &seeker) {
            for cells in ways {
                if self.is_spent() {
                    return Outcome::Spent(head.vm.clone());
                }
                let mark = self.fleet.mark();
                if !self.put(party, &seeker, at, *cells) {
                    break;
                }
                lodgings.push((at, kind, *cells == Strategy::Spread));
                let outcome = self.descend(rest, is_whole, lodgings, dead_ends);
                lodgings.pop();
                match outcome {
                    Outcome::Stuck(_) => self.fleet.undo(mark),
                    done @ (Outcome::Placed | Outcome::Spent(_)) => return done,
                }
            }
        }
        dead_ends.insert(lodgings);
        Outcome::Stuck(0)
    }
}

/// Returns a bound that the party at this place breaks by itself: it found no host.
fn refute_one(fleet: &Fleet, reach: &mut Reach, order: &[Party], left: usize) -> Option<Bound> {
    let bounds = Bounds::new(fleet, order);
    let party = &order[left];
    let mut guests = party.guests.iter();
    let alone = guests.find_map(|guest| bounds.alone(reach, guest));
    alone.or_else(|| bounds.together(party))
}

/// Returns a bound that any of the parties break. Where there is none, those come first from now on
/// that could go to the fewest hosts.
fn refute_all(
    fleet: &Fleet,
    reach: &mut Reach,
    kinds: &mut Kinds,
    order: &mut [Party],
) -> Option<Bound> {
    let bounds = Bounds::new(fleet, order);
    let reach = bounds.reach(reach);
    if let Some(bound) = bounds.find(&reach) {
        return Some(bound);
    }
    let guests = order.iter().map(|party| (party, party.guests.len()));
    let heads = guests.scan(0, |at, (party, guests)| {
        let head = (&party.guests[0], &reach[*at]);
        *at += guests;
        Some(head)
    });
    for (head, hosts) in heads {
        kinds.narrow(head, hosts);
    }
    let firsts = order.iter().scan(0, |at, party| {
        let first = (party.guests[0].vm.clone(), reach[*at].len());
        *at += party.guests.len();
        Some(first)
    });
    let hosts: BTreeMap<VmName, usize> = firsts.collect();
    order.sort_by_key(|party| hosts.get(&party.guests[0].vm).copied());
    None
}

/// Returns where a domain's walk over the hosts begins.
fn start(domain: &Domain, hosts: usize) -> usize {
    // FNV-1a: the same on every member.
    let hash = domain
        .name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    usize::try_from(mixed).map_or(0, |mixed| mixed % hosts.max(1))
}
