//! Empties a node on paper, as Ganeti does to see whether its failure could be borne.
//!
//! Not a plan of balancing: soft checks do not count, and everything is put back afterwards.

use super::field::{self, Field};
use super::search::Search;
use super::{Options, Step};
use crate::model::{Change, Cluster, GroupIndex, InstanceIndex, Move, NodeIndex, Refusal};
use crate::score::Totals;

/// An instance that finds no place when its node fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stranded {
    /// The instance.
    pub instance: InstanceIndex,
    /// Why; of a choice of targets, the reason that most of them gave.
    pub refusal: Refusal,
}

/// What came of emptying a node: the steps that do it, or what stays behind.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Emptying {
    pub(crate) node: NodeIndex,
    pub(crate) result: Result<Vec<Step>, Stranded>,
}

/// Empties every node, each from the cluster as it is.
pub(crate) fn empty_nodes(cluster: &Cluster) -> Vec<Emptying> {
    let mut cluster = cluster.clone();
    let mut found = Vec::new();
    for group in 0..cluster.groups().len() as u32 {
        let group = GroupIndex(group);
        let nodes = cluster.node_indexes();
        let nodes: Vec<NodeIndex> = nodes.filter(|n| cluster.node(*n).group == group).collect();
        found.extend(empty_each(&mut cluster, group, &nodes));
    }
    found
}

/// Returns the steps that empty a node, or what stays behind.
///
/// # Errors
///
/// The first instance that finds no place.
pub fn empty_node(cluster: &Cluster, node: NodeIndex) -> Result<Vec<Step>, Stranded> {
    let group = cluster.node(node).group;
    let mut emptied = empty_each(&mut cluster.clone(), group, &[node]);
    emptied.pop().expect("one node, one answer").result
}

/// Returns those of the nodes that can be emptied.
pub(super) fn emptiable(
    cluster: &mut Cluster,
    group: GroupIndex,
    nodes: &[NodeIndex],
) -> Vec<NodeIndex> {
    let emptied = empty_each(cluster, group, nodes);
    let good = emptied.into_iter().filter(|e| e.result.is_ok());
    good.map(|e| e.node).collect()
}

/// Returns the first of the nodes that cannot be emptied.
pub(super) fn first_full(
    cluster: &mut Cluster,
    group: GroupIndex,
    nodes: &[NodeIndex],
) -> Option<NodeIndex> {
    let mut full = None;
    empty_while(cluster, group, nodes, &mut |emptying| {
        if emptying.result.is_err() {
            full = Some(emptying.node);
        }
        full.is_none()
    });
    full
}

fn empty_each(cluster: &mut Cluster, group: GroupIndex, nodes: &[NodeIndex]) -> Vec<Emptying> {
    let mut found = Vec::new();
    empty_while(cluster, group, nodes, &mut |emptying| {
        found.push(emptying);
        true
    });
    found
}

/// Empties one node after the other, and puts everything back each time, until it is stopped.
fn empty_while(
    cluster: &mut Cluster,
    group: GroupIndex,
    nodes: &[NodeIndex],
    goes_on: &mut dyn FnMut(Emptying) -> bool,
) {
    let totals = Totals::new(cluster, group);
    let movers = cluster.instance_indexes().filter(|instance| {
        let placement = cluster.placement(*instance);
        let here = placement
            .primary
            .is_some_and(|n| cluster.node(n).group == group);
        here && !cluster.instance(*instance).is_mirrored()
    });
    let movers: Vec<InstanceIndex> = movers.collect();
    let lanes = field::lanes(cluster, &totals, group, &movers);
    if lanes.len() <= 4 {
        let field = Field::<4>::new(cluster, totals, group, &lanes);
        empty_in(cluster, field, nodes, goes_on);
    } else {
        let field = Field::<12>::new(cluster, totals, group, &lanes);
        empty_in(cluster, field, nodes, goes_on);
    }
}

