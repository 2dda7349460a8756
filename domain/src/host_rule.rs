//! By which rules memory and shared CPUs of one host are given away: what the policy and the
//! agent's configuration amount to. Inventories follow from it and from the host's shape.
//!
//! It does not know where the numbers come from: see [`crate::policy`]. What the rule of memory
//! means is in [`crate::memory`].

use serde::{Deserialize, Serialize};

use crate::inventory::Inventory;
use crate::memory::MemoryRule;
use crate::overcommit::AllocationRatio;

/// How many vCPUs one shared CPU may have where nothing is set, in thousandths.
pub const CPU_RATIO_MILLI_DEFAULT: u32 = 4000;

/// What holds of the shared CPUs of one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CpuRule {
    /// How many shared vCPUs one shared CPU may have.
    pub ratio: AllocationRatio,
    /// How many shared CPUs are not counted for guests, at most all.
    pub reserved: u64,
}

impl Default for CpuRule {
    fn default() -> Self {
        Self {
            ratio: AllocationRatio::from_milli(CPU_RATIO_MILLI_DEFAULT.into()),
            reserved: 0,
        }
    }
}

impl CpuRule {
    /// Returns what a host with so many shared CPUs offers of them. A single guest may have as many
    /// vCPUs as there are shared CPUs, reserved ones included: it floats over all of them.
    #[must_use]
    pub fn inventory(&self, shared_cpus: u64) -> Inventory {
        Inventory {
            reserved: self.reserved.min(shared_cpus),
            allocation_ratio: self.ratio,
            ..Inventory::exact(shared_cpus)
        }
    }
}

/// What holds of one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostRule {
    /// Of its memory.
    pub memory: MemoryRule,
    /// Of its shared CPUs.
    pub cpu: CpuRule,
}

impl HostRule {
    /// Returns whether everything that may be given away by the other may be given away by this
    /// one, on a host whose agent reserves so much memory.
    #[must_use]
    pub fn includes(&self, other: &Self, agent_mib: u64) -> bool {
        let node = |rule: &Self| rule.memory.mem_node_mib.unwrap_or(agent_mib);
        self.memory.ratio >= other.memory.ratio
            && node(self) <= node(other)
            && self.cpu.ratio >= other.cpu.ratio
            && self.cpu.reserved <= other.cpu.reserved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: shared CPUs are given away up to floor((shared - reserved) x ratio), never beyond, and
    /// each amount up to what is free is admitted. Method: every host of up to 130 shared CPUs with
    /// every reserve around the edges, ratios over all of their range, compared with the rule in
    /// whole numbers. Ratios are binary fractions as in Placement (1.15 x 100 is 114), so that where
    /// the product is whole the capacity may be one less.
    #[test]
    fn shared_cpus_are_given_away_up_to_the_ratio() {
        let ratios = (100..=64_000).step_by(37).chain([500, 1000, 4000, 64_000]);
        for milli in ratios {
            for shared in 0..=130_u64 {
                for reserved in [0, 1, 2, shared / 2, shared, shared + 1] {
                    let rule = CpuRule {
                        ratio: AllocationRatio::from_milli(milli),
                        reserved,
                    };
                    let inventory = rule.inventory(shared);
                    let exact = shared.saturating_sub(reserved) * milli;
                    let capacity = inventory.capacity();
                    let is_whole = exact.is_multiple_of(1000);
                    let least = exact / 1000 - u64::from(is_whole && exact > 0);
                    assert!(
                        (least..=exact / 1000).contains(&capacity),
                        "{shared} - {reserved} x {milli}: {capacity}"
                    );
                    fill(&inventory, capacity);
                }
            }
        }
    }

    /// Takes everything in the largest amounts that are admitted.
    fn fill(inventory: &Inventory, capacity: u64) {
        let mut used = 0;
        while used < capacity {
            let amount = (capacity - used).min(inventory.max_unit);
            assert_eq!(inventory.admit(used, amount), Ok(()));
            used += amount;
        }
        assert!(inventory.admit(used, 1).is_err(), "{inventory:?}");
        assert!(!inventory.holds(used + 1), "{inventory:?}");
    }

    #[test]
    fn whole_ratios_are_exact() {
        for (shared, reserved, milli, capacity) in [
            (8, 0, 4000, 32),
            (8, 2, 4000, 24),
            (8, 2, 8000, 48),
            (8, 0, 500, 4),
            (3, 0, 500, 1),
            (8, 8, 64_000, 0),
            (8, 99, 64_000, 0),
            (100, 0, 1150, 114),
        ] {
            let rule = CpuRule {
                ratio: AllocationRatio::from_milli(milli),
                reserved,
            };
            assert_eq!(rule.inventory(shared).capacity(), capacity);
        }
    }

    /// Goal: a rule that takes anything away is not wider. Method: each number by itself.
    #[test]
    fn a_rule_includes_those_that_give_less_of_everything() {
        let base = HostRule::default();
        let with = |change: fn(&mut HostRule)| {
            let mut rule = base;
            change(&mut rule);
            rule
        };
        let less = [
            with(|rule| rule.memory.mem_node_mib = Some(513)),
            with(|rule| rule.cpu.ratio = AllocationRatio::from_milli(3999)),
            with(|rule| rule.cpu.reserved = 1),
        ];
        for rule in less {
            assert!(base.includes(&rule, 512) && !rule.includes(&base, 512));
        }
        let more = [
            with(|rule| rule.memory.ratio = AllocationRatio::from_milli(1001)),
            with(|rule| rule.memory.mem_node_mib = Some(511)),
            with(|rule| rule.cpu.ratio = AllocationRatio::from_milli(4001)),
        ];
        for rule in more {
            assert!(!base.includes(&rule, 512) && rule.includes(&base, 512));
        }
        assert!(base.includes(&base, 512));
    }
}
