//! The model of `berth top` over a state that random commands change.
//!
//! Goal: what is shown after any changes is what would be shown if the records were listed afresh: no sum
//! drifts, nothing that was deleted stays, and no order of the changes matters. Method: commands that are
//! drawn at random; after each one, what changed in the state is applied to one model; at the end another
//! one is made of the records alone, in the opposite order.

use std::collections::BTreeMap;

use berth_cli::top::model::Model;
use berth_cli::top::usage::Usage;
use berth_domain::event::{Change, Name, Record};
use berth_testkit::state::World;
use berth_testkit::state::draw::{draws, play};
use proptest::prelude::*;

use super::records;

/// Applies what is different between two sets of records.
fn change(model: &mut Model, before: &BTreeMap<Name, Record>, after: &BTreeMap<Name, Record>) {
    for name in before.keys().filter(|name| !after.contains_key(name)) {
        model.apply(Change::Deleted(name.clone()));
    }
    for (name, record) in after {
        if before.get(name) != Some(record) {
            model.apply(Change::Put(record.clone()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_model_of_changes_equals_one_of_records(draws in draws()) {
        let (_, played) = play(&draws);
        let mut world = World::with_hosts(3);
        let mut known = records(&world.state);
        let mut changed = Model::default();
        change(&mut changed, &BTreeMap::new(), &known);
        for (request, now, command) in played {
            world.now = now;
            // A refusal changes nothing.
            let _ = world.run_as(request, command);
            let after = records(&world.state);
            change(&mut changed, &known, &after);
            known = after;
        }
        let mut listed = Model::default();
        for record in known.values().rev() {
            listed.apply(Change::Put(record.clone()));
        }
        prop_assert_eq!(&changed, &listed);
        for entry in changed.hosts() {
            let mut sum = Usage::default();
            for claim in changed.claims_on(&entry.host.name) {
                sum.add(&Usage::of(claim));
            }
            prop_assert_eq!(sum, changed.usage(&entry.host.name));
        }
    }
}
