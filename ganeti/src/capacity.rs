//! How many more instances of a shape fit, as `hspace` counts them: one after the other is placed
//! where the score is lowest, until none can be.
//!
//! With the capacity check every node must be possible to evacuate afterwards. That check costs
//! far more than a placement, so a whole series is placed without it and checked at its end.
//! Where that fails a shorter series is tried, at last single steps.
//!
//! Invariant: the cluster is the same afterwards, unless the caller keeps what was placed.

use std::collections::BTreeMap;

use crate::choice::{Reason, Redundancy, Search, Targets, Wish};
use crate::model::{Change, Cluster, DiskTemplate, GroupIndex, InstanceIndex, NodeIndex, Status};
use crate::text::InstanceLine;

/// MiB of memory by which a shape shrinks at a time.
const MEMORY_STEP: i64 = 64;
/// MiB of disk by which a shape shrinks at a time.
const DISK_STEP: i64 = 256;

/// The shape of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Memory in MiB.
    pub memory: i64,
    /// The only disk in MiB.
    pub disk: i64,
    /// Virtual CPUs.
    pub vcpus: i64,
    /// Spindles, where nodes have exclusive storage.
    pub spindles: i64,
}

/// The question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// The shape.
    pub shape: Shape,
    /// How the disks are kept.
    pub disk_template: DiskTemplate,
    /// How many spindles' worth of input and output one makes.
    pub spindle_use: i64,
    /// Only in this group.
    pub group: Option<GroupIndex>,
    /// Whether every node must stay possible to evacuate. Mirrored instances are counted without,
    /// as hspace does: their reserves are counted anyway.
    pub n_plus_one: bool,
    /// Whether smaller shapes are tried where no more of this one fits.
    pub tiered: bool,
}

/// How many of one shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tier {
    /// The shape.
    pub shape: Shape,
    /// How many.
    pub instances: u64,
}

/// What fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// How many, of all shapes.
    pub instances: u64,
    /// What was missing for one more of the first shape on most nodes.
    pub limiting: Reason,
    /// Why nodes and pairs of nodes were refused then, the most frequent first.
    pub refused: Vec<(Reason, u64)>,
    /// How many of each shape, where smaller ones were tried.
    pub tiers: Vec<Tier>,
    /// Placements that were drafted, as a measure of the work.
    pub placed: u64,
}

/// Returns how many fit. What was placed is taken away again.
pub fn capacity(cluster: &mut Cluster, question: &Question) -> Answer {
    let bad = question.n_plus_one && fails_n1(cluster, question.group);
    if bad {
        // hspace places nothing on a cluster that has not even the reserves it needs now.
        return Answer {
            instances: 0,
            limiting: Reason::NPlusOne,
            refused: vec![(Reason::NPlusOne, 1)],
            tiers: Vec::new(),
            placed: 0,
        };
    }
    let targets = Targets::new(
        cluster,
        &Wish {
            mirrored: question.disk_template == DiskTemplate::Drbd,
            group: question.group,
            named: None,
            allocable: true,
        },
    );
    let mut filling = Filling {
        question,
        targets: &targets,
        redundancy: Redundancy::default(),
        placed: Vec::new(),
        drafted: 0,
    };
    let answer = if question.tiered {
        filling.tiers(cluster)
    } else {
        let failures = filling.fill(cluster, question.shape);
        filling.answer(failures, Vec::new())
    };
    filling.take_back(cluster, 0);
    answer
}

fn fails_n1(cluster: &Cluster, group: Option<GroupIndex>) -> bool {
    cluster.node_indexes().any(|index| {
        let node = cluster.node(index);
        let in_group = group.is_none_or(|group| group == node.group);
        in_group && !node.offline && cluster.state(index).fails_n1
    })
}

/// Why the last instance was refused, with counts.
type Failures = BTreeMap<Reason, u64>;

struct Filling<'a> {
    question: &'a Question,
    targets: &'a Targets,
    redundancy: Redundancy,
    placed: Vec<Change>,
    drafted: u64,
}

