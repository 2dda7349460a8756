//! Candidates, one after the other: tree by tree, and at each tree way by way.
//!
//! Nothing is computed before it is requested, so that a search with a limit costs what it yields and
//! what it has to look through, not what there is.
//!
//! A candidate that takes from any provider which does not share belongs to that provider's tree
//! alone. One that takes from sharing providers only is found at every tree that they serve. So
//! where several trees see the same sharing providers, the ways that use nothing else are walked
//! at the first of them, and what is left of such candidates is remembered: they are few.
//!
//! Invariant: no candidate comes twice.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::candidates::anchors::Anchors;
use crate::candidates::candidate::{Bounds, Candidate, Candidates, SearchBound};
use crate::candidates::index::Index;
use crate::candidates::plan::Plan;
use crate::candidates::query::{Invalid, Order, Query};
use crate::candidates::walk::{Came, Walk};

/// Under a rotated order, so many trees have to share the limit before one may use it alone.
const SHARES: u32 = 16;

/// Trees that are looked at, for each requested candidate, to find others to share with.
const LOOKED_AT: u64 = 4;

/// A tree that gave its share and may have more.
#[derive(Clone, Copy, Debug)]
struct Held {
    tree: u32,
    need_home: bool,
    /// Ways that were walked before.
    ways: u64,
}

/// A search under way.
#[derive(Debug)]
pub struct Search<'a> {
    index: &'a Index,
    /// Absent when something is requested that no provider has.
    plan: Option<Plan>,
    anchors: Anchors,
    bounds: Bounds,
    limit: Option<u32>,
    /// Turns the choices at each tree; absent: they come in a stable order.
    seed: Option<u64>,
    walk: Walk,
    /// The tree that is being walked.
    current: Option<Held>,
    /// Ways that are passed over, because they were walked before.
    pass_over: u64,
    /// What one tree may give in its first turn.
    share: u64,
    /// Trees that gave their share.
    held: VecDeque<Held>,
    looked_at: u64,
    /// Sets of sharing providers whose ways among themselves were walked.
    walked: BTreeSet<Vec<u32>>,
    /// Candidates of sharing providers only.
    shared: BTreeSet<Vec<u32>>,
    candidates_total: u64,
    steps: u64,
    bytes: u64,
    tired: bool,
    ended: bool,
}

impl Index {
    /// Begins a search; candidates come as they are requested.
    ///
    /// # Errors
    ///
    /// The query cannot be answered.
    pub fn search(&self, query: &Query, bounds: Bounds) -> Result<Search<'_>, Invalid> {
        query.validate()?;
        let plan = Plan::new(self, query);
        let (seed, share) = match (query.order, query.limit) {
            (Order::Rotated { seed }, Some(limit)) => {
                (Some(seed), u64::from(limit.div_ceil(SHARES)))
            }
            (Order::Rotated { seed }, None) => (Some(seed), u64::MAX),
            (Order::Stable, _) => (None, u64::MAX),
        };
        let anchors = match &plan {
            Some(plan) => Anchors::new(self, plan, query.limit, query.order),
            None => Anchors::none(),
        };
        Ok(Search {
            index: self,
            plan,
            anchors,
            bounds,
            limit: query.limit,
            seed,
            walk: Walk::new(bounds.dead_ends),
            current: None,
            pass_over: 0,
            share,
            held: VecDeque::new(),
            looked_at: 0,
            walked: BTreeSet::new(),
            shared: BTreeSet::new(),
            candidates_total: 0,
            steps: 0,
            bytes: 0,
            tired: false,
            ended: false,
        })
    }

    /// Returns the requested candidates.
    ///
    /// # Errors
    ///
    /// The query cannot be answered, or the search was stopped: without a limit before all were
    /// found, with one before any was.
    pub fn candidates(&self, query: &Query, bounds: Bounds) -> Result<Candidates, Failed> {
        let mut all = Candidates::default();
        for found in self.search(query, bounds)? {
            match found {
                Ok(candidate) => all.candidates.push(candidate),
                Err(_) if query.limit.is_some() && !all.candidates.is_empty() => {
                    all.stopped = true;
                }
                Err(bound) => return Err(bound.into()),
            }
        }
        Ok(all)
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// The query cannot be answered.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The search was stopped.
    #[error(transparent)]
    Bound(#[from] SearchBound),
}

impl Iterator for Search<'_> {
    type Item = Result<Candidate, SearchBound>;

    fn next(&mut self) -> Option<Self::Item> {
        let enough = self
            .limit
            .is_some_and(|l| self.candidates_total >= u64::from(l));
        if self.ended || enough {
            return None;
        }
        let plan = self.plan.take()?;
        let next = self.advance(&plan);
        self.plan = Some(plan);
        self.ended |= matches!(next, None | Some(Err(_)));
        next
    }
}

