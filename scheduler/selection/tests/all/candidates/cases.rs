//! The faults of others that are not copied, and what a search may cost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::host::Host;
use berth_domain::inventory::Inventory;
use berth_domain::resource::Trait;
use berth_selection::candidates::explain::Requirement;
use berth_selection::candidates::{
    Bounds, Failed, Group, GroupPolicy, Index, Invalid, Order, Query, Suffix,
};
use berth_testkit::selection::hosts::Shape;
use berth_testkit::selection::views::view;

use super::world::{Drawn, Stock, World, aggregates, class, id, traits};
use super::{found, index, set_of};

/// A host of one cell: its shape does not matter here.
const ONE_CELL: Shape = Shape {
    cells: 1,
    cores: 8,
    threads: 2,
    shared_cores: 2,
    memory_gib: 64,
    pages_2m_gib: 0,
    pages_1g: 0,
};

fn stock(total: u64) -> Option<Stock> {
    let inventory = Inventory::exact(total);
    Some(Stock { inventory, used: 0 })
}

fn provider(parent: Option<usize>, stocks: [u64; 3]) -> Drawn {
    Drawn {
        parent,
        stocks: stocks.map(|total| if total > 0 { stock(total) } else { None }),
        traits: 0,
        shares: false,
        aggregates: 0,
    }
}

fn sharing(parent: Option<usize>, stocks: [u64; 3]) -> Drawn {
    Drawn {
        shares: true,
        aggregates: 1,
        ..provider(parent, stocks)
    }
}

fn wants(amounts: [u64; 3]) -> Group {
    let amounts = amounts.into_iter().enumerate();
    let wanted = amounts.filter(|(_, amount)| *amount > 0);
    Group {
        resources: wanted.map(|(at, amount)| (class(at), amount)).collect(),
        ..Group::default()
    }
}

fn query(groups: &[(&str, Group)]) -> Query {
    let groups = groups.iter().cloned();
    Query {
        groups: groups.map(|(suffix, g)| (Suffix::new(suffix), g)).collect(),
        ..Query::default()
    }
}

/// `count` groups that want one unit of the first class each.
fn units(count: usize) -> Query {
    let groups: Vec<_> = (0..count)
        .map(|at| (format!("_{at}"), wants([1, 0, 0])))
        .collect();
    let groups: Vec<_> = groups
        .iter()
        .map(|(s, g)| (s.as_str(), g.clone()))
        .collect();
    query(&groups)
}

/// Hosts with children of one unit each.
fn wide(hosts: usize, children: usize) -> World {
    let host = |at: usize| {
        let root = provider(None, [0, 0, 0]);
        let below = provider(Some(at * (children + 1)), [1, 0, 0]);
        std::iter::once(root).chain(std::iter::repeat_n(below, children))
    };
    World((0..hosts).flat_map(host).collect())
}

fn steps(index: &Index, query: &Query) -> (usize, u64) {
    let mut search = index.search(query, Bounds::default()).unwrap();
    let mut count = 0;
    for candidate in search.by_ref() {
        candidate.unwrap();
        count += 1;
    }
    (count, search.steps())
}

#[test]
fn amounts_of_several_groups_on_one_provider_are_added_once() {
    let world = World(vec![
        provider(None, [100, 0, 0]),
        provider(Some(0), [100, 0, 0]),
    ]);
    let index = index(&world.sources());
    for policy in [None, Some(GroupPolicy::None), Some(GroupPolicy::Isolate)] {
        let query = Query {
            group_policy: policy,
            ..query(&[("", wants([6, 0, 0])), ("_A", wants([23, 0, 0]))])
        };
        let candidates = found(&index, &query);
        assert_eq!(set_of(&candidates).len(), 4, "{policy:?}");
        for candidate in &candidates {
            let amounts = candidate.allocations.values().flat_map(BTreeMap::values);
            assert_eq!(amounts.sum::<u64>(), 29);
        }
    }
}

#[test]
fn a_sharing_provider_below_a_root_serves() {
    let member = Drawn {
        aggregates: 1,
        ..provider(None, [8, 8, 0])
    };
    let world = World(vec![
        provider(None, [0, 0, 0]),
        sharing(Some(0), [0, 0, 100]),
        member,
    ]);
    let index = index(&world.sources());
    let candidates = found(&index, &query(&[("", wants([1, 1, 10]))]));
    assert_eq!(candidates.len(), 1);
    let providers: BTreeSet<_> = candidates[0].allocations.keys().copied().collect();
    assert_eq!(providers, BTreeSet::from([id(1), id(2)]));
}

