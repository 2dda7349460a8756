//! Small worlds of providers and queries on them, drawn so that every rule is met often.

#![allow(missing_docs, unreachable_pub)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::allocation::Resources;
use berth_domain::id::{AggregateId, Generation, ProviderId, TimeMs};
use berth_domain::inventory::Inventory;
use berth_domain::overcommit::AllocationRatio;
use berth_domain::provider::ResourceProvider;
use berth_domain::resource::{ResourceClass, Trait};
use berth_selection::candidates::{Filter, Group, GroupPolicy, Order, Query, Sources, Suffix};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use uuid::Uuid;

pub const CLASSES: [&str; 3] = ["VCPU", "MEMORY_MB", "DISK_GB"];
pub const TRAITS: [&str; 3] = ["CUSTOM_A", "CUSTOM_B", "CUSTOM_C"];
const SHARES: &str = "MISC_SHARES_VIA_AGGREGATE";

pub fn class(at: usize) -> ResourceClass {
    ResourceClass::new(CLASSES[at]).unwrap()
}

pub fn id(number: usize) -> ProviderId {
    // Scattered, so that the order of identifiers is not that of the drawing.
    let scattered = (number as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    ProviderId(Uuid::from_u128(scattered))
}

pub fn aggregate(number: usize) -> AggregateId {
    AggregateId(Uuid::from_u128(number as u128 + 1))
}

fn bits(mask: u8, count: usize) -> impl Iterator<Item = usize> {
    (0..count).filter(move |bit| mask & (1 << bit) != 0)
}

pub fn traits(mask: u8) -> BTreeSet<Trait> {
    bits(mask, TRAITS.len())
        .map(|bit| Trait::new(TRAITS[bit]).unwrap())
        .collect()
}

pub fn aggregates(mask: u8) -> BTreeSet<AggregateId> {
    bits(mask, 3).map(aggregate).collect()
}

/// What a provider has of one class, and what is taken of it.
#[derive(Clone, Copy, Debug)]
pub struct Stock {
    pub inventory: Inventory,
    pub used: u64,
}

/// A provider as it is drawn.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// Below which of the earlier ones, if below any.
    pub parent: Option<usize>,
    pub stocks: [Option<Stock>; 3],
    pub traits: u8,
    pub shares: bool,
    pub aggregates: u8,
}

#[derive(Clone, Debug)]
pub struct World(pub Vec<Drawn>);

impl World {
    pub fn sources(&self) -> Sources {
        let mut sources = Sources::default();
        for at in 0..self.0.len() {
            let provider = self.provider(at);
            sources.providers.insert(provider.id, Arc::new(provider));
            let used = self.used(at);
            if !used.is_empty() {
                sources.used.insert(id(at), Arc::new(used));
            }
        }
        sources
    }

    pub fn root(&self, at: usize) -> usize {
        self.0[at].parent.map_or(at, |parent| self.root(parent))
    }

    pub fn provider(&self, at: usize) -> ResourceProvider {
        let drawn = &self.0[at];
        let stocks = drawn.stocks.iter().enumerate();
        let mut names = traits(drawn.traits);
        if drawn.shares {
            names.insert(Trait::new(SHARES).unwrap());
        }
        ResourceProvider {
            id: id(at),
            name: format!("provider-{at}"),
            generation: Generation(0),
            parent: drawn.parent.map(id),
            root: id(self.root(at)),
            host: None,
            inventories: stocks
                .filter_map(|(c, stock)| Some((class(c), (*stock)?.inventory)))
                .collect(),
            traits: names,
            aggregates: aggregates(drawn.aggregates),
            origin: None,
            created_at: TimeMs(0),
            updated_at: TimeMs(0),
        }
    }

    pub fn used(&self, at: usize) -> Resources {
        let stocks = self.0[at].stocks.iter().enumerate();
        stocks
            .filter_map(|(c, stock)| Some((class(c), (*stock)?.used)))
            .filter(|(_, used)| *used > 0)
            .collect()
    }
}

fn stock() -> impl Strategy<Value = Option<Stock>> {
    let rules = (
        prop_oneof![6 => Just(1_u64), 1 => Just(2)],
        prop_oneof![1 => 2..4_u64, 2 => 4..9_u64],
        prop_oneof![6 => Just(1_u64), 1 => Just(2)],
    );
    let ratio = prop_oneof![4 => Just(1000_u64), 1 => Just(1500), 1 => Just(500)];
    let stock = (2..9_u64, 0..2_u64, 0..3_u64, ratio, rules);
    let stock = stock.prop_map(
        |(total, reserved, used, ratio, (min_unit, max_unit, step_size))| Stock {
            inventory: Inventory {
                reserved: reserved.min(total),
                min_unit,
                max_unit,
                step_size,
                allocation_ratio: AllocationRatio::from_milli(ratio),
                ..Inventory::exact(total)
            },
            used,
        },
    );
    option::weighted(0.75, stock)
}

fn mask(chance: u32) -> impl Strategy<Value = u8> {
    prop_oneof![10 => Just(0_u8), chance => 1..8_u8]
}

