//! Which trees a search looks at, and in which order.
//!
//! Most queries find what they want in the first trees that they look at. Where something rare is
//! requested, the trees are taken from the lists of those that have it.
//!
//! Invariant: no tree that could serve the query is left out, and none comes twice.

use std::borrow::Cow;

use berth_domain::id::ProviderId;

use crate::candidates::index::Index;
use crate::candidates::node::NONE;
use crate::candidates::plan::{Kind, Plan};
use crate::candidates::query::Order;

/// If so many providers at most have room for an amount, they are listed.
const FEW: usize = 128;

/// Above so many sharing providers, what they reach is not estimated.
const SHARING_MAX: usize = 1024;

/// The trees that a search looks at.
#[derive(Clone, Debug)]
pub(crate) struct Anchors {
    /// Trees by their roots' identifiers; absent: all of the index.
    listed: Option<Vec<u32>>,
    start: usize,
    at: usize,
}

impl Anchors {
    pub(crate) fn new(index: &Index, plan: &Plan, limit: Option<u32>, order: Order) -> Self {
        let all = index.order.len();
        let listed = narrowest(index, plan)
            .filter(|narrow| pays(narrow.cost, all, limit))
            .map(|narrow| narrow.trees(index));
        let length = listed.as_ref().map_or(all, Vec::len);
        let start = match order {
            Order::Stable => 0,
            Order::Rotated { seed } => rotation(seed, length),
        };
        Self {
            listed,
            start,
            at: 0,
        }
    }

    /// Returns no trees.
    pub(crate) fn none() -> Self {
        Self {
            listed: Some(Vec::new()),
            start: 0,
            at: 0,
        }
    }

    /// Returns the next tree.
    pub(crate) fn next(&mut self, index: &Index) -> Option<u32> {
        let trees = self.listed.as_deref().unwrap_or(&index.order);
        if self.at == trees.len() {
            return None;
        }
        let place = (self.start + self.at) % trees.len();
        self.at += 1;
        Some(trees[place])
    }
}

/// Returns a place below `length` that differs from seed to seed.
pub(crate) fn rotation(seed: u64, length: usize) -> usize {
    // The finalizer of SplitMix64: neighbouring seeds lie far apart.
    let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    usize::try_from(mixed % length.max(1) as u64).expect("below a usize")
}

/// Returns whether collecting and sorting `cost` trees is cheaper than looking at one tree after
/// the other until the limit is reached, if what was collected is spread evenly.
fn pays(cost: usize, all: usize, limit: Option<u32>) -> bool {
    let limit = limit.map_or(usize::MAX, |l| l as usize);
    let looked_at = match cost {
        0 => all,
        _ => all.min(limit.saturating_mul(all) / cost),
    };
    // To look at a tree costs about twice what collecting one does.
    cost + 2 * cost.min(limit) < 2 * looked_at
}

/// Something that one provider of every candidate has, or its root.
struct Narrow<'a> {
    lists: Vec<Cow<'a, [u32]>>,
    /// Whether it is the root that has it.
    of_root: bool,
    /// Whether a sharing provider that has it may serve other trees than its own.
    follow: bool,
    /// How many trees there are at most, counted with repetition.
    cost: usize,
}

fn narrowest<'a>(index: &'a Index, plan: &'a Plan) -> Option<Narrow<'a>> {
    let mut best: Option<Narrow<'a>> = None;
    let follow = !serves_at_home(plan);
    let mut consider = |lists: Vec<Cow<'a, [u32]>>, of_root: bool| {
        let length: usize = lists.iter().map(|l| l.len()).sum();
        if best.as_ref().is_some_and(|b| b.cost <= length) {
            return;
        }
        let cost = match of_root || !follow {
            true => length,
            false => length.saturating_add(reach(index, &lists)),
        };
        if best.as_ref().is_none_or(|b| cost < b.cost) {
            best = Some(Narrow {
                lists,
                of_root,
                follow,
                cost,
            });
        }
    };
    for name in &plan.root_required {
        consider(vec![index.traits.list(*name).into()], true);
    }
    for set in &plan.together {
        consider(traits(index, set), false);
    }
    for kind in &plan.kinds {
        for lists in lists_of(index, kind, FEW) {
            consider(lists, false);
        }
    }
    best
}

