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

/// The result for a node.
struct Verdict {
    name: String,
    local: bool,
    global: bool,
    group: GroupIndex,
    violation: Violation,
    /// The memory that instances and reserves may use, and their use, in MiB.
    allowed: i64,
    used: i64,
    /// The instance that does not fit, and why.
    why: String,
}

impl Verdict {
    fn is_fine(&self) -> bool {
        self.local && self.global && self.violation == Violation::None
    }
}

/// Runs the command.
///
/// # Errors
///
/// The fault of the file; [`Unhealthy`] when the result is negative.
pub fn verify(session: &Session, args: &Verify) -> anyhow::Result<()> {
    if args.zones || args.aggregates || args.plan {
        bail!("--zones, --aggregates and --plan are of the cluster: a file has nodes and groups");
    }
    let mut loaded = load(&args.text, RatioSource::Policy)?;
    for name in &args.names {
        if !loaded.document.nodes.iter().any(|node| node.name == *name) {
            bail!("the file has no node {name}");
        }
    }
    let mut verdicts = evaluate(&mut loaded.cluster);
    verdicts.retain(|verdict| {
        loaded.group.is_none_or(|group| group == verdict.group)
            && (args.names.is_empty() || args.names.contains(&verdict.name))
    });
    let ok = verdicts.iter().all(Verdict::is_fine);
    if session.for_programs() {
        let nodes = verdicts.iter().map(|verdict| {
            json!({
                "node": verdict.name,
                "n1_local_ok": verdict.local,
                "n1_global_ok": verdict.global,
                "violation": verdict.violation.word(),
            })
        });
        output::value(&json!({"ok": ok, "nodes": nodes.collect::<Vec<_>>()}))?;
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

/// Returns the result for every node.
fn evaluate(cluster: &mut Cluster) -> Vec<Verdict> {
    let results = failover::verify(cluster);
    // By htools' own rules a node that is offline still takes what another one leaves.
    let strict = cluster.rules().memory == MemoryRule::Strict;
    let literal = strict && cluster.nodes().iter().any(|node| node.offline);
    let mut verdicts = Vec::new();
    for verdict in results {
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