impl Search<'_> {
    /// Returns how many providers were looked at so far: for whether they could serve, and in each
    /// way that was tried.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps + self.walk.steps
    }

    fn advance(&mut self, plan: &Plan) -> Option<Result<Candidate, SearchBound>> {
        loop {
            if self.steps() > self.bounds.steps || self.bytes > self.bounds.bytes {
                return Some(Err(self.bound()));
            }
            let Some(current) = &mut self.current else {
                if self.turn(plan) {
                    continue;
                }
                // What was given up may have had candidates.
                return self.tired.then(|| Err(self.bound()));
            };
            match self.walk.next(plan) {
                Came::ToWay => {}
                Came::ToEnd => {
                    self.current = None;
                    continue;
                }
                Came::Tired => {
                    self.tired = true;
                    self.current = None;
                    continue;
                }
            }
            current.ways += 1;
            if self.pass_over > 0 {
                self.pass_over -= 1;
                continue;
            }
            if current.ways >= self.share {
                self.held.extend(self.current.take());
            }
            if self.is_new(plan) {
                let candidate = candidate(self.index, plan, &self.walk);
                self.bytes += bytes_of(&candidate);
                self.candidates_total += 1;
                return Some(Ok(candidate));
            }
        }
    }

    fn bound(&self) -> SearchBound {
        SearchBound {
            steps: self.steps(),
            bytes: self.bytes,
            candidates_total: self.candidates_total,
            limited: self.limit.is_some(),
        }
    }

    /// Turns to the next tree that is worth a walk; returns whether there is one.
    fn turn(&mut self, plan: &Plan) -> bool {
        let looked_enough = || match self.limit {
            Some(limit) => self.looked_at > u64::from(SHARES) + LOOKED_AT * u64::from(limit),
            None => false,
        };
        if self.share != u64::MAX && looked_enough() {
            self.share = u64::MAX;
        }
        loop {
            if self.share == u64::MAX && !self.held.is_empty() {
                return self.resume(plan);
            }
            let Some(tree) = self.anchors.next(self.index) else {
                if self.held.is_empty() {
                    return false;
                }
                self.share = u64::MAX;
                continue;
            };
            self.looked_at += 1;
            self.count_steps();
            self.steps += self.index.trees[tree as usize].members.len() as u64;
            if !self.walk.frame.look(self.index, plan, tree, self.seed) {
                if self.looked_at.is_multiple_of(1024) && self.steps > self.bounds.steps {
                    return true;
                }
                continue;
            }
            let need_home = self.is_walked(plan);
            if self.walk.begin(plan, need_home) {
                self.pass_over = 0;
                self.current = Some(Held {
                    tree,
                    need_home,
                    ways: 0,
                });
                return true;
            }
        }
    }

    /// Goes on at a tree that gave its share.
    fn resume(&mut self, plan: &Plan) -> bool {
        let held = self.held.pop_front().expect("a tree is held");
        self.count_steps();
        let worth = self.walk.frame.look(self.index, plan, held.tree, self.seed)
            && self.walk.begin(plan, held.need_home);
        assert!(worth, "a tree that gave its share is still there");
        self.pass_over = held.ways;
        self.current = Some(Held { ways: 0, ..held });
        true
    }

    fn count_steps(&mut self) {
        self.steps += std::mem::take(&mut self.walk.steps);
    }

    /// Returns whether the ways among the sharing providers that this tree sees were walked at
    /// another one; if not, they are now.
    fn is_walked(&mut self, plan: &Plan) -> bool {
        let served_away = |choices: &Vec<_>| has_away(choices);
        if !self.walk.frame.choices[..plan.kinds.len()]
            .iter()
            .all(served_away)
        {
            // There is no way among them.
            return false;
        }
        let visible = &self.walk.frame.visible;
        if self.walked.contains(visible) {
            return true;
        }
        self.bytes += size_of_val(&visible[..]) as u64;
        self.walked.insert(visible.clone());
        false
    }

    /// Returns whether the way on which the walk stands was not found at another tree.
    fn is_new(&mut self, plan: &Plan) -> bool {
        if !self.walk.choices(plan).all(|c| c.shares) {
            return true;
        }
        // In the order of the slots, which differs from the walk's from tree to tree.
        let mut numbers = vec![0; plan.slots.len()];
        for (slot, choice) in self.walk.slots.iter().zip(self.walk.choices(plan)) {
            numbers[*slot] = choice.number;
        }
        self.bytes += size_of_val(&numbers[..]) as u64;
        self.shared.insert(numbers)
    }
}

fn has_away(choices: &[crate::candidates::frame::Choice]) -> bool {
    choices.iter().any(|c| !c.home)
}

/// Returns the way on which the walk stands as a candidate.
fn candidate(index: &Index, plan: &Plan, walk: &Walk) -> Candidate {
    let mut allocations: BTreeMap<_, BTreeMap<_, u64>> = BTreeMap::new();
    let mut mappings: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (slot, choice) in walk.slots.iter().zip(walk.choices(plan)) {
        let slot = &plan.slots[*slot];
        let kind = &plan.kinds[slot.kind];
        let id = index.nodes[choice.number as usize].id;
        let suffix = &plan.suffixes[slot.suffix];
        let providers = match mappings.get_mut(suffix) {
            Some(providers) => providers,
            None => mappings.entry(suffix.clone()).or_insert_with(Vec::new),
        };
        if let Err(at) = providers.binary_search(&id) {
            providers.insert(at, id);
        }
        if kind.demands.is_empty() {
            continue;
        }
        let resources = allocations.entry(id).or_default();
        for (class, demand) in kind.classes.iter().zip(&kind.demands) {
            match resources.get_mut(class) {
                Some(amount) => *amount += demand.amount,
                None => drop(resources.insert(class.clone(), demand.amount)),
            }
        }
    }
    Candidate {
        allocations,
        mappings,
    }
}

/// Returns about how much memory a candidate takes.
fn bytes_of(candidate: &Candidate) -> u64 {
    // A leaf of a `BTreeMap` has room for eleven entries.
    const LEAF: usize = 11 * (size_of::<usize>() * 4);
    let leaves = 2 + candidate.allocations.len() + candidate.mappings.len() / 4;
    (leaves * LEAF) as u64
}
