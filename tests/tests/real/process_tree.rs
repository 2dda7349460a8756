//! The processes that a test started, as `/proc` shows them.
//!
//! What it is not: all that a test leaves behind. A process that was left to process 1 is not found;
//! a machine of a lab ends with its parent, which is.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// A process, and what it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunningProcess {
    pid: u32,
    command: String,
    /// The function of the kernel that it waits in; empty where that is not shown.
    waits_in: String,
}

impl fmt::Display for RunningProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.pid, self.waits_in, self.command)
    }
}

/// Returns a process and all that descend from it, each after its parent.
pub(crate) fn descendants(root: u32) -> Vec<RunningProcess> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
        if let Some(parent) = parent_of(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let (mut tree, mut next) = (vec![root], 0);
    while let Some(&parent) = tree.get(next) {
        tree.extend(children.remove(&parent).unwrap_or_default());
        next += 1;
    }
    tree.into_iter().map(describe).collect()
}

/// Kills processes, the last first, so that none starts another for one that ended.
pub(crate) fn kill(processes: &[RunningProcess]) {
    for process in processes.iter().rev() {
        let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
        // One that has ended needs no signal.
        let _ = pid.map(|pid| kill_process(pid, Signal::KILL));
    }
}

fn parent_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}

fn describe(pid: u32) -> RunningProcess {
    let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace('\0', " ");
    let command: String = words(&read("cmdline")).chars().take(200).collect();
    RunningProcess {
        pid,
        command,
        waits_in: words(&read("wchan")),
    }
}
