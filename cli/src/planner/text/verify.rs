//! `berth verify --text`: N+1 as htools means it, and memory beyond its ratio.

use anyhow::bail;
use berth_ganeti::choice::can_evacuate;
use berth_ganeti::failover::{self, Violation};
use berth_ganeti::model::{Cluster, GroupIndex, MemoryRule, RatioSource};
use serde_json::json;

use super::super::Unhealthy;
use super::load::load;
use crate::arguments::Verify;
use crate::output;
use crate::session::Session;

/// What is found of a node.
struct Verdict {
    name: String,
    local: bool,
    global: bool,
    group: GroupIndex,
    violation: Violation,
    /// What the instances and reserves may have, and what they have, in MiB.
    allowed: i64,
    used: i64,
    /// What would find no place.
    why: String,
}

impl Verdict {
    fn is_fine(&self) -> bool {
        self.local && self.global && self.violation == Violation::None
    }
}

/// Does what was typed.
///
/// # Errors
///
/// What is wrong with the file; [`Unhealthy`] when the answer is no.
pub fn verify(session: &Session, asked: &Verify) -> anyhow::Result<()> {
    if asked.zones || asked.aggregates || asked.plan {
        bail!("--zones, --aggregates and --plan are of the cluster: a file has nodes and groups");
    }
    let mut loaded = load(&asked.text, RatioSource::Policy)?;
    for name in &asked.names {
        if !loaded.document.nodes.iter().any(|node| node.name == *name) {
            bail!("the file has no node {name}");
        }
    }
    let mut verdicts = judge(&mut loaded.cluster);
    verdicts.retain(|verdict| {
        loaded.group.is_none_or(|group| group == verdict.group)
            && (asked.names.is_empty() || asked.names.contains(&verdict.name))
    });
    let ok = verdicts.iter().all(Verdict::is_fine);
    if session.json() {
        let nodes = verdicts.iter().map(|verdict| {
            json!({
                "node": verdict.name,
                "n1_local_ok": verdict.local,
                "n1_global_ok": verdict.global,
                "violation": verdict.violation.word(),
            })
        });
        output::json(&json!({"ok": ok, "nodes": nodes.collect::<Vec<_>>()}))?;
    } else {
        let rows = verdicts.iter().map(|verdict| {
            let word = |fine| if fine { "yes" } else { "NO" }.to_owned();
            [
                verdict.name.clone(),
                word(verdict.local),
                word(verdict.global),
                verdict.allowed.to_string(),
                verdict.used.to_string(),
                verdict.violation.word().to_owned(),
                verdict.why.clone(),
            ]
        });
        let head = [
            "node",
            "takes its peers",
            "can be evacuated",
            "memory allowed mib",
            "used and reserved mib",
            "beyond its ratio",
            "without a place",
        ];
        output::table(head, rows.collect(), "there is no node");
    }
    match ok {
        true => Ok(()),
        false => Err(Unhealthy.into()),
    }
}

/// Returns what is found of every node.
fn judge(cluster: &mut Cluster) -> Vec<Verdict> {
    let found = failover::verify(cluster);
    // By htools' own rules a node that is offline still takes what another one leaves.
    let strict = cluster.rules().memory == MemoryRule::Strict;
    let literal = strict && cluster.nodes().iter().any(|node| node.offline);
    let mut verdicts = Vec::new();
    for verdict in found {
        let index = verdict.node;
        let group = cluster.node(index).group;
        let global = if literal {
            can_evacuate(cluster, index, Some(group), &[])
        } else {
            verdict.global_ok()
        };
        let (node, state) = (cluster.node(index), cluster.state(index));
        let left = state.unallocated_memory - state.reserved_memory;
        let why = verdict.stranded.filter(|_| !global).map(|stranded| {
            let name = &cluster.instance(stranded.instance).name;
            format!("{name}: {}", stranded.refusal)
        });
        verdicts.push(Verdict {
            name: node.name.clone(),
            group,
            local: verdict.local_ok,
            global,
            violation: verdict.violation,
            allowed: node.available_memory() - node.memory_floor,
            used: node.available_memory() - left,
            why: why.unwrap_or_default(),
        });
    }
    verdicts
}