/// Its own root may be where the group must not be: it serves another tree.
#[test]
fn a_sharing_provider_below_a_forbidden_root_is_counted_as_serving() {
    let in_aggregates = |aggregates, drawn| Drawn {
        aggregates,
        ..drawn
    };
    let world = World(vec![
        in_aggregates(2, provider(None, [0, 0, 0])),
        sharing(Some(0), [0, 0, 100]),
        in_aggregates(1, provider(None, [8, 0, 0])),
    ]);
    let index = index(&world.sources());
    let outside = |amounts| Group {
        forbidden_aggregates: aggregates(2),
        ..wants(amounts)
    };
    let served = query(&[("", outside([1, 0, 10]))]);
    assert_eq!(found(&index, &served).len(), 1);
    let counted = index.explain(&served).removed;
    assert!(
        counted.iter().all(|removed| removed.left > 0),
        "{counted:?}"
    );
    let too_much = index.explain(&query(&[("", outside([9, 0, 10]))]));
    let roots = too_much
        .removed
        .iter()
        .filter(|removed| removed.removed > 0);
    let roots: Vec<_> = roots.map(|removed| &removed.requirement).collect();
    assert!(
        roots.contains(&&Requirement::NoRootAggregates(aggregates(2))),
        "{too_much}"
    );
    assert_eq!(too_much.nearest.unwrap().root, id(2));
}

#[test]
fn one_sharing_provider_for_many_trees_comes_once() {
    let member = Drawn {
        aggregates: 1,
        ..provider(None, [8, 8, 0])
    };
    let mut drawn = vec![sharing(None, [0, 0, 100])];
    drawn.extend(std::iter::repeat_n(member, 500));
    let index = index(&World(drawn).sources());
    assert_eq!(found(&index, &query(&[("", wants([0, 0, 1]))])).len(), 1);
    assert_eq!(found(&index, &query(&[("_A", wants([0, 0, 1]))])).len(), 1);
    assert_eq!(found(&index, &query(&[("", wants([1, 0, 1]))])).len(), 500);
}

/// Goal: who asks for nothing but what is shared waits for those who share, not for all that they
/// serve. Method: steps over few and over many trees.
#[test]
fn what_is_shared_is_found_without_looking_at_those_it_serves() {
    let served = |count| {
        let host = Drawn {
            aggregates: 1,
            ..provider(None, [8, 8, 0])
        };
        let hosts = std::iter::repeat_n(host, count);
        let world = World(
            std::iter::once(sharing(None, [0, 0, 100]))
                .chain(hosts)
                .collect(),
        );
        let index = index(&world.sources());
        ["", "_1"].map(|suffix| steps(&index, &query(&[(suffix, wants([0, 0, 1]))])))
    };
    assert_eq!(served(10), served(1000));
    assert_eq!(served(10).map(|(found, _)| found), [1, 1]);
}

#[test]
fn the_cost_of_a_wide_host_follows_the_limit() {
    let index = index(&wide(1, 64).sources());
    for policy in [GroupPolicy::None, GroupPolicy::Isolate] {
        let query = Query {
            group_policy: Some(policy),
            limit: Some(1000),
            ..units(32)
        };
        let (count, steps) = steps(&index, &query);
        assert_eq!(count, 1000);
        // About sixty ways share all but the last slots, and each tries 64 devices.
        assert!(steps < 200_000, "{policy:?}: {steps}");
    }
}

/// Without a look ahead, 9 groups on 8 devices are over a hundred thousand dead ends per host.
#[test]
fn one_group_too_many_is_seen_at_once() {
    let index = index(&wide(100, 8).sources());
    for policy in [GroupPolicy::None, GroupPolicy::Isolate] {
        let query = Query {
            group_policy: Some(policy),
            ..units(9)
        };
        let (count, steps) = steps(&index, &query);
        assert_eq!(count, 0);
        assert!(steps <= 900, "each provider once, {policy:?}: {steps}");
    }
}

