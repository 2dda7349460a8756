//! Looks at every single move, one by one, without any bound or cache.
//!
//! Slow, and the judge of the planner: where this finds nothing, there is nothing.

use super::{Options, is_allowed, movable};
use crate::model::{Change, Cluster, GroupIndex, InstanceIndex, Move, NodeIndex};
use crate::score::Totals;

/// Returns the single move with the lowest score after it, with that score, if it is lower than
/// the score before. Of several equals it is the first one in `hbal`'s order.
#[must_use]
pub fn best_move(
    cluster: &Cluster,
    group: GroupIndex,
    options: &Options,
) -> Option<(InstanceIndex, Move, f64)> {
    let totals = Totals::new(cluster, group);
    let targets: Vec<NodeIndex> = cluster.node_indexes().collect();
    let online = |node: &&NodeIndex| {
        let node = cluster.node(**node);
        node.group == group && !node.offline
    };
    let targets: Vec<NodeIndex> = targets.iter().filter(online).copied().collect();
    let mut best = None;
    let mut lowest = totals.score();
    for instance in movable(cluster, group, options) {
        for what in moves(&targets) {
            if !is_allowed(cluster, instance, what, options) {
                continue;
            }
            let Ok(change) = cluster.draft_move(instance, what, false) else {
                continue;
            };
            if breaks_n1(cluster, &change) {
                continue;
            }
            let score = totals.score_after(cluster, &change);
            if score < lowest {
                lowest = score;
                best = Some((instance, what, score));
            }
        }
    }
    best
}

fn moves(targets: &[NodeIndex]) -> Vec<Move> {
    let mut moves = vec![Move::Failover];
    for target in targets {
        moves.extend([
            Move::FailoverTo(*target),
            Move::ReplaceSecondary(*target),
            Move::ReplaceAndFailover(*target),
            Move::ReplacePrimary(*target),
            Move::FailoverAndReplace(*target),
        ]);
    }
    moves
}

/// Returns whether a node could take its peers' instances before a change, and cannot after it.
///
/// Ganeti's own checks say the same but for what leaves an offline node, where it skips them.
#[must_use]
pub fn breaks_n1(cluster: &Cluster, change: &Change) -> bool {
    change.touched().any(|touched| {
        let node = cluster.node(touched.node);
        let short = |state: &crate::model::NodeState| {
            let free = state.unallocated_memory - state.reserved_memory;
            cluster.rules().is_short(free, node.memory_floor)
        };
        !node.offline && !short(&touched.before) && short(&touched.after)
    })
}