impl Filling<'_> {
    fn checks(&self) -> bool {
        self.question.n_plus_one && self.question.disk_template != DiskTemplate::Drbd
    }

    /// Adds an instance of this shape, placed nowhere.
    fn add(&self, cluster: &mut Cluster, shape: Shape) -> InstanceIndex {
        let line = InstanceLine {
            name: format!("new-{}", self.placed.len()),
            memory: shape.memory,
            disk: shape.disk,
            vcpus: shape.vcpus,
            status: Status::Running,
            auto_balance: true,
            primary: 0,
            secondary: None,
            disk_template: self.question.disk_template,
            tags: Vec::new(),
            spindle_use: self.question.spindle_use,
            spindles: Some(shape.spindles),
            forthcoming: false,
        };
        cluster.add_instance(&line)
    }

    /// Places one more; if it cannot be placed, returns why.
    fn place(&mut self, cluster: &mut Cluster, shape: Shape, checked: bool) -> Option<Failures> {
        let instance = self.add(cluster, shape);
        let mut search = Search {
            targets: self.targets,
            scope: self.question.group,
            disks: &[],
            redundancy: checked.then_some(&mut self.redundancy),
        };
        let solution = search.best(cluster, instance);
        self.drafted += 1;
        match solution.best {
            Some(best) => {
                cluster.apply(&best.change);
                self.placed.push(best.change);
                None
            }
            None => {
                cluster.remove_last_instance();
                Some(solution.failures)
            }
        }
    }

    /// Takes back what was placed after the first `kept`.
    fn take_back(&mut self, cluster: &mut Cluster, kept: usize) {
        while self.placed.len() > kept {
            let change = self.placed.pop().expect("there are more than are kept");
            cluster.revert(&change);
            cluster.remove_last_instance();
        }
    }

    /// Places as many as fit; returns why no more do.
    fn fill(&mut self, cluster: &mut Cluster, shape: Shape) -> Failures {
        if !self.checks() {
            return self
                .series(cluster, shape, false, usize::MAX)
                .unwrap_or_default();
        }
        // The sizes are hspace's: its check may fail in between and hold again later, and then
        // it matters where it is made.
        for size in [self.guess(cluster, shape), 10] {
            loop {
                let before = self.placed.len();
                let refused = self.series(cluster, shape, false, size);
                if !self.redundancy.holds(cluster, self.question.group, &[]) {
                    self.take_back(cluster, before);
                    break;
                }
                if let (Some(refused), true) = (refused, self.placed.len() == before) {
                    return refused;
                }
            }
        }
        self.series(cluster, shape, true, usize::MAX)
            .unwrap_or_default()
    }

    /// Places so many, or as many as fit; then returns why no more do.
    fn series(
        &mut self,
        cluster: &mut Cluster,
        shape: Shape,
        checked: bool,
        size: usize,
    ) -> Option<Failures> {
        (0..size).find_map(|_| self.place(cluster, shape, checked))
    }

    /// Returns how many are worth placing at once: what the memory holds, less one a node.
    fn guess(&self, cluster: &Cluster, shape: Shape) -> usize {
        let nodes = cluster.node_indexes().filter(|index| {
            let group = cluster.node(*index).group;
            self.question.group.is_none_or(|only| only == group)
        });
        let nodes: Vec<NodeIndex> = nodes.collect();
        let count = nodes.len();
        let free = |index| {
            let state = cluster.state(index);
            let free = state.unallocated_memory - state.reserved_memory;
            free.saturating_sub(cluster.node(index).memory_floor).max(0)
        };
        let free = nodes.into_iter().map(free).fold(0, i64::saturating_add);
        let fit = free / shape.memory.max(1);
        usize::try_from(fit)
            .unwrap_or(0)
            .saturating_sub(count)
            .max(16)
    }

    fn answer(&self, failures: Failures, tiers: Vec<Tier>) -> Answer {
        let mut refused: Vec<(Reason, u64)> = failures.into_iter().collect();
        refused.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let first = refused.first().map(|(reason, _)| *reason);
        Answer {
            instances: self.placed.len() as u64,
            // Without any node there is nothing on which memory could be free.
            limiting: first.unwrap_or(Reason::Memory),
            refused,
            tiers,
            placed: self.drafted,
        }
    }

    /// Places the shape, then ever smaller ones: what was missing most is made smaller.
    fn tiers(&mut self, cluster: &mut Cluster) -> Answer {
        let mut shape = self.question.shape;
        let mut tiers = Vec::new();
        let mut first = None;
        loop {
            let before = self.placed.len();
            let failures = self.fill(cluster, shape);
            let instances = (self.placed.len() - before) as u64;
            if instances > 0 {
                tiers.push(Tier { shape, instances });
            }
            let next = self.smaller(cluster, shape, &failures);
            first.get_or_insert(failures);
            match next {
                Some(next) => shape = next,
                None => return self.answer(first.unwrap_or_default(), tiers),
            }
        }
    }

    /// Returns the next shape of which at least one fits, smaller in what was missing most; if
    /// that alone does not help, in what was missing next.
    fn smaller(
        &mut self,
        cluster: &mut Cluster,
        shape: Shape,
        failures: &Failures,
    ) -> Option<Shape> {
        let mut reasons: Vec<(Reason, u64)> = failures.iter().map(|(r, c)| (*r, *c)).collect();
        // The last one of those with the same count comes first, as in hspace.
        reasons.sort_by_key(|(reason, count)| std::cmp::Reverse((*count, *reason)));
        let checked = self.checks();
        for (reason, _) in reasons {
            let mut tried = shape;
            while let Some(next) = tried.shrunk(reason) {
                tried = next;
                let Some(refused) = self.place(cluster, tried, checked) else {
                    self.take_back(cluster, self.placed.len() - 1);
                    return Some(tried);
                };
                if !refused.contains_key(&reason) {
                    break;
                }
            }
        }
        None
    }
}

impl Shape {
    /// Returns the shape with one step less of what was missing; nothing where that cannot be
    /// made smaller.
    fn shrunk(self, reason: Reason) -> Option<Shape> {
        match reason {
            Reason::Memory => {
                let memory = self.memory - MEMORY_STEP;
                (memory >= MEMORY_STEP).then_some(Shape { memory, ..self })
            }
            Reason::Disk => {
                let disk = self.disk - DISK_STEP;
                (disk >= DISK_STEP).then_some(Shape { disk, ..self })
            }
            Reason::Cpu => {
                let vcpus = self.vcpus - 1;
                (vcpus >= 1).then_some(Shape { vcpus, ..self })
            }
            Reason::Spindles => {
                let spindles = self.spindles - 1;
                (spindles >= 1).then_some(Shape { spindles, ..self })
            }
            Reason::NPlusOne | Reason::Tags | Reason::Migration | Reason::DiskCount => None,
        }
    }
}
