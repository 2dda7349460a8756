//! Guests of a domain that are the same to a search, and what it need not look at twice.
//!
//! Where capacity is scarce, a search walks over all hosts for every guest again and again, though
//! only few have room for any; and it tries guests of one kind in every order, though each of them
//! leads to the same.
//!
//! Invariant: nothing is left out that could lead to a plan. A host without room at a glance has
//! none after more guests were put somewhere; a dead end is one whatever the names of its guests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::name::VmName;

use super::reach::Reach;
use super::search::Party;
use crate::fleet::{Fleet, FleetGuest, Seeker};

/// Returns whether each of two guests can be put where the other can, with the same effect.
pub(super) fn are_alike(a: &FleetGuest, b: &FleetGuest) -> bool {
    a.also_on == b.also_on && (Arc::ptr_eq(&a.demand, &b.demand) || a.demand == b.demand)
}

/// The kinds of parties of a search, each with the hosts that its first guest might go to.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    by_head: BTreeMap<VmName, usize>,
    /// By kind: the hosts that may take it when nothing but the domain changed, in their order.
    hosts: Vec<Vec<usize>>,
}

impl Kinds {
    /// Sorts the parties by kind. Those of several guests are of a kind of their own. The domain
    /// has failed, and none of its guests is on a host.
    pub(super) fn new(fleet: &Fleet, reach: &mut Reach, parties: &[Party]) -> Self {
        let mut kinds = Self::default();
        let mut samples: Vec<&Party> = Vec::new();
        for party in parties {
            let is_alike = |other: &&Party| {
                let (own, other) = (&party.guests[..], &other.guests[..]);
                own.len() == 1 && other.len() == 1 && are_alike(&own[0], &other[0])
            };
            let known = samples.iter().position(is_alike);
            let kind = known.unwrap_or_else(|| {
                samples.push(party);
                kinds
                    .hosts
                    .push(with_capacity(fleet, reach, &party.guests[0]));
                samples.len() - 1
            });
            kinds.by_head.insert(party.guests[0].vm.clone(), kind);
        }
        kinds
    }

    /// Returns the kind of the party with this first guest.
    pub(super) fn of(&self, head: &FleetGuest) -> usize {
        self.by_head[&head.vm]
    }

    /// Returns the hosts that the first guest of a party of this kind might go to.
    pub(super) fn hosts(&self, kind: usize) -> &[usize] {
        &self.hosts[kind]
    }

    /// Leaves out the hosts that were found not to take a guest even alone.
    pub(super) fn narrow(&mut self, head: &FleetGuest, hosts: &BTreeSet<usize>) {
        let kind = self.of(head);
        self.hosts[kind].retain(|at| hosts.contains(at));
    }
}

/// Returns the hosts with room for a guest at a glance.
fn with_capacity(fleet: &Fleet, reach: &mut Reach, guest: &FleetGuest) -> Vec<usize> {
    let demand = fleet.demand(guest);
    let shape = reach.shape(guest);
    reach.survey(shape, fleet, &Seeker::new(fleet, &demand));
    reach.hosts(shape, fleet)
}

/// A party of a kind on a host: where, which kind, and whether its cells were spread.
pub(super) type Lodging = (usize, usize, bool);

/// Ways to place the first parties of an order after which the others found no hosts.
///
/// A host is as the sequence of kinds put there left it, whichever guests of these they are, and
/// what is on one host does not matter to another but by how many members of server groups there
/// are: so ways with the same sequence on every host are the same.
#[derive(Debug, Default)]
pub(super) struct DeadEnds(BTreeSet<Vec<Lodging>>);

impl DeadEnds {
    /// Returns whether the parties after these found no hosts before.
    pub(super) fn contains(&self, lodgings: &[Lodging]) -> bool {
        self.0.contains(&by_host(lodgings))
    }

    /// Writes down that the parties after these find no hosts.
    pub(super) fn insert(&mut self, lodgings: &[Lodging]) {
        self.0.insert(by_host(lodgings));
    }
}

fn by_host(lodgings: &[Lodging]) -> Vec<Lodging> {
    let mut sorted = lodgings.to_vec();
    // Stable: the order of those on one host is kept.
    sorted.sort_by_key(|(at, _, _)| *at);
    sorted
}
