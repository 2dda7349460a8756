//! All ways to fill the slots at one tree, one after the other: depth first, with a look ahead
//! that leaves out what cannot be completed.
//!
//! The look ahead costs more than it saves where nearly everything fits. So the cheap part of it
//! is always done, and the matching ([`crate::candidates::matching`]) once before the first step
//! and then only after dead ends have shown that they are met here.
//!
//! Invariant: each way comes once, and none is left out unless the walk says that it grew tired.

use std::cell::Cell;

use crate::candidates::frame::{Choice, Frame, Stretch};
use crate::candidates::matching;
use crate::candidates::plan::Plan;

/// After so many steps without a way, the tree is given up: to serve groups of several amounts
/// from small providers is bin packing.
const TIRED: u64 = 1_000_000;

/// What a walk came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// A way to fill all slots.
    ToWay,
    /// There are no more.
    ToEnd,
    /// There may be more, but they are too hard to find.
    Tired,
}

/// The ways to fill the slots at one tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct Walk {
    pub(crate) frame: Frame,
    /// The slots in the order in which they are filled.
    pub(crate) slots: Vec<usize>,
    /// By depth: which choice stands there.
    pub(crate) chosen: Vec<usize>,
    /// By slot: at which depth it is filled.
    depths: Vec<usize>,
    /// How many slots are filled.
    depth: usize,
    /// By depth: traits that the choices before it have together.
    met: Vec<u128>,
    /// By depth: traits that the choices from it on could have.
    can_meet: Vec<u128>,
    /// By depth: whether a choice from it on could be of the tree itself.
    can_be_home: Vec<bool>,
    /// Whether at least one choice has to be.
    need_home: bool,
    /// Steps since the last way.
    dead: u64,
    /// After so many steps without a way, the matching is computed at each step.
    dead_ends_max: u64,
    /// Whether dead ends were met.
    hard: bool,
    /// Whether the walk stands on a way, and has to step back first.
    stands: bool,
    /// Steps of this walk.
    pub(crate) steps: u64,
    /// Choices that the present look ahead looked at; they count as steps.
    looked_at: Cell<u64>,
}

impl Walk {
    pub(crate) fn new(dead_ends_max: u64) -> Self {
        Self {
            dead_ends_max,
            ..Self::default()
        }
    }

    /// Begins at the tree that the frame has looked through; returns whether it is worth it.
    pub(crate) fn begin(&mut self, plan: &Plan, need_home: bool) -> bool {
        let length = plan.slots.len();
        self.order(plan);
        self.chosen.clear();
        self.chosen.resize(length, 0);
        self.met.clear();
        self.met.resize(length + 1, 0);
        self.can_meet.clear();
        self.can_meet.resize(length + 1, 0);
        self.can_be_home.clear();
        self.can_be_home.resize(length + 1, false);
        for depth in (0..length).rev() {
            let choices = &self.frame.choices[plan.slots[self.slots[depth]].kind];
            let met = choices.iter().fold(0, |met, choice| met | choice.met);
            self.can_meet[depth] = self.can_meet[depth + 1] | met;
            let home = choices.iter().any(|choice| choice.home);
            self.can_be_home[depth] = self.can_be_home[depth + 1] | home;
        }
        self.need_home = need_home;
        (self.depth, self.dead, self.steps) = (0, 0, 0);
        (self.hard, self.stands) = (false, false);
        self.can_meet[0] == all_of(plan)
            && (!need_home || self.can_be_home[0])
            && matching::could_fill(&self.frame, plan, &self.slots)
    }

    /// Orders the slots: few choices first, but those of one subtree behind each other.
    fn order(&mut self, plan: &Plan) {
        let choices = |slot: &usize| self.frame.choices[plan.slots[*slot].kind].len();
        let mut by_choices: Vec<usize> = (0..plan.slots.len()).collect();
        by_choices.sort_by_key(choices);
        self.slots.clear();
        if plan.subtrees.is_empty() {
            self.slots = by_choices;
        } else {
            let mut placed = vec![false; plan.slots.len()];
            for slot in by_choices {
                let near = plan.subtrees_with[slot].iter();
                let near = near.flat_map(|at| plan.subtrees[*at].iter().copied());
                for slot in std::iter::once(slot).chain(near) {
                    if !std::mem::replace(&mut placed[slot], true) {
                        self.slots.push(slot);
                    }
                }
            }
        }
        self.depths.clear();
        self.depths.resize(plan.slots.len(), 0);
        for (depth, slot) in self.slots.iter().enumerate() {
            self.depths[*slot] = depth;
        }
    }

    /// Goes on to the next way.
    pub(crate) fn next(&mut self, plan: &Plan) -> Came {
        let length = self.slots.len();
        let mut from = 0;
        if self.stands {
            match self.back(plan) {
                Some(next) => from = next,
                None => return Came::ToEnd,
            }
        }
        loop {
            if self.dead > TIRED {
                return Came::Tired;
            }
            if self.forth(plan, from) {
                if self.depth == length {
                    (self.dead, self.stands) = (0, true);
                    return Came::ToWay;
                }
                from = 0;
            } else {
                match self.back(plan) {
                    Some(next) => from = next,
                    None => return Came::ToEnd,
                }
            }
        }
    }