/// Fifteen groups could go anywhere, one only where another three could go as well.
#[test]
fn groups_that_compete_for_few_providers_are_told_apart() {
    let mut world = wide(1, 16);
    for device in &mut world.0[1..4] {
        device.traits = 1;
    }
    let index = index(&world.sources());
    let mut query = Query {
        group_policy: Some(GroupPolicy::Isolate),
        limit: Some(5),
        ..units(16)
    };
    for group in query.groups.values_mut().skip(12) {
        group.required = vec![traits(1)];
    }
    let (count, steps) = steps(&index, &query);
    assert_eq!((count, steps), (0, 17));
    for group in query.groups.values_mut().skip(13) {
        group.required = vec![traits(1)];
    }
    query.groups.values_mut().nth(12).unwrap().required.clear();
    assert_eq!(found(&index, &query).len(), 5);
}

/// What is taken of a host's provider stands in the host's view, not among the clients' amounts.
#[test]
fn what_claims_take_of_a_host_counts() {
    let mut view = view("host", ONE_CELL);
    let mut sources = World(vec![provider(None, [8, 0, 0])]).sources();
    let provider = Arc::make_mut(sources.providers.get_mut(&id(0)).unwrap());
    provider.host = Some(view.host.name.clone());
    view.host = Arc::new(Host {
        provider: id(0),
        ..(*view.host).clone()
    });
    let mut index = Index::new();
    let query = query(&[("", wants([3, 0, 0]))]);
    for (used, expected) in [(0, 1), (6, 0), (5, 1)] {
        view.used.insert(class(0), used);
        let name = view.host.name.clone();
        sources.hosts.insert(name, Arc::new(view.clone()));
        index.sync(&sources);
        assert_eq!(found(&index, &query).len(), expected, "{used}");
    }
    // A change of the provider itself must not forget it.
    let provider = Arc::make_mut(sources.providers.get_mut(&id(0)).unwrap());
    provider.inventories.insert(class(0), Inventory::exact(7));
    index.sync(&sources);
    assert_eq!(found(&index, &query).len(), 0);
}

/// A cluster that is nearly full: the few with room are not searched for among the many without.
#[test]
fn few_hosts_with_room_are_found_at_once() {
    let mut world = World(vec![provider(None, [4, 8, 0]); 3000]);
    for at in [7, 1300, 2999] {
        world.0[at] = provider(None, [16, 8, 0]);
    }
    let mut sources = world.sources();
    let mut index = index(&sources);
    let query = query(&[("", wants([10, 1, 0]))]);
    let hosts = |index: &Index| -> BTreeSet<_> {
        let candidates = found(index, &query).into_iter();
        candidates.flat_map(|c| c.allocations.into_keys()).collect()
    };
    assert_eq!(hosts(&index), BTreeSet::from([7, 1300, 2999].map(id)));
    assert!(steps(&index, &query).1 < 20);
    // What is taken counts at once.
    sources
        .used
        .insert(id(7), Arc::new(wants([7, 0, 0]).resources));
    sources.providers.remove(&id(2999));
    index.sync(&sources);
    assert_eq!(hosts(&index), BTreeSet::from([id(1300)]));
    assert!(steps(&index, &query).1 < 10);
    let nowhere = self::query(&[("", wants([17, 1, 0]))]);
    assert_eq!(steps(&index, &nowhere), (0, 0));
}

#[test]
fn a_search_without_a_limit_is_bounded_and_says_what_to_do() {
    let index = index(&wide(4, 8).sources());
    let bounds = Bounds {
        steps: 10_000,
        ..Bounds::default()
    };
    let error = index.candidates(&units(8), bounds).unwrap_err();
    assert!(error.to_string().contains("with `limit`"), "{error}");
    let bounds = Bounds {
        bytes: 100_000,
        ..Bounds::default()
    };
    assert!(matches!(
        index.candidates(&units(8), bounds),
        Err(Failed::Bound(_))
    ));
    let limited = Query {
        limit: Some(1000),
        ..units(8)
    };
    let answer = index.candidates(&limited, bounds).unwrap();
    assert!(answer.stopped && !answer.candidates.is_empty());
}