/// Returns whether every candidate is found at the tree of its provider. It is where one provider
/// serves all and there are no requirements on the root: what a sharing provider gives at other trees it
/// gives at its own.
fn serves_at_home(plan: &Plan) -> bool {
    plan.slots.len() == 1
        && plan.root_required.is_empty()
        && plan.root_forbidden.is_empty()
        && plan.root_outside.is_empty()
}

fn traits<'a>(index: &'a Index, set: &[u32]) -> Vec<Cow<'a, [u32]>> {
    set.iter().map(|t| index.traits.list(*t).into()).collect()
}

/// Returns the lists of providers out of each of which one serves a slot of this kind; of a group
/// without suffix it may be the root that is in the aggregate, and then its tree is found by it.
/// Those with room for an amount are listed if they are `few` at most.
pub(crate) fn lists_of<'a>(index: &'a Index, kind: &Kind, few: usize) -> Vec<Vec<Cow<'a, [u32]>>> {
    let aggregates = |set: &Vec<u32>| -> Vec<Cow<'a, [u32]>> {
        let lists = set.iter().map(|a| index.aggregates.list(*a));
        lists.map(Cow::from).collect()
    };
    let mut lists: Vec<Vec<Cow<'a, [u32]>>> = Vec::new();
    if kind.tree != NONE {
        lists.push(vec![index.trees[kind.tree as usize].members[..].into()]);
    }
    for demand in &kind.demands {
        let all = index.classes.list(demand.class);
        let with_headroom = || index.few_with_headroom(demand.class, demand.amount, few);
        let with_headroom = (all.len() > few).then(with_headroom).flatten();
        lists.push(vec![with_headroom.map_or_else(|| all.into(), Cow::from)]);
    }
    lists.extend(kind.required.iter().map(|set| traits(index, set)));
    lists.extend(kind.member_of.iter().map(aggregates));
    lists
}

/// Returns how many trees the sharing providers of these lists reach, at most.
fn reach(index: &Index, lists: &[Cow<'_, [u32]>]) -> usize {
    let trees_of = |number: u32| -> usize {
        let aggregates = index.nodes[number as usize].aggregates.iter();
        aggregates.map(|a| index.aggregates.list(*a).len()).sum()
    };
    let shares = |number: &&u32| index.nodes[**number as usize].sharing != NONE;
    let reach_of = |list: &Cow<'_, [u32]>| -> usize {
        if list.len() <= SHARING_MAX.min(index.sharing.len()) {
            list.iter().filter(shares).map(|n| trees_of(*n)).sum()
        } else if index.sharing.len() <= SHARING_MAX {
            let sharing = index.sharing.iter();
            let listed = sharing.filter(|n| list.binary_search(n).is_ok());
            listed.map(|n| trees_of(*n)).sum()
        } else {
            usize::MAX / CHOICES
        }
    };
    lists.iter().map(reach_of).sum()
}

/// More lists than one requirement can have, so that their sum does not overflow.
const CHOICES: usize = 1 << 16;

impl Narrow<'_> {
    /// Returns the trees, by their roots' identifiers.
    fn trees(&self, index: &Index) -> Vec<u32> {
        let mut trees: Vec<(ProviderId, u32)> = Vec::with_capacity(self.cost);
        let mut add = |tree: u32| trees.push((index.trees[tree as usize].root, tree));
        for number in self.lists.iter().flat_map(|l| l.iter()) {
            let node = &index.nodes[*number as usize];
            if self.of_root {
                if node.parent.is_none() {
                    add(node.tree);
                }
                continue;
            }
            add(node.tree);
            if node.sharing != NONE && self.follow {
                let members = node.aggregates.iter().map(|a| index.aggregates.list(*a));
                members
                    .flatten()
                    .for_each(|n| add(index.nodes[*n as usize].tree));
            }
        }
        trees.sort_unstable();
        trees.dedup();
        trees.into_iter().map(|(_, tree)| tree).collect()
    }
}
