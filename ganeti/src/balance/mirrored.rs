//! Judges the moves of a mirrored instance: what each kind does to its two nodes, and to targets.
//!
//! Not whether a move is allowed there: that is drafted, for those few that are left.

use super::field::{Base, Candidate, Field, Reserve, Targets, amounts};
use super::{Options, is_allowed};
use crate::model::{Cluster, InstanceIndex, Move, NodeIndex};

/// The order of a failover, which has no target.
pub(super) const FAILOVER: u32 = u32::MAX;

/// What nodes keep for others, by place among the online nodes; zero between two uses.
#[derive(Debug)]
pub(super) struct Reserves {
    /// What each node keeps for the instance's primary.
    for_primary: Vec<f64>,
    /// What each node keeps for the instance's secondary.
    for_secondary: Vec<f64>,
    /// What the primary keeps for each node.
    by_primary: Vec<f64>,
    /// What the secondary keeps for each node.
    by_secondary: Vec<f64>,
}

/// A mirrored instance and its two nodes.
pub(super) struct Pair {
    pub(super) instance: InstanceIndex,
    pub(super) primary: NodeIndex,
    pub(super) secondary: NodeIndex,
}

/// What stays the same for every instance.
pub(super) struct Around<'a, const W: usize> {
    pub(super) cluster: &'a Cluster,
    pub(super) field: &'a Field<W>,
    pub(super) options: &'a Options,
    pub(super) limit: f64,
}

/// What an instance takes, and what its secondary keeps without it.
struct Amounts<const W: usize> {
    primary: [f64; W],
    secondary: [f64; W],
    memory: f64,
    without: f64,
}

impl Reserves {
    pub(super) fn new(nodes: usize) -> Self {
        Reserves {
            for_primary: vec![0.0; nodes],
            for_secondary: vec![0.0; nodes],
            by_primary: vec![0.0; nodes],
            by_secondary: vec![0.0; nodes],
        }
    }

    /// Judges every move of an instance, keeps those that may get below the limit, and returns
    /// how many there were.
    pub(super) fn evaluate<const W: usize>(
        &mut self,
        around: &Around<'_, W>,
        pair: &Pair,
        base: &Base<W>,
        kept: &mut Vec<Candidate>,
    ) -> u64 {
        let what = around.cluster.instance(pair.instance);
        let (primary, secondary) = amounts(what);
        let memory = if what.forthcoming { 0 } else { what.reserve() };
        let takes = Amounts {
            primary: around.field.by_lane(&primary),
            secondary: around.field.by_lane(&secondary),
            memory: memory as f64,
            without: reserve_without(around.cluster, pair, memory),
        };
        self.fill(around, pair, false);
        let mut evaluated = failover(around, pair, base, &takes, kept);
        for (kind, what) in [
            Move::ReplaceSecondary(pair.primary),
            Move::ReplaceAndFailover(pair.primary),
            Move::ReplacePrimary(pair.primary),
            Move::FailoverAndReplace(pair.primary),
        ]
        .into_iter()
        .enumerate()
        {
            if !is_allowed(around.cluster, pair.instance, what, around.options) {
                continue;
            }
            let mut base = base.clone();
            let (amount, reserve) = self.leave(around, pair, &takes, kind as u32, &mut base);
            let targets = Targets {
                amount: &amount,
                reserve,
                memory: takes.memory,
                except: [
                    around.field.place(pair.primary),
                    around.field.place(pair.secondary),
                ],
                limit: around.limit,
                kind: kind as u32,
            };
            around.field.evaluate(&base, &targets, kept);
            evaluated += around.field.online.len() as u64;
        }
        self.fill(around, pair, true);
        evaluated
    }

