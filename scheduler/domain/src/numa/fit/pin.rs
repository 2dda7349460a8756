//! Which free CPUs of a cell are taken: whole cores first, so that the siblings of a core belong
//! to one guest as far as possible (Nova's `prefer`).
//!
//! Invariant: any number up to the number of free CPUs can be had.

use super::Site;
use crate::cpu_set::CpuId;

/// Returns `count` free dedicated CPUs, siblings next to each other.
///
/// # Panics
///
/// When the cell has fewer: it was checked before.
pub(super) fn choose(site: &Site<'_>, count: u32) -> Vec<CpuId> {
    let mut wanted = count as usize;
    let mut chosen = Vec::with_capacity(wanted);
    if wanted == 0 {
        return chosen;
    }
    let free = site.cell.dedicated.difference(&site.usage.pinned);
    let mut groups: Vec<Vec<CpuId>> = site
        .cell
        .cores
        .iter()
        .map(|core| core.iter().filter(|cpu| free.contains(*cpu)).collect())
        .filter(|group: &Vec<CpuId>| !group.is_empty())
        .collect();
    groups.sort_by_key(|group| (std::cmp::Reverse(group.len()), group[0]));
    while wanted > 0 {
        let whole = groups.iter().position(|group| group.len() <= wanted);
        // What is left is smaller than any group: one of the smallest is broken, so that the
        // larger ones stay whole for others.
        let group = groups.remove(whole.unwrap_or_else(|| smallest(&groups)));
        let taken = group.len().min(wanted);
        chosen.extend(&group[..taken]);
        wanted -= taken;
    }
    chosen
}

fn smallest(groups: &[Vec<CpuId>]) -> usize {
    let by_length = groups.iter().enumerate().min_by_key(|(_, g)| g.len());
    by_length.expect("the cell has as many free CPUs").0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu_set::CpuSet;
    use crate::numa::CellUsage;
    use crate::topology::{CellId, HostCell};

    /// Goal: siblings stay together and cores are broken only for a rest. Method: a table.
    #[test]
    fn whole_cores_go_first() {
        let set = |list: &str| list.parse::<CpuSet>().unwrap();
        let cell = HostCell {
            id: CellId(0),
            socket: None,
            shared: set(""),
            dedicated: set("0-7"),
            cores: ["0,4", "1,5", "2,6", "3,7"].map(set).to_vec(),
            memory_mib: 0,
            pages: Vec::new(),
        };
        for (pinned, count, expected) in [
            ("", 2, vec![0, 4]),
            ("", 3, vec![0, 4, 1]),
            ("0", 2, vec![1, 5]),
            ("0", 1, vec![4]),
            ("0", 3, vec![1, 5, 4]),
            ("0-3", 3, vec![4, 5, 6]),
            ("", 8, vec![0, 4, 1, 5, 2, 6, 3, 7]),
            ("", 0, vec![]),
        ] {
            let usage = CellUsage {
                pinned: set(pinned),
                ..CellUsage::default()
            };
            let site = Site {
                cell: &cell,
                usage: &usage,
            };
            let cpus: Vec<u32> = choose(&site, count).into_iter().map(|c| c.0).collect();
            assert_eq!(cpus, expected, "{count} with {pinned} taken");
        }
    }
}
