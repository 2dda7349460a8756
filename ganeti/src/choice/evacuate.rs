//! Whether a node could be evacuated: its mirrored instances fail over, those on shared storage
//! go one after the other to the node of the group where the score is lowest, and what is bound
//! to the node is recreated, the greatest first.
//!
//! This is htools' global N+1, word for word: greedy, with soft checks ignored. It may say no
//! where a cleverer plan would do.

use super::{Disk, Reason, disks_of, policy};
use crate::model::{Change, Cluster, GroupIndex, InstanceIndex, MemoryRule, Move, NodeIndex};
use crate::score::Totals;

/// Which nodes must stay possible to evacuate.
#[derive(Debug, Clone, Default)]
pub struct Redundancy {
    /// The node that failed last: where one placement too many was refused, the next one is
    /// most often refused for the same node.
    failed: Option<NodeIndex>,
}

impl Redundancy {
    /// Returns whether every node of a group, or of all, could be evacuated; the cluster is the
    /// same afterwards.
    pub fn holds(
        &mut self,
        cluster: &mut Cluster,
        scope: Option<GroupIndex>,
        disks: &[Vec<Disk>],
    ) -> bool {
        if let Some(node) = self.failed
            && !can_evacuate(cluster, node, scope, disks)
        {
            return false;
        }
        for node in cluster.node_indexes() {
            let in_scope = scope.is_none_or(|group| cluster.node(node).group == group);
            if in_scope && self.failed != Some(node) && !can_evacuate(cluster, node, scope, disks) {
                self.failed = Some(node);
                return false;
            }
        }
        true
    }
}

/// Returns whether a node could be evacuated; the cluster is the same afterwards.
pub fn can_evacuate(
    cluster: &mut Cluster,
    node: NodeIndex,
    scope: Option<GroupIndex>,
    disks: &[Vec<Disk>],
) -> bool {
    let mut done = Vec::new();
    let possible = evacuate(cluster, node, &mut done).is_ok() && {
        let mut made = Vec::new();
        let possible = recreate_all(cluster, node, (scope, disks), &mut made).is_ok();
        for change in made.iter().rev() {
            cluster.revert(change);
            cluster.remove_last_instance();
        }
        possible
    };
    for change in done.iter().rev() {
        cluster.revert(change);
    }
    possible
}

/// Moves what can be moved off a node.
fn evacuate(cluster: &mut Cluster, node: NodeIndex, done: &mut Vec<Change>) -> Result<(), Reason> {
    let (mirrored, others): (Vec<_>, Vec<_>) = real(cluster, node)
        .into_iter()
        .partition(|i| cluster.instance(*i).is_mirrored());
    for instance in mirrored {
        let change = cluster.draft_move(instance, Move::Failover, true)?;
        cluster.apply(&change);
        done.push(change);
    }
    let others = others.into_iter();
    let shared = others.filter(|i| cluster.instance(*i).is_on_shared_storage());
    let shared: Vec<InstanceIndex> = shared.collect();
    if shared.is_empty() {
        return Ok(());
    }
    let group = cluster.node(node).group;
    let mut totals = Totals::new(cluster, Some(group));
    for instance in shared {
        let mut best: Option<(f64, Change)> = None;
        let mut refused = Reason::Memory;
        for target in escapes(cluster, node) {
            match cluster.draft_move(instance, Move::FailoverTo(target), true) {
                Ok(change) => {
                    let score = totals.score_after(cluster, &change);
                    if best.as_ref().is_none_or(|(least, _)| score <= *least) {
                        best = Some((score, change));
                    }
                }
                Err(refusal) => refused = refusal.into(),
            }
        }
        let (_, change) = best.ok_or(refused)?;
        totals.apply(cluster, &change);
        cluster.apply(&change);
        done.push(change);
    }
    Ok(())
}

/// Makes what cannot be moved off a node a second time on others.
fn recreate_all(
    cluster: &mut Cluster,
    node: NodeIndex,
    (scope, disks): (Option<GroupIndex>, &[Vec<Disk>]),
    made: &mut Vec<Change>,
) -> Result<(), Reason> {
    let mut bound = real(cluster, node);
    bound.retain(|index| {
        let instance = cluster.instance(*index);
        !instance.is_mirrored() && !instance.is_on_shared_storage()
    });
    if bound.is_empty() {
        return Ok(());
    }
    bound.sort_by_key(|index| std::cmp::Reverse(cluster.instance(*index).memory));
    let mut totals = Totals::new(cluster, scope);
    for index in bound {
        let disks = disks_of(cluster, disks, index);
        let copy = cluster.copy_instance(index);
        let mut best: Option<(f64, Change)> = None;
        let mut refused = Reason::Memory;
        for target in escapes(cluster, node) {
            let drafted = policy::matches(cluster, copy, &disks, target).and_then(|()| {
                let drafted = cluster.draft_place(copy, target, None, true);
                drafted.map_err(Reason::from)
            });
            match drafted {
                Ok(change) => {
                    let score = totals.score_after(cluster, &change);
                    if best.as_ref().is_none_or(|(least, _)| score <= *least) {
                        best = Some((score, change));
                    }
                }
                Err(reason) => refused = reason,
            }
        }
        let Some((_, change)) = best else {
            cluster.remove_last_instance();
            return Err(refused);
        };
        totals.apply(cluster, &change);
        cluster.apply(&change);
        made.push(change);
    }
    Ok(())
}

/// Returns the primaries of a node that are there, not only promised; the last one first, as
/// htools lists them: a greedy search may come to another end in another order.
fn real(cluster: &Cluster, node: NodeIndex) -> Vec<InstanceIndex> {
    let listed = cluster.lists(node).primaries.iter().rev().copied();
    listed
        .filter(|index| !cluster.instance(*index).forthcoming)
        .collect()
}

/// Returns the other nodes of a node's group. The strict rules are htools', which takes offline
/// ones too.
fn escapes(cluster: &Cluster, node: NodeIndex) -> Vec<NodeIndex> {
    let group = cluster.node(node).group;
    let offline_too = cluster.rules().memory == MemoryRule::Strict;
    let others = cluster.node_indexes().filter(|other| {
        let there = cluster.node(*other);
        *other != node && there.group == group && (offline_too || !there.offline)
    });
    others.collect()
}