    /// Takes into the sums what a kind of move does to the instance's own nodes; returns what the
    /// target takes, and who keeps memory for the instance then.
    fn leave<const W: usize>(
        &self,
        around: &Around<'_, W>,
        pair: &Pair,
        takes: &Amounts<W>,
        kind: u32,
        base: &mut Base<W>,
    ) -> ([f64; W], Reserve<'_>) {
        let field = around.field;
        let becomes_secondary = minus(&takes.secondary, &takes.primary);
        let becomes_primary = negative(&becomes_secondary);
        if kind != REPLACE_PRIMARY {
            field.shift_reserved(base, pair.secondary, takes.without);
        }
        match kind {
            REPLACE_SECONDARY => {
                field.shift(base, pair.secondary, &negative(&takes.secondary));
                (takes.secondary, Reserve::Target(&self.for_primary))
            }
            REPLACE_AND_FAILOVER => {
                field.shift(base, pair.secondary, &negative(&takes.secondary));
                field.shift(base, pair.primary, &becomes_secondary);
                let reserved = around.cluster.state(pair.primary).reserved_memory as f64;
                let reserve = Reserve::Node(pair.primary, reserved, &self.by_primary);
                (takes.primary, reserve)
            }
            REPLACE_PRIMARY => {
                field.shift(base, pair.primary, &negative(&takes.primary));
                let reserve = Reserve::Node(pair.secondary, takes.without, &self.by_secondary);
                (takes.primary, reserve)
            }
            _ => {
                field.shift(base, pair.primary, &negative(&takes.primary));
                field.shift(base, pair.secondary, &becomes_primary);
                (takes.secondary, Reserve::Target(&self.for_secondary))
            }
        }
    }

    /// Enters what others keep for the pair and the pair for others, or clears it again.
    fn fill<const W: usize>(&mut self, around: &Around<'_, W>, pair: &Pair, clear: bool) {
        let Around { cluster, field, .. } = around;
        for (node, kept_for, kept_by) in [
            (pair.primary, &mut self.for_primary, &mut self.by_primary),
            (
                pair.secondary,
                &mut self.for_secondary,
                &mut self.by_secondary,
            ),
        ] {
            let lists = cluster.lists(node);
            let set = |list: &mut Vec<f64>, at: NodeIndex, memory: i64| {
                if let Some(at) = field.place(at) {
                    list[at as usize] = if clear { 0.0 } else { memory as f64 };
                }
            };
            for instance in &lists.primaries {
                if let Some(secondary) = cluster.placement(*instance).secondary {
                    set(kept_for, secondary, cluster.peer_memory(secondary, node));
                }
            }
            for (peer, memory) in &lists.peers {
                set(kept_by, *peer, *memory);
            }
        }
    }
}

const REPLACE_SECONDARY: u32 = 0;
const REPLACE_AND_FAILOVER: u32 = 1;
const REPLACE_PRIMARY: u32 = 2;

fn failover<const W: usize>(
    around: &Around<'_, W>,
    pair: &Pair,
    base: &Base<W>,
    takes: &Amounts<W>,
    kept: &mut Vec<Candidate>,
) -> u64 {
    let Around { cluster, field, .. } = around;
    if !is_allowed(cluster, pair.instance, Move::Failover, around.options) {
        return 0;
    }
    let mut base = base.clone();
    let becomes_secondary = minus(&takes.secondary, &takes.primary);
    field.shift(&mut base, pair.primary, &becomes_secondary);
    field.shift(&mut base, pair.secondary, &negative(&becomes_secondary));
    field.shift_reserved(&mut base, pair.secondary, takes.without);
    let reserved = cluster.state(pair.primary).reserved_memory as f64;
    let for_it = cluster.peer_memory(pair.primary, pair.secondary) as f64;
    let reserved = reserved.max(for_it + takes.memory);
    field.shift_reserved(&mut base, pair.primary, reserved);
    let bound = field.bound(&base);
    if bound < around.limit {
        let order = FAILOVER;
        kept.push(Candidate { bound, order });
    }
    1
}

/// Returns what the secondary keeps once the instance is gone from it.
fn reserve_without(cluster: &Cluster, pair: &Pair, memory: i64) -> f64 {
    let reserved = cluster.state(pair.secondary).reserved_memory;
    if cluster.peer_memory(pair.secondary, pair.primary) < reserved {
        return reserved as f64;
    }
    let peers = cluster.lists(pair.secondary).peers.iter();
    let left = peers.map(|(peer, kept)| {
        if *peer == pair.primary {
            kept - memory
        } else {
            *kept
        }
    });
    left.max().unwrap_or(0).max(0) as f64
}

pub(super) fn negative<const W: usize>(amount: &[f64; W]) -> [f64; W] {
    amount.map(|value| -value)
}

fn minus<const W: usize>(one: &[f64; W], other: &[f64; W]) -> [f64; W] {
    let mut difference = *one;
    for (value, other) in difference.iter_mut().zip(other) {
        *value -= other;
    }
    difference
}
