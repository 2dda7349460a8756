//! The numbers of a group's nodes in the order in which candidates are evaluated, and the bound by
//! which nearly all candidates are put away without drafting them.
//!
//! A move changes two or three nodes. What it does to the nodes that the instance leaves is the
//! same for every target, and is taken into the sums first; then each target costs one pass over
//! its row of *lanes*. A lane is a standard deviation of the score; those that can never differ
//! are one lane with their weights added, those that no move changes are none. Reserved memory is
//! apart, since it is a maximum over peers.
//!
//! Invariant: [`Field::bound`] of a candidate is at most its score, up to rounding; where nothing
//! is offline, fails N+1 or has tags, it is its score.

use crate::model::{Cluster, GroupIndex, Instance, InstanceIndex, NodeIndex};
use crate::score::{COLUMN_COMPONENTS, COLUMNS, COMPONENTS, RESERVED, Totals, columns};

/// Columns that are evaluated as one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Lane {
    column: usize,
    weight: f64,
}

/// What an instance adds to its primary and to its secondary, before it is divided by what the
/// node has.
pub(super) fn amounts(instance: &Instance) -> ([f64; COLUMNS], [f64; COLUMNS]) {
    let when = |yes: bool, amount: i64| if yes { amount as f64 } else { 0.0 };
    let (real, local) = (!instance.forthcoming, instance.uses_local_storage());
    let (online, mirrored) = (instance.is_online(), instance.is_mirrored());
    let load = instance.load.map(|load| if real { load } else { 0.0 });
    let primary = [
        -when(instance.uses_memory(), instance.memory),
        -when(real && local, instance.disk),
        0.0,
        when(real && online, instance.vcpus),
        load[0],
        load[1],
        load[2],
        load[3],
        when(real && local, instance.spindle_use),
        -when(true, instance.memory),
        -when(local, instance.disk),
        when(online, instance.vcpus),
        when(local, instance.spindle_use),
    ];
    let mut secondary = [0.0; COLUMNS];
    if mirrored {
        for column in [1, 8, 10, 12] {
            secondary[column] = primary[column];
        }
        secondary[6] = load[2];
    }
    (primary, secondary)
}

/// Returns by what each amount is multiplied on a node.
fn scales(cluster: &Cluster, index: NodeIndex) -> [f64; COLUMNS] {
    let node = cluster.node(index);
    let memory = 1.0 / node.total_memory;
    let disk = if node.total_disk == 0.0 {
        0.0
    } else {
        1.0 / node.total_disk
    };
    let cpus = 1.0 / node.total_cpus / node.cpu_speed;
    let spindles = 1.0 / node.spindle_limit;
    [
        memory, disk, memory, cpus, 1.0, 1.0, 1.0, 1.0, spindles, memory, disk, cpus, spindles,
    ]
}

/// Returns the lanes of a group: the columns that moves of these instances can change.
pub(super) fn lanes(
    cluster: &Cluster,
    totals: &Totals,
    group: GroupIndex,
    instances: &[InstanceIndex],
) -> Vec<Lane> {
    let online = online(cluster, group);
    let mut lanes: Vec<Lane> = Vec::new();
    let kinds: Vec<_> = instances
        .iter()
        .map(|instance| amounts(cluster.instance(*instance)))
        .collect();
    let rows: Vec<_> = online
        .iter()
        .map(|node| columns(cluster.node(*node), cluster.state(*node)))
        .collect();
    let scales: Vec<_> = online.iter().map(|node| scales(cluster, *node)).collect();
    let centre = &totals.centre;
    for column in (0..COLUMNS).filter(|column| *column != RESERVED) {
        let moved =
            |(p, s): &([f64; COLUMNS], [f64; COLUMNS])| p[column] != 0.0 || s[column] != 0.0;
        if !kinds.iter().any(moved) {
            continue;
        }
        let weight = COMPONENTS[COLUMN_COMPONENTS[column]].1;
        let same = |lane: &&mut Lane| {
            let other = lane.column;
            kinds
                .iter()
                .all(|(p, s)| p[column] == p[other] && s[column] == s[other])
                && scales.iter().all(|scale| scale[column] == scale[other])
                && rows.iter().all(|row| {
                    let (one, two) = (row[column] - centre[column], row[other] - centre[other]);
                    (one - two).abs() < 1e-13
                })
        };
        match lanes.iter_mut().find(same) {
            Some(lane) => lane.weight += weight,
            None => lanes.push(Lane { column, weight }),
        }
    }
    lanes
}

fn online(cluster: &Cluster, group: GroupIndex) -> Vec<NodeIndex> {
    let member = |index: &NodeIndex| {
        let node = cluster.node(*index);
        node.group == group && !node.offline
    };
    cluster.node_indexes().filter(member).collect()
}

