//! New instances: the best group by its allocation policy and then by score, and in it the
//! placement with the lowest score.

use super::answer::{Answer, list, text, texts};
use super::{InstanceRequest, Work};
use crate::choice::{Search, Solution, Targets, Wish};
use crate::model::{GroupIndex, InstanceIndex, Placement};
use crate::text::{AllocationPolicy, DiskTemplate};

/// Where an instance can go, with the text of the answer.
pub(super) struct Proposal {
    pub(super) solution: Solution,
    pub(super) log: Vec<String>,
    /// The group, where one was chosen among several.
    pub(super) group: Option<GroupIndex>,
}

impl Proposal {
    fn info(&self) -> String {
        self.log.join(", ")
    }
}

impl Work<'_> {
    pub(super) fn allocate(
        &mut self,
        request: &InstanceRequest,
        only: Option<&[String]>,
    ) -> Answer {
        let instance = self.add(request);
        let dedicated = self.is_dedicated(request.group.as_deref());
        match self.find(instance, request, only, dedicated) {
            Err(why) => Answer::no(&why),
            Ok(found) => match &found.solution.best {
                None => Answer::no(&found.info()),
                Some(best) => {
                    let nodes = best.nodes().into_iter().map(|n| self.node_name(n));
                    Answer::yes(&found.info(), texts(nodes))
                }
            },
        }
    }

    pub(super) fn allocate_all(&mut self, all: &[InstanceRequest]) -> Answer {
        let mut named: Vec<&str> = all.iter().filter_map(|w| w.group.as_deref()).collect();
        named.sort_unstable();
        named.dedup();
        let dedicated = self.is_dedicated(match named[..] {
            [group] => Some(group),
            [..] => None,
        });
        let (mut placed, mut failed) = (Vec::new(), Vec::new());
        for request in all {
            let instance = self.add(request);
            let found = match self.find(instance, request, None, dedicated) {
                Ok(found) => found,
                // The whole request, as hail does: half of it is not what was requested.
                Err(why) => return Answer::no(&why),
            };
            match &found.solution.best {
                None => failed.push((request.line.name.clone(), found.info())),
                Some(best) => {
                    self.cluster.apply(&best.change);
                    let nodes = best.nodes().into_iter().map(|n| self.node_name(n));
                    placed.push((request.line.name.clone(), nodes.collect::<Vec<_>>()));
                }
            }
        }
        let info = format!(
            "{} instances failed to allocate and {} were allocated successfully",
            failed.len(),
            placed.len()
        );
        let placed = placed.iter();
        let placed = placed.map(|(name, nodes)| list([text(name), texts(nodes)]));
        let failed = failed.iter();
        let failed = failed.map(|(name, why)| texts([name, why]));
        Answer::yes(&info, list([list(placed), list(failed)]))
    }

    /// Gives an instance that has only one node a second one: its disks become mirrored.
    pub(super) fn allocate_secondary(&mut self, instance: InstanceIndex) -> Answer {
        let Placement { primary, secondary } = self.cluster.placement(instance);
        let Some(primary) = primary else {
            return Answer::no("the instance is on no node");
        };
        if secondary.is_some() {
            return Answer::no("Instance already has a secondary");
        }
        if let Some(removal) = self.cluster.draft_removal(instance) {
            self.cluster.apply(&removal);
        }
        self.cluster.set_disk_template(instance, DiskTemplate::Drbd);
        let group = self.cluster.node(primary).group;
        let others = self.cluster.node_indexes().filter(|n| *n != primary);
        let others = others.filter(|n| {
            let node = self.cluster.node(*n);
            node.group == group && !node.offline
        });
        let targets = Targets::Pairs(vec![(primary, others.collect())]);
        let mut search = Search {
            targets: &targets,
            scope: None,
            disks: &self.disks,
            redundancy: self.redundancy.as_mut(),
        };
        let solution = search.best(&mut self.cluster, instance);
        let info = self.description(&solution, None);
        let second = solution.best.and_then(|best| best.change.after.secondary);
        match second {
            Some(node) => Answer::yes(&info, text(&self.node_name(node))),
            None => Answer::no(&info),
        }
    }

    /// Returns where an instance can go: in the requested group, or in the best one.
    fn find(
        &mut self,
        instance: InstanceIndex,
        request: &InstanceRequest,
        only: Option<&[String]>,
        dedicated: bool,
    ) -> Result<Proposal, String> {
        let count = request.node_count;
        if count != 1 && count != 2 {
            return Err("Unsupported number of nodes, only one or two  supported".to_owned());
        }
        let pair = count == 2;
        let Some(name) = &request.group else {
            if dedicated {
                return self.find_dedicated((instance, pair), None, only);
            }
            return self.best_group(instance, pair, None, only);
        };
        let groups = self.document.groups.iter();
        let group = groups.clone().position(|group| &group.name == name);
        let group = group.ok_or_else(|| format!("Couldn't find element with name '{name}'"))?;
        let group = GroupIndex(group as u32);
        if dedicated {
            return self.find_dedicated((instance, pair), Some(group), only);
        }
        if let Some(why) = self.unreached(group, instance) {
            return Err(why);
        }
        let solution = self.search((instance, pair), group, only, Some(group))?;
        let log = vec![self.group_description(group, &solution, None)];
        Ok(Proposal {
            solution,
            log,
            group: Some(group),
        })
    }

    /// Returns the best place in the best group: by its policy first, then by score.
    pub(super) fn best_group(
        &mut self,
        instance: InstanceIndex,
        pair: bool,
        allowed: Option<&[GroupIndex]>,
        only: Option<&[String]>,
    ) -> Result<Proposal, String> {
        let mut log = Vec::new();
        let mut unreached = Vec::new();
        let mut found: Vec<(AllocationPolicy, GroupIndex, Solution)> = Vec::new();
        let count = self.cluster.groups().len() as u32;
        for group in (0..count).map(GroupIndex) {
            let members = self.cluster.nodes().iter().any(|node| node.group == group);
            if !members || allowed.is_some_and(|allowed| !allowed.contains(&group)) {
                continue;
            }
            if let Some(why) = self.unreached(group, instance) {
                unreached.push(why);
                continue;
            }
            match self.search((instance, pair), group, only, None) {
                Err(why) => {
                    let name = &self.cluster.groups()[group.at()].name;
                    log.push(format!("Group {name}: error {why}"));
                }
                Ok(solution) => {
                    log.push(self.group_description(group, &solution, None));
                    let policy = self.cluster.groups()[group.at()].allocation_policy;
                    if policy != AllocationPolicy::Unallocable && solution.best.is_some() {
                        found.push((policy, group, solution));
                    }
                }
            }
        }
        unreached.append(&mut log);
        // Of equal ones the last comes first, as in htools.
        found.reverse();
        let score = |solution: &Solution| solution.best.as_ref().map_or(f64::NAN, |b| b.score);
        found.sort_by(|(policy, _, one), (other_policy, _, other)| {
            let scores = score(one).total_cmp(&score(other));
            policy.cmp(other_policy).then(scores)
        });
        let Some((_, group, solution)) = found.into_iter().next() else {
            return Err(unreached.join(", "));
        };
        let name = &self.cluster.groups()[group.at()].name;
        let mut log = vec![format!("Selected group: {name}")];
        log.append(&mut unreached);
        Ok(Proposal {
            solution,
            log,
            group: Some(group),
        })
    }

    fn search(
        &mut self,
        (instance, pair): (InstanceIndex, bool),
        group: GroupIndex,
        only: Option<&[String]>,
        scope: Option<GroupIndex>,
    ) -> Result<Solution, String> {
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
        let mut search = Search {
            targets: &targets,
            scope,
            disks: &self.disks,
            redundancy: self.redundancy.as_mut(),
        };
        Ok(search.best(&mut self.cluster, instance))
    }

    /// Returns why a group cannot take an instance for its networks.
    pub(super) fn unreached(&self, group: GroupIndex, instance: InstanceIndex) -> Option<String> {
        let line = &self.document.groups[group.at()];
        let networks = &self.networks[instance.at()];
        if networks
            .iter()
            .all(|network| line.networks.contains(network))
        {
            return None;
        }
        let (group, instance) = (&line.name, self.instance_name(instance));
        Some(format!(
            "group {group} is not connected to a network required by instance {instance}"
        ))
    }

    /// Returns what is said of a group; a score that is none of the usual kind is given.
    pub(super) fn group_description(
        &self,
        group: GroupIndex,
        solution: &Solution,
        score: Option<String>,
    ) -> String {
        let group = &self.cluster.groups()[group.at()];
        let policy = policy_word(group.allocation_policy);
        let description = self.description(solution, score);
        format!("Group {} ({policy}): {description}", group.name)
    }

    fn description(&self, solution: &Solution, score: Option<String>) -> String {
        let reasons = solution.failures.iter();
        let reasons: Vec<String> = reasons
            .map(|(reason, count)| format!("{}: {count}", reason.htools()))
            .collect();
        let reasons = reasons.join(", ");
        let Some(best) = &solution.best else {
            let reasons = if reasons.is_empty() {
                "unknown reasons"
            } else {
                &reasons
            };
            return format!("No valid allocation solutions, failure reasons: {reasons}");
        };
        let nodes = best.nodes().into_iter().map(|node| self.node_name(node));
        format!(
            "score: {}, successes {}, failures {} ({reasons}) for node(s) {}",
            score.unwrap_or_else(|| format!("{:.8}", best.score)),
            solution.successes,
            solution.failures.values().sum::<u64>(),
            nodes.collect::<Vec<_>>().join("/"),
        )
    }
}

fn policy_word(policy: AllocationPolicy) -> &'static str {
    match policy {
        AllocationPolicy::Preferred => "preferred",
        AllocationPolicy::LastResort => "last_resort",
        AllocationPolicy::Unallocable => "unallocable",
    }
}
