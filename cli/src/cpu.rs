//! The shared CPUs of a host: the policy in force, its source, and how many vCPUs are taken.

use berth_domain::policy::memory::ratio_text;
use berth_proto::policy::v1::HostCpu;
use serde_json::{Value, json};

use crate::memory::source;

/// Returns the policy in force and its sources, as lines.
///
/// # Errors
///
/// A source that is not known.
pub fn lines(cpu: &HostCpu) -> anyhow::Result<Vec<(&'static str, String)>> {
    let ratio = ratio_text(cpu.ratio_milli.into());
    let beyond = match cpu.used.checked_sub(cpu.capacity) {
        Some(beyond @ 1..) => format!("; {beyond} more than may be"),
        Some(0) | None => String::new(),
    };
    Ok(vec![
        (
            "cpu.ratio",
            format!("{ratio} ({})", source(cpu.ratio_from.clone())?),
        ),
        (
            "cpu.reserved",
            format!("{} ({})", cpu.reserved, source(cpu.reserved_from.clone())?),
        ),
        (
            "shared CPUs",
            format!(
                "{} vCPUs taken of {} on {} CPUs, {} of them reserved{beyond}",
                cpu.used, cpu.capacity, cpu.total, cpu.reserved
            ),
        ),
    ])
}

/// Returns the same for programs.
///
/// # Errors
///
/// A source that is not known.
pub fn value(cpu: &HostCpu) -> anyhow::Result<Value> {
    Ok(json!({
        "ratio": f64::from(cpu.ratio_milli) / 1000.0,
        "ratio_from": source(cpu.ratio_from.clone())?,
        "reserved": cpu.reserved,
        "reserved_from": source(cpu.reserved_from.clone())?,
        "total": cpu.total,
        "capacity": cpu.capacity,
        "used": cpu.used,
    }))
}

#[cfg(test)]
mod tests {
    use berth_domain::policy::Source;

    use super::*;

    fn taken(used: u64) -> String {
        let cpu = HostCpu {
            ratio_milli: 1500,
            ratio_from: Some((&Source::Cluster).into()),
            reserved: 2,
            reserved_from: Some((&Source::Default).into()),
            total: 8,
            capacity: 9,
            used,
        };
        let lines = lines(&cpu).unwrap();
        assert_eq!(lines[0], ("cpu.ratio", "1.5 (cluster)".to_owned()));
        assert_eq!(lines[1], ("cpu.reserved", "2 (default)".to_owned()));
        lines[2].1.clone()
    }

    #[test]
    fn what_is_beyond_the_ratio_is_shown() {
        let base = "vCPUs taken of 9 on 8 CPUs, 2 of them reserved";
        assert_eq!(taken(0), format!("0 {base}"));
        assert_eq!(taken(9), format!("9 {base}"));
        assert_eq!(taken(12), format!("12 {base}; 3 more than may be"));
    }
}