/// The numbers of a group.
#[derive(Debug, Clone)]
pub(super) struct Field<const W: usize> {
    pub(super) group: GroupIndex,
    pub(super) totals: Totals,
    pub(super) online: Vec<NodeIndex>,
    /// Each node's place among the online ones.
    local: Vec<Option<u32>>,
    lanes: Vec<Lane>,
    weights: [f64; W],
    rows: Vec<[f64; W]>,
    scales: Vec<[f64; W]>,
    reserved: Vec<f64>,
    memory_scales: Vec<f64>,
    /// Disks with spindles of their own follow other arithmetic: nothing is put away.
    exclusive: bool,
}

/// The sums with what a candidate does to the nodes that the instance leaves.
#[derive(Debug, Clone)]
pub(super) struct Base<const W: usize> {
    sums: [f64; W],
    squares: [f64; W],
    reserved_sum: f64,
    reserved_square: f64,
    /// Everything that is not a lane and not the deviation of reserved memory.
    rest: f64,
}

/// Which node keeps memory for the instance after a candidate.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reserve<'a> {
    /// None.
    None,
    /// The target, which keeps this much for the instance's primary already.
    Target(&'a [f64]),
    /// This node, which keeps that much without the instance, and for each target this.
    Node(NodeIndex, f64, &'a [f64]),
}

/// The targets of one kind of move.
pub(super) struct Targets<'a, const W: usize> {
    /// What the target takes, by lane.
    pub(super) amount: &'a [f64; W],
    pub(super) reserve: Reserve<'a>,
    /// Memory that is kept for the instance.
    pub(super) memory: f64,
    /// The instance's own nodes.
    pub(super) except: [Option<u32>; 2],
    /// Candidates at or above this are put away.
    pub(super) limit: f64,
    /// The place of this kind in the order of moves.
    pub(super) kind: u32,
}

/// A candidate that was not put away.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) bound: f64,
    /// Target and kind, in the order in which they are tried.
    pub(super) order: u32,
}

impl<const W: usize> Field<W> {
    pub(super) fn new(
        cluster: &Cluster,
        totals: Totals,
        group: GroupIndex,
        lanes: &[Lane],
    ) -> Self {
        let online = online(cluster, group);
        let mut weights = [0.0; W];
        for (weight, lane) in weights.iter_mut().zip(lanes) {
            *weight = lane.weight;
        }
        let mut local = vec![None; cluster.nodes().len()];
        for (at, node) in online.iter().enumerate() {
            local[node.at()] = Some(at as u32);
        }
        let mut field = Field {
            group,
            totals,
            local,
            lanes: lanes.to_vec(),
            weights,
            rows: vec![[0.0; W]; online.len()],
            scales: vec![[0.0; W]; online.len()],
            reserved: vec![0.0; online.len()],
            memory_scales: vec![0.0; online.len()],
            exclusive: online.iter().any(|n| cluster.node(*n).exclusive_storage),
            online,
        };
        for at in 0..field.online.len() {
            let node = field.online[at];
            let all = scales(cluster, node);
            field.scales[at] = field.by_lane(&all);
            field.memory_scales[at] = all[RESERVED];
        }
        field.refresh(cluster);
        field
    }

    /// Returns a node's place among the online ones.
    pub(super) fn place(&self, node: NodeIndex) -> Option<u32> {
        self.local[node.at()]
    }

    pub(super) fn by_lane(&self, all: &[f64; COLUMNS]) -> [f64; W] {
        let mut chosen = [0.0; W];
        for (value, lane) in chosen.iter_mut().zip(&self.lanes) {
            *value = all[lane.column];
        }
        chosen
    }

    /// Reads everything again after a change that the cluster has made.
    ///
    /// The sums could follow the change instead, but they would keep the centre of the beginning,
    /// and a deviation that comes down to nothing would drown in what rounding leaves.
    pub(super) fn refresh(&mut self, cluster: &Cluster) {
        self.totals = Totals::new(cluster, self.group);
        let centre = self.totals.centre;
        for (at, node) in self.online.iter().enumerate() {
            let state = cluster.state(*node);
            let all = columns(cluster.node(*node), state);
            for (lane, value) in self.lanes.iter().zip(self.rows[at].iter_mut()) {
                *value = all[lane.column] - centre[lane.column];
            }
            self.reserved[at] = state.reserved_memory as f64;
        }
    }

