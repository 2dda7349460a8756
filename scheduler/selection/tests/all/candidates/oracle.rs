//! The documented rules of allocation candidates, written as plainly as they can be said: every
//! combination is made, then what breaks a rule is thrown away.

#![allow(missing_docs, unreachable_pub)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::id::{AggregateId, ProviderId};
use berth_domain::provider::ResourceProvider;
use berth_domain::resource::{ResourceClass, Trait};
use berth_selection::candidates::{Candidate, Filter, Group, GroupPolicy, Query, Sources, Suffix};

type Provider = Arc<ResourceProvider>;

/// What one group takes, at one anchor.
#[derive(Clone)]
struct Part {
    suffix: Suffix,
    takes: Vec<(Provider, ResourceClass, u64)>,
    providers: BTreeSet<ProviderId>,
}

pub struct Oracle<'a> {
    sources: &'a Sources,
}

impl<'a> Oracle<'a> {
    pub fn new(sources: &'a Sources) -> Self {
        Self { sources }
    }

    fn all(&self) -> impl Iterator<Item = &'a Provider> {
        self.sources.providers.values()
    }

    fn get(&self, id: ProviderId) -> &'a Provider {
        &self.sources.providers[&id]
    }

    fn used(&self, id: ProviderId, class: &ResourceClass) -> u64 {
        let used = self.sources.used.get(&id);
        used.and_then(|used| used.get(class)).copied().unwrap_or(0)
    }

    fn fits(&self, provider: &Provider, class: &ResourceClass, amount: u64) -> bool {
        let inventory = provider.inventories.get(class);
        inventory.is_some_and(|i| i.admit(self.used(provider.id, class), amount).is_ok())
    }

    /// Every root, and for each the sharing providers that serve its tree.
    fn sharing(&self, anchor: ProviderId) -> Vec<&'a Provider> {
        let members = || self.all().filter(|p| p.root == anchor);
        let reached: BTreeSet<AggregateId> = members()
            .flat_map(|p| p.aggregates.iter().copied())
            .collect();
        self.all()
            .filter(|p| p.root != anchor && shares(p))
            .filter(|p| !p.aggregates.is_disjoint(&reached))
            .collect()
    }

    pub fn candidates(&self, query: &Query) -> BTreeSet<Candidate> {
        let mut found = BTreeSet::new();
        for anchor in self.all().filter(|p| p.is_root()) {
            if !query.root_required.is_subset(&anchor.traits)
                || !query.root_forbidden.is_disjoint(&anchor.traits)
            {
                continue;
            }
            let mut ways: Vec<Vec<Part>> = vec![Vec::new()];
            for (suffix, group) in &query.groups {
                let parts = if suffix.is_empty() {
                    self.together(anchor, suffix, group)
                } else {
                    self.alone(anchor, suffix, group)
                };
                let extended = ways.iter().flat_map(|way| {
                    parts.iter().map(|part| {
                        let mut way = way.clone();
                        way.push(part.clone());
                        way
                    })
                });
                ways = extended.collect();
            }
            let kept = ways.into_iter().filter(|way| self.keeps(query, way));
            found.extend(kept.map(|way| candidate(&way)));
        }
        found
    }

    /// A group with a suffix: one provider with everything.
    fn alone(&self, anchor: &Provider, suffix: &Suffix, group: &Group) -> Vec<Part> {
        let home = self.all().filter(|p| p.root == anchor.id);
        let providers = home.chain(self.sharing(anchor.id));
        let tree = group.in_tree.map(|id| self.sources.providers.get(&id));
        providers
            .filter(|p| tree.is_none_or(|tree| tree.is_some_and(|tree| tree.root == p.root)))
            .filter(|p| group.resources.iter().all(|(c, n)| self.fits(p, c, *n)))
            .filter(|p| has_each(&p.traits, &group.required))
            .filter(|p| group.forbidden.is_disjoint(&p.traits))
            .filter(|p| has_each(&p.aggregates, &group.member_of))
            .filter(|p| group.forbidden_aggregates.is_disjoint(&p.aggregates))
            .map(|p| Part {
                suffix: suffix.clone(),
                takes: group
                    .resources
                    .iter()
                    .map(|(c, n)| (p.clone(), c.clone(), *n))
                    .collect(),
                providers: BTreeSet::from([p.id]),
            })
            .collect()
    }

    /// The group without suffix: any providers of the tree and its sharers, together.
    fn together(&self, anchor: &Provider, suffix: &Suffix, group: &Group) -> Vec<Part> {
        if let Some(id) = group.in_tree {
            let tree = self.sources.providers.get(&id);
            if tree.is_none_or(|tree| tree.root != anchor.id) {
                return Vec::new();
            }
        }
        if !group.forbidden_aggregates.is_disjoint(&anchor.aggregates) {
            return Vec::new();
        }
        let is_member = |p: &Provider| has_each(&p.aggregates, &group.member_of);
        let home = self.all().filter(|p| p.root == anchor.id);
        let home = home.filter(|p| is_member(p) || is_member(anchor));
        let away = match group.in_tree {
            Some(_) => Vec::new(),
            None => self.sharing(anchor.id),
        };
        let away = away.into_iter().filter(|p| is_member(p));
        let providers: Vec<&Provider> = home
            .chain(away)
            .filter(|p| group.forbidden_aggregates.is_disjoint(&p.aggregates))
            .collect();
        let mut ways: Vec<Vec<(Provider, ResourceClass, u64)>> = vec![Vec::new()];
        for (class, amount) in &group.resources {
            let fitting = providers.iter().filter(|p| self.fits(p, class, *amount));
            let extended = fitting.flat_map(|p| {
                ways.iter().map(|way| {
                    let mut way = way.clone();
                    way.push(((*p).clone(), class.clone(), *amount));
                    way
                })
            });
            ways = extended.collect();
        }
        ways.into_iter()
            .filter(|way| {
                let traits = way.iter().flat_map(|(p, _, _)| p.traits.iter().cloned());
                let traits: BTreeSet<Trait> = traits.collect();
                has_each(&traits, &group.required) && group.forbidden.is_disjoint(&traits)
            })
            .map(|takes| Part {
                suffix: suffix.clone(),
                providers: takes.iter().map(|(p, _, _)| p.id).collect(),
                takes,
            })
            .collect()
    }

    fn keeps(&self, query: &Query, way: &[Part]) -> bool {
        self.keeps_policy(query, way)
            && self.keeps_subtrees(query, way)
            && self.keeps_capacity(way)
            && (query.nested || keeps_flat(way))
    }

    fn keeps_policy(&self, query: &Query, way: &[Part]) -> bool {
        let suffixed = way.iter().filter(|part| !part.suffix.is_empty());
        let providers: BTreeSet<_> = suffixed.clone().flat_map(|part| &part.providers).collect();
        query.group_policy != Some(GroupPolicy::Isolate) || providers.len() == suffixed.count()
    }

    fn keeps_subtrees(&self, query: &Query, way: &[Part]) -> bool {
        query.same_subtree.iter().all(|names| {
            let parts = way.iter().filter(|part| names.contains(&part.suffix));
            let providers: BTreeSet<_> = parts.flat_map(|p| p.providers.iter().copied()).collect();
            let is_above = |top: ProviderId, id: ProviderId| {
                std::iter::successors(Some(id), |id| self.get(*id).parent).any(|id| id == top)
            };
            let mut tops = providers.iter();
            tops.any(|top| providers.iter().all(|id| is_above(*top, *id)))
        })
    }

    fn keeps_capacity(&self, way: &[Part]) -> bool {
        let mut sums: BTreeMap<(ProviderId, &ResourceClass), u64> = BTreeMap::new();
        for (provider, class, amount) in way.iter().flat_map(|part| &part.takes) {
            *sums.entry((provider.id, class)).or_default() += amount;
        }
        sums.iter().all(|((id, class), sum)| {
            let inventory = &self.get(*id).inventories[*class];
            self.used(*id, class) + sum <= inventory.capacity() && *sum <= inventory.max_unit
        })
    }

    pub fn list(&self, filter: &Filter) -> Vec<ProviderId> {
        let tree = filter.in_tree.map(|id| self.sources.providers.get(&id));
        self.all()
            .filter(|p| filter.id.is_none_or(|id| p.id == id))
            .filter(|p| filter.name.as_ref().is_none_or(|name| p.name == *name))
            .filter(|p| tree.is_none_or(|tree| tree.is_some_and(|tree| tree.root == p.root)))
            .filter(|p| filter.resources.iter().all(|(c, n)| self.fits(p, c, *n)))
            .filter(|p| has_each(&p.traits, &filter.required))
            .filter(|p| filter.forbidden.is_disjoint(&p.traits))
            .filter(|p| has_each(&p.aggregates, &filter.member_of))
            .filter(|p| filter.forbidden_aggregates.is_disjoint(&p.aggregates))
            .map(|p| p.id)
            .collect()
    }
}

