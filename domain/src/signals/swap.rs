//! Whether a host has the swap space that over-committing its memory takes.
//!
//! Both rules are Ganeti's design's: swap of at least (ratio - 1) x (total - mem_node), and memory
//! and swap together at least as large as what is used. Huge pages are left out of the first: they
//! are never over-committed, and cannot be swapped out.
//!
//! Invariant: what is not known warns of itself where it could matter, and is never taken for 0.

use std::fmt;

use super::{AllocationRatio, MemorySignals};

/// What was not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Measurement {
    /// The host's memory.
    Memory,
    /// Its swap space.
    Swap,
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Swap => "swap space",
        })
    }
}

/// What an operator should know of the swap space of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// It is too small for the ratio.
    TooSmall {
        /// What there is.
        swap_mib: u64,
        /// What there should be.
        required_mib: u64,
        /// The ratio.
        ratio: AllocationRatio,
        /// Memory in ordinary pages, without what the node itself needs.
        ordinary_mib: u64,
    },
    /// Memory and swap space together are less than what is used.
    Short {
        /// Memory without what the node itself needs.
        available_mib: u64,
        /// Swap space.
        swap_mib: u64,
        /// What the guests may use.
        used_mib: u64,
    },
    /// Something was not measured, so the other rules could not be applied.
    Unknown(Measurement),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooSmall {
                swap_mib,
                required_mib,
                ratio,
                ordinary_mib,
            } => write!(
                f,
                "swap space of {swap_mib} MiB is less than the {required_mib} MiB that a memory ratio of \
                 {ratio} takes: ({ratio} - 1) x {ordinary_mib} MiB of memory"
            ),
            Self::Short {
                available_mib,
                swap_mib,
                used_mib,
            } => write!(
                f,
                "{used_mib} MiB are used, more than {available_mib} MiB of memory and {swap_mib} MiB of \
                 swap space together"
            ),
            Self::Unknown(Measurement::Memory) => {
                f.write_str("the memory of the host is not known: its agent did not measure it")
            }
            Self::Unknown(Measurement::Swap) => {
                f.write_str("the swap space of the host is not known: its agent did not measure it")
            }
        }
    }
}

impl Warning {
    /// Returns what to do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::TooSmall {
                swap_mib,
                required_mib,
                ..
            } => {
                let more = required_mib.saturating_sub(*swap_mib);
                format!("add {more} MiB of swap space to the host, or lower its memory ratio")
            }
            Self::Short {
                available_mib,
                swap_mib,
                used_mib,
            } => {
                let short = used_mib.saturating_sub(available_mib.saturating_add(*swap_mib));
                format!("add {short} MiB of swap space, or move VMs of {short} MiB to other hosts")
            }
            Self::Unknown(what) => {
                format!("the log of the host's agent says why it cannot measure its {what}")
            }
        }
    }
}

