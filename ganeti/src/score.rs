//! The cluster score of htools: 20 components with their weights, less is better.
//!
//! Twice: [`Score::new`] computes all of it from the nodes, and [`Totals`] keeps sums and sums of
//! squares, so that a change that touches three of a thousand nodes costs three nodes. Standard
//! deviations are those of the whole population, over the online nodes.
//!
//! Invariant: `Totals` after any number of changes has the score of `Score::new`, up to rounding.

use crate::model::{Change, Cluster, GroupIndex, Node, NodeState};

/// The names of the components with their weights, in htools' order.
pub const COMPONENTS: [(&str, f64); 20] = [
    ("free_mem_cv", 0.5),
    ("free_disk_cv", 0.5),
    ("n1_cnt", 1.0),
    ("reserved_mem_cv", 1.0),
    ("offline_all_cnt", 4.0),
    ("offline_pri_cnt", 16.0),
    ("vcpu_ratio_cv", 0.5),
    ("cpu_load_cv", 1.0),
    ("mem_load_cv", 1.0),
    ("disk_load_cv", 1.0),
    ("net_load_cv", 1.0),
    ("pri_tags_score", 2.0),
    ("spindles_cv", 0.5),
    ("free_mem_cv_forth", 0.5),
    ("free_disk_cv_forth", 0.5),
    ("vcpu_ratio_cv_forth", 0.5),
    ("spindles_cv_forth", 0.5),
    ("location_score", 1.0),
    ("location_exclusion_score", 1.0),
    ("reserved_mem_rtotal", 0.25),
];

/// How many components are standard deviations.
pub const COLUMNS: usize = 13;

/// Which components are standard deviations, in the order of [`columns`].
pub const COLUMN_COMPONENTS: [usize; COLUMNS] = [0, 1, 3, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16];

/// The column of reserved memory, which is also summed.
pub const RESERVED: usize = 2;

/// Returns what of a node goes into the standard deviations.
#[must_use]
pub fn columns(node: &Node, state: &NodeState) -> [f64; COLUMNS] {
    let memory = |mib: i64| mib as f64 / node.total_memory;
    let cpus = |count: i64| count as f64 / node.total_cpus / node.cpu_speed;
    let spindles = |used: i64| used as f64 / node.spindle_limit;
    let [cpu, mem, disk, net] = state.load;
    [
        memory(state.unallocated_memory),
        free_disk(node, state.free_disk, state.free_spindles),
        memory(state.reserved_memory),
        cpus(state.used_cpus),
        cpu,
        mem,
        disk,
        net,
        spindles(state.used_spindles),
        memory(state.forthcoming_memory),
        free_disk(
            node,
            state.forthcoming_disk,
            state.forthcoming_free_spindles,
        ),
        cpus(state.forthcoming_cpus),
        spindles(state.forthcoming_spindles),
    ]
}

/// Returns the free share of a node's disks; a node without disks counts as free.
fn free_disk(node: &Node, disk: i64, spindles: i64) -> f64 {
    if node.exclusive_storage {
        if node.spindles == 0 {
            return 1.0;
        }
        return spindles as f64 / node.spindles as f64;
    }
    if node.total_disk == 0.0 {
        return 1.0;
    }
    disk as f64 / node.total_disk
}

/// The components of a score, each without its weight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    /// The components, in the order of [`COMPONENTS`].
    pub components: [f64; 20],
    /// Their sum by weight.
    pub total: f64,
}

impl Score {
    /// Returns the score of a group, or of the whole cluster as if it were one group.
    ///
    /// Not a number where no node is online, as in htools.
    #[must_use]
    pub fn new(cluster: &Cluster, group: Option<GroupIndex>) -> Score {
        let mut components = [0.0; 20];
        let mut rows = Vec::new();
        for index in cluster.node_indexes() {
            let (node, state) = (cluster.node(index), cluster.state(index));
            if group.is_some_and(|group| group != node.group) {
                continue;
            }
            let counts = Counts::new(node, state);
            counts.add_to(&mut components);
            if !node.offline {
                let row = columns(node, state);
                components[19] += row[RESERVED];
                rows.push(row);
            }
        }
        components[18] = cluster.location_exclusion(group) as f64;
        for (column, component) in COLUMN_COMPONENTS.iter().enumerate() {
            components[*component] = deviation(rows.iter().map(|row| row[column]));
        }
        Score::of(components)
    }

    fn of(components: [f64; 20]) -> Score {
        let weighted = components.iter().zip(COMPONENTS);
        Score {
            components,
            total: weighted.map(|(value, (_, weight))| value * weight).sum(),
        }
    }

    /// Returns the components by name.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, f64)> + '_ {
        let names = COMPONENTS.iter().map(|(name, _)| *name);
        names.zip(self.components.iter().copied())
    }
}

/// Returns the standard deviation of a population.
fn deviation(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let count = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / count;
    let squares: f64 = values.map(|value| (value - mean) * (value - mean)).sum();
    (squares / count).sqrt()
}

