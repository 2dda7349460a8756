//! What a query requires of one provider, requirement by requirement, for counting.
//!
//! The search itself checks all at once ([`crate::candidates::plan`]); a test holds that both agree
//! on who serves.

use std::collections::BTreeSet;

use berth_domain::refusal::Missing;
use berth_domain::resource::{ResourceClass, Trait};

use crate::candidates::explain::Requirement;
use crate::candidates::index::Index;
use crate::candidates::node::{Node, holds_any};
use crate::candidates::plan::known;
use crate::candidates::query::{Group, Query, Suffix};

/// The requirements of one slot.
pub(crate) struct SlotRequest {
    pub(crate) suffix: Suffix,
    /// The class, where the classes of a group may come from several providers.
    pub(crate) class: Option<ResourceClass>,
    pub(crate) rules: Vec<Rule>,
}

/// One requirement, in words and in numbers.
pub(crate) struct Rule {
    pub(crate) requirement: Requirement,
    test: Test,
}

enum Test {
    /// In this tree; in none if the tree does not exist.
    Tree(Option<u32>),
    Class(Option<u32>),
    Unit(Option<u32>, u64),
    Free(Option<u32>, u64),
    Traits(Vec<u32>),
    NoTraits(Vec<u32>),
    Aggregates {
        any: Vec<u32>,
        or_root: bool,
    },
    NoAggregates(Vec<u32>),
}

impl Rule {
    /// Says whether a provider has it; few rules look at its root.
    pub(crate) fn holds<'n>(&self, node: &Node, root: impl Fn() -> &'n Node) -> bool {
        let cell = |class: &Option<u32>| class.and_then(|class| node.cell(class));
        match &self.test {
            Test::Tree(tree) => *tree == Some(node.tree),
            Test::Class(class) => cell(class).is_some(),
            Test::Unit(class, amount) => cell(class).is_some_and(|c| c.has_unit(*amount)),
            Test::Free(class, amount) => cell(class).is_some_and(|c| *amount <= c.free()),
            Test::Traits(any) => holds_any(&node.traits, any),
            Test::NoTraits(any) => !holds_any(&node.traits, any),
            Test::Aggregates { any, or_root } => {
                holds_any(&node.aggregates, any) || (*or_root && holds_any(&root().aggregates, any))
            }
            Test::NoAggregates(any) => !holds_any(&node.aggregates, any),
        }
    }

    /// Returns how much is missing, where it can be counted.
    pub(crate) fn missing(&self, node: &Node) -> Option<Missing> {
        let Requirement::Free(class, amount) = &self.requirement else {
            return None;
        };
        let Test::Free(Some(number), _) = &self.test else {
            return None;
        };
        Some(Missing {
            resource: class.to_string(),
            requested: *amount,
            available: node.cell(*number)?.free(),
        })
    }
}

/// Returns the requirements on the root of a tree.
pub(crate) fn root_rules(index: &Index, query: &Query) -> Vec<Rule> {
    let one = |name: &Trait| BTreeSet::from([name.clone()]);
    let required = query.root_required.iter().map(|name| Rule {
        requirement: Requirement::RootTraits(one(name)),
        test: Test::Traits(known(&index.traits, &one(name))),
    });
    let forbidden = query.root_forbidden.iter().map(|name| Rule {
        requirement: Requirement::NoRootTraits(one(name)),
        test: Test::NoTraits(known(&index.traits, &one(name))),
    });
    // A sharing provider below a root in such an aggregate still serves other trees, so this is
    // required of the tree that is served and not of the provider.
    let together = query.groups.iter().filter(|(suffix, _)| suffix.is_empty());
    let outside = together.filter(|(_, group)| !group.forbidden_aggregates.is_empty());
    let outside = outside.map(|(_, group)| Rule {
        requirement: Requirement::NoRootAggregates(group.forbidden_aggregates.clone()),
        test: Test::NoAggregates(known(&index.aggregates, &group.forbidden_aggregates)),
    });
    required.chain(forbidden).chain(outside).collect()
}

/// Returns the requirements of each slot.
pub(crate) fn slot_requests(index: &Index, query: &Query) -> Vec<SlotRequest> {
    let mut slot_requests = Vec::new();
    for (suffix, group) in &query.groups {
        if suffix.is_empty() {
            for (class, amount) in &group.resources {
                let mut rules = tree_rules(index, group);
                rules.extend(class_rules(index, class, *amount));
                rules.extend(other_rules(index, group, false));
                slot_requests.push(SlotRequest {
                    suffix: suffix.clone(),
                    class: Some(class.clone()),
                    rules,
                });
            }
            continue;
        }
        let mut rules = tree_rules(index, group);
        for (class, amount) in &group.resources {
            rules.extend(class_rules(index, class, *amount));
        }
        rules.extend(group.required.iter().map(|set| Rule {
            requirement: Requirement::Traits(set.clone()),
            test: Test::Traits(known(&index.traits, set)),
        }));
        rules.extend(other_rules(index, group, true));
        slot_requests.push(SlotRequest {
            suffix: suffix.clone(),
            class: None,
            rules,
        });
    }
    slot_requests
}

fn tree_rules(index: &Index, group: &Group) -> Vec<Rule> {
    let tree_of = |number: &u32| index.nodes[*number as usize].tree;
    let in_tree = group.in_tree.iter().map(|id| Rule {
        requirement: Requirement::InTree(*id),
        test: Test::Tree(index.numbers.get(id).map(tree_of)),
    });
    in_tree.collect()
}

fn class_rules(index: &Index, class: &ResourceClass, amount: u64) -> [Rule; 3] {
    let number = index.classes.number(class);
    let rule = |requirement, test| Rule { requirement, test };
    [
        rule(Requirement::Class(class.clone()), Test::Class(number)),
        rule(
            Requirement::Free(class.clone(), amount),
            Test::Free(number, amount),
        ),
        rule(
            Requirement::Unit(class.clone(), amount),
            Test::Unit(number, amount),
        ),
    ]
}

fn other_rules(index: &Index, group: &Group, suffixed: bool) -> Vec<Rule> {
    let mut rules = Vec::new();
    if !group.forbidden.is_empty() {
        rules.push(Rule {
            requirement: Requirement::NoTraits(group.forbidden.clone()),
            test: Test::NoTraits(known(&index.traits, &group.forbidden)),
        });
    }
    rules.extend(group.member_of.iter().map(|set| Rule {
        requirement: Requirement::Aggregates(set.clone()),
        test: Test::Aggregates {
            any: known(&index.aggregates, set),
            or_root: !suffixed,
        },
    }));
    if !group.forbidden_aggregates.is_empty() {
        rules.push(Rule {
            requirement: Requirement::NoAggregates(group.forbidden_aggregates.clone()),
            test: Test::NoAggregates(known(&index.aggregates, &group.forbidden_aggregates)),
        });
    }
    rules
}