    /// Returns the sums as they are, with the part of the score that no lane has, lowered by
    /// what a candidate might gain in counts.
    pub(super) fn base(&self, gain: f64) -> Base<W> {
        let totals = &self.totals;
        let (mut sums, mut squares) = ([0.0; W], [0.0; W]);
        let mut rest = totals.score() - gain;
        for (at, lane) in self.lanes.iter().enumerate() {
            sums[at] = totals.sums[lane.column];
            squares[at] = totals.squares[lane.column];
            rest -= lane.weight * self.deviation(sums[at], squares[at]);
        }
        let reserved_sum = totals.sums[RESERVED];
        let reserved_square = totals.squares[RESERVED];
        rest -= self.deviation(reserved_sum, reserved_square);
        Base {
            sums,
            squares,
            reserved_sum,
            reserved_square,
            rest,
        }
    }

    fn deviation(&self, sum: f64, square: f64) -> f64 {
        let mean = sum / self.totals.count;
        (square / self.totals.count - mean * mean).max(0.0).sqrt()
    }

    /// Adds an amount to a node that stays the same for every target.
    pub(super) fn shift(&self, base: &mut Base<W>, node: NodeIndex, amount: &[f64; W]) {
        let Some(at) = self.place(node) else { return };
        let (row, scale) = (&self.rows[at as usize], &self.scales[at as usize]);
        for lane in 0..W {
            let by = amount[lane] * scale[lane];
            base.sums[lane] += by;
            base.squares[lane] += by * (2.0 * row[lane] + by);
        }
    }

    /// Sets the reserved memory of a node that stays the same for every target.
    pub(super) fn shift_reserved(&self, base: &mut Base<W>, node: NodeIndex, reserved: f64) {
        let Some(at) = self.place(node) else { return };
        let (sum, square) = self.reserved_change(at as usize, reserved);
        base.reserved_sum += sum;
        base.reserved_square += square;
        base.rest += COMPONENTS[19].1 * sum;
    }

    fn reserved_change(&self, at: usize, reserved: f64) -> (f64, f64) {
        let scale = self.memory_scales[at];
        let old = self.reserved[at] * scale - self.totals.centre[RESERVED];
        let by = (reserved - self.reserved[at]) * scale;
        (by, by * (2.0 * old + by))
    }

    /// Returns the least score of a candidate without a target.
    pub(super) fn bound(&self, base: &Base<W>) -> f64 {
        if self.exclusive {
            return f64::NEG_INFINITY;
        }
        let mut bound = base.rest + self.deviation(base.reserved_sum, base.reserved_square);
        for lane in 0..W {
            bound += self.weights[lane] * self.deviation(base.sums[lane], base.squares[lane]);
        }
        bound
    }

    /// Evaluates every target, and keeps those that may get below the limit.
    pub(super) fn evaluate(
        &self,
        base: &Base<W>,
        targets: &Targets<'_, W>,
        kept: &mut Vec<Candidate>,
    ) {
        let per_node = 1.0 / self.totals.count;
        let unmoved = self.deviation(base.reserved_sum, base.reserved_square);
        let fixed = match targets.reserve {
            Reserve::None | Reserve::Target(_) => None,
            Reserve::Node(node, _, _) => self.place(node).map(|at| at as usize),
        };
        for at in 0..self.online.len() {
            let reserved = match targets.reserve {
                Reserve::None => None,
                Reserve::Target(for_peer) => {
                    let needed = for_peer[at] + targets.memory;
                    let kept = self.reserved[at].max(needed);
                    (kept > self.reserved[at]).then(|| self.reserved_change(at, kept))
                }
                Reserve::Node(_, without, for_target) => {
                    let kept = (for_target[at] + targets.memory).max(without);
                    fixed.map(|fixed| self.reserved_change(fixed, kept))
                }
            };
            let mut bound = base.rest;
            match reserved {
                None => bound += unmoved,
                Some((sum, square)) => {
                    bound += COMPONENTS[19].1 * sum;
                    let sum = (base.reserved_sum + sum) * per_node;
                    let square = (base.reserved_square + square) * per_node;
                    bound += (square - sum * sum).max(0.0).sqrt();
                }
            }
            let (row, scale) = (&self.rows[at], &self.scales[at]);
            let mut parts = [0.0; W];
            for lane in 0..W {
                let by = targets.amount[lane] * scale[lane];
                let sum = (base.sums[lane] + by) * per_node;
                let square = (base.squares[lane] + by * (2.0 * row[lane] + by)) * per_node;
                parts[lane] = self.weights[lane] * (square - sum * sum).max(0.0).sqrt();
            }
            bound += parts.iter().sum::<f64>();
            if bound < targets.limit || self.exclusive {
                let place = Some(at as u32);
                if place != targets.except[0] && place != targets.except[1] {
                    let order = at as u32 * 4 + targets.kind;
                    kept.push(Candidate { bound, order });
                }
            }
        }
    }
}
