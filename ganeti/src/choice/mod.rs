//! Where a new instance goes: every allowed node or pair of nodes is tried, and the one with the
//! lowest score of the cluster is taken.
//!
//! Not balancing: nothing that is placed moves. With the capacity check, placements after which
//! some node could not be evacuated any more are passed over. Of equal scores the last one is
//! taken, as htools does.

mod evacuate;
mod policy;

use std::collections::BTreeMap;

pub use evacuate::{Redundancy, can_evacuate};
pub use policy::matches;

use crate::model::{Change, Cluster, GroupIndex, InstanceIndex, NodeIndex, Refusal};
use crate::score::Totals;
use crate::text::AllocationPolicy;

/// Why a placement is not taken, in htools' order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Too little memory.
    Memory,
    /// Too little disk, or a disk that the policy does not allow.
    Disk,
    /// Too many virtual CPUs.
    Cpu,
    /// Some node could not be evacuated any more.
    NPlusOne,
    /// An exclusion tag is there already.
    Tags,
    /// Migration is not allowed.
    Migration,
    /// The policy does not allow that number of disks.
    DiskCount,
    /// Too few spindles, or a spindle use that the policy does not allow.
    Spindles,
}

impl Reason {
    /// All reasons in their order.
    pub const ALL: [Reason; 8] = [
        Reason::Memory,
        Reason::Disk,
        Reason::Cpu,
        Reason::NPlusOne,
        Reason::Tags,
        Reason::Migration,
        Reason::DiskCount,
        Reason::Spindles,
    ];

    /// Returns htools' name of it.
    #[must_use]
    pub fn htools(self) -> &'static str {
        match self {
            Reason::Memory => "FailMem",
            Reason::Disk => "FailDisk",
            Reason::Cpu => "FailCPU",
            Reason::NPlusOne => "FailN1",
            Reason::Tags => "FailTags",
            Reason::Migration => "FailMig",
            Reason::DiskCount => "FailDiskCount",
            Reason::Spindles => "FailSpindles",
        }
    }

    /// Returns the resource that it is about.
    #[must_use]
    pub fn resource(self) -> &'static str {
        match self {
            Reason::Memory => "memory",
            Reason::Disk => "disk",
            Reason::Cpu => "vcpus",
            Reason::NPlusOne => "n+1",
            Reason::Tags => "exclusion tags",
            Reason::Migration => "migration tags",
            Reason::DiskCount => "number of disks",
            Reason::Spindles => "spindles",
        }
    }
}

impl From<Refusal> for Reason {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Memory => Reason::Memory,
            Refusal::Disk => Reason::Disk,
            Refusal::Cpu => Reason::Cpu,
            Refusal::Spindles => Reason::Spindles,
            Refusal::Tags => Reason::Tags,
            Refusal::Migration | Refusal::Target => Reason::Migration,
        }
    }
}

/// A disk of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    /// Its size in MiB.
    pub size: i64,
    /// Its spindles, where nodes have exclusive storage.
    pub spindles: Option<i64>,
}

/// Returns the disks of an instance: those of the list, or a single one of its size.
#[must_use]
pub fn disks_of(cluster: &Cluster, disks: &[Vec<Disk>], instance: InstanceIndex) -> Vec<Disk> {
    let what = cluster.instance(instance);
    let single = || {
        vec![Disk {
            size: what.disk,
            spindles: what.spindles,
        }]
    };
    disks.get(instance.at()).cloned().unwrap_or_else(single)
}

/// The nodes that may be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Targets {
    /// One of these.
    Single(Vec<NodeIndex>),
    /// A primary with one of its secondaries.
    Pairs(Vec<(NodeIndex, Vec<NodeIndex>)>),
}

impl Targets {
    /// Returns the online nodes that may take an instance on one or two nodes: of one group or of
    /// all, only those named if names are given, and none of unallocable groups if `allocable`.
    #[must_use]
    pub fn new(cluster: &Cluster, wish: &Wish<'_>) -> Targets {
        let nodes = cluster.node_indexes().filter(|index| {
            let node = cluster.node(*index);
            let policy = cluster.groups()[node.group.at()].allocation_policy;
            !node.offline
                && wish.group.is_none_or(|group| group == node.group)
                && wish.named.is_none_or(|names| names.contains(&node.name))
                && !(wish.allocable && policy == AllocationPolicy::Unallocable)
        });
        let nodes: Vec<NodeIndex> = nodes.collect();
        if !wish.mirrored {
            return Targets::Single(nodes);
        }
        let pairs = nodes.iter().map(|primary| {
            let group = cluster.node(*primary).group;
            let others = nodes.iter().copied();
            let others = others.filter(|n| n != primary && cluster.node(*n).group == group);
            (*primary, others.collect::<Vec<NodeIndex>>())
        });
        Targets::Pairs(pairs.filter(|(_, others)| !others.is_empty()).collect())
    }

    /// Returns whether there is nothing to try.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Targets::Single(nodes) => nodes.is_empty(),
            Targets::Pairs(pairs) => pairs.is_empty(),
        }
    }
}

