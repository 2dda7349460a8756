//! The VMs of a host that is drained: what became of them, as lines.

use std::collections::BTreeMap;

use berth_domain::name::VmName;
use berth_domain::operation::{Drain, DrainedVm, Progress};

/// What has been shown of a drain.
#[derive(Debug, Default)]
pub struct Shown(BTreeMap<VmName, Progress>);

impl Shown {
    /// Returns a line for each VM of which something is new.
    pub fn lines(&mut self, drain: &Drain) -> Vec<String> {
        let mut lines = Vec::new();
        for drained in &drain.vms {
            let DrainedVm { vm, progress, .. } = drained;
            if self.0.get(vm) == Some(progress) {
                continue;
            }
            // One that is tried again is not new to the reader.
            if *progress != Progress::Waiting {
                lines.push(line(drained));
            }
            self.0.insert(vm.clone(), progress.clone());
        }
        lines
    }
}

/// Returns what became of a VM as a line.
#[must_use]
pub fn line(drained: &DrainedVm) -> String {
    let DrainedVm { vm, progress, .. } = drained;
    match progress {
        Progress::Waiting => format!("{vm} waits to be moved"),
        Progress::Moving { operation } => format!("{vm} is being moved by operation {operation}"),
        Progress::Moved { host } => format!("{vm} moved to {host}"),
        Progress::Gone => format!("{vm} is on no host any more"),
        Progress::Stays { refusal } => format!("{vm} was not moved: {refusal}"),
    }
}
