//! Which free CPUs of a cell are taken.
//!
//! | policy | what is taken |
//! |---|---|
//! | `prefer` | whole cores first, so that siblings belong to one guest as far as possible |
//! | `require` | the same, from cores with several free threads; at most one vCPU sits alone |
//! | `isolate` | one thread each of unused cores; the others stay idle |
//!
//! Invariant: what [`super::cell::Spot::check`] lets through can be had.

use super::need::Need;
use crate::cpu_set::{CpuId, CpuSet};
use crate::instance::ThreadPolicy;
use crate::topology::HostCell;

/// What is taken from one cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// CPUs for the vCPUs, siblings next to each other.
    pub(super) vcpus: Vec<CpuId>,
    /// CPUs for the emulator.
    pub(super) emulator: Vec<CpuId>,
    /// Siblings of these that stay idle.
    pub(super) idle: CpuSet,
}

/// The free threads of one core.
#[derive(Clone, Copy, Debug)]
struct Core {
    free: usize,
    first: CpuId,
    position: usize,
}

/// Returns what a guest cell gets.
///
/// # Panics
///
/// When the cell has less: it was checked before.
pub(super) fn choose(cell: &HostCell, pinned: &CpuSet, need: &Need) -> Taken {
    if !need.cpu_policy.is_exclusive() || need.cpus() == 0 {
        return Taken::default();
    }
    let free = cell.dedicated.difference(pinned);
    let mut cores: Vec<Core> = Vec::with_capacity(cell.cores.len());
    for (position, core) in cell.cores.iter().enumerate() {
        if let Some(first) = core.iter_common(&free).next() {
            cores.push(Core {
                free: core.intersection_len(&free),
                first,
                position,
            });
        }
    }
    let dedicated = need.dedicated as usize;
    let emulator = need.emulator as usize;
    let mut shelf = Shelf { cell, free, cores };
    match need.thread_policy {
        ThreadPolicy::Prefer => {
            let mut cpus = shelf.together(dedicated + emulator, 1);
            Taken {
                emulator: cpus.split_off(dedicated),
                vcpus: cpus,
                idle: CpuSet::new(),
            }
        }
        ThreadPolicy::Require => Taken {
            vcpus: shelf.together(dedicated, 2),
            emulator: shelf.scraps(emulator),
            idle: CpuSet::new(),
        },
        ThreadPolicy::Isolate => shelf.apart(dedicated, emulator),
    }
}

/// The cores of a cell from which CPUs are taken.
struct Shelf<'a> {
    cell: &'a HostCell,
    free: CpuSet,
    cores: Vec<Core>,
}

