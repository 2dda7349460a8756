//! New instances on dedicated nodes: every node that may be taken has exclusive storage, so that
//! the policy's ranges divide nodes into shares.
//!
//! There not the score decides but what is lost: by how many fewer of the smallest instances of
//! each range the nodes hold afterwards, those with the greatest disks first; then the free disk
//! that is left, the less the better. Global N+1 is not required, as hail does not.

use super::Work;
use super::allocate::Proposal;
use crate::choice::{Chosen, Reason, Solution, Targets, Wish, disks_of, matches};
use crate::model::{Change, GroupIndex, InstanceIndex, NodeIndex, Status};
use crate::text::{AllocationPolicy, DiskTemplate, InstanceLine};

/// What is lost: instances of each range, and the free disk that is left.
type Loss = (Vec<i64>, i64);

/// The most instances of one range that are counted on a node: one that takes nothing would fit
/// for ever.
const MOST: i64 = 10_000;

impl Work<'_> {
    /// Returns whether all nodes that may be taken are dedicated ones.
    pub(super) fn is_dedicated(&self, group: Option<&str>) -> bool {
        self.cluster.nodes().iter().all(|node| {
            let its = &self.cluster.groups()[node.group.at()];
            let is_eligible = match group {
                Some(name) => its.name == name,
                None => its.allocation_policy != AllocationPolicy::Unallocable,
            };
            node.exclusive_storage || !is_eligible
        })
    }

    /// Returns the place with the least loss, in one group or in the best one.
    pub(super) fn find_dedicated(
        &mut self,
        (instance, pair): (InstanceIndex, bool),
        group: Option<GroupIndex>,
        only: Option<&[String]>,
    ) -> Result<Proposal, String> {
        if let Some(group) = group {
            let (solution, loss) = self.least_loss((instance, pair), group, only)?;
            let log = vec![self.loss_description(group, &solution, loss.as_ref())];
            return Ok(Proposal {
                solution,
                log,
                group: Some(group),
            });
        }
        let mut log = Vec::new();
        let mut found: Vec<(AllocationPolicy, Loss, GroupIndex, Solution)> = Vec::new();
        for group in (0..self.cluster.groups().len() as u32).map(GroupIndex) {
            if !self.cluster.nodes().iter().any(|node| node.group == group) {
                continue;
            }
            match self.least_loss((instance, pair), group, only) {
                Err(why) => {
                    let name = &self.cluster.groups()[group.at()].name;
                    log.push(format!("Group {name}: error {why}"));
                }
                Ok((solution, loss)) => {
                    log.push(self.loss_description(group, &solution, loss.as_ref()));
                    let policy = self.cluster.groups()[group.at()].allocation_policy;
                    let open = policy != AllocationPolicy::Unallocable;
                    if let Some(loss) = loss.filter(|_| open) {
                        found.push((policy, loss, group, solution));
                    }
                }
            }
        }
        // Of equal ones the last comes first, as in htools.
        found.reverse();
        found.sort_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1)));
        let Some((_, _, group, solution)) = found.into_iter().next() else {
            return Err(log.join(", "));
        };
        let name = &self.cluster.groups()[group.at()].name;
        log.insert(0, format!("Selected group: {name}"));
        Ok(Proposal {
            solution,
            log,
            group: Some(group),
        })
    }

    fn least_loss(
        &mut self,
        (instance, pair): (InstanceIndex, bool),
        group: GroupIndex,
        only: Option<&[String]>,
    ) -> Result<(Solution, Option<Loss>), String> {
        if let Some(why) = self.unreached(group, instance) {
            return Err(why);
        }
        let wish = Wish {
            mirrored: pair,
            group: Some(group),
            named: only,
            allocable: false,
        };
        let targets = Targets::new(&self.cluster, &wish);
        if targets.is_empty() {
            let why = if pair {
                "Not enough online nodes"
            } else {
                "No online nodes"
            };
            return Err(why.to_owned());
        }
        let places: Vec<(NodeIndex, Option<NodeIndex>)> = match targets {
            Targets::Single(nodes) => nodes.into_iter().map(|node| (node, None)).collect(),
            Targets::Pairs(pairs) => {
                let each = |(primary, others): (NodeIndex, Vec<NodeIndex>)| {
                    others.into_iter().map(move |other| (primary, Some(other)))
                };
                pairs.into_iter().flat_map(each).collect()
            }
        };
        let disks = disks_of(&self.cluster, &self.disks, instance);
        let mut solution = Solution::default();
        let mut least: Option<Loss> = None;
        for (primary, secondary) in places {
            let drafted = matches(&self.cluster, instance, &disks, primary).and_then(|()| {
                let drafted = self
                    .cluster
                    .draft_place(instance, primary, secondary, false);
                drafted.map_err(Reason::from)
            });
            match drafted {
                Err(reason) => *solution.failures.entry(reason).or_insert(0) += 1,
                Ok(change) => {
                    solution.successes += 1;
                    let loss = self.loss(group, &change);
                    if least.as_ref().is_none_or(|known| loss <= *known) {
                        least = Some(loss);
                        solution.best = Some(Chosen { change, score: 0.0 });
                    }
                }
            }
        }
        Ok((solution, least))
    }

    /// Returns what a placement loses on its nodes.
    fn loss(&mut self, group: GroupIndex, change: &Change) -> Loss {
        let after = change.after;
        let nodes: Vec<NodeIndex> = after.primary.into_iter().chain(after.secondary).collect();
        let before = self.held(group, &nodes);
        self.cluster.apply(change);
        let held = self.held(group, &nodes);
        let free = nodes.iter().map(|node| self.cluster.state(*node).free_disk);
        let free = free.sum();
        self.cluster.revert(change);
        let lost = before
            .iter()
            .zip(held)
            .map(|(before, after)| before - after);
        (lost.collect(), free)
    }

    /// Returns how many of the smallest instances of each range nodes hold.
    fn held(&mut self, group: GroupIndex, nodes: &[NodeIndex]) -> Vec<i64> {
        let ranges = &self.cluster.groups()[group.at()].policy.ranges;
        let mut smallest: Vec<_> = ranges.iter().map(|(least, _)| *least).collect();
        smallest.sort_by_key(|spec| std::cmp::Reverse(spec.disk_size));
        let lines = smallest.into_iter().map(|spec| InstanceLine {
            name: "minimal".to_owned(),
            memory: spec.memory,
            disk: spec.disk_size,
            vcpus: spec.cpus,
            status: Status::Running,
            auto_balance: false,
            primary: 0,
            secondary: None,
            disk_template: DiskTemplate::Plain,
            tags: Vec::new(),
            spindle_use: spec.spindle_use,
            spindles: Some(0),
            forthcoming: false,
        });
        let lines: Vec<InstanceLine> = lines.collect();
        let mut held = Vec::new();
        for line in &lines {
            let counts = nodes.iter().map(|node| self.count(line, *node));
            held.push(counts.sum());
        }
        held
    }

    fn count(&mut self, line: &InstanceLine, node: NodeIndex) -> i64 {
        let mut placed = Vec::new();
        while (placed.len() as i64) < MOST {
            let instance = self.cluster.add_instance(line);
            let Ok(change) = self.cluster.draft_place(instance, node, None, false) else {
                self.cluster.remove_last_instance();
                break;
            };
            self.cluster.apply(&change);
            placed.push(change);
        }
        for change in placed.iter().rev() {
            self.cluster.revert(change);
            self.cluster.remove_last_instance();
        }
        placed.len() as i64
    }

    fn loss_description(
        &self,
        group: GroupIndex,
        solution: &Solution,
        loss: Option<&Loss>,
    ) -> String {
        let loss = loss.map(|(lost, free)| {
            let lost: Vec<String> = lost.iter().map(ToString::to_string).collect();
            format!("([{}],{free})", lost.join(","))
        });
        self.group_description(group, solution, loss)
    }
}
