//! Which agents are replaced now: the upgrade of a deployment's agents, node by node.
//!
//! ```text
//!   pod of an older revision
//!     ├─ its agent does not run ────────────────────────────▶ replaced
//!     ├─ a volume on its node is being made or erased ──────▶ waits for the volume
//!     ├─ its pod is not ready ──────────────────────────────▶ replaced
//!     └─ ready ─▶ fewer than `maxUnavailable` are not? ─────▶ replaced, or waits for the others
//! ```
//!
//! Kubernetes' own rolling update knows nothing of volumes, and cannot be held at one node: so the
//! DaemonSet has the strategy `OnDelete`, and the operator deletes the pods of an older revision. Kubernetes
//! makes the new ones. No state is kept: another operator goes on from the pods.
//!
//! Not here: where pods and volumes are read.
//!
//! Invariant: an agent that runs is not replaced while a volume on its node is being made or erased, nor
//! while that is not known.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;

use crate::safety;

/// The name of the agent's container.
pub const CONTAINER: &str = "berth";
/// The label of pods and revisions with the digest of the template.
const REVISION: &str = "controller-revision-hash";

/// A pod of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// Its name.
    pub name: String,
    /// Its unique identifier.
    pub uid: String,
    /// The node that it is on; empty if it is on none.
    pub node: String,
    /// The revision of the template that it was made of.
    pub revision: String,
    /// Whether all its containers are ready.
    pub is_ready: bool,
    /// Whether the agent runs, as far as is known.
    pub is_running: bool,
}

/// How many agents may be unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxUnavailable {
    /// So many.
    Count(i64),
    /// A part of all, in percent, rounded up.
    Percent(i64),
}

/// What is decided upon.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The pods of the agents, without those that are being deleted.
    pub agents: &'a [Agent],
    /// The newest revision.
    pub revision: &'a str,
    /// How many agents there have to be.
    pub desired: i64,
    /// How many have been ready long enough, as Kubernetes counts.
    pub available: i64,
    /// How many may be unavailable.
    pub max_unavailable: MaxUnavailable,
    /// What the schedulers know, or why that is not known.
    pub hosts: Result<&'a Hosts, &'a str>,
}

/// What the schedulers know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// The hosts of which an agent reports.
    pub up: BTreeSet<String>,
    /// The volumes that are being made or erased on each host.
    pub busy: BTreeMap<String, Vec<String>>,
}

/// What is done now, and what it waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The pods to delete.
    pub replaced: Vec<Agent>,
    /// Why agents of an older revision are left. Empty: none is.
    pub waits_for: String,
}

impl MaxUnavailable {
    /// Reads the field of a spec.
    ///
    /// # Errors
    ///
    /// When it permits no agent to be replaced, or is neither a number nor a percentage.
    pub fn parse(value: &IntOrString) -> Result<Self, String> {
        let parsed = match value {
            IntOrString::Int(count) => Some(Self::Count(i64::from(*count))),
            IntOrString::String(text) => text
                .strip_suffix('%')
                .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
                .and_then(|digits| digits.parse().ok())
                .filter(|percent| *percent <= 100)
                .map(Self::Percent),
        };
        let is_positive = |one: &Self| match one {
            Self::Count(number) | Self::Percent(number) => *number > 0,
        };
        parsed.filter(is_positive).ok_or_else(|| {
            let value = match value {
                IntOrString::Int(count) => count.to_string(),
                IntOrString::String(text) => format!("{text:?}"),
            };
            format!(
                "maxUnavailable is {value}; hint: set it to a number of at least 1, or to a percentage from \
                 \"1%\" to \"100%\""
            )
        })
    }

    /// Returns the number among so many agents; at least one, so that an upgrade ends.
    #[must_use]
    pub fn among(self, desired: i64) -> i64 {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => {
                let rounded_up = desired.max(0).saturating_mul(percent).saturating_add(99) / 100;
                rounded_up.max(1)
            }
        }
    }
}

impl Agent {
    /// Reads a pod; `None` if it is being deleted.
    #[must_use]
    pub fn of_pod(pod: &Value) -> Option<Self> {
        let metadata = &pod["metadata"];
        if metadata["deletionTimestamp"].is_string() {
            return None;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        let is_ready = |one: &Value| one["type"] == "Ready" && one["status"] == "True";
        Some(Self {
            name: text(&metadata["name"]),
            uid: text(&metadata["uid"]),
            node: text(&pod["spec"]["nodeName"]),
            revision: text(&metadata["labels"][REVISION]),
            is_ready: conditions.into_iter().any(is_ready),
            is_running: is_running(pod),
        })
    }
}

/// Only what says that the agent does not run counts as that: of a node that is not reached the last
/// report is old, and its agent may run.
fn is_running(pod: &Value) -> bool {
    let status = &pod["status"];
    let mut containers = status["containerStatuses"].as_array().into_iter().flatten();
    match containers.find(|one| one["name"] == CONTAINER) {
        Some(container) => {
            let state = &container["state"];
            !state["waiting"].is_object() && !state["terminated"].is_object()
        }
        // Before the kubelet has started anything, and after all has ended.
        None => !matches!(
            status["phase"].as_str(),
            None | Some("Pending" | "Failed" | "Succeeded")
        ),
    }
}

/// Returns the revision of the template that new pods are made of, of those of one DaemonSet.
#[must_use]
pub fn newest_revision<'a>(revisions: impl IntoIterator<Item = &'a Value>) -> Option<String> {
    let newest = revisions
        .into_iter()
        .max_by_key(|one| one["revision"].as_i64().unwrap_or_default())?;
    let revision = newest["metadata"]["labels"][REVISION].as_str()?;
    (!revision.is_empty()).then(|| revision.to_owned())
}