#[test]
fn different_hosts_come_up_over_time() {
    let index = index(&wide(50, 8).sources());
    let mut roots = BTreeSet::new();
    for seed in 0..20 {
        let query = Query {
            limit: Some(10),
            order: Order::Rotated { seed },
            ..units(2)
        };
        let candidates = found(&index, &query);
        let devices = candidates.iter().flat_map(|c| c.allocations.keys());
        let devices: BTreeSet<_> = devices.copied().collect();
        assert!(devices.len() > 8, "one host must not have all of the limit");
        roots.extend(devices);
    }
    assert!(roots.len() > 200, "{}", roots.len());
}

#[test]
fn deep_trees_are_searched() {
    let chain = (0..1000).map(|at: usize| provider(at.checked_sub(1), [1, 0, 0]));
    let index = index(&World(chain.collect()).sources());
    let mut query = Query {
        limit: Some(10),
        ..units(3)
    };
    query.same_subtree = vec![query.groups.keys().cloned().collect()];
    assert_eq!(found(&index, &query).len(), 10);
}

#[test]
fn queries_that_cannot_be_answered_are_refused() {
    let index = Index::new();
    let refused = |query: &Query| match index.candidates(query, Bounds::default()) {
        Err(Failed::Invalid(invalid)) => invalid,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&Query::default()), Invalid::NoResources);
    assert_eq!(
        refused(&units(10_000)),
        Invalid::TooManyChoices { choices: 10_000 }
    );
    let mut odd = units(2);
    odd.same_subtree = vec![BTreeSet::from([Suffix::new("_9")])];
    assert!(matches!(refused(&odd), Invalid::UnknownSuffix { .. }));
    odd = units(1);
    odd.groups.insert(Suffix::new(""), Group::default());
    assert_eq!(refused(&odd), Invalid::NoUnsuffixedResources);
}

#[test]
fn the_nearest_miss_is_told() {
    let mut world = World(vec![
        provider(None, [4, 8, 0]),
        provider(None, [7, 8, 0]),
        provider(None, [1, 8, 0]),
    ]);
    let explain = |world: &World, query: &Query| {
        let index = index(&world.sources());
        assert_eq!(found(&index, query), []);
        index.explain(query)
    };
    let explanation = explain(&world, &query(&[("", wants([8, 1, 0]))]));
    let nearest = explanation.nearest.clone().unwrap();
    assert_eq!(nearest.root, id(1));
    assert_eq!(nearest.requirement, Requirement::Free(class(0), 8));
    let missing = nearest.missing.unwrap();
    assert_eq!((missing.requested, missing.available), (8, 7));
    let text = explanation.to_string();
    assert!(
        text.starts_with("no allocation candidates among 3 providers in 3 trees"),
        "{text}"
    );
    let refusal = explanation.to_refusal();
    assert_eq!(refusal.reason, "NO_CANDIDATES");
    assert_eq!(refusal.causes["a provider for each group"], 3);

    // Two groups that fit alone but not beside each other.
    let both = query(&[("_A", wants([5, 0, 0])), ("_B", wants([5, 0, 0]))]);
    let nearest = explain(&world, &both).nearest.unwrap();
    assert_eq!(
        (nearest.root, nearest.requirement),
        (id(1), Requirement::Beside)
    );
    let alone = Query {
        group_policy: Some(GroupPolicy::Isolate),
        ..query(&[("_A", wants([1, 0, 0])), ("_B", wants([0, 1, 0]))])
    };
    let nearest = explain(&world, &alone).nearest.unwrap();
    assert_eq!(nearest.requirement, Requirement::Isolate);

    world.0[2].traits = 1;
    let gold = Trait::new("CUSTOM_A").unwrap();
    let mut rare = query(&[("", wants([2, 0, 0]))]);
    rare.root_required = BTreeSet::from([gold]);
    let explanation = explain(&world, &rare);
    assert_eq!(explanation.nearest.unwrap().root, id(2));
    assert_eq!(
        explanation
            .removed
            .iter()
            .filter(|r| r.removed == 2)
            .count(),
        1
    );
}

/// Goal: a requirement with many names is told in a line.
#[test]
fn of_many_names_the_first_are_told() {
    let names = (0..40).map(|n| Trait::new(&format!("CUSTOM_{n:02}")).unwrap());
    let told = Requirement::Traits(names.collect()).to_string();
    assert!(
        told.starts_with("trait CUSTOM_00 or CUSTOM_01 or "),
        "{told}"
    );
    assert!(told.ends_with(" or CUSTOM_15 or 24 others"), "{told}");
}