/// Which nodes are requested.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wish<'a> {
    /// Pairs, for mirrored disks.
    pub mirrored: bool,
    /// Only of this group.
    pub group: Option<GroupIndex>,
    /// Only these.
    pub named: Option<&'a [String]>,
    /// Only of groups that are open to new instances.
    pub allocable: bool,
}

/// A placement that may be made.
#[derive(Debug, Clone, PartialEq)]
pub struct Chosen {
    /// What it changes.
    pub change: Change,
    /// The score afterwards.
    pub score: f64,
}

impl Chosen {
    /// Returns the nodes, the primary first.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeIndex> {
        let after = self.change.after;
        after.primary.into_iter().chain(after.secondary).collect()
    }
}

/// What came of a search.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Solution {
    /// The best placement.
    pub best: Option<Chosen>,
    /// How many placements may be made, as htools counts them: those that were not looked at
    /// because a better one was taken are among them.
    pub successes: u64,
    /// How many may not, and why.
    pub failures: BTreeMap<Reason, u64>,
}

impl Solution {
    /// Returns the reasons, the most frequent first.
    #[must_use]
    pub fn reasons(&self) -> Vec<(Reason, u64)> {
        let mut reasons: Vec<(Reason, u64)> = Vec::new();
        for reason in Reason::ALL {
            reasons.push((reason, self.failures.get(&reason).copied().unwrap_or(0)));
        }
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        reasons
    }

    fn refused(&mut self, reason: Reason, count: u64) {
        *self.failures.entry(reason).or_insert(0) += count;
    }
}

/// A search for the best placement of instances in one part of a cluster.
#[derive(Debug)]
pub struct Search<'a> {
    /// The nodes that may be taken.
    pub targets: &'a Targets,
    /// The nodes by which a placement is judged: a group, or the whole cluster.
    pub scope: Option<GroupIndex>,
    /// The disks of instances by their index; one that is not there has a single disk.
    pub disks: &'a [Vec<Disk>],
    /// Whether some node may become impossible to evacuate, and what is remembered of it.
    pub redundancy: Option<&'a mut Redundancy>,
}

impl Search<'_> {
    /// Returns the best placement of an instance that is placed nowhere; the cluster is the same
    /// afterwards.
    pub fn best(&mut self, cluster: &mut Cluster, instance: InstanceIndex) -> Solution {
        let totals = Totals::new(cluster, self.scope);
        let mut solution = Solution::default();
        let targets = self.targets;
        match targets {
            Targets::Single(nodes) => {
                let nodes = nodes.iter().map(|node| (*node, None));
                self.collect(cluster, &totals, instance, nodes, &mut solution);
            }
            Targets::Pairs(pairs) => {
                for (primary, secondaries) in pairs {
                    let nodes = secondaries.iter().map(|node| (*primary, Some(*node)));
                    self.collect(cluster, &totals, instance, nodes, &mut solution);
                }
            }
        }
        solution
    }

    /// Tries these nodes and takes the best of them if it is no worse than what was found before.
    fn collect(
        &mut self,
        cluster: &mut Cluster,
        totals: &Totals,
        instance: InstanceIndex,
        nodes: impl Iterator<Item = (NodeIndex, Option<NodeIndex>)>,
        solution: &mut Solution,
    ) {
        let disks = disks_of(cluster, self.disks, instance);
        let mut good: Vec<(f64, NodeIndex, Option<NodeIndex>)> = Vec::new();
        let mut matched: Option<(NodeIndex, Result<(), Reason>)> = None;
        for (primary, secondary) in nodes {
            let allowed = match matched {
                Some((node, allowed)) if node == primary => allowed,
                Some(_) | None => matches(cluster, instance, &disks, primary),
            };
            matched = Some((primary, allowed));
            let drafted = allowed.and_then(|()| {
                let drafted = cluster.draft_place(instance, primary, secondary, false);
                drafted.map_err(Reason::from)
            });
            match drafted {
                Ok(change) => {
                    good.push((totals.score_after(cluster, &change), primary, secondary));
                }
                Err(reason) => solution.refused(reason, 1),
            }
        }
        solution.successes += good.len() as u64;
        // Of equal ones the last is to come first: the sort is stable.
        good.reverse();
        good.sort_by(|(one, ..), (other, ..)| one.total_cmp(other));
        for (score, primary, secondary) in good {
            let drafted = cluster.draft_place(instance, primary, secondary, false);
            let Ok(change) = drafted else { continue };
            if let Some(redundancy) = &mut self.redundancy {
                cluster.apply(&change);
                let redundant = redundancy.holds(cluster, self.scope, self.disks);
                cluster.revert(&change);
                if !redundant {
                    solution.successes -= 1;
                    solution.refused(Reason::NPlusOne, 1);
                    continue;
                }
            }
            let better = solution
                .best
                .as_ref()
                .is_none_or(|best| score <= best.score);
            if better {
                solution.best = Some(Chosen { change, score });
            }
            return;
        }
    }
}
