//! The reason where a query has no candidates: how many providers each requirement removed, how
//! many trees lacked which group, and the tree that came nearest.
//!
//! It reads every provider once. Requirements are counted in a fixed order, each over what the
//! ones before it left.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;

use berth_domain::id::{AggregateId, ProviderId};
use berth_domain::refusal::{Code, Missing, Refusal};
use berth_domain::resource::{ResourceClass, Trait};

use crate::candidates::candidate::Bounds;
use crate::candidates::explain_rules::{Rule, SlotRequest, root_rules, slot_requests};
use crate::candidates::index::Index;
use crate::candidates::node::{NONE, Node};
use crate::candidates::plan::Plan;
use crate::candidates::query::{Group, Query, Suffix};
use crate::candidates::tree::Tree;
use crate::candidates::walk::{Came, Walk};

/// A requirement on a provider or a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// It is in the tree of this provider.
    InTree(ProviderId),
    /// It has this class.
    Class(ResourceClass),
    /// One allocation may have this amount.
    Unit(ResourceClass, u64),
    /// So much is free.
    Free(ResourceClass, u64),
    /// It has one of these traits.
    Traits(BTreeSet<Trait>),
    /// It has none of these traits.
    NoTraits(BTreeSet<Trait>),
    /// It is in one of these aggregates.
    Aggregates(BTreeSet<AggregateId>),
    /// It is in none of these aggregates.
    NoAggregates(BTreeSet<AggregateId>),
    /// The root has one of these traits.
    RootTraits(BTreeSet<Trait>),
    /// The root has none of these traits.
    NoRootTraits(BTreeSet<Trait>),
    /// The root is in none of these aggregates.
    NoRootAggregates(BTreeSet<AggregateId>),
    /// There is a provider for each group.
    EachGroup,
    /// Each group with a suffix has a provider of its own.
    Isolate,
    /// The providers of some groups are in one subtree.
    SameSubtree,
    /// The providers of the group without suffix have all traits together.
    TraitsTogether,
    /// No two providers of one tree are taken from.
    Flat,
    /// The groups fit beside each other.
    Beside,
}

/// What one requirement removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The group of the request, and the class that it requests if its classes may come from several
    /// providers; absent where trees are counted.
    pub group: Option<(Suffix, Option<ResourceClass>)>,
    /// The requirement.
    pub requirement: Requirement,
    /// How many providers, or trees, do not have it.
    pub removed: u64,
    /// How many are left.
    pub left: u64,
}

/// The tree that came nearest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nearest {
    /// Its root.
    pub root: ProviderId,
    /// The provider that came nearest to serving the first group that is not served.
    pub provider: Option<ProviderId>,
    /// That group.
    pub suffix: Option<Suffix>,
    /// What it lacks.
    pub requirement: Requirement,
    /// How much, where it can be counted.
    pub missing: Option<Missing>,
}

/// Why a query has no candidates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Providers that there are.
    pub providers: u64,
    /// Trees that there are.
    pub trees: u64,
    /// What each requirement removed: first of the providers for each group, then of the trees.
    pub removed: Vec<Removed>,
    /// The tree that came nearest.
    pub nearest: Option<Nearest>,
}

impl Index {
    /// Returns why a query has no candidates.
    #[must_use]
    pub fn explain(&self, query: &Query) -> Explanation {
        let slot_requests = slot_requests(self, query);
        let mut explanation = Explanation {
            providers: self.len() as u64,
            trees: self.order.len() as u64,
            removed: Vec::new(),
            nearest: None,
        };
        let serving: Vec<Vec<bool>> = slot_requests
            .iter()
            .map(|slot_request| self.count_providers(slot_request, &mut explanation.removed))
            .collect();
        let nearest = self.count_trees(query, &slot_requests, &serving, &mut explanation.removed);
        explanation.nearest =
            nearest.map(|tree| self.nearest(query, &slot_requests, &serving, tree));
        explanation
    }