    /// Fills the next slot with its first choice from this one on that can be completed.
    fn forth(&mut self, plan: &Plan, from: usize) -> bool {
        let kind_at = plan.slots[self.slots[self.depth]].kind;
        let kind = &plan.kinds[kind_at];
        for at in from..self.frame.choices[kind_at].len() {
            let choice = self.frame.choices[kind_at][at];
            self.steps += 1;
            self.dead += 1;
            if !self.frame.has_headroom(plan, kind, &choice) || !self.keeps(plan, &choice) {
                continue;
            }
            self.frame.take(plan, kind, &choice);
            self.chosen[self.depth] = at;
            self.met[self.depth + 1] = self.met[self.depth] | choice.met;
            self.depth += 1;
            let can_be_completed = self.can_be_completed(plan);
            let looked_at = self.looked_at.take();
            self.steps += looked_at;
            self.dead += looked_at;
            if can_be_completed {
                return true;
            }
            self.depth -= 1;
            self.frame.give_back(plan, kind, &choice);
        }
        false
    }

    /// Empties the last slot; returns the choice to try next there.
    fn back(&mut self, plan: &Plan) -> Option<usize> {
        self.stands = false;
        self.depth = self.depth.checked_sub(1)?;
        let kind_at = plan.slots[self.slots[self.depth]].kind;
        let at = self.chosen[self.depth];
        let choice = self.frame.choices[kind_at][at];
        self.frame.give_back(plan, &plan.kinds[kind_at], &choice);
        Some(at + 1)
    }

    /// Returns the choices of the slots that are filled, by depth.
    pub(crate) fn choices<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = &'a Choice> + 'a {
        (0..self.depth).map(move |depth| self.choice(plan, depth))
    }

    fn choice(&self, plan: &Plan, depth: usize) -> &Choice {
        &self.frame.choices[plan.slots[self.slots[depth]].kind][self.chosen[depth]]
    }

    /// Returns whether a choice keeps the rules that need nothing but the choices before it.
    fn keeps(&self, plan: &Plan, choice: &Choice) -> bool {
        let reaches = self.met[self.depth] | choice.met | self.can_meet[self.depth + 1];
        if reaches != all_of(plan) {
            return false;
        }
        if self.need_home
            && !choice.home
            && !self.can_be_home[self.depth + 1]
            && !self.choices(plan).any(|c| c.home)
        {
            return false;
        }
        plan.nested || self.keeps_flat(plan, choice)
    }

    /// Returns whether no other provider of the choice's tree is taken from.
    fn keeps_flat(&self, plan: &Plan, choice: &Choice) -> bool {
        let takes = |depth: usize| {
            let kind = &plan.kinds[plan.slots[self.slots[depth]].kind];
            !kind.demands.is_empty()
        };
        if !takes(self.depth) {
            return true;
        }
        let differs = |c: &Choice| c.tree == choice.tree && c.number != choice.number;
        !(0..self.depth).any(|depth| takes(depth) && differs(self.choice(plan, depth)))
    }

    /// Returns whether nothing shows that the slots behind the last choice cannot be filled.
    fn can_be_completed(&mut self, plan: &Plan) -> bool {
        if !self.traits_can_be_met(plan) || !self.subtrees_can_hold(plan) {
            return false;
        }
        if self.depth == self.slots.len() || (!self.hard && self.dead < self.dead_ends_max) {
            return true;
        }
        self.hard = true;
        let open = &self.slots[self.depth..];
        self.count_choices(plan, open);
        matching::could_fill(&self.frame, plan, open)
    }

    /// Counts that the choices of some slots are looked through, so that no look ahead escapes
    /// the bounds of the search.
    fn count_choices(&self, plan: &Plan, slots: &[usize]) {
        let choices = slots
            .iter()
            .map(|slot| &self.frame.choices[plan.slots[*slot].kind]);
        let looked_at: usize = choices.map(Vec::len).sum();
        self.looked_at.set(self.looked_at.get() + looked_at as u64);
    }

    /// Returns whether the open slots are enough for the traits that are requested together: each of
    /// them brings at most what its best choice does.
    fn traits_can_be_met(&self, plan: &Plan) -> bool {
        let missing = all_of(plan) & !self.met[self.depth];
        if missing == 0 {
            return true;
        }
        let brings = |slot: &usize| {
            let choices = self.frame.choices[plan.slots[*slot].kind].iter();
            let best = choices.map(|c| (c.met & missing).count_ones()).max();
            best.unwrap_or(0)
        };
        let open = &self.slots[self.depth..];
        self.count_choices(plan, open);
        open.iter().map(brings).sum::<u32>() >= missing.count_ones()
    }

    /// Returns whether of each subtree that the last choice is in, one provider is above all the
    /// others or is them, or may yet come.
    fn subtrees_can_hold(&self, plan: &Plan) -> bool {
        let last = self.slots[self.depth - 1];
        let sets = plan.subtrees_with[last].iter();
        sets.map(|at| &plan.subtrees[*at]).all(|set| {
            let filled = |slot: &&usize| self.depths[**slot] < self.depth;
            let chosen = || {
                let slots = set.iter().filter(filled);
                slots.map(|slot| self.choice(plan, self.depths[*slot]))
            };
            let newest = self.choice(plan, self.depth - 1);
            let Some(stretch) = chosen().try_fold(Stretch::of(newest), Stretch::with) else {
                return false;
            };
            let open = || set.iter().filter(|slot| !filled(slot));
            let covers = |slot: &usize| {
                self.count_choices(plan, std::slice::from_ref(slot));
                let choices = &self.frame.choices[plan.slots[*slot].kind];
                choices.iter().any(|c| c.covers(&stretch))
            };
            chosen().any(|c| c.covers(&stretch)) || open().any(covers)
        })
    }
}

/// Returns the bits of all traits that are requested together.
fn all_of(plan: &Plan) -> u128 {
    match plan.together.len() {
        0 => 0,
        count => u128::MAX >> (128 - count),
    }
}