/// Returns what an operator should know of the swap space of a host on which `used_mib` of memory
/// are used by guests, at this ratio, and of which the node itself needs `mem_node_mib`.
#[must_use]
pub fn swap_warnings(
    signals: &MemorySignals,
    ratio: AllocationRatio,
    mem_node_mib: u64,
    used_mib: u64,
) -> Vec<Warning> {
    let Some(memory) = signals.memory else {
        return vec![Warning::Unknown(Measurement::Memory)];
    };
    let node_kib = mem_node_mib.saturating_mul(1024);
    let available_kib = memory.total_kib.saturating_sub(node_kib);
    let ordinary_kib = available_kib.saturating_sub(memory.huge_kib);
    let required_kib = ratio.capacity(ordinary_kib, 0).saturating_sub(ordinary_kib);
    let used_kib = used_mib.saturating_mul(1024);
    let Some(swap) = signals.swap else {
        // What has to be swapped nowhere needs no swap space.
        let matters = required_kib > 0 || used_kib > available_kib;
        return Vec::from_iter(matters.then_some(Warning::Unknown(Measurement::Swap)));
    };
    let swap_mib = swap.total_kib / 1024;
    let mut warnings = Vec::new();
    if swap.total_kib < required_kib {
        warnings.push(Warning::TooSmall {
            swap_mib,
            // Rounded up: an operator who follows the hint is not warned again.
            required_mib: required_kib.div_ceil(1024),
            ratio,
            ordinary_mib: ordinary_kib / 1024,
        });
    }
    if available_kib.saturating_add(swap.total_kib) < used_kib {
        warnings.push(Warning::Short {
            available_mib: available_kib / 1024,
            swap_mib,
            used_mib,
        });
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::super::{NodeMemory, Swap};
    use super::*;

    const NODE_MIB: u64 = 1024;

    fn signals(total_mib: u64, huge_mib: u64, swap_mib: u64) -> MemorySignals {
        MemorySignals {
            memory: Some(NodeMemory {
                total_kib: total_mib * 1024,
                huge_kib: huge_mib * 1024,
                ..NodeMemory::default()
            }),
            swap: Some(Swap {
                total_kib: swap_mib * 1024,
                free_kib: 0,
            }),
            ..MemorySignals::default()
        }
    }

    /// Returns what is warned of: the required swap space, by how much memory is short.
    fn warned(signals: &MemorySignals, milli: u64, used_mib: u64) -> (Option<u64>, Option<u64>) {
        let ratio = AllocationRatio::from_milli(milli);
        let mut warnings = (None, None);
        for warning in swap_warnings(signals, ratio, NODE_MIB, used_mib) {
            assert!(!warning.to_string().is_empty() && !warning.hint().is_empty());
            match warning {
                Warning::TooSmall { required_mib, .. } => warnings.0 = Some(required_mib),
                Warning::Short {
                    available_mib,
                    swap_mib,
                    used_mib,
                } => warnings.1 = Some(used_mib - available_mib - swap_mib),
                Warning::Unknown(what) => panic!("{what} is known"),
            }
        }
        warnings
    }

    /// Goal: both rules at their edges. Method: a table of a host of 65 GiB, of which 64 are
    /// available.
    #[test]
    fn swap_is_measured_against_the_ratio_and_the_use() {
        let gib = 1024;
        for (huge, swap, milli, used, required, short) in [
            // Without over-commitment nothing is required.
            (0, 0, 1000, 64 * gib, None, None),
            (0, 0, 1000, 64 * gib + 1, None, Some(1)),
            (0, 0, 500, 0, None, None),
            // (1.5 - 1) x 64 GiB, at the edge and below it.
            (0, 32 * gib, 1500, 96 * gib, None, None),
            (0, 32 * gib - 1, 1500, 95 * gib, Some(32 * gib), None),
            (0, 32 * gib, 1500, 96 * gib + 5, None, Some(5)),
            (0, 0, 1500, 70 * gib, Some(32 * gib), Some(6 * gib)),
            (0, 128 * gib, 3000, 0, None, None),
            // Huge pages are not over-committed, but guests use them.
            (60 * gib, 2 * gib, 1500, 66 * gib, None, None),
            (60 * gib, 2 * gib - 1, 1500, 0, Some(2 * gib), None),
            (80 * gib, 0, 2000, 0, None, None),
        ] {
            let signals = signals(65 * gib, huge, swap);
            let warnings = warned(&signals, milli, used);
            let case = format!("huge {huge} swap {swap} ratio {milli} used {used}");
            assert_eq!(warnings, (required, short), "{case}");
        }
    }

    #[test]
    fn a_node_that_needs_more_than_there_is_leaves_nothing() {
        assert_eq!(warned(&signals(512, 0, 100), 2000, 101), (None, Some(1)));
        let none = swap_warnings(&signals(1, 0, 0), AllocationRatio::ONE, u64::MAX, u64::MAX);
        assert_eq!(none.len(), 1);
    }

    #[test]
    fn unknown_figures_are_reported_where_they_matter() {
        let ratio = AllocationRatio::from_milli;
        let nothing = MemorySignals::default();
        let memory = [Warning::Unknown(Measurement::Memory)];
        assert_eq!(swap_warnings(&nothing, ratio(1000), NODE_MIB, 0), memory);
        let no_swap = MemorySignals {
            swap: None,
            ..signals(2048, 0, 0)
        };
        let swap = [Warning::Unknown(Measurement::Swap)];
        assert_eq!(swap_warnings(&no_swap, ratio(1000), NODE_MIB, 1024), []);
        assert_eq!(swap_warnings(&no_swap, ratio(1000), NODE_MIB, 1025), swap);
        assert_eq!(swap_warnings(&no_swap, ratio(1500), NODE_MIB, 0), swap);
    }

    #[test]
    fn texts_have_the_numbers_and_what_to_do() {
        let warnings = swap_warnings(
            &signals(65_536, 0, 1000),
            AllocationRatio::from_milli(1500),
            NODE_MIB,
            70_000,
        );
        let texts: Vec<_> = warnings.iter().map(|w| (w.to_string(), w.hint())).collect();
        assert_eq!(
            texts,
            [
                (
                    "swap space of 1000 MiB is less than the 32256 MiB that a memory ratio of 1.5 \
                     takes: (1.5 - 1) x 64512 MiB of memory"
                        .to_owned(),
                    "add 31256 MiB of swap space to the host, or lower its memory ratio".to_owned()
                ),
                (
                    "70000 MiB are used, more than 64512 MiB of memory and 1000 MiB of swap space \
                     together"
                        .to_owned(),
                    "add 4488 MiB of swap space, or move VMs of 4488 MiB to other hosts".to_owned()
                ),
            ]
        );
    }
}
