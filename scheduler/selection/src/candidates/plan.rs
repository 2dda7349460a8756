//! A query in the numbers of one index: what has to be chosen, and what rules a provider out.
//!
//! A *slot* is one choice of a provider: each group with a suffix is one, and so is each class of
//! the group without. Slots that want the same share a *kind*, for which providers are looked
//! through once.
//!
//! Invariant: a plan lives no longer than the index stays unchanged.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::id::AggregateId;
use berth_domain::resource::{ResourceClass, Trait};

use crate::candidates::index::Index;
use crate::candidates::node::{NONE, Node, holds_any, holds_of_each};
use crate::candidates::posting::Postings;
use crate::candidates::query::{Group, GroupPolicy, Query, Suffix};

/// How much of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// The number of the class.
    pub(crate) class: u32,
    /// How much.
    pub(crate) amount: u64,
    /// Its place among the classes that several slots want, [`NONE`] if only this one does.
    pub(crate) contended: u32,
}

/// What a slot wants of one provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// Whether it is of a group with a suffix.
    pub(crate) suffixed: bool,
    /// The amounts; empty for a group without resources.
    pub(crate) demands: Vec<Demand>,
    /// The names of the classes, one for each demand.
    pub(crate) classes: Vec<ResourceClass>,
    /// At least one trait of each set; of a group without suffix, see [`Plan::together`].
    pub(crate) required: Vec<Vec<u32>>,
    /// None of these traits.
    pub(crate) forbidden: Vec<u32>,
    /// In at least one aggregate of each set.
    pub(crate) member_of: Vec<Vec<u32>>,
    /// In none of these aggregates.
    pub(crate) outside: Vec<u32>,
    /// In this tree only, [`NONE`] if in any.
    pub(crate) tree: u32,
}

/// One choice of a provider.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// What it wants, by its place in [`Plan::kinds`].
    pub(crate) kind: usize,
    /// Whose it is, by its place in [`Plan::suffixes`].
    pub(crate) suffix: usize,
}

/// A query in the numbers of one index.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) suffixes: Vec<Suffix>,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) slots: Vec<Slot>,
    /// At least one trait of each set, on any provider of the group without suffix.
    pub(crate) together: Vec<Vec<u32>>,
    /// Classes that several slots want; the index is their place.
    pub(crate) contended: Vec<u32>,
    /// Slots of which one provider is above all the others or is them.
    pub(crate) subtrees: Vec<Vec<usize>>,
    /// For each slot the places in `subtrees` where it stands.
    pub(crate) subtrees_with: Vec<Vec<usize>>,
    /// Traits that the root has.
    pub(crate) root_required: Vec<u32>,
    /// Traits that the root has not.
    pub(crate) root_forbidden: Vec<u32>,
    /// Aggregates that the root is not in, because the group without suffix must not.
    pub(crate) root_outside: Vec<u32>,
    /// The only tree of the group without suffix, [`NONE`] if it may be any.
    pub(crate) only_tree: u32,
    /// Sharing providers that suit each kind from outside of their tree, by place, ascending.
    pub(crate) away: Vec<Vec<u32>>,
    pub(crate) isolate: bool,
    pub(crate) nested: bool,
}

impl Plan {
    /// Returns the plan; nothing if the query requests something that no provider has.
    pub(crate) fn new(index: &Index, query: &Query) -> Option<Self> {
        let names = |traits: &BTreeSet<Trait>| -> Vec<Option<u32>> {
            traits.iter().map(|t| index.traits.number(t)).collect()
        };
        let root_required = names(&query.root_required)
            .into_iter()
            .collect::<Option<_>>()?;
        let root_forbidden = names(&query.root_forbidden);
        let mut plan = Self {
            suffixes: query.groups.keys().cloned().collect(),
            kinds: Vec::new(),
            slots: Vec::new(),
            together: Vec::new(),
            contended: contended(index, query),
            subtrees: Vec::new(),
            subtrees_with: Vec::new(),
            root_required,
            root_forbidden: root_forbidden.into_iter().flatten().collect(),
            root_outside: Vec::new(),
            only_tree: NONE,
            away: Vec::new(),
            isolate: query.group_policy == Some(GroupPolicy::Isolate),
            nested: query.nested,
        };
        for (place, (suffix, group)) in query.groups.iter().enumerate() {
            plan.add_group(index, place, suffix, group)?;
        }
        plan.subtrees = plan.subtrees_of(query);
        let with = |slot| plan.subtrees_with(slot);
        plan.subtrees_with = (0..plan.slots.len()).map(with).collect();
        plan.away = plan.kinds.iter().map(|kind| away(index, kind)).collect();
        Some(plan)
    }

    fn add_group(
        &mut self,
        index: &Index,
        place: usize,
        suffix: &Suffix,
        group: &Group,
    ) -> Option<()> {
        let tree = match group.in_tree {
            Some(id) => index.nodes[*index.numbers.get(&id)? as usize].tree,
            None => NONE,
        };
        let required = sets(&index.traits, &group.required)?;
        let kind = Kind {
            suffixed: !suffix.is_empty(),
            demands: Vec::new(),
            classes: Vec::new(),
            required: Vec::new(),
            forbidden: known(&index.traits, &group.forbidden),
            member_of: sets::<AggregateId>(&index.aggregates, &group.member_of)?,
            outside: known(&index.aggregates, &group.forbidden_aggregates),
            tree,
        };
        let demands: Vec<Demand> = group
            .resources
            .iter()
            .map(|(class, amount)| self.demand(index, class, *amount))
            .collect::<Option<_>>()?;
        if suffix.is_empty() {
            self.root_outside.clone_from(&kind.outside);
            self.only_tree = tree;
            self.together = required;
            for (class, demand) in group.resources.keys().zip(demands) {
                let one = Kind {
                    demands: vec![demand],
                    classes: vec![class.clone()],
                    ..kind.clone()
                };
                self.add_slot(place, one);
            }
        } else {
            let classes = group.resources.keys().cloned().collect();
            let all = Kind {
                demands,
                classes,
                required,
                ..kind
            };
            self.add_slot(place, all);
        }
        Some(())
    }