impl Shelf<'_> {
    fn take(&mut self, core: Core, count: usize, out: &mut Vec<CpuId>) {
        let threads = &self.cell.cores[core.position];
        let before = out.len();
        let free = threads.iter_common(&self.free).take(count);
        out.extend(free);
        for cpu in &out[before..] {
            self.free.remove(*cpu);
        }
    }

    /// Takes CPUs from the cores that have at least this many free threads, the largest first.
    fn together(&mut self, count: usize, threads_min: usize) -> Vec<CpuId> {
        let mut cores: Vec<Core> = self.cores.clone();
        cores.retain(|core| core.free >= threads_min);
        cores.sort_unstable_by_key(|core| (std::cmp::Reverse(core.free), core.first));
        let mut chosen = Vec::with_capacity(count);
        let mut remaining = count;
        let mut spare = None;
        // Cores that are larger than what is still requested are left over.
        cores.retain(|core| {
            let is_taken = remaining > 0 && core.free <= remaining;
            if is_taken {
                self.take(*core, core.free, &mut chosen);
                remaining -= core.free;
                if core.free > 2 {
                    spare = Some(chosen.len() - 1);
                }
            }
            !is_taken
        });
        if remaining == 0 {
            return chosen;
        }
        // One of the smallest of them is broken, so that the larger ones stay whole for others.
        let core = cores.into_iter().min_by_key(|core| core.free);
        let core = core.expect("the cell has as many free CPUs");
        if let Some(spare) = spare.filter(|_| remaining == 1 && threads_min > 1) {
            // The last one would sit alone: a core that can spare one gives it company.
            self.free.insert(chosen.remove(spare));
            remaining = 2;
        }
        self.take(core, remaining, &mut chosen);
        chosen
    }

    /// Takes CPUs wherever they do the least harm: from the cores with the fewest free threads.
    fn scraps(&mut self, count: usize) -> Vec<CpuId> {
        let mut chosen = Vec::with_capacity(count);
        while chosen.len() < count {
            let left = |core: &Core| self.cell.cores[core.position].intersection_len(&self.free);
            let fewest = self.cores.iter().filter(|core| left(core) > 0);
            let core = *fewest
                .min_by_key(|core| (left(core), core.first))
                .expect("the cell has as many free CPUs");
            self.take(core, 1, &mut chosen);
        }
        chosen
    }

    /// Takes one thread each of unused cores, the smallest first.
    fn apart(&mut self, dedicated: usize, emulator: usize) -> Taken {
        let size = |core: &Core| self.cell.cores[core.position].len();
        let mut whole: Vec<Core> = self.cores.clone();
        whole.retain(|core| core.free == size(core));
        whole.sort_unstable_by_key(|core| (core.free, core.first));
        // By Nova's rules vCPUs sit only on cores of the largest size, while the emulator may take
        // a smaller one.
        let vcpu_cores = whole.split_off(whole.len().saturating_sub(dedicated));
        let mut taken = Taken::default();
        for (cores, out) in [
            (&vcpu_cores[..], &mut taken.vcpus),
            (&whole[..emulator], &mut taken.emulator),
        ] {
            for core in cores {
                out.push(core.first);
                let threads = self.cell.cores[core.position].iter();
                taken.idle.extend(threads.filter(|cpu| *cpu != core.first));
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::CpuPolicy;
    use crate::topology::CellId;

    fn check(
        (dedicated, cores): (&str, &[&str]),
        pinned: &str,
        thread_policy: ThreadPolicy,
        (vcpus, emulator): (u32, u32),
        expected: &str,
    ) {
        let set = |list: &str| list.parse::<CpuSet>().unwrap();
        let cell = HostCell {
            id: CellId(0),
            socket: None,
            shared: set(dedicated),
            dedicated: set(dedicated),
            cores: cores.iter().map(|core| set(core)).collect(),
            memory_mib: 0,
            pages: Vec::new(),
        };
        let need = Need {
            cpu_policy: CpuPolicy::Dedicated,
            thread_policy,
            dedicated: vcpus,
            emulator,
            shared: 0,
            memory_mib: 1,
            page_size: crate::instance::PageSize::Unspecified,
            is_locked: false,
        };
        let taken = choose(&cell, &set(pinned), &need);
        let list = |cpus: &[CpuId]| {
            let all: Vec<_> = cpus.iter().map(ToString::to_string).collect();
            all.join(" ")
        };
        let found = format!(
            "{}|{}|{}",
            list(&taken.vcpus),
            list(&taken.emulator),
            taken.idle
        );
        assert_eq!(found, expected, "{vcpus}+{emulator} with {pinned} taken");
    }

    /// Goal: siblings stay together and cores are broken only for a rest. Method: a table.
    #[test]
    fn whole_cores_go_first() {
        let cell = ("0-7", &["0,4", "1,5", "2,6", "3,7"][..]);
        for (pinned, count, expected) in [
            ("", (2, 0), "0 4||"),
            ("", (3, 0), "0 4 1||"),
            ("", (2, 1), "0 4|1|"),
            ("0", (2, 0), "1 5||"),
            ("0", (1, 0), "4||"),
            ("0", (3, 0), "1 5 4||"),
            ("0-3", (3, 0), "4 5 6||"),
            ("", (8, 0), "0 4 1 5 2 6 3 7||"),
            ("", (0, 0), "||"),
        ] {
            check(cell, pinned, ThreadPolicy::Prefer, count, expected);
        }
    }

    /// Goal: at most one vCPU sits alone, and that only where it must. Method: a table.
    #[test]
    fn siblings_go_together_where_they_must() {
        let cell = ("0-11", &["0-3", "4-7", "8-11"][..]);
        for (pinned, count, expected) in [
            ("", (5, 0), "0 1 2 4 5||"),
            ("", (2, 1), "0 1|2|"),
            ("0,4", (4, 0), "8 9 10 11||"),
            ("0,4", (3, 0), "1 2 3||"),
            ("0-2,4-6,8-9", (2, 1), "10 11|3|"),
            ("0-2,4-6,8-9", (1, 1), "10|3|"),
            ("0,4", (5, 1), "8 9 10 1 2|3|"),
        ] {
            check(cell, pinned, ThreadPolicy::Require, count, expected);
        }
    }

    /// Goal: no other guest is on the core of an isolated vCPU, nor on that of its emulator.
    #[test]
    fn isolated_threads_take_whole_cores() {
        let cell = ("0-6", &["0", "1,2", "3,4", "5,6"][..]);
        for (pinned, count, expected) in [
            ("", (2, 0), "3 5||4,6"),
            ("", (2, 1), "3 5|0|4,6"),
            ("0", (2, 1), "3 5|1|2,4,6"),
            ("3", (2, 1), "1 5|0|2,6"),
            ("3", (0, 1), "|0|"),
        ] {
            check(cell, pinned, ThreadPolicy::Isolate, count, expected);
        }
    }
}
