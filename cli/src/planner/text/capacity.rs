//! `berth capacity --text`: how many more fit, as hspace counts.

use anyhow::bail;
use berth_ganeti::capacity::{Question, Shape, capacity as count};
use berth_ganeti::model::{DiskTemplate, RatioSource};
use serde_json::json;

use super::load::load;
use crate::arguments::Capacity;
use crate::output;
use crate::session::Session;

/// The greatest memory ratio that can be requested.
const RATIO_MAX: f64 = 1000.0;

/// Runs the command.
///
/// # Errors
///
/// The fault of the file or of the arguments.
pub fn capacity(session: &Session, args: &Capacity) -> anyhow::Result<()> {
    let ratio = match args.ratio[..] {
        [] => RatioSource::Policy,
        [ratio] if ratio > 0.0 && ratio <= RATIO_MAX => RatioSource::Fixed(ratio),
        [ratio] => {
            bail!("a memory ratio is above zero and at most {RATIO_MAX}, and {ratio} is not")
        }
        [..] => bail!("--ratio is given once with --text"),
    };
    let mut loaded = load(&args.text, ratio)?;
    let policy = loaded.cluster.policy().clone();
    let disk_template = match &args.disk_template {
        Some(word) => template(word)?,
        None => match policy.disk_templates.first() {
            Some(template) => *template,
            None => bail!("the file's policy allows no disk template; give --disk-template"),
        },
    };
    let shape = Shape {
        memory: args.memory.unwrap_or(policy.standard.memory),
        disk: args.disk.unwrap_or(policy.standard.disk_size),
        vcpus: args.vcpus.unwrap_or(policy.standard.cpus),
        spindles: 1,
    };
    for (name, value) in [("memory", shape.memory), ("vcpus", shape.vcpus)] {
        if !(1..=1 << 40).contains(&value) {
            bail!("--{name} is a number from 1 to 2^40, and {value} is not");
        }
    }
    if !(0..=1 << 40).contains(&shape.disk) {
        bail!(
            "--disk is a number from 0 to 2^40, and {} is not",
            shape.disk
        );
    }
    let question = Question {
        shape,
        disk_template,
        spindle_use: policy.standard.spindle_use,
        group: loaded.group,
        n_plus_one: !args.no_n1,
        tiered: args.tiered,
    };
    let response = count(&mut loaded.cluster, &question);
    let limiting = response.limiting.resource();
    if session.for_programs() {
        let mut value = json!({"instances": response.instances, "limiting": limiting});
        if args.tiered {
            let tiers = response.tiers.iter().map(|tier| {
                json!({
                    "instances": tier.instances,
                    "memory_mib": tier.shape.memory,
                    "disk_mib": tier.shape.disk,
                    "vcpus": tier.shape.vcpus,
                })
            });
            value["tiers"] = tiers.collect();
        }
        return output::value(&value);
    }
    if args.tiered {
        let rows = response.tiers.iter().map(|tier| {
            [
                tier.instances.to_string(),
                tier.shape.memory.to_string(),
                tier.shape.disk.to_string(),
                tier.shape.vcpus.to_string(),
            ]
        });
        let head = ["instances", "memory mib", "disk mib", "vcpus"];
        output::table(head, rows.collect(), "none fits, of any size");
    }
    let template = disk_template.word();
    let what = if args.tiered { "in all" } else { template };
    output::print(format!("{} instances fit, {what}", response.instances));
    output::print(format!("limited by {limiting}"));
    let (last, refused) = ("for one more of the first shape", &response.refused);
    for (reason, count) in refused.iter().filter(|(_, count)| *count > 0) {
        output::print(format!("  {last}: {count} x {}", reason.resource()));
    }
    Ok(())
}

fn template(word: &str) -> anyhow::Result<DiskTemplate> {
    let template = DiskTemplate::ALL.iter().find(|t| t.word() == word);
    if let Some(template) = template {
        return Ok(*template);
    }
    let known: Vec<&str> = DiskTemplate::ALL.iter().map(|t| t.word()).collect();
    bail!(
        "'{word}' is no disk template; known are {}",
        known.join(", ")
    )
}