    /// Returns about how much [`Self::explain`] has to look at: providers, each as often as
    /// there are requirements on it.
    #[must_use]
    pub fn explaining_takes(&self, query: &Query) -> u64 {
        let steps = |(suffix, group): (&Suffix, &Group)| {
            let required: usize = group.required.iter().map(BTreeSet::len).sum();
            let member_of: usize = group.member_of.iter().map(BTreeSet::len).sum();
            let forbidden = group.forbidden.len() + group.forbidden_aggregates.len();
            let slot_requests = if suffix.is_empty() {
                group.resources.len()
            } else {
                1
            };
            // At a tree the sharing providers are looked at as well.
            let names = 2 + required + member_of + forbidden;
            (group.resources.len() * 3 + slot_requests * names) as u64
        };
        let steps: u64 = query.groups.iter().map(steps).sum();
        let shared = |tree: &u32| {
            let aggregates = self.trees[*tree as usize].aggregates.iter();
            let sharing = aggregates.filter_map(|a| self.sharing_in.get(*a as usize));
            sharing.map(Vec::len).sum::<usize>()
        };
        let shared: usize = self.order.iter().map(shared).sum();
        steps.saturating_mul((self.len() + shared) as u64)
    }

    /// Counts what each rule of a slot request removes; returns by number which providers are left.
    fn count_providers(&self, slot_request: &SlotRequest, removed: &mut Vec<Removed>) -> Vec<bool> {
        let mut counts = vec![0_u64; slot_request.rules.len()];
        let mut serving = vec![false; self.nodes.len()];
        for (node, serving) in self.nodes.iter().zip(&mut serving) {
            // Its number waits for another provider.
            if node.tree == NONE {
                continue;
            }
            match self.first_broken(&slot_request.rules, node) {
                Some(at) => counts[at] += 1,
                None => *serving = true,
            }
        }
        let mut left = self.len() as u64;
        for (rule, count) in slot_request.rules.iter().zip(counts) {
            left -= count;
            removed.push(Removed {
                group: Some((slot_request.suffix.clone(), slot_request.class.clone())),
                requirement: rule.requirement.clone(),
                removed: count,
                left,
            });
        }
        serving
    }

    fn first_broken(&self, rules: &[Rule], node: &Node) -> Option<usize> {
        let root = || &self.nodes[self.trees[node.tree as usize].root_node() as usize];
        rules.iter().position(|rule| !rule.holds(node, root))
    }

    /// Counts what removes whole trees; returns the one that came nearest.
    fn count_trees(
        &self,
        query: &Query,
        slot_requests: &[SlotRequest],
        serving: &[Vec<bool>],
        removed: &mut Vec<Removed>,
    ) -> Option<u32> {
        let root_rules = root_rules(self, query);
        let mut by_root = vec![0_u64; root_rules.len()];
        let (mut lacking, mut best, mut seen) = (0, None, Vec::new());
        // As they lie in memory. Of equals the one with the smallest identifier is reported, so that
        // the answer does not depend on their numbers.
        for (number, tree) in (0..).zip(&self.trees) {
            let Some(root) = tree.members.first() else {
                continue;
            };
            let broken = |rule: &Rule| {
                let root = &self.nodes[*root as usize];
                !rule.holds(root, || root)
            };
            if let Some(at) = root_rules.iter().position(broken) {
                by_root[at] += 1;
                continue;
            }
            self.seen_from(tree, &mut seen);
            let serves = |serving: &&Vec<bool>| seen.iter().any(|n| serving[*n as usize]);
            let served = serving.iter().filter(serves).count();
            lacking += u64::from(served < slot_requests.len());
            let first = serving.iter().position(|s| !serves(&s));
            let progress = first.map(|at| self.progress(&slot_requests[at].rules, &seen).0);
            let score = (served, progress, Reverse(tree.root));
            if best.as_ref().is_none_or(|(_, known)| score > *known) {
                best = Some((number, score));
            }
        }
        let mut left = self.order.len() as u64;
        let mut push = |requirement, count| {
            left -= count;
            removed.push(Removed {
                group: None,
                requirement,
                removed: count,
                left,
            });
        };
        for (rule, count) in root_rules.into_iter().zip(by_root) {
            push(rule.requirement, count);
        }
        push(Requirement::EachGroup, lacking);
        best.map(|(tree, _)| tree)
    }

