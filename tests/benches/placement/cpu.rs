//! CPU time of processes and of what they started, from `/proc`.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// Ticks a second, which the kernel fixes for what it tells to programs.
const TICKS: u64 = 100;

/// A line of `/proc/PID/stat`.
struct Stat {
    parent: u32,
    ticks: u64,
}

/// Returns the CPU time that these processes and their descendants have taken so far, the kernel's
/// work for them included. It counts in hundredths of a second.
pub(crate) fn time_of(processes: &[u32]) -> Duration {
    let all = table();
    let among = |mut process: u32| {
        // Nobody is their own ancestor, so this ends at a process that has none.
        loop {
            if processes.contains(&process) {
                return true;
            }
            match all.get(&process) {
                Some(stat) if stat.parent != 0 => process = stat.parent,
                Some(_) | None => return false,
            }
        }
    };
    let ticks: u64 = all
        .iter()
        .filter(|(process, _)| among(**process))
        .map(|(_, stat)| stat.ticks)
        .sum();
    Duration::from_millis(ticks * 1000 / TICKS)
}

/// Returns the memory that a process holds.
pub(crate) fn resident_bytes(process: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

fn table() -> BTreeMap<u32, Stat> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers
        .filter_map(|number| Some((number, stat(number)?)))
        .collect()
}

/// A process that has ended in the meantime has none.
fn stat(process: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name before the bracket may hold anything.
    let (_, fields) = text.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        ticks: number(11)? + number(12)?,
    })
}
