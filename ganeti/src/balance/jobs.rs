//! Puts the steps of a plan into sets that may run at one time.
//!
//! The order is kept: a step joins the last set if none of its nodes is in it, or begins another.

use std::collections::BTreeSet;

use super::Step;
use crate::model::NodeIndex;

pub(super) fn sets(steps: &[Step]) -> Vec<Vec<usize>> {
    let mut sets: Vec<Vec<usize>> = Vec::new();
    let mut busy: BTreeSet<NodeIndex> = BTreeSet::new();
    for (at, step) in steps.iter().enumerate() {
        let (from, to) = (step.from, step.to);
        let nodes = [from.primary, from.secondary, to.primary, to.secondary];
        let nodes: Vec<NodeIndex> = nodes.into_iter().flatten().collect();
        let joins = nodes.iter().all(|node| !busy.contains(node));
        match sets.last_mut() {
            Some(set) if joins => set.push(at),
            Some(_) | None => {
                busy.clear();
                sets.push(vec![at]);
            }
        }
        busy.extend(nodes);
    }
    sets
}