pub fn world() -> impl Strategy<Value = World> {
    let drawn = (
        option::weighted(0.7, any::<prop::sample::Index>()),
        [stock(), stock(), stock()],
        mask(10),
        prop::bool::weighted(0.25),
        mask(14),
    );
    vec(drawn, 1..9).prop_map(|drawn| {
        let all = drawn.into_iter().enumerate();
        let all = all.map(|(at, (parent, stocks, traits, shares, aggregates))| Drawn {
            parent: parent.filter(|_| at > 0).map(|parent| parent.index(at)),
            stocks,
            traits,
            shares,
            aggregates,
        });
        World(all.collect())
    })
}

fn group() -> impl Strategy<Value = Group> {
    let amount = || option::weighted(0.4, 1..4_u64);
    (
        [amount(), amount(), amount()],
        vec(1..8_u8, 0..2),
        mask(2),
        vec(1..8_u8, 0..2),
        mask(2),
        option::weighted(0.1, 0..9_usize),
    )
        .prop_map(
            |(amounts, required, forbidden, member_of, outside, in_tree)| {
                let amounts = amounts.into_iter().enumerate();
                Group {
                    resources: amounts.filter_map(|(c, n)| Some((class(c), n?))).collect(),
                    required: required.into_iter().map(traits).collect(),
                    forbidden: traits(forbidden),
                    member_of: member_of.into_iter().map(aggregates).collect(),
                    forbidden_aggregates: aggregates(outside),
                    in_tree: in_tree.map(id),
                }
            },
        )
        // Most groups ask for nothing but resources.
        .prop_flat_map(|group| {
            let plain = Group {
                resources: group.resources.clone(),
                ..Group::default()
            };
            prop_oneof![3 => Just(plain), 1 => Just(group)]
        })
}

pub fn query() -> impl Strategy<Value = Query> {
    let policy = prop_oneof![
        Just(None),
        Just(Some(GroupPolicy::None)),
        Just(Some(GroupPolicy::Isolate))
    ];
    (
        option::weighted(0.6, group()),
        vec(group(), 0..4),
        policy,
        (mask(1), mask(1)),
        vec(1..8_u8, 0..2),
        prop::bool::weighted(0.8),
    )
        .prop_map(
            |(unsuffixed, suffixed, group_policy, root, subtrees, nested)| {
                let mut groups = BTreeMap::new();
                groups.extend(
                    unsuffixed
                        .filter(|g| !g.resources.is_empty())
                        .map(|group| (Suffix::new(""), group)),
                );
                let name = |at: usize| Suffix::new(&format!("_{at}"));
                let count = suffixed.len();
                groups.extend(
                    suffixed
                        .into_iter()
                        .enumerate()
                        .map(|(at, g)| (name(at), g)),
                );
                let subtrees = subtrees.into_iter();
                let subtrees = subtrees.map(|mask| bits(mask, count).map(name).collect());
                Query {
                    groups,
                    group_policy,
                    root_required: traits(root.0),
                    root_forbidden: traits(root.1 & !root.0),
                    same_subtree: subtrees.filter(|s: &BTreeSet<_>| !s.is_empty()).collect(),
                    limit: None,
                    nested,
                    order: Order::Stable,
                }
            },
        )
        .prop_filter("a query has to want something", |query| {
            query.validate().is_ok()
        })
}

/// A root with many children and a query of many groups for them: most ways are dead ends.
pub fn crowded() -> impl Strategy<Value = (World, Query)> {
    let stock = (1..6_u64).prop_map(|total| {
        let inventory = Inventory::exact(total);
        Some(Stock { inventory, used: 0 })
    });
    let few = option::weighted(0.5, 1..4_u64).prop_map(|total| {
        let inventory = total.map(Inventory::exact);
        inventory.map(|inventory| Stock { inventory, used: 0 })
    });
    let child = (stock, few, mask(10)).prop_map(|(many, few, traits)| Drawn {
        parent: Some(0),
        stocks: [many, few, None],
        traits,
        shares: false,
        aggregates: 0,
    });
    let group = (1..4_u64, option::weighted(0.4, 1..3_u64), mask(6));
    let group = group.prop_map(|(many, few, required)| Group {
        resources: [(class(0), Some(many)), (class(1), few)]
            .into_iter()
            .filter_map(|(class, amount)| Some((class, amount?)))
            .collect(),
        required: (required > 0)
            .then(|| traits(required))
            .into_iter()
            .collect(),
        ..Group::default()
    });
    (vec(child, 5..8), vec(group, 4..6), any::<bool>()).prop_map(|(children, groups, isolate)| {
        let root = Drawn {
            parent: None,
            stocks: [None; 3],
            traits: 0,
            shares: false,
            aggregates: 0,
        };
        let name = |at: usize| Suffix::new(&format!("_{at}"));
        let groups = groups.into_iter().enumerate();
        let query = Query {
            groups: groups.map(|(at, group)| (name(at), group)).collect(),
            group_policy: isolate.then_some(GroupPolicy::Isolate),
            ..Query::default()
        };
        let all = std::iter::once(root).chain(children).collect();
        (World(all), query)
    })
}

pub fn filter() -> impl Strategy<Value = Filter> {
    let one = || option::weighted(0.1, 0..9_usize);
    (group(), one(), one()).prop_map(|(group, number, name)| Filter {
        id: number.map(id),
        name: name.map(|at| format!("provider-{at}")),
        resources: group.resources,
        required: group.required,
        forbidden: group.forbidden,
        member_of: group.member_of,
        forbidden_aggregates: group.forbidden_aggregates,
        in_tree: group.in_tree,
    })
}