/// What of a node is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    pub(crate) failing: i64,
    pub(crate) offline_all: i64,
    pub(crate) offline_primaries: i64,
    pub(crate) tag_conflicts: i64,
    pub(crate) location_score: i64,
}

impl Counts {
    pub(crate) fn new(node: &Node, state: &NodeState) -> Counts {
        let primaries = i64::from(state.primaries);
        let all = primaries + i64::from(state.secondaries);
        if node.offline {
            return Counts {
                offline_all: all,
                offline_primaries: primaries,
                ..Counts::default()
            };
        }
        Counts {
            failing: if state.fails_n1 { all } else { 0 },
            tag_conflicts: state.tag_conflicts,
            location_score: state.location_score,
            ..Counts::default()
        }
    }

    pub(crate) fn add_to(self, components: &mut [f64; 20]) {
        components[2] += self.failing as f64;
        components[4] += self.offline_all as f64;
        components[5] += self.offline_primaries as f64;
        components[11] += self.tag_conflicts as f64;
        components[17] += self.location_score as f64;
    }

    pub(crate) fn plus(self, other: Counts, by: i64) -> Counts {
        Counts {
            failing: self.failing + by * other.failing,
            offline_all: self.offline_all + by * other.offline_all,
            offline_primaries: self.offline_primaries + by * other.offline_primaries,
            tag_conflicts: self.tag_conflicts + by * other.tag_conflicts,
            location_score: self.location_score + by * other.location_score,
        }
    }

    /// Returns the part of the score that is counted.
    pub(crate) fn weighted(self) -> f64 {
        (self.failing
            + 4 * self.offline_all
            + 16 * self.offline_primaries
            + 2 * self.tag_conflicts
            + self.location_score) as f64
    }
}

/// A group's score, kept up to date by sums.
#[derive(Debug, Clone, PartialEq)]
pub struct Totals {
    /// Online nodes.
    pub(crate) count: f64,
    /// What is taken off every value first, so that squares do not swallow differences.
    pub(crate) centre: [f64; COLUMNS],
    pub(crate) sums: [f64; COLUMNS],
    pub(crate) squares: [f64; COLUMNS],
    pub(crate) reserved: f64,
    pub(crate) counts: Counts,
    pub(crate) location_exclusion: i64,
}

impl Totals {
    /// Returns the sums of a group, or of the whole cluster as if it were one group.
    #[must_use]
    pub fn new(cluster: &Cluster, group: impl Into<Option<GroupIndex>>) -> Totals {
        let group = group.into();
        let mut rows = Vec::new();
        let mut counts = Counts::default();
        for index in cluster.node_indexes() {
            let (node, state) = (cluster.node(index), cluster.state(index));
            if group.is_some_and(|group| group != node.group) {
                continue;
            }
            counts = counts.plus(Counts::new(node, state), 1);
            if !node.offline {
                rows.push(columns(node, state));
            }
        }
        let count = rows.len() as f64;
        let mut totals = Totals {
            count,
            centre: [0.0; COLUMNS],
            sums: [0.0; COLUMNS],
            squares: [0.0; COLUMNS],
            reserved: rows.iter().map(|row| row[RESERVED]).sum(),
            counts,
            location_exclusion: cluster.location_exclusion(group),
        };
        for column in 0..COLUMNS {
            let mean = rows.iter().map(|row| row[column]).sum::<f64>() / count;
            totals.centre[column] = mean;
            for row in &rows {
                let value = row[column] - mean;
                totals.sums[column] += value;
                totals.squares[column] += value * value;
            }
        }
        totals
    }

    /// Returns the score.
    #[must_use]
    pub fn score(&self) -> f64 {
        let mut total = self.counts.weighted() + self.location_exclusion as f64;
        total += COMPONENTS[19].1 * self.reserved;
        for column in 0..COLUMNS {
            let mean = self.sums[column] / self.count;
            let variance = self.squares[column] / self.count - mean * mean;
            total += COMPONENTS[COLUMN_COMPONENTS[column]].1 * variance.max(0.0).sqrt();
        }
        total
    }

    /// Takes a change into the sums.
    pub fn apply(&mut self, cluster: &Cluster, change: &Change) {
        for touched in change.touched() {
            let node = cluster.node(touched.node);
            let after = Counts::new(node, &touched.after);
            let before = Counts::new(node, &touched.before);
            self.counts = self.counts.plus(after, 1).plus(before, -1);
            if node.offline {
                continue;
            }
            let before = columns(node, &touched.before);
            let after = columns(node, &touched.after);
            for column in 0..COLUMNS {
                let old = before[column] - self.centre[column];
                let new = after[column] - self.centre[column];
                self.sums[column] += new - old;
                self.squares[column] += (new - old) * (new + old);
            }
            self.reserved += after[RESERVED] - before[RESERVED];
        }
        self.location_exclusion += change.location_exclusion;
    }

    /// Returns the score after a change, without making it.
    #[must_use]
    pub fn score_after(&self, cluster: &Cluster, change: &Change) -> f64 {
        let mut totals = self.clone();
        totals.apply(cluster, change);
        totals.score()
    }
}