    /// Lists the providers that may serve at a tree.
    fn seen_from(&self, tree: &Tree, seen: &mut Vec<u32>) {
        seen.clear();
        seen.extend(&tree.members);
        if !self.sharing.is_empty() {
            let shared = tree.aggregates.iter();
            let shared = shared.filter_map(|a| self.sharing_in.get(*a as usize));
            seen.extend(shared.flatten().map(|at| self.sharing[*at as usize]));
        }
    }

    /// Returns how far the best of some providers comes with these rules, and which one it is:
    /// rules that hold, then thousandths of the amount that is there.
    fn progress(&self, rules: &[Rule], seen: &[u32]) -> ((usize, u64), Option<u32>) {
        let far = |number: &u32| {
            let node = &self.nodes[*number as usize];
            let at = self.first_broken(rules, node).unwrap_or(rules.len());
            let part = rules.get(at).and_then(|rule| rule.missing(node));
            let part = part.map_or(0, |m| m.available * 1000 / m.requested.max(1));
            ((at, part), *number)
        };
        let best = seen.iter().map(far);
        // The first of equals, so that the answer does not depend on their numbers.
        let best = best.reduce(|best, next| if next.0 > best.0 { next } else { best });
        best.map_or(((0, 0), None), |(far, number)| (far, Some(number)))
    }

    fn nearest(
        &self,
        query: &Query,
        slot_requests: &[SlotRequest],
        serving: &[Vec<bool>],
        tree: u32,
    ) -> Nearest {
        let root = self.trees[tree as usize].root;
        let mut seen = Vec::new();
        self.seen_from(&self.trees[tree as usize], &mut seen);
        let lacks = |serving: &Vec<bool>| !seen.iter().any(|n| serving[*n as usize]);
        let Some(at) = serving.iter().position(lacks) else {
            return Nearest {
                root,
                provider: None,
                suffix: None,
                requirement: self.combined(query, tree),
                missing: None,
            };
        };
        let slot_request = &slot_requests[at];
        let ((broken, _), number) = self.progress(&slot_request.rules, &seen);
        let rule = slot_request.rules.get(broken);
        let node = number.map(|n| &self.nodes[n as usize]);
        Nearest {
            root,
            provider: node.map(|node| node.id),
            suffix: Some(slot_request.suffix.clone()),
            requirement: rule.map_or(Requirement::EachGroup, |rule| rule.requirement.clone()),
            missing: rule.zip(node).and_then(|(rule, node)| rule.missing(node)),
        }
    }

    /// Returns what keeps groups from being combined at a tree where each could be served: the
    /// first rule without which there would be a way.
    fn combined(&self, query: &Query, tree: u32) -> Requirement {
        let Some(plan) = Plan::new(self, query) else {
            return Requirement::EachGroup;
        };
        let without = |change: &dyn Fn(&mut Plan)| {
            let mut plan = plan.clone();
            change(&mut plan);
            let mut walk = Walk::new(Bounds::default().dead_ends);
            walk.frame.look(self, &plan, tree, None)
                && walk.begin(&plan, false)
                && walk.next(&plan) == Came::ToWay
        };
        let subtrees = |plan: &mut Plan| {
            plan.subtrees.clear();
            plan.subtrees_with.iter_mut().for_each(Vec::clear);
        };
        if !plan.together.is_empty() && without(&|plan| plan.together.clear()) {
            Requirement::TraitsTogether
        } else if !plan.subtrees.is_empty() && without(&subtrees) {
            Requirement::SameSubtree
        } else if plan.isolate && without(&|plan| plan.isolate = false) {
            Requirement::Isolate
        } else if !plan.nested && without(&|plan| plan.nested = true) {
            Requirement::Flat
        } else {
            Requirement::Beside
        }
    }
}