/// Decides what is done now.
#[must_use]
pub fn step(situation: &Situation<'_>) -> Step {
    let mut outdated: Vec<&Agent> = situation
        .agents
        .iter()
        .filter(|agent| situation.is_outdated(agent))
        .collect();
    outdated.sort_by_key(|agent| {
        let is_available = situation.is_available(agent);
        (agent.is_ready, is_available, &agent.node, &agent.name)
    });
    let mut budget = Budget::of(situation);
    let mut replaced = Vec::new();
    let mut left = Left::default();
    for agent in outdated {
        match (agent.is_running, situation.hosts) {
            (false, _) => replaced.push(agent.clone()),
            (true, Err(_)) => left.unknown += 1,
            (true, Ok(hosts)) => match hosts.busy.get(&agent.node) {
                Some(volumes) => left.busy.push((agent, volumes)),
                None if budget.permits(agent, situation) => replaced.push(agent.clone()),
                None => left.over += 1,
            },
        }
    }
    let waits_for = left.describe(situation, &budget);
    Step {
        replaced,
        waits_for,
    }
}

impl Situation<'_> {
    fn is_outdated(&self, agent: &Agent) -> bool {
        agent.revision != self.revision
    }

    fn is_available(&self, agent: &Agent) -> bool {
        let is_up = match self.hosts {
            Ok(hosts) => hosts.up.contains(&agent.node),
            Err(_) => true,
        };
        agent.is_ready && is_up
    }
}

/// How many more agents may be unavailable.
struct Budget {
    max: i64,
    /// Not available, for whatever reason.
    unavailable: i64,
    /// Replaced, and not available yet.
    in_flight: i64,
}

impl Budget {
    fn of(situation: &Situation<'_>) -> Self {
        let count = |is_it: &dyn Fn(&Agent) -> bool| {
            let agents = situation.agents.iter().filter(|agent| is_it(agent));
            i64::try_from(agents.count()).unwrap_or(i64::MAX)
        };
        let available = count(&|agent| situation.is_available(agent));
        let updated =
            count(&|agent| situation.is_available(agent) && !situation.is_outdated(agent));
        let left = count(&|agent| agent.is_ready && situation.is_outdated(agent));
        // Kubernetes counts only those that have been ready for some time.
        let early = (available - situation.available).max(0);
        Self {
            max: situation.max_unavailable.among(situation.desired),
            unavailable: situation.desired - available + early,
            in_flight: situation.desired - updated - left + early,
        }
    }

    /// Returns whether an agent may be replaced, and counts it.
    fn permits(&mut self, agent: &Agent, situation: &Situation<'_>) -> bool {
        if !agent.is_ready {
            return true;
        }
        let is_available = situation.is_available(agent);
        let used = match is_available {
            true => self.unavailable,
            // It runs, and the schedulers do not have its host. That is so of all agents when they have wrong
            // addresses, and they have to be corrected; but also for a moment when a scheduler has begun to
            // lead. So they are replaced one after the other, as far as the new ones become available.
            false => self.in_flight,
        };
        if used >= self.max {
            return false;
        }
        self.in_flight += 1;
        self.unavailable += i64::from(is_available);
        true
    }
}

/// The agents of an older revision that are not replaced now.
#[derive(Default)]
struct Left<'a> {
    /// Their nodes have volumes that are being made or erased.
    busy: Vec<(&'a Agent, &'a Vec<String>)>,
    /// It is not known whether their nodes have such volumes.
    unknown: usize,
    /// Too many others are unavailable.
    over: usize,
}

impl Left<'_> {
    fn describe(&self, situation: &Situation<'_>, budget: &Budget) -> String {
        let mut reasons = Vec::new();
        if !self.busy.is_empty() {
            let nodes = self.busy.iter().map(|(agent, volumes)| {
                let volumes = safety::names(volumes.iter().cloned());
                format!("{} ({volumes})", agent.node)
            });
            reasons.push(format!(
                "agents wait until volumes on their nodes are made or erased: {}; hint: wait, or delete a pod \
                 to replace its agent now: {}",
                safety::names(nodes),
                safety::names(self.busy.iter().map(|(agent, _)| agent.name.clone())),
            ));
        }
        if let Err(why) = situation.hosts
            && self.unknown > 0
        {
            reasons.push(format!(
                "{} agents wait to know whether volumes are being made or erased: {why}",
                self.unknown
            ));
        }
        if self.over > 0 {
            reasons.push(format!(
                "{} agents wait for others: {} of {} are unavailable",
                self.over, budget.unavailable, situation.desired
            ));
        }
        reasons.join("; ")
    }
}

#[cfg(test)]
mod tests;