    fn demand(&self, index: &Index, class: &ResourceClass, amount: u64) -> Option<Demand> {
        let class = index.classes.number(class)?;
        let place = self.contended.iter().position(|c| *c == class);
        Some(Demand {
            class,
            amount,
            contended: place.map_or(NONE, |p| u32::try_from(p).expect("few classes")),
        })
    }

    fn add_slot(&mut self, suffix: usize, kind: Kind) {
        let known = self.kinds.iter().position(|k| *k == kind);
        let kind = known.unwrap_or_else(|| {
            self.kinds.push(kind);
            self.kinds.len() - 1
        });
        self.slots.push(Slot { kind, suffix });
    }

    fn subtrees_of(&self, query: &Query) -> Vec<Vec<usize>> {
        let slots_of = |names: &BTreeSet<Suffix>| -> Vec<usize> {
            let named = |slot: &Slot| names.contains(&self.suffixes[slot.suffix]);
            let slots = self.slots.iter().enumerate();
            slots.filter(|(_, s)| named(s)).map(|(at, _)| at).collect()
        };
        let sets: BTreeSet<_> = query.same_subtree.iter().map(slots_of).collect();
        sets.into_iter().filter(|slots| slots.len() > 1).collect()
    }

    fn subtrees_with(&self, slot: usize) -> Vec<usize> {
        let sets = self.subtrees.iter().enumerate();
        sets.filter(|(_, set)| set.contains(&slot))
            .map(|(at, _)| at)
            .collect()
    }

    /// Returns whether any provider could serve from outside of its tree.
    pub(crate) fn reaches_away(&self) -> bool {
        self.away.iter().any(|places| !places.is_empty())
    }

    /// Returns whether the root lets its tree serve the query.
    pub(crate) fn root_suits(&self, root: &Node) -> bool {
        let has = |t: &u32| root.traits.binary_search(t).is_ok();
        self.root_required.iter().all(has)
            && !holds_any(&root.traits, &self.root_forbidden)
            && !holds_any(&root.aggregates, &self.root_outside)
    }

    /// Returns which sets of [`Self::together`] a provider meets, as bits.
    pub(crate) fn met_by(&self, node: &Node) -> u128 {
        let met = |(bit, set): (usize, &Vec<u32>)| u128::from(holds_any(&node.traits, set)) << bit;
        self.together.iter().enumerate().map(met).sum()
    }
}

impl Kind {
    /// Returns whether a provider can serve a slot in its own tree, with this root.
    pub(crate) fn suits_home(&self, node: &Node, root: &Node) -> bool {
        self.suits(node)
            && (holds_of_each(&node.aggregates, &self.member_of)
                || (!self.suffixed && holds_of_each(&root.aggregates, &self.member_of)))
    }

    /// Returns whether a sharing provider can serve a slot in another tree.
    fn suits_away(&self, node: &Node) -> bool {
        (self.suffixed || self.tree == NONE)
            && self.suits(node)
            && holds_of_each(&node.aggregates, &self.member_of)
    }

    /// Returns whether a provider satisfies the requirements, wherever it serves.
    pub(crate) fn suits(&self, node: &Node) -> bool {
        let has_headroom = |demand: &Demand| {
            let cell = node.cell(demand.class);
            cell.is_some_and(|cell| cell.admits(demand.amount))
        };
        self.demands.iter().all(has_headroom)
            && (self.tree == NONE || self.tree == node.tree)
            && holds_of_each(&node.traits, &self.required)
            && !holds_any(&node.traits, &self.forbidden)
            && !holds_any(&node.aggregates, &self.outside)
    }
}

fn away(index: &Index, kind: &Kind) -> Vec<u32> {
    let suits = |number: &u32| kind.suits_away(&index.nodes[*number as usize]);
    let places = (0..).zip(&index.sharing);
    places.filter(|(_, n)| suits(n)).map(|(p, _)| p).collect()
}

/// Returns the numbers of names; those that no provider has are left out.
pub(crate) fn known<K: Ord + Clone>(postings: &Postings<K>, names: &BTreeSet<K>) -> Vec<u32> {
    names.iter().filter_map(|n| postings.number(n)).collect()
}

/// Returns the numbers of each set; nothing if no provider has any name of one of them.
pub(crate) fn sets<K: Ord + Clone>(
    postings: &Postings<K>,
    sets: &[BTreeSet<K>],
) -> Option<Vec<Vec<u32>>> {
    let numbers = sets.iter().map(|set| known(postings, set));
    numbers.map(|n| (!n.is_empty()).then_some(n)).collect()
}

/// Returns the classes that several slots want.
fn contended(index: &Index, query: &Query) -> Vec<u32> {
    let mut slots: BTreeMap<&ResourceClass, u32> = BTreeMap::new();
    for class in query.groups.values().flat_map(|g| g.resources.keys()) {
        *slots.entry(class).or_default() += 1;
    }
    let several = slots.into_iter().filter(|(_, count)| *count > 1);
    several
        .filter_map(|(c, _)| index.classes.number(c))
        .collect()
}
