//! What a resource provider has of one resource class.

use serde::{Deserialize, Serialize};

/// What a provider has of one class; the fields are those of OpenStack Placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Inventory {
    /// All units.
    pub total: u64,
    /// Units that nobody may take.
    pub reserved: u64,
    /// The least amount of one allocation.
    pub min_unit: u64,
    /// The greatest amount of one allocation.
    pub max_unit: u64,
    /// An allocation is a multiple of this.
    pub step_size: u64,
    /// How often one unit may be given away, in thousandths: 1000 is never more than once.
    pub allocation_ratio_milli: u64,
}

impl Inventory {
    /// Returns an inventory of `total` units, each given away once at most.
    #[must_use]
    pub fn exact(total: u64) -> Self {
        Self {
            total,
            reserved: 0,
            min_unit: 1,
            max_unit: total.max(1),
            step_size: 1,
            allocation_ratio_milli: 1000,
        }
    }

    /// Returns how much may be allocated in all: (total - reserved) x ratio, rounded down.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        let free = u128::from(self.total.saturating_sub(self.reserved));
        let capacity = free * u128::from(self.allocation_ratio_milli) / 1000;
        u64::try_from(capacity).unwrap_or(u64::MAX)
    }
}
