//! `berth balance --text`: a plan of moves that lowers htools' score, as hbal makes it.

use std::path::Path;

use anyhow::{Context as _, bail};
use berth_ganeti::balance::{Options, Plan, Step, balance as plan_moves, on_offline_nodes};
use berth_ganeti::model::{Cluster, GroupIndex, Placement, RatioSource};
use berth_ganeti::score::{COMPONENTS, Score};
use serde_json::json;

use super::super::{SCALE, number};
use super::load::load;
use crate::arguments::Balance;
use crate::output;
use crate::session::Session;

/// Runs the command.
///
/// # Errors
///
/// The fault of the file, or why the new one cannot be written.
pub fn balance(session: &Session, args: &Balance) -> anyhow::Result<()> {
    let mut loaded = load(&args.text, RatioSource::Policy)?;
    let group = match (loaded.group, loaded.cluster.groups().len()) {
        (Some(group), _) => group,
        (None, 1) => GroupIndex(0),
        (None, count) => bail!(
            "the file has {count} groups, and instances do not leave theirs: choose one with \
             --group"
        ),
    };
    let mut options = Options {
        evacuate: args.evac_mode,
        disk_moves: !args.no_disk_moves,
        max_moves: match args.moves_max {
            0 => None,
            most => Some(most as usize),
        },
        ..Options::default()
    };
    if let Some(gain) = args.gain_min {
        if !gain.is_finite() || gain < 0.0 {
            bail!("--gain-min is a number from zero, and {gain} is not");
        }
        options.min_gain = gain;
    }
    let mut before = loaded.cluster.clone();
    let plan = plan_moves(&mut loaded.cluster, group, &options);
    if let Some(path) = &args.save {
        save(path, &loaded.cluster.render(&loaded.document))?;
    }
    let after = &loaded.cluster;
    let scores = (score(&before, group), score(after, group));
    let left = on_offline_nodes(after, group).into_iter();
    let left: Vec<&str> = left.map(|i| after.instance(i).name.as_str()).collect();
    if session.for_programs() {
        let moves = plan.steps.iter().map(|step| {
            json!({
                "instance": after.instance(step.instance).name,
                "from": nodes(after, step.from),
                "to": nodes(after, step.to),
                "kind": step.what.kind(),
                "score_after": step.score_after,
            })
        });
        let moves: Vec<_> = moves.collect();
        return output::value(&json!({
            "score_before": scores.0,
            "score_after": scores.1,
            "moves": moves,
            "left_on_offline_nodes": left,
        }));
    }
    show(&mut before, group, &plan)?;
    let (from, to) = (number(scores.0), number(scores.1));
    output::print(format!("score {from} before, {to} after ({SCALE})"));
    if !left.is_empty() {
        let (count, names) = (left.len(), left.join(", "));
        output::print(format!("{count} left on offline nodes: {names}"));
    }
    Ok(())
}

fn score(cluster: &Cluster, group: GroupIndex) -> f64 {
    Score::new(cluster, Some(group)).total
}

fn nodes(cluster: &Cluster, at: Placement) -> Vec<&str> {
    let nodes = at.primary.into_iter().chain(at.secondary);
    nodes.map(|node| cluster.node(node).name.as_str()).collect()
}

/// Shows a plan; the cluster is then as the plan leaves it.
fn show(cluster: &mut Cluster, group: GroupIndex, plan: &Plan) -> anyhow::Result<()> {
    let mut sets = vec![0; plan.steps.len()];
    for (set, steps) in (1..).zip(plan.job_sets()) {
        for step in steps {
            sets[step] = set;
        }
    }
    let mut rows = Vec::new();
    for (step, set) in plan.steps.iter().zip(sets) {
        let why = why(cluster, group, step)?;
        rows.push([
            set.to_string(),
            cluster.instance(step.instance).name.clone(),
            nodes(cluster, step.from).join(" "),
            nodes(cluster, step.to).join(" "),
            step.what.kind().to_owned(),
            number(step.score_after),
            why,
        ]);
    }
    let head = [
        "set",
        "instance",
        "from",
        "to",
        "kind",
        "score after",
        "because",
    ];
    output::table(head, rows, "no move gains enough");
    Ok(())
}

/// Makes a step, and returns which component of the score it lowers most.
fn why(cluster: &mut Cluster, group: GroupIndex, step: &Step) -> anyhow::Result<String> {
    let before = Score::new(cluster, Some(group));
    let drafted = cluster.draft_move(step.instance, step.what, false);
    let change = drafted.context("a planned move is not allowed when it is its turn")?;
    cluster.apply(&change);
    let after = Score::new(cluster, Some(group));
    let pairs = before.components.iter().zip(after.components);
    let gains = pairs.zip(COMPONENTS);
    let gains = gains.map(|((before, after), (name, weight))| (weight * (before - after), name));
    let most = gains.max_by(|(one, _), (other, _)| one.total_cmp(other));
    Ok(match most {
        Some((gain, name)) if gain > 0.0 => format!("{name} falls by {gain:.4}"),
        Some(_) | None => "a step to the next one".to_owned(),
    })
}

fn save(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))
}
