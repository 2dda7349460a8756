//! Providers by what they have: the filters of OpenStack Placement's `GET /resource_providers`.

use std::collections::BTreeSet;

use berth_domain::allocation::Resources;
use berth_domain::id::{AggregateId, ProviderId};
use berth_domain::resource::Trait;

use crate::candidates::index::Index;
use crate::candidates::node::{Node, holds_any, holds_of_each};
use crate::candidates::plan::{known, sets};

/// Which providers are wanted; all of it has to hold, and of nothing all do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The one with this identifier.
    pub id: Option<ProviderId>,
    /// The one with this name.
    pub name: Option<String>,
    /// Those that could serve all of this alone.
    pub resources: Resources,
    /// Of each set, it has at least one trait.
    pub required: Vec<BTreeSet<Trait>>,
    /// It has none of these traits.
    pub forbidden: BTreeSet<Trait>,
    /// It is in at least one aggregate of each set.
    pub member_of: Vec<BTreeSet<AggregateId>>,
    /// It is in none of these aggregates.
    pub forbidden_aggregates: BTreeSet<AggregateId>,
    /// Those in the tree of this provider, which need not be the root.
    pub in_tree: Option<ProviderId>,
}

/// A filter in the numbers of an index.
struct Numbers {
    resources: Vec<(u32, u64)>,
    required: Vec<Vec<u32>>,
    forbidden: Vec<u32>,
    member_of: Vec<Vec<u32>>,
    outside: Vec<u32>,
    tree: Option<u32>,
}

impl Index {
    /// Returns the providers that are wanted, by identifier.
    #[must_use]
    pub fn list(&self, filter: &Filter) -> Vec<ProviderId> {
        let Some(numbers) = Numbers::new(self, filter) else {
            return Vec::new();
        };
        let mut few: Vec<u32> = Vec::new();
        if let Some(id) = filter.id {
            few.extend(self.numbers.get(&id));
        }
        if let Some(name) = &filter.name {
            let named = self.names.get(name).copied();
            if filter.id.is_none() {
                few.extend(named);
            } else {
                few.retain(|number| Some(*number) == named);
            }
        }
        let test = |number: &u32| numbers.test(&self.nodes[*number as usize]);
        if filter.id.is_some() || filter.name.is_some() {
            few.retain(test);
        } else if let Some(lists) = numbers.narrowest(self) {
            few.extend(lists.into_iter().flatten().filter(|n| test(n)));
        } else {
            let all = self.numbers.iter().filter(|(_, number)| test(number));
            return all.map(|(id, _)| *id).collect();
        }
        let mut ids: Vec<_> = few.iter().map(|n| self.nodes[*n as usize].id).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}

impl Numbers {
    /// Returns nothing if no provider has something that is wanted.
    fn new(index: &Index, filter: &Filter) -> Option<Self> {
        let resources = filter.resources.iter();
        let resources =
            resources.map(|(class, amount)| Some((index.classes.number(class)?, *amount)));
        let tree = match filter.in_tree {
            Some(id) => Some(index.nodes[*index.numbers.get(&id)? as usize].tree),
            None => None,
        };
        Some(Self {
            resources: resources.collect::<Option<_>>()?,
            required: sets(&index.traits, &filter.required)?,
            forbidden: known(&index.traits, &filter.forbidden),
            member_of: sets(&index.aggregates, &filter.member_of)?,
            outside: known(&index.aggregates, &filter.forbidden_aggregates),
            tree,
        })
    }

    fn test(&self, node: &Node) -> bool {
        let has_room = |(class, amount): &(u32, u64)| {
            let cell = node.cell(*class);
            cell.is_some_and(|cell| cell.admits(*amount))
        };
        self.tree.is_none_or(|tree| tree == node.tree)
            && self.resources.iter().all(has_room)
            && holds_of_each(&node.traits, &self.required)
            && !holds_any(&node.traits, &self.forbidden)
            && holds_of_each(&node.aggregates, &self.member_of)
            && !holds_any(&node.aggregates, &self.outside)
    }

    /// Returns the shortest lists that hold all that is wanted.
    fn narrowest<'a>(&self, index: &'a Index) -> Option<Vec<&'a [u32]>> {
        let tree = self.tree.iter();
        let tree = tree.map(|t| vec![&index.trees[*t as usize].members[..]]);
        let classes = self.resources.iter();
        let classes = classes.map(|(class, _)| vec![index.classes.list(*class)]);
        let traits = |set: &Vec<u32>| set.iter().map(|t| index.traits.list(*t)).collect();
        let aggregates = |set: &Vec<u32>| set.iter().map(|a| index.aggregates.list(*a)).collect();
        tree.chain(classes)
            .chain(self.required.iter().map(traits))
            .chain(self.member_of.iter().map(aggregates))
            .min_by_key(|lists: &Vec<&[u32]>| lists.iter().map(|l| l.len()).sum::<usize>())
    }
}
