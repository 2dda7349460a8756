//! The search: the best move of an instance, the descent over all of them, and the second phase.
//!
//! Not where a move is evaluated: [`Field`] puts candidates away by their bound, and what is left is
//! drafted by the cluster's own rules and scored exactly.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::evacuate::first_full;
use super::exhaustive::breaks_n1;
use super::field::{Candidate, Field, Reserve, Targets, amounts};
use super::mirrored::{Around, FAILOVER, Pair, Reserves, negative};
use super::{Options, Plan, Step, is_allowed};
use crate::model::{Change, Cluster, InstanceIndex, Move, NodeIndex, Placement};

/// A move that was found to be allowed, with the score after it.
#[derive(Debug, Clone)]
pub(super) struct AllowedMove {
    pub(super) what: Move,
    pub(super) score: f64,
    pub(super) change: Change,
}

/// A gain that orders as a number; no gain is not a number.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Gain(f64);

impl Eq for Gain {}

impl Ord for Gain {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Gain {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

pub(super) struct Search<'a, const W: usize> {
    pub(super) cluster: &'a mut Cluster,
    pub(super) field: Field<W>,
    instances: Vec<InstanceIndex>,
    options: &'a Options,
    /// Soft checks do not count.
    emergency: bool,
    /// Nodes that can be emptied and must stay so, those last found full first.
    guarded: Vec<NodeIndex>,
    movable: Vec<bool>,
    reserves: Reserves,
    kept: Vec<Candidate>,
    pub(super) steps: Vec<Step>,
    /// What the steps changed, to take them back.
    changes: Vec<Change>,
    candidates: u64,
}

impl<'a, const W: usize> Search<'a, W> {
    pub(super) fn new(
        cluster: &'a mut Cluster,
        field: Field<W>,
        instances: Vec<InstanceIndex>,
        options: &'a Options,
    ) -> Self {
        let mut movable = vec![false; cluster.instances().len()];
        for instance in &instances {
            movable[instance.at()] = true;
        }
        Search {
            cluster,
            reserves: Reserves::new(field.online.len()),
            field,
            instances,
            options,
            emergency: false,
            guarded: Vec::new(),
            movable,
            kept: Vec::new(),
            steps: Vec::new(),
            changes: Vec::new(),
            candidates: 0,
        }
    }

    /// Makes it a search in which soft checks do not count.
    pub(super) fn in_an_emergency(mut self) -> Self {
        self.emergency = true;
        self
    }

    /// Makes it a search after each of whose moves these nodes can still be emptied.
    pub(super) fn guarding(mut self, nodes: Vec<NodeIndex>) -> Self {
        self.guarded = nodes;
        self
    }

    /// Plans to the end.
    pub(super) fn run(mut self) -> (Plan, Vec<Change>) {
        let score_before = self.score();
        self.descend();
        let descent = self.steps.len();
        if self.options.refinement > 0 {
            self.refine();
        }
        let plan = Plan {
            score_before,
            score_after: self.steps.last().map_or(score_before, |s| s.score_after),
            steps: self.steps,
            descent,
            candidates: self.candidates,
        };
        (plan, self.changes)
    }

    pub(super) fn score(&self) -> f64 {
        self.field.totals.score()
    }

    fn may_go_on(&self, moves: usize) -> bool {
        let most = self.options.max_moves.unwrap_or(usize::MAX);
        self.steps.len() + moves <= most && self.score() > self.options.min_score
    }

    /// Returns the score below which a move gains enough.
    fn limit(&self) -> f64 {
        let score = self.score();
        score - self.options.gain_above(score)
    }

    fn make(&mut self, instance: InstanceIndex, found: &AllowedMove) {
        self.cluster.apply(&found.change);
        self.field.refresh(self.cluster);
        self.changes.push(found.change.clone());
        self.steps.push(Step {
            instance,
            what: found.what,
            from: found.change.before,
            to: found.change.after,
            score_after: self.score(),
        });
    }

