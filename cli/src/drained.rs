//! The VMs of a host that is drained: what became of them, as lines.

use std::collections::BTreeMap;
use std::fmt;

use berth_domain::name::VmName;
use berth_domain::operation::{Drain, DrainedVm, Progress};
use berth_domain::refusal::Refusal;

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
        Progress::Stays { refusal } => not_moved(vm, refusal),
    }
}

/// Returns why a VM was not moved, and what helps, as a line.
#[must_use]
pub fn not_moved(vm: impl fmt::Display, refusal: &Refusal) -> String {
    match &refusal.hint {
        Some(hint) => format!("{vm} was not moved: {refusal}; hint: {hint}"),
        None => format!("{vm} was not moved: {refusal}"),
    }
}

/// The most VMs that a line of a hint names.
const NAMED_MAX: usize = 4;

/// Returns each hint once, as a line that names its VMs.
pub fn hints<'a>(of_vms: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let mut vms_of: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (vm, hint) in of_vms {
        vms_of.entry(hint).or_default().push(vm);
    }
    let lines = vms_of.into_iter().map(|(hint, vms)| {
        let named = vms.iter().take(NAMED_MAX).copied();
        let named = named.collect::<Vec<_>>().join(", ");
        let more = match vms.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("hint for {named}{more}: {hint}")
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hint_is_shown_once_with_its_vms() {
        let crowd: Vec<String> = (0..6).map(|n| format!("v{n}")).collect();
        let of_vms = crowd.iter().map(|vm| (vm.as_str(), "add a host"));
        let lines = hints(of_vms.chain([("w", "confirm")]));
        let expected = [
            "hint for v0, v1, v2, v3 and 2 more: add a host",
            "hint for w: confirm",
        ];
        assert_eq!(lines, expected);
    }
}
