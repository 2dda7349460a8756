//! Allocation candidates against the documented rules written plainly.
//!
//! Goal: the search, which prunes, orders and stops early, finds exactly what making every
//! combination finds. Method: thousands of small random worlds and queries, in which every rule
//! is met often; what differs is shrunk by proptest.

mod cases;
mod oracle;
mod rules;
mod world;

use std::collections::BTreeSet;

use berth_selection::candidates::{Bounds, Candidate, Index, Order, Part, Query, Sources};
use proptest::prelude::*;

use oracle::Oracle;
use world::{World, crowded, filter, query, world};

fn index(sources: &Sources) -> Index {
    let mut index = Index::new();
    index.sync(sources);
    index
}

fn found(index: &Index, query: &Query) -> Vec<Candidate> {
    let answer = index.candidates(query, Bounds::default());
    answer.expect("a small query is answered").candidates
}

/// Returns the same set, after checking that nothing comes twice.
fn set_of(candidates: &[Candidate]) -> BTreeSet<Candidate> {
    let set: BTreeSet<Candidate> = candidates.iter().cloned().collect();
    assert_eq!(set.len(), candidates.len(), "a candidate came twice");
    set
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 6000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_search_finds_what_the_rules_say(world in world(), query in query()) {
        let sources = world.sources();
        let expected = Oracle::new(&sources).candidates(&query);
        prop_assert_eq!(set_of(&found(&index(&sources), &query)), expected);
    }

    #[test]
    fn a_limit_takes_so_many_of_them(
        world in world(),
        query in query(),
        limit in 1..6_u32,
        seed in any::<u64>(),
    ) {
        let sources = world.sources();
        let index = index(&sources);
        let expected = Oracle::new(&sources).candidates(&query);
        let all = found(&index, &query);
        let limited = Query { limit: Some(limit), ..query.clone() };
        let first = found(&index, &limited);
        prop_assert_eq!(&first[..], &all[..all.len().min(limit as usize)]);
        let rotated = Query { order: Order::Rotated { seed }, ..limited };
        let some = found(&index, &rotated);
        prop_assert_eq!(some.len(), first.len());
        prop_assert!(set_of(&some).is_subset(&expected));
        let rotated = Query { limit: None, ..rotated };
        prop_assert_eq!(set_of(&found(&index, &rotated)), expected);
    }

    #[test]
    fn a_filter_lists_what_the_rules_say(world in world(), filter in filter()) {
        let sources = world.sources();
        prop_assert_eq!(index(&sources).list(&filter), Oracle::new(&sources).list(&filter));
    }

    /// Parts of a list are its pieces, wherever they begin.
    #[test]
    fn a_list_in_parts_is_the_list(world in world(), filter in filter(), most in 1..4_usize) {
        let sources = world.sources();
        let index = index(&sources);
        let all = Oracle::new(&sources).list(&filter);
        let mut after = None;
        for expected in all.chunks(most) {
            let part = index.list_part(&filter, Part { after, most });
            prop_assert_eq!(&part[..], expected);
            after = part.last().copied();
        }
        prop_assert_eq!(index.list_part(&filter, Part { after, most }), Vec::new());
    }

    /// One index follows the worlds; what it knew of the ones before must not shine through.
    #[test]
    fn an_index_follows_every_change(worlds in prop::collection::vec(world(), 2..5), query in query()) {
        let mut followed = Index::new();
        for world in &worlds {
            let sources = world.sources();
            followed.sync(&sources);
            prop_assert_eq!(found(&followed, &query), found(&index(&sources), &query));
        }
        followed.sync(&World(Vec::new()).sources());
        prop_assert!(followed.is_empty());
        prop_assert_eq!(found(&followed, &query), Vec::new());
    }

    /// Counting must not fall behind the search in who could serve.
    #[test]
    fn an_explanation_adds_up(world in world(), query in query()) {
        let sources = world.sources();
        let index = index(&sources);
        let explanation = index.explain(&query);
        let mut left = std::collections::BTreeMap::new();
        for removed in &explanation.removed {
            let all = match removed.group {
                Some(_) => explanation.providers,
                None => explanation.trees,
            };
            let before = left.insert(removed.group.clone(), removed.left).unwrap_or(all);
            prop_assert_eq!(removed.removed + removed.left, before);
        }
        if !found(&index, &query).is_empty() {
            prop_assert!(left.values().all(|left| *left > 0), "{}", explanation);
        }
        prop_assert!(!explanation.to_string().is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 250,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_search_among_dead_ends_finds_what_the_rules_say((world, query) in crowded()) {
        let sources = world.sources();
        let index = index(&sources);
        let expected = Oracle::new(&sources).candidates(&query);
        for dead_ends in [0, Bounds::default().dead_ends] {
            let bounds = Bounds { dead_ends, ..Bounds::default() };
            let answer = index.candidates(&query, bounds).unwrap();
            prop_assert_eq!(set_of(&answer.candidates), expected.clone());
        }
    }
}
