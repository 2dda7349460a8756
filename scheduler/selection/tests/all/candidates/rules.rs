//! Whether the random worlds are worth something: each rule has to change many an answer.

use berth_selection::candidates::{Group, GroupPolicy, Query};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use super::oracle::Oracle;
use super::world::{World, query, world};

const CASES: usize = 3000;

fn of_groups(query: &mut Query, change: impl Fn(&mut Group)) {
    query.groups.values_mut().for_each(change);
}

/// A rule, and how to do without it.
type Without = (&'static str, fn(&mut World, &mut Query));

const RULES: [Without; 12] = [
    ("isolate", |_, q| q.group_policy = Some(GroupPolicy::None)),
    ("same_subtree", |_, q| q.same_subtree.clear()),
    ("nested", |_, q| q.nested = true),
    ("root traits", |_, q| {
        q.root_required.clear();
        q.root_forbidden.clear();
    }),
    ("required", |_, q| of_groups(q, |g| g.required.clear())),
    ("forbidden", |_, q| of_groups(q, |g| g.forbidden.clear())),
    ("member_of", |_, q| of_groups(q, |g| g.member_of.clear())),
    ("forbidden aggregates", |_, q| {
        of_groups(q, |g| g.forbidden_aggregates.clear());
    }),
    ("in_tree", |_, q| of_groups(q, |g| g.in_tree = None)),
    ("sharing", |w, _| {
        w.0.iter_mut().for_each(|p| p.shares = false);
    }),
    ("trees", |w, _| w.0.iter_mut().for_each(|p| p.parent = None)),
    ("used", |w, _| {
        let stocks = w.0.iter_mut().flat_map(|p| p.stocks.iter_mut());
        stocks.flatten().for_each(|stock| stock.used = 0);
    }),
];

/// Goal: the comparison with the oracle meets every rule. Method: count the cases whose answer
/// is another one without the rule.
#[test]
fn every_rule_matters_in_the_random_worlds() {
    let mut runner = TestRunner::deterministic();
    let mut changed = [0; RULES.len()];
    let mut answered = 0;
    let cases = (world(), query());
    for _ in 0..CASES {
        let (world, query) = cases.new_tree(&mut runner).unwrap().current();
        let answer = Oracle::new(&world.sources()).candidates(&query);
        answered += usize::from(!answer.is_empty());
        for (count, (_, without)) in changed.iter_mut().zip(RULES) {
            let (mut world, mut query) = (world.clone(), query.clone());
            without(&mut world, &mut query);
            let other = Oracle::new(&world.sources()).candidates(&query);
            *count += usize::from(other != answer);
        }
    }
    assert!(answered > CASES / 4, "{answered} of {CASES} have an answer");
    for (count, (rule, _)) in changed.iter().zip(RULES) {
        eprintln!("{rule} matters in {count} of {CASES} cases");
        assert!(*count > CASES / 200, "{rule} matters in {count} cases");
    }
}
