//! The memory of a host: the policy in force, its source, and whether too much is
//! taken.

use berth_domain::policy::Source;
use berth_domain::policy::memory::ratio_text;
use berth_proto::policy::v1::host_memory::Violation;
use berth_proto::policy::v1::{HostMemory, MemorySource};
use serde_json::{Value, json};

/// Returns the word for a verdict.
#[must_use]
pub fn violation(memory: &HostMemory) -> &'static str {
    match memory.violation() {
        Violation::Unspecified => "-",
        Violation::None => "none",
        Violation::Soft => "soft",
        Violation::Hard => "hard",
    }
}

/// Returns the policy in force and its sources, as lines.
///
/// # Errors
///
/// A source that is not known.
pub fn lines(memory: &HostMemory) -> anyhow::Result<Vec<(&'static str, String)>> {
    let ratio = ratio_text(memory.ratio_milli.into());
    let mut lines = vec![
        (
            "memory.ratio",
            format!("{ratio} ({})", source(memory.ratio_from.clone())?),
        ),
        (
            "memory.mem_node_mib",
            format!(
                "{} ({})",
                memory.mem_node_mib,
                source(memory.mem_node_from.clone())?
            ),
        ),
        (
            "memory",
            format!(
                "{} MiB taken ({} by running guests) of {} available; {} not overcommitted, {} in huge pages",
                memory.used_mib,
                memory.running_mib,
                memory.available_mib,
                memory.exact_mib,
                memory.huge_mib
            ),
        ),
    ];
    if memory.swap_needed_mib > 0 {
        let swap = format!(
            "at least {} MiB, for overcommitted memory",
            memory.swap_needed_mib
        );
        lines.push(("swap needed", swap));
    }
    let word = violation(memory);
    lines.push((
        "memory violation",
        match memory.violation() {
            Violation::Soft | Violation::Hard => format!("{word}: {}", memory.explanation),
            Violation::Unspecified | Violation::None => word.to_owned(),
        },
    ));
    Ok(lines)
}

/// Returns the same for programs.
///
/// # Errors
///
/// A source that is not known.
pub fn value(memory: &HostMemory) -> anyhow::Result<Value> {
    Ok(json!({
        "ratio": f64::from(memory.ratio_milli) / 1000.0,
        "ratio_from": source(memory.ratio_from.clone())?,
        "mem_node_mib": memory.mem_node_mib,
        "mem_node_from": source(memory.mem_node_from.clone())?,
        "total_mib": memory.total_mib,
        "available_mib": memory.available_mib,
        "used_mib": memory.used_mib,
        "running_mib": memory.running_mib,
        "exact_mib": memory.exact_mib,
        "huge_mib": memory.huge_mib,
        "swap_needed_mib": memory.swap_needed_mib,
        "violation": violation(memory),
        "explanation": memory.explanation,
    }))
}

/// Returns the name of a source.
///
/// # Errors
///
/// One that is not known.
pub(crate) fn source(wire: Option<MemorySource>) -> anyhow::Result<String> {
    let source: Source = wire.unwrap_or_default().try_into()?;
    Ok(source.to_string())
}