impl Explanation {
    /// Returns the refusal that tells it.
    #[must_use]
    pub fn to_refusal(&self) -> Refusal {
        let mut refusal = Refusal::new(Code::ResourceExhausted, "NO_CANDIDATES", self.to_string());
        for removed in self.removed.iter().filter(|r| r.removed > 0) {
            let count = u32::try_from(removed.removed).unwrap_or(u32::MAX);
            refusal.causes.insert(removed.describe(), count);
        }
        refusal
    }
}

impl Removed {
    /// Describes the group and its requirement.
    #[must_use]
    pub fn describe(&self) -> String {
        match &self.group {
            None => self.requirement.to_string(),
            Some((suffix, None)) => format!("{}: {}", Name(suffix), self.requirement),
            Some((suffix, Some(class))) => {
                format!("{} for {class}: {}", Name(suffix), self.requirement)
            }
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.providers == 0 {
            return f.write_str("no allocation candidates: there are no resource providers");
        }
        write!(
            f,
            "no allocation candidates among {} providers in {} trees",
            self.providers, self.trees
        )?;
        for removed in self.removed.iter().filter(|r| r.removed > 0) {
            let what = if removed.group.is_some() {
                "providers"
            } else {
                "trees"
            };
            let (requirement, count, left) = (removed.describe(), removed.removed, removed.left);
            write!(f, "; {requirement}: removed {count} {what}, left {left}")?;
        }
        match &self.nearest {
            Some(nearest) => write!(f, "; nearest is {nearest}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Nearest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the tree of {}", self.root)?;
        if let (Some(suffix), Some(provider)) = (&self.suffix, self.provider) {
            write!(f, " with {provider} for {}", Name(suffix))?;
        }
        write!(f, ", which lacks: {}", self.requirement)?;
        match &self.missing {
            Some(missing) => write!(f, " ({} of {})", missing.available, missing.requested),
            None => Ok(()),
        }
    }
}

/// A group in words.
struct Name<'a>(&'a Suffix);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            f.write_str("the group without suffix")
        } else {
            write!(f, "group {}", self.0)
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InTree(id) => write!(f, "in the tree of {id}"),
            Self::Class(class) => write!(f, "an inventory of {class}"),
            Self::Unit(class, amount) => write!(f, "allocations of {amount} {class}"),
            Self::Free(class, amount) => write!(f, "{amount} {class} free"),
            Self::Traits(traits) => write!(f, "{}", OneOf("trait", traits)),
            Self::NoTraits(traits) => write!(f, "not {}", OneOf("trait", traits)),
            Self::Aggregates(ids) => write!(f, "in {}", OneOf("aggregate", ids)),
            Self::NoAggregates(ids) => write!(f, "not in {}", OneOf("aggregate", ids)),
            Self::RootTraits(traits) => write!(f, "a root with {}", OneOf("trait", traits)),
            Self::NoRootTraits(traits) => write!(f, "a root without {}", OneOf("trait", traits)),
            Self::NoRootAggregates(ids) => {
                write!(f, "a root that is not in {}", OneOf("aggregate", ids))
            }
            Self::EachGroup => f.write_str("a provider for each group"),
            Self::Isolate => f.write_str("a provider of its own for each group (group_policy)"),
            Self::SameSubtree => f.write_str("groups in one subtree (same_subtree)"),
            Self::TraitsTogether => f.write_str("all traits on the chosen providers together"),
            Self::Flat => f.write_str("one provider of the tree for everything"),
            Self::Beside => f.write_str("room for all groups beside each other"),
        }
    }
}

/// How many names of a requirement are listed.
pub const NAMES_SHOWN: usize = 16;

/// Some names, of which the first are listed.
struct OneOf<'a, T>(&'static str, &'a BTreeSet<T>);

impl<T: fmt::Display> fmt::Display for OneOf<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)?;
        for (at, name) in self.1.iter().take(NAMES_SHOWN).enumerate() {
            let before = if at == 0 { " " } else { " or " };
            write!(f, "{before}{name}")?;
        }
        match self.1.len().saturating_sub(NAMES_SHOWN) {
            0 => Ok(()),
            more => write!(f, " or {more} others"),
        }
    }
}