fn shares(provider: &Provider) -> bool {
    let mut traits = provider.traits.iter();
    traits.any(|name| name.as_str() == "MISC_SHARES_VIA_AGGREGATE")
}

fn has_each<T: Ord>(has: &BTreeSet<T>, sets: &[BTreeSet<T>]) -> bool {
    sets.iter().all(|set| !set.is_disjoint(has))
}

/// Whether no two providers of one tree are taken from.
fn keeps_flat(way: &[Part]) -> bool {
    let takes = way.iter().flat_map(|part| &part.takes);
    let by_provider: BTreeMap<_, _> = takes.map(|(p, _, _)| (p.id, p.root)).collect();
    let roots: BTreeSet<_> = by_provider.values().collect();
    roots.len() == by_provider.len()
}

fn candidate(way: &[Part]) -> Candidate {
    let mut allocations: BTreeMap<ProviderId, BTreeMap<ResourceClass, u64>> = BTreeMap::new();
    for (provider, class, amount) in way.iter().flat_map(|part| &part.takes) {
        let resources = allocations.entry(provider.id).or_default();
        *resources.entry(class.clone()).or_default() += amount;
    }
    let mappings = way
        .iter()
        .map(|p| (p.suffix.clone(), p.providers.iter().copied().collect()));
    Candidate {
        allocations,
        mappings: mappings.collect(),
    }
}
