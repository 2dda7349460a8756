//! The providers that can serve each slot at one tree, and what is left of them.
//!
//! Invariant: what [`Frame::take`] takes, [`Frame::give_back`] of the same gives back.

use crate::candidates::anchors::rotation;
use crate::candidates::index::Index;
use crate::candidates::node::NONE;
use crate::candidates::plan::{Kind, Plan};

/// A provider that can serve a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    /// The provider.
    pub(crate) number: u32,
    /// Where it stands among all that can be chosen at this tree.
    pub(crate) place: u32,
    /// The number of its own tree.
    pub(crate) tree: u32,
    /// Its place in its own tree.
    pub(crate) position: u32,
    /// The place after the last one below it.
    pub(crate) end: u32,
    /// Whether it is in the tree that is looked at.
    pub(crate) home: bool,
    /// Whether it is a sharing provider.
    pub(crate) shares: bool,
    /// Which of the traits that are requested together it has.
    pub(crate) met: u128,
}

impl Choice {
    /// Returns whether it is above both ends of a stretch of its tree, or is them.
    pub(crate) fn covers(&self, stretch: &Stretch) -> bool {
        self.tree == stretch.tree && self.position <= stretch.first && stretch.last < self.end
    }
}

/// From the first to the last of some providers of one tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) tree: u32,
    pub(crate) first: u32,
    pub(crate) last: u32,
}

impl Stretch {
    pub(crate) fn of(choice: &Choice) -> Self {
        Self {
            tree: choice.tree,
            first: choice.position,
            last: choice.position,
        }
    }

    /// Returns the stretch with one more provider; nothing if that is in another tree.
    pub(crate) fn with(self, choice: &Choice) -> Option<Self> {
        (self.tree == choice.tree).then_some(Self {
            tree: self.tree,
            first: self.first.min(choice.position),
            last: self.last.max(choice.position),
        })
    }
}

/// The providers that can serve each slot at one tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frame {
    /// By kind.
    pub(crate) choices: Vec<Vec<Choice>>,
    /// What is left for one consumer, by place and contended class.
    pub(crate) headroom: Vec<u64>,
    /// Which places serve a group with a suffix already, where each wants its own.
    pub(crate) taken: Vec<bool>,
    /// Sharing providers of other trees that serve this one, by their place, ascending.
    pub(crate) visible: Vec<u32>,
}

impl Frame {
    /// Looks through a tree; returns whether every kind has a choice.
    pub(crate) fn look(
        &mut self,
        index: &Index,
        plan: &Plan,
        tree: u32,
        seed: Option<u64>,
    ) -> bool {
        let members = &index.trees[tree as usize].members;
        let root = &index.nodes[members[0] as usize];
        if !plan.root_suits(root) {
            return false;
        }
        self.visible.clear();
        if plan.reaches_away() {
            self.see(index, tree);
        }
        self.choices.resize_with(plan.kinds.len(), Vec::new);
        for (at, kind) in plan.kinds.iter().enumerate() {
            let choices = &mut self.choices[at];
            choices.clear();
            if kind.suffixed || plan.only_tree == NONE || plan.only_tree == tree {
                add_home(choices, index, plan, kind, members);
            }
            for (place, sharing) in (members.len()..).zip(&self.visible) {
                if plan.away[at].binary_search(sharing).is_ok() {
                    let number = index.sharing[*sharing as usize];
                    choices.push(choice(index, plan, kind, number, place));
                }
            }
            if choices.is_empty() {
                return false;
            }
            if let Some(seed) = seed {
                let start = rotation(seed, choices.len());
                choices.rotate_left(start);
            }
        }
        let places = members.len() + self.visible.len();
        self.fill_headroom(index, plan, places);
        self.taken.clear();
        self.taken.resize(places, false);
        true
    }

    /// Finds the sharing providers of other trees that serve this one.
    fn see(&mut self, index: &Index, tree: u32) {
        for aggregate in &index.trees[tree as usize].aggregates {
            if let Some(places) = index.sharing_in.get(*aggregate as usize) {
                self.visible.extend(places);
            }
        }
        self.visible.sort_unstable();
        self.visible.dedup();
        let tree_of = |place: u32| index.nodes[index.sharing[place as usize] as usize].tree;
        self.visible.retain(|place| tree_of(*place) != tree);
    }

    fn fill_headroom(&mut self, index: &Index, plan: &Plan, places: usize) {
        let width = plan.contended.len();
        self.headroom.clear();
        self.headroom.resize(places * width, 0);
        if width == 0 {
            return;
        }
        for (kind, choices) in plan.kinds.iter().zip(&self.choices) {
            for demand in kind.demands.iter().filter(|d| d.contended != NONE) {
                for choice in choices {
                    let cell = index.nodes[choice.number as usize].cell(demand.class);
                    let headroom = cell
                        .expect("a choice has what is requested of it")
                        .headroom();
                    self.headroom[choice.place as usize * width + demand.contended as usize] =
                        headroom;
                }
            }
        }
    }

    /// Returns whether a choice has room for one more slot.
    pub(crate) fn has_headroom(&self, plan: &Plan, kind: &Kind, choice: &Choice) -> bool {
        if plan.isolate && kind.suffixed && self.taken[choice.place as usize] {
            return false;
        }
        let first = choice.place as usize * plan.contended.len();
        let mut contended = kind.demands.iter().filter(|d| d.contended != NONE);
        contended.all(|d| d.amount <= self.headroom[first + d.contended as usize])
    }

    /// Takes what a slot wants from a choice that has room for it.
    pub(crate) fn take(&mut self, plan: &Plan, kind: &Kind, choice: &Choice) {
        self.taken[choice.place as usize] |= plan.isolate && kind.suffixed;
        let first = choice.place as usize * plan.contended.len();
        for demand in kind.demands.iter().filter(|d| d.contended != NONE) {
            self.headroom[first + demand.contended as usize] -= demand.amount;
        }
    }

    /// Undoes [`Self::take`].
    pub(crate) fn give_back(&mut self, plan: &Plan, kind: &Kind, choice: &Choice) {
        if plan.isolate && kind.suffixed {
            self.taken[choice.place as usize] = false;
        }
        let first = choice.place as usize * plan.contended.len();
        for demand in kind.demands.iter().filter(|d| d.contended != NONE) {
            self.headroom[first + demand.contended as usize] += demand.amount;
        }
    }
}

fn add_home(choices: &mut Vec<Choice>, index: &Index, plan: &Plan, kind: &Kind, members: &[u32]) {
    let root = &index.nodes[members[0] as usize];
    let suits = |n: &u32| kind.suits_home(&index.nodes[*n as usize], root);
    let suiting = members.iter().enumerate().filter(|(_, n)| suits(n));
    choices.extend(suiting.map(|(place, n)| Choice {
        home: true,
        ..choice(index, plan, kind, *n, place)
    }));
}

fn choice(index: &Index, plan: &Plan, kind: &Kind, number: u32, place: usize) -> Choice {
    let node = &index.nodes[number as usize];
    Choice {
        number,
        place: u32::try_from(place).expect("fewer providers than 2^32"),
        tree: node.tree,
        position: node.position,
        end: node.end,
        home: false,
        shares: node.sharing != NONE,
        met: if kind.suffixed { 0 } else { plan.met_by(node) },
    }
}