fn empty_in<const W: usize>(
    cluster: &mut Cluster,
    field: Field<W>,
    nodes: &[NodeIndex],
    goes_on: &mut dyn FnMut(Emptying) -> bool,
) {
    let options = Options::default();
    let mut search = Search::new(cluster, field, Vec::new(), &options).in_an_emergency();
    for node in nodes {
        let result = search.empty(*node);
        if !goes_on(Emptying {
            node: *node,
            result,
        }) {
            return;
        }
    }
}

impl<const W: usize> Search<'_, W> {
    /// Empties a node and puts everything back.
    fn empty(&mut self, node: NodeIndex) -> Result<Vec<Step>, Stranded> {
        let mut changes = Vec::new();
        let result = self.empty_into(node, &mut changes);
        for change in changes.iter().rev() {
            self.cluster.revert(change);
        }
        if !changes.is_empty() {
            self.field.refresh(self.cluster);
        }
        let steps = std::mem::take(&mut self.steps);
        result.map(|()| steps)
    }

    fn empty_into(&mut self, node: NodeIndex, changes: &mut Vec<Change>) -> Result<(), Stranded> {
        let listed = self.cluster.lists(node).primaries.iter().rev().copied();
        let real = listed.filter(|instance| !self.cluster.instance(*instance).forthcoming);
        let all: Vec<InstanceIndex> = real.collect();
        let is_mirrored = |i: &InstanceIndex| self.cluster.instance(*i).is_mirrored();
        let is_shared = |i: &InstanceIndex| self.cluster.instance(*i).is_on_shared_storage();
        let memory = |i: &InstanceIndex| self.cluster.instance(*i).memory;
        let (mirrored, others): (Vec<_>, Vec<_>) = all.into_iter().partition(is_mirrored);
        let (mut others, mut last): (Vec<_>, Vec<_>) = others.into_iter().partition(is_shared);
        last.sort_by_key(|instance| std::cmp::Reverse(memory(instance)));
        others.append(&mut last);
        let failovers = !mirrored.is_empty();
        for instance in mirrored {
            let change = self.cluster.draft_move(instance, Move::Failover, true);
            let change = change.map_err(|refusal| Stranded { instance, refusal })?;
            self.cluster.apply(&change);
            self.note(instance, Move::Failover, &change);
            changes.push(change);
        }
        if failovers && !others.is_empty() {
            self.field.refresh(self.cluster);
        }
        for instance in others {
            let Some((what, change)) = self.refuge(instance) else {
                let refusal = self.common_refusal(instance);
                return Err(Stranded { instance, refusal });
            };
            self.cluster.apply(&change);
            self.field.refresh(self.cluster);
            self.note(instance, what, &change);
            changes.push(change);
        }
        Ok(())
    }

    fn note(&mut self, instance: InstanceIndex, what: Move, change: &Change) {
        self.steps.push(Step {
            instance,
            what,
            from: change.before,
            to: change.after,
            score_after: self.score(),
        });
    }

    /// Returns the move to the node where the score is lowest; to the first that takes it where
    /// there is no score.
    fn refuge(&mut self, instance: InstanceIndex) -> Option<(Move, Change)> {
        if self.score().is_finite() {
            let found = self.best(instance, f64::INFINITY)?;
            return Some((found.what, found.change));
        }
        let targets = self.field.online.iter();
        let mut moves = targets.map(|target| Move::FailoverTo(*target));
        moves.find_map(|what| {
            let change = self.cluster.draft_move(instance, what, true).ok()?;
            Some((what, change))
        })
    }

    fn common_refusal(&self, instance: InstanceIndex) -> Refusal {
        let mut counts = std::collections::BTreeMap::new();
        for target in &self.field.online {
            let what = Move::FailoverTo(*target);
            if let Err(refusal) = self.cluster.draft_move(instance, what, true) {
                *counts.entry(refusal).or_insert(0_u32) += 1;
            }
        }
        counts.remove(&Refusal::Target);
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        most.map_or(Refusal::Target, |(refusal, _)| refusal)
    }
}