    fn descend(&mut self) {
        if !self.guarded.is_empty() {
            return self.descend_guarded();
        }
        let size = self.instances.len() * self.field.online.len();
        if size <= self.options.exact_up_to {
            self.descend_exactly();
        }
        self.descend_lazily();
    }

    /// Takes the best of all moves until none gains.
    fn descend_exactly(&mut self) {
        while self.may_go_on(1) {
            let mut limit = self.limit();
            let mut best = None;
            for at in 0..self.instances.len() {
                let instance = self.instances[at];
                if let Some(found) = self.best(instance, limit) {
                    limit = found.score;
                    best = Some((instance, found));
                }
            }
            let Some((instance, found)) = best else {
                return;
            };
            self.make(instance, &found);
        }
    }

    /// Takes moves that are about as good as any, until a look at all instances finds none.
    fn descend_lazily(&mut self) {
        loop {
            let mut queue = BinaryHeap::new();
            for at in 0..self.instances.len() {
                let limit = self.limit();
                if let Some(found) = self.best(self.instances[at], limit) {
                    queue.push((
                        Gain(self.score() - found.score),
                        Reverse(self.instances[at]),
                    ));
                }
            }
            if queue.is_empty() || !self.drain(&mut queue) {
                return;
            }
        }
    }

    /// Takes moves by their last known gain; false if the plan is over.
    fn drain(&mut self, queue: &mut BinaryHeap<(Gain, Reverse<InstanceIndex>)>) -> bool {
        while let Some((_, Reverse(instance))) = queue.pop() {
            if !self.may_go_on(1) {
                return false;
            }
            let limit = self.limit();
            let Some(found) = self.best(instance, limit) else {
                continue;
            };
            let gain = self.score() - found.score;
            let next = queue.peek().map_or(0.0, |(Gain(gain), _)| *gain);
            if gain >= 0.95 * next {
                self.make(instance, &found);
            }
            queue.push((Gain(gain), Reverse(instance)));
        }
        true
    }

    /// Takes the best move after which the guarded nodes can be emptied, until none gains.
    fn descend_guarded(&mut self) {
        const OF_EACH: usize = 4;
        while self.may_go_on(1) {
            let mut found = Vec::new();
            for at in 0..self.instances.len() {
                let (instance, limit) = (self.instances[at], self.limit());
                let ranked = self.ranked(instance, limit, OF_EACH);
                found.extend(ranked.into_iter().map(|found| (instance, found)));
            }
            found.sort_by(|one, two| one.1.score.total_cmp(&two.1.score));
            let steps = self.steps.len();
            let taken = found.iter().any(|(instance, found)| {
                self.make(*instance, found);
                self.keep_if_guarded(steps)
            });
            if !taken {
                return;
            }
        }
    }

    /// Keeps the steps from here on if the guarded nodes can still be emptied, or takes them back.
    fn keep_if_guarded(&mut self, from: usize) -> bool {
        if self.guarded.is_empty() {
            return true;
        }
        let group = self.field.group;
        let Some(full) = first_full(self.cluster, group, &self.guarded) else {
            return true;
        };
        self.guarded.retain(|node| *node != full);
        self.guarded.insert(0, full);
        self.take_back(from);
        false
    }

    /// Takes steps back, the last one first.
    fn take_back(&mut self, from: usize) {
        for change in self.changes.drain(from..).rev() {
            self.cluster.revert(&change);
        }
        self.steps.truncate(from);
        self.field.refresh(self.cluster);
    }

    /// Tries chains of moves whose first may lose, while the budget lasts.
    fn refine(&mut self) {
        let end = self.candidates + self.options.refinement;
        let mut order = self.instances.clone();
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        loop {
            shuffle(&mut order, &mut state);
            let mut improved = false;
            for instance in &order {
                if self.candidates >= end || !self.may_go_on(2) {
                    return self.descend();
                }
                improved |= self.chain(*instance);
            }
            if !improved {
                return self.descend();
            }
        }
    }

