//! Instances leave their nodes: relocation of one, evacuation of nodes, another group.
//!
//! One instance after the other, each to the place where the score of its group is lowest. What
//! is answered are moves and the jobs that make them.

use super::answer::{Answer, list, text, texts};
use super::{EvacuationMode, Work};
use crate::choice::Reason;
use crate::model::{Change, DiskTemplate, GroupIndex, InstanceIndex, Move, NodeIndex, Placement};
use crate::score::Totals;

/// The steps that an instance makes, already applied.
struct Moved {
    steps: Vec<(Move, Change)>,
}

/// What came of moving several instances.
#[derive(Default)]
struct Outcome {
    moved: Vec<String>,
    failed: Vec<String>,
    jobs: Vec<String>,
}

impl Outcome {
    fn answer(self) -> Answer {
        let (failed, moved) = (self.failed.len(), self.moved.len());
        let info = format!("{failed} instances failed to move and {moved} were moved successfully");
        let result = [list(self.moved), list(self.failed), list(self.jobs)];
        Answer::yes(&info, list(result))
    }
}

impl Work<'_> {
    pub(super) fn relocate(
        &mut self,
        instance: InstanceIndex,
        node_count: i64,
        from: &[NodeIndex],
    ) -> Answer {
        if node_count != 1 {
            let why = format!("Exchange {node_count} nodes mode is not implemented");
            return Answer::no(&why);
        }
        let Placement { primary, secondary } = self.cluster.placement(instance);
        let what = self.cluster.instance(instance);
        let (leaves, role, mode) = if what.is_mirrored() {
            (secondary, "secondary", EvacuationMode::Secondary)
        } else if what.is_on_shared_storage() || what.disk_template == DiskTemplate::Diskless {
            (primary, "primary", EvacuationMode::Primary)
        } else {
            return Answer::no("Can't relocate non-mirrored instances");
        };
        if leaves.is_none_or(|node| from != [node]) {
            let named = |nodes: Vec<NodeIndex>| {
                let names = nodes.into_iter().map(|node| self.node_name(node));
                names.collect::<Vec<_>>().join(", ")
            };
            let leaves = named(leaves.into_iter().collect());
            let why = format!(
                "Unsupported request: excluded nodes not equal to instance's {role} \
                 ({leaves} versus {})",
                named(from.to_vec())
            );
            return Answer::no(&why);
        }
        let avoided = self.left(&[instance], mode);
        match self.leave(instance, mode, &avoided) {
            Err(why) => Answer::no(&why),
            Ok(_) => {
                let Placement { primary, secondary } = self.cluster.placement(instance);
                let node = if mode == EvacuationMode::Secondary {
                    secondary
                } else {
                    primary
                };
                let names = node.into_iter().map(|node| self.node_name(node));
                Answer::yes("success", texts(names))
            }
        }
    }

    pub(super) fn evacuate_all(
        &mut self,
        instances: &[InstanceIndex],
        mode: EvacuationMode,
    ) -> Answer {
        let avoided = self.left(instances, mode);
        let mut outcome = Outcome::default();
        for instance in instances {
            let moved = self.leave(*instance, mode, &avoided);
            self.record(*instance, moved, &mut outcome);
        }
        outcome.answer()
    }

    pub(super) fn change_group(
        &mut self,
        instances: &[InstanceIndex],
        groups: &[GroupIndex],
    ) -> Answer {
        let left: Vec<GroupIndex> = instances.iter().filter_map(|i| self.group_of(*i)).collect();
        let all = (0..self.cluster.groups().len() as u32).map(GroupIndex);
        let targets: Vec<GroupIndex> = if groups.is_empty() {
            all.collect()
        } else {
            groups.to_vec()
        };
        let targets: Vec<GroupIndex> = targets.into_iter().filter(|g| !left.contains(g)).collect();
        let mut outcome = Outcome::default();
        for instance in instances {
            let moved = self.leave_group(*instance, &targets);
            self.record(*instance, moved, &mut outcome);
        }
        outcome.answer()
    }

    fn group_of(&self, instance: InstanceIndex) -> Option<GroupIndex> {
        let primary = self.cluster.placement(instance).primary;
        primary.map(|node| self.cluster.node(node).group)
    }

    fn record(&self, instance: InstanceIndex, moved: Result<Moved, String>, outcome: &mut Outcome) {
        let name = self.instance_name(instance);
        match moved {
            Err(why) => outcome.failed.push(texts([&name, &why])),
            Ok(moved) => {
                let Placement { primary, secondary } = self.cluster.placement(instance);
                let group = self
                    .group_of(instance)
                    .map(|g| &self.cluster.groups()[g.at()]);
                let group = group.map_or("", |group| &group.name);
                let nodes = primary.into_iter().chain(secondary);
                let nodes = texts(nodes.map(|node| self.node_name(node)));
                outcome.moved.push(list([text(&name), text(group), nodes]));
                let steps = moved.steps.iter();
                let codes = steps.map(|(step, _)| self.operations(instance, *step));
                outcome.jobs.push(list(codes.flatten()));
            }
        }
    }

    /// Returns the nodes that nothing may go to: those that the instances leave.
    fn left(&self, instances: &[InstanceIndex], mode: EvacuationMode) -> Vec<NodeIndex> {
        let mut left = Vec::new();
        for instance in instances {
            let Placement { primary, secondary } = self.cluster.placement(*instance);
            let mirrored = self.cluster.instance(*instance).is_mirrored();
            let secondary = secondary.filter(|_| mirrored);
            match mode {
                EvacuationMode::Primary => left.extend(primary),
                EvacuationMode::Secondary => left.extend(secondary),
                EvacuationMode::All => left.extend(primary.into_iter().chain(secondary)),
            }
        }
        left
    }

    /// Returns the nodes of a group that may be gone to.
    fn available(&self, group: GroupIndex, avoided: &[NodeIndex]) -> Vec<NodeIndex> {
        let nodes = self.cluster.node_indexes().filter(|index| {
            let node = self.cluster.node(*index);
            node.group == group && !node.offline && !avoided.contains(index)
        });
        nodes.collect()
    }

    /// Takes an instance off its nodes, within its group.
    fn leave(
        &mut self,
        instance: InstanceIndex,
        mode: EvacuationMode,
        avoided: &[NodeIndex],
    ) -> Result<Moved, String> {
        let primary = self.cluster.placement(instance).primary;
        let primary = primary.ok_or_else(|| "it is on no node".to_owned())?;
        let group = self.cluster.node(primary).group;
        let mut avoided = avoided.to_vec();
        avoided.push(primary);
        let nodes = self.available(group, &avoided);
        self.go(instance, mode, group, &nodes)
    }

    fn leave_group(
        &mut self,
        instance: InstanceIndex,
        targets: &[GroupIndex],
    ) -> Result<Moved, String> {
        if targets.is_empty() {
            return Err(
                "no groups for evacuation: the instances leave all that are allowed".to_owned(),
            );
        }
        // The question is where a copy would fit; the instance itself is still where it was.
        let copy = self.cluster.copy_instance(instance);
        self.disks.push(self.disks[instance.at()].clone());
        self.networks.push(self.networks[instance.at()].clone());
        let mirrored = self.cluster.instance(instance).is_mirrored();
        let found = self.best_group(copy, mirrored, Some(targets), None);
        self.cluster.remove_last_instance();
        self.disks.pop();
        self.networks.pop();
        let group = found?
            .group
            .ok_or_else(|| "no group was found".to_owned())?;
        let nodes = self.available(group, &[]);
        self.go(instance, EvacuationMode::All, group, &nodes)
    }

    /// Moves an instance to the best of these nodes.
    fn go(
        &mut self,
        instance: InstanceIndex,
        mode: EvacuationMode,
        group: GroupIndex,
        nodes: &[NodeIndex],
    ) -> Result<Moved, String> {
        let what = self.cluster.instance(instance);
        let template = what.disk_template;
        if what.is_mirrored() {
            return match mode {
                EvacuationMode::Primary => {
                    let drafted = self.cluster.draft_move(instance, Move::Failover, false);
                    let change = drafted.map_err(|r| Reason::from(r).htools().to_owned())?;
                    self.cluster.apply(&change);
                    Ok(Moved {
                        steps: vec![(Move::Failover, change)],
                    })
                }
                EvacuationMode::Secondary => {
                    self.go_to_one(instance, group, nodes, Move::ReplaceSecondary)
                }
                EvacuationMode::All => self.go_to_pair(instance, group, nodes),
            };
        }
        if !what.is_on_shared_storage() && template != DiskTemplate::Diskless {
            let word = template.word();
            return Err(format!("Instances of type {word} cannot be relocated"));
        }
        if mode == EvacuationMode::Secondary {
            let word = template.word();
            return Err(format!(
                "Instances with disk template '{word}' can't execute change secondary"
            ));
        }
        self.go_to_one(instance, group, nodes, Move::FailoverTo)
    }

    fn go_to_one(
        &mut self,
        instance: InstanceIndex,
        group: GroupIndex,
        nodes: &[NodeIndex],
        make: fn(NodeIndex) -> Move,
    ) -> Result<Moved, String> {
        let within = self.group_of(instance) == Some(group);
        let totals = Totals::new(&self.cluster, group);
        let mut best: Option<(f64, Move, Change)> = None;
        let mut why = String::new();
        for node in nodes {
            let step = make(*node);
            match self.cluster.draft_move(instance, step, false) {
                Ok(change) => {
                    let score = if within {
                        totals.score_after(&self.cluster, &change)
                    } else {
                        self.group_score(group, &change)
                    };
                    // Of equal ones the last, as in htools.
                    if best.as_ref().is_none_or(|(least, ..)| score <= *least) {
                        best = Some((score, step, change));
                    }
                }
                Err(refusal) => {
                    let reason = Reason::from(refusal).htools();
                    why += &format!(" Node {} failed: {reason};", self.node_name(*node));
                }
            }
        }
        let (_, step, change) = best.ok_or_else(|| format!("Can't find any good node: {why}"))?;
        self.cluster.apply(&change);
        Ok(Moved {
            steps: vec![(step, change)],
        })
    }

    /// Returns the score of a group after a change that also touches another one.
    fn group_score(&mut self, group: GroupIndex, change: &Change) -> f64 {
        self.cluster.apply(change);
        let score = Totals::new(&self.cluster, group).score();
        self.cluster.revert(change);
        score
    }

    /// Moves a mirrored instance to two other nodes, step by step: a new secondary, which becomes
    /// the primary, then another secondary.
    fn go_to_pair(
        &mut self,
        instance: InstanceIndex,
        group: GroupIndex,
        nodes: &[NodeIndex],
    ) -> Result<Moved, String> {
        let mut best: Option<(f64, NodeIndex, NodeIndex)> = None;
        let mut why = "no nodes available".to_owned();
        for primary in nodes {
            for secondary in nodes.iter().filter(|node| *node != primary) {
                match self.walk(instance, *primary, *secondary) {
                    Err(reason) => why = format!("Allocation failed: {reason}"),
                    Ok(moved) => {
                        let score = Totals::new(&self.cluster, group).score();
                        self.take_back(&moved);
                        if best.is_none_or(|(least, ..)| score <= least) {
                            best = Some((score, *primary, *secondary));
                        }
                    }
                }
            }
        }
        let (_, primary, secondary) =
            best.ok_or_else(|| format!("Can't find any good nodes for relocation: {why}"))?;
        self.walk(instance, primary, secondary)
    }

    fn walk(
        &mut self,
        instance: InstanceIndex,
        primary: NodeIndex,
        secondary: NodeIndex,
    ) -> Result<Moved, String> {
        let mut steps = vec![
            (
                Move::ReplaceSecondary(primary),
                "Changing secondary to new primary",
            ),
            (Move::Failover, "Failing over to new primary"),
            (
                Move::ReplaceSecondary(secondary),
                "Changing secondary to final secondary",
            ),
        ];
        let leaves = self.cluster.placement(instance).primary;
        if leaves.is_some_and(|node| self.cluster.node(node).offline) {
            steps.insert(0, (Move::Failover, "Failing over to the secondary"));
        }
        let mut moved = Moved { steps: Vec::new() };
        for (step, said) in steps {
            match self.cluster.draft_move(instance, step, false) {
                Ok(change) => {
                    self.cluster.apply(&change);
                    moved.steps.push((step, change));
                }
                Err(refusal) => {
                    self.take_back(&moved);
                    let reason = Reason::from(refusal).htools();
                    return Err(format!("{said}: {reason}"));
                }
            }
        }
        Ok(moved)
    }

    fn take_back(&mut self, moved: &Moved) {
        for (_, change) in moved.steps.iter().rev() {
            self.cluster.revert(change);
        }
    }

    /// Returns the operations of Ganeti that make a step, in JSON.
    fn operations(&self, instance: InstanceIndex, step: Move) -> Vec<String> {
        let name = text(&self.instance_name(instance));
        let forthcoming = self.cluster.instance(instance).forthcoming;
        let fail_over = |target: Option<NodeIndex>| {
            let target = target.map(|node| text(&self.node_name(node)));
            let target = target.map(|name| format!("\"target_node\":{name},"));
            let target = target.unwrap_or_default();
            if forthcoming {
                return format!(
                    "{{\"OP_ID\":\"OP_INSTANCE_FAILOVER\",\"instance_name\":{name},\
                     \"shutdown_timeout\":120,\"ignore_consistency\":false,{target}\
                     \"ignore_ipolicy\":false,\"cleanup\":false}}"
                );
            }
            format!(
                "{{\"OP_ID\":\"OP_INSTANCE_MIGRATE\",\"instance_name\":{name},{target}\
                 \"allow_runtime_changes\":false,\"ignore_ipolicy\":false,\"cleanup\":false,\
                 \"allow_failover\":true,\"ignore_hvversions\":true}}"
            )
        };
        let replace = |target: NodeIndex| {
            let target = text(&self.node_name(target));
            format!(
                "{{\"OP_ID\":\"OP_INSTANCE_REPLACE_DISKS\",\"instance_name\":{name},\
                 \"early_release\":false,\"ignore_ipolicy\":false,\
                 \"mode\":\"replace_new_secondary\",\"disks\":[],\"remote_node\":{target}}}"
            )
        };
        match step {
            Move::Failover => vec![fail_over(None)],
            Move::FailoverTo(node) => vec![fail_over(Some(node))],
            Move::ReplacePrimary(node) => vec![fail_over(None), replace(node), fail_over(None)],
            Move::ReplaceSecondary(node) => vec![replace(node)],
            Move::ReplaceAndFailover(node) => vec![replace(node), fail_over(None)],
            Move::FailoverAndReplace(node) => vec![fail_over(None), replace(node)],
        }
    }
}
