//! Providers by what they have: the filters of OpenStack Placement's `GET /resource_providers`.

use std::collections::BTreeSet;
use std::ops::Bound;

use berth_domain::allocation::Resources;
use berth_domain::id::{AggregateId, ProviderId};
use berth_domain::resource::Trait;

use crate::candidates::anchors::lists_of;
use crate::candidates::index::Index;
use crate::candidates::node::{NONE, Node, holds_of_each};
use crate::candidates::plan::{Demand, Kind, known, sets};

/// Which providers are listed: all conditions have to hold; without any, all providers are.
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

/// Which part of a list is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Those after this identifier; absent: from the first on.
    pub after: Option<ProviderId>,
    /// At most so many.
    pub most: usize,
}

impl Part {
    /// All of the list.
    pub const WHOLE: Self = Self {
        after: None,
        most: usize::MAX,
    };

    fn begins_before(&self, id: ProviderId) -> bool {
        self.after.is_none_or(|after| after < id)
    }
}

/// A list of those that may match pays if at most one of so many is on it: to read it in the
/// order of the identifiers it has to be sorted, while the index is in that order.
const PAYS: usize = 4;

impl Index {
    /// Returns the matching providers, by identifier.
    #[must_use]
    pub fn list(&self, filter: &Filter) -> Vec<ProviderId> {
        self.list_part(filter, Part::WHOLE)
    }

    /// Returns a part of the matching providers, by identifier. Where few have what is requested
    /// for, it costs what they are; else, the part that is looked through to fill it.
    #[must_use]
    pub fn list_part(&self, filter: &Filter, part: Part) -> Vec<ProviderId> {
        let Some(kind) = self.kind(filter) else {
            return Vec::new();
        };
        let suits = |number: u32| alone(&kind, &self.nodes[number as usize]);
        let mut few: Vec<(ProviderId, u32)> = Vec::new();
        if filter.id.is_some() || filter.name.is_some() {
            few.extend(self.named(filter));
        } else if let Some(lists) = self.narrowest(&kind) {
            let numbers = lists.iter().flat_map(|list| list.iter().copied());
            few.extend(numbers.map(|number| (self.nodes[number as usize].id, number)));
        } else {
            let from = part.after.map_or(Bound::Unbounded, Bound::Excluded);
            let rest = self.numbers.range((from, Bound::Unbounded));
            let matching = rest.filter(|(_, number)| suits(**number));
            return matching.map(|(id, _)| *id).take(part.most).collect();
        }
        few.retain(|(id, _)| part.begins_before(*id));
        few.sort_unstable();
        few.dedup();
        let matching = few.into_iter().filter(|(_, number)| suits(*number));
        matching.map(|(id, _)| id).take(part.most).collect()
    }

    /// Returns the only provider that may match, if it exists.
    fn named(&self, filter: &Filter) -> Option<(ProviderId, u32)> {
        let named = filter.name.as_ref().map(|name| self.names.get(name));
        let number = match (filter.id, named) {
            (Some(id), None) => self.numbers.get(&id),
            (Some(id), Some(named)) => self.numbers.get(&id).filter(|n| Some(*n) == named),
            (None, named) => named.flatten(),
        };
        number.map(|number| (self.nodes[*number as usize].id, *number))
    }

    /// Returns the filter as what a search requires of one provider; nothing if no provider has
    /// something that is required.
    fn kind(&self, filter: &Filter) -> Option<Kind> {
        let demands = filter.resources.iter().map(|(class, amount)| {
            Some(Demand {
                class: self.classes.number(class)?,
                amount: *amount,
                contended: NONE,
            })
        });
        let tree = match filter.in_tree {
            Some(id) => self.nodes[*self.numbers.get(&id)? as usize].tree,
            None => NONE,
        };
        Some(Kind {
            suffixed: true,
            demands: demands.collect::<Option<_>>()?,
            classes: filter.resources.keys().cloned().collect(),
            required: sets(&self.traits, &filter.required)?,
            forbidden: known(&self.traits, &filter.forbidden),
            member_of: sets(&self.aggregates, &filter.member_of)?,
            outside: known(&self.aggregates, &filter.forbidden_aggregates),
            tree,
        })
    }

    /// Returns the shortest lists that hold all matching providers, if they are short enough to pay.
    fn narrowest(&self, kind: &Kind) -> Option<Vec<std::borrow::Cow<'_, [u32]>>> {
        let most = self.len() / PAYS;
        let lists = lists_of(self, kind, most).into_iter();
        let lists = lists.map(|lists| (lists.iter().map(|l| l.len()).sum::<usize>(), lists));
        let narrowest = lists.min_by_key(|(length, _)| *length);
        narrowest
            .filter(|(length, _)| *length <= most)
            .map(|(_, lists)| lists)
    }
}

/// Returns whether a provider alone satisfies all conditions.
fn alone(kind: &Kind, node: &Node) -> bool {
    kind.suits(node) && holds_of_each(&node.aggregates, &kind.member_of)
}