    /// Moves an instance where it loses least, and looks whether its new or old neighbours then
    /// gain more than that; otherwise takes it back.
    fn chain(&mut self, instance: InstanceIndex) -> bool {
        const FIRST_MOVES: usize = 3;
        let start = self.score();
        let goal = start
            - self
                .options
                .gain_above(start)
                .max(self.options.min_chain_gain);
        let steps = self.steps.len();
        for first in self.ranked(instance, f64::INFINITY, FIRST_MOVES) {
            self.make(instance, &first);
            if let Some((second, found)) = self.answer(&first.change, instance, goal) {
                self.make(second, &found);
                self.settle(&[first.change, found.change]);
                if self.keep_if_guarded(steps) {
                    return true;
                }
                continue;
            }
            self.take_back(steps);
        }
        false
    }

    /// Returns the best move of those whose nodes a change touched.
    fn answer(
        &mut self,
        change: &Change,
        except: InstanceIndex,
        mut goal: f64,
    ) -> Option<(InstanceIndex, AllowedMove)> {
        let mut best = None;
        for instance in self.neighbours(change) {
            if instance == except {
                continue;
            }
            if let Some(found) = self.best(instance, goal) {
                goal = found.score;
                best = Some((instance, found));
            }
        }
        best
    }

    fn neighbours(&self, change: &Change) -> Vec<InstanceIndex> {
        let mut found = Vec::new();
        for touched in change.touched() {
            let lists = self.cluster.lists(touched.node);
            let here = lists.primaries.iter().chain(&lists.secondaries);
            found.extend(here.filter(|instance| self.movable[instance.at()]));
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Descends among the neighbours of some changes.
    fn settle(&mut self, changes: &[Change]) {
        let mut around: Vec<InstanceIndex> = Vec::new();
        for change in changes {
            around.extend(self.neighbours(change));
        }
        while self.may_go_on(1) {
            let mut limit = self.limit();
            let mut best = None;
            for instance in &around {
                if let Some(found) = self.best(*instance, limit) {
                    limit = found.score;
                    best = Some((*instance, found));
                }
            }
            let Some((instance, found)) = best else {
                return;
            };
            self.make(instance, &found);
        }
    }

    /// Returns the best move of an instance with a score below the limit.
    pub(super) fn best(&mut self, instance: InstanceIndex, limit: f64) -> Option<AllowedMove> {
        self.ranked(instance, limit, 1).pop()
    }

    /// Returns the best moves of an instance with scores below the limit, the best one first.
    fn ranked(&mut self, instance: InstanceIndex, limit: f64, count: usize) -> Vec<AllowedMove> {
        self.kept.clear();
        let Placement { primary, secondary } = self.cluster.placement(instance);
        let mut found = Vec::new();
        match (primary, secondary) {
            (Some(primary), Some(secondary)) => {
                self.evaluate_mirrored(instance, primary, secondary, limit);
            }
            (Some(primary), None) => self.evaluate_shared(instance, primary, limit),
            (None, _) => return found,
        }
        let mut kept = std::mem::take(&mut self.kept);
        let mirrored = secondary.is_some();
        let mut limit = limit;
        while let Some(candidate) = take_least(&mut kept) {
            if candidate.bound >= limit {
                break;
            }
            let what = self.what(candidate.order, mirrored);
            let Ok(change) = self.cluster.draft_move(instance, what, self.emergency) else {
                continue;
            };
            if !self.emergency && breaks_n1(self.cluster, &change) {
                continue;
            }
            let score = self.field.totals.score_after(self.cluster, &change);
            if score >= limit {
                continue;
            }
            let at = found.partition_point(|f: &AllowedMove| f.score <= score);
            found.insert(
                at,
                AllowedMove {
                    what,
                    score,
                    change,
                },
            );
            found.truncate(count);
            if found.len() == count {
                limit = found[count - 1].score;
            }
        }
        self.kept = kept;
        found
    }

    fn what(&self, order: u32, mirrored: bool) -> Move {
        if order == FAILOVER {
            return Move::Failover;
        }
        let target = self.field.online[order as usize / 4];
        match order % 4 {
            _ if !mirrored => Move::FailoverTo(target),
            0 => Move::ReplaceSecondary(target),
            1 => Move::ReplaceAndFailover(target),
            2 => Move::ReplacePrimary(target),
            _ => Move::FailoverAndReplace(target),
        }
    }

    /// Returns the most that a candidate of this instance could gain in what is counted: less
    /// where it leaves a node that is offline or fails N+1, or has tags.
    fn count_gain(&self, instance: InstanceIndex) -> f64 {
        let Placement { primary, secondary } = self.cluster.placement(instance);
        let what = self.cluster.instance(instance);
        let mut gain = 0;
        for (node, offline) in [(primary, 20), (secondary, 4)] {
            let Some(node) = node else { continue };
            let state = self.cluster.state(node);
            if self.cluster.node(node).offline {
                gain += offline;
            } else if state.fails_n1 {
                gain += i64::from(state.primaries + state.secondaries);
            }
        }
        if let Some(primary) = primary {
            let locations = self.cluster.node(primary).locations.len() as i64;
            gain += what.exclusion_tags.len() as i64 * (2 + locations);
            let shared = secondary.map_or(0, |s| self.cluster.shared_locations(primary, s));
            gain += shared + self.cluster.missed_locations(instance, primary);
        }
        gain as f64
    }

    fn evaluate_shared(&mut self, instance: InstanceIndex, primary: NodeIndex, limit: f64) {
        let any = Move::FailoverTo(primary);
        if !is_allowed(self.cluster, instance, any, self.options) {
            return;
        }
        let (as_primary, _) = amounts(self.cluster.instance(instance));
        let as_primary = self.field.by_lane(&as_primary);
        let mut base = self.field.base(self.count_gain(instance));
        self.field.shift(&mut base, primary, &negative(&as_primary));
        let targets = Targets {
            amount: &as_primary,
            reserve: Reserve::None,
            memory: 0.0,
            except: [self.field.place(primary), None],
            limit,
            kind: 0,
        };
        self.candidates += self.field.online.len() as u64;
        self.field.evaluate(&base, &targets, &mut self.kept);
    }

    fn evaluate_mirrored(
        &mut self,
        instance: InstanceIndex,
        primary: NodeIndex,
        secondary: NodeIndex,
        limit: f64,
    ) {
        let gain = self.count_gain(instance);
        let pair = Pair {
            instance,
            primary,
            secondary,
        };
        let evaluated = self.reserves.evaluate(
            &Around {
                cluster: self.cluster,
                field: &self.field,
                options: self.options,
                limit,
            },
            &pair,
            &self.field.base(gain),
            &mut self.kept,
        );
        self.candidates += evaluated;
    }
}

/// Takes the candidate with the least bound, the first one of equals.
fn take_least(kept: &mut Vec<Candidate>) -> Option<Candidate> {
    let least = |one: &(usize, &Candidate), two: &(usize, &Candidate)| {
        let bounds = one.1.bound.total_cmp(&two.1.bound);
        bounds.then(one.1.order.cmp(&two.1.order))
    };
    let (at, _) = kept.iter().enumerate().min_by(least)?;
    Some(kept.swap_remove(at))
}

/// Shuffles by a fixed sequence (xorshift), so that two runs are alike.
fn shuffle(order: &mut [InstanceIndex], state: &mut u64) {
    for at in (1..order.len()).rev() {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        let other = (*state >> 11) as usize % (at + 1);
        order.swap(at, other);
    }
}
