//! What a resource provider has of one resource class.

use serde::{Deserialize, Serialize};

use crate::field_fault::Fault;
use crate::overcommit::AllocationRatio;

/// The greatest number of units, reserved ones included: what OpenStack's database holds.
pub const UNITS_MAX: u64 = 2_147_483_647;

/// What a provider has of one class; the fields are those of OpenStack Placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Inventory {
    /// All units.
    pub total: u64,
    /// Units that are reserved, and cannot be allocated.
    pub reserved: u64,
    /// The least amount of one allocation.
    pub min_unit: u64,
    /// The greatest amount of one allocation.
    pub max_unit: u64,
    /// An allocation is a multiple of this.
    pub step_size: u64,
    /// How often one unit may be given away.
    pub allocation_ratio: AllocationRatio,
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
            allocation_ratio: AllocationRatio::ONE,
        }
    }

    /// Returns how much may be allocated in all: (total - reserved) x ratio, rounded down.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.allocation_ratio.capacity(self.total, self.reserved)
    }

    /// Returns whether `used` may be allocated in all.
    #[must_use]
    pub fn holds(&self, used: u64) -> bool {
        self.allocation_ratio.holds(self.total, self.reserved, used)
    }

    /// Returns how much may still be allocated.
    #[must_use]
    pub fn free(&self, used: u64) -> u64 {
        self.capacity().saturating_sub(used)
    }

    /// Checks that `amount` may be allocated where `used` is taken already.
    ///
    /// # Errors
    ///
    /// The rule of OpenStack Placement that forbids it.
    pub fn admit(&self, used: u64, amount: u64) -> Result<(), Excess> {
        if amount < self.min_unit {
            return Err(Excess::BelowMinUnit {
                amount,
                min_unit: self.min_unit,
            });
        }
        if amount > self.max_unit {
            return Err(Excess::AboveMaxUnit {
                amount,
                max_unit: self.max_unit,
            });
        }
        if !amount.is_multiple_of(self.step_size.max(1)) {
            return Err(Excess::OffStep {
                amount,
                step_size: self.step_size,
            });
        }
        let free = self.free(used);
        if amount > free {
            return Err(Excess::Capacity { amount, free });
        }
        Ok(())
    }

    /// Checks the numbers of an inventory that a client wrote.
    ///
    /// # Errors
    ///
    /// All faults at once.
    pub fn validate(&self) -> Result<(), Vec<Fault>> {
        let mut faults = Vec::new();
        let mut bound = |field: &str, value: u64, min: u64, max: u64| {
            if !(min..=max).contains(&value) {
                faults.push(Fault::new(field, value, format!("must be {min} to {max}")));
            }
        };
        bound("total", self.total, 1, UNITS_MAX);
        bound("reserved", self.reserved, 0, UNITS_MAX);
        bound("min_unit", self.min_unit, 1, UNITS_MAX);
        bound("max_unit", self.max_unit, 1, UNITS_MAX);
        bound("step_size", self.step_size, 1, UNITS_MAX);
        if self.reserved > self.total {
            let rule = format!("must not be more than the total of {}", self.total);
            faults.push(Fault::new("reserved", self.reserved, rule));
        }
        if faults.is_empty() {
            Ok(())
        } else {
            Err(faults)
        }
    }
}

/// Why an amount may not be allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Excess {
    /// Less than one allocation must have.
    #[error("{amount} is less than the least allocation of {min_unit}")]
    BelowMinUnit {
        /// The requested amount.
        amount: u64,
        /// The least.
        min_unit: u64,
    },
    /// More than one allocation may have.
    #[error("{amount} is more than the greatest allocation of {max_unit}")]
    AboveMaxUnit {
        /// The requested amount.
        amount: u64,
        /// The greatest.
        max_unit: u64,
    },
    /// Not a multiple of the step.
    #[error("{amount} is no multiple of {step_size}")]
    OffStep {
        /// The requested amount.
        amount: u64,
        /// The step.
        step_size: u64,
    },
    /// More than is free.
    #[error("{free} of {amount} are free")]
    Capacity {
        /// The requested amount.
        amount: u64,
        /// What is free.
        free: u64,
    },
}

impl Excess {
    /// Returns the requested and the available amount.
    #[must_use]
    pub fn amounts(&self) -> (u64, u64) {
        match *self {
            Self::BelowMinUnit { amount, .. } | Self::OffStep { amount, .. } => (amount, 0),
            Self::AboveMaxUnit { amount, max_unit } => (amount, max_unit),
            Self::Capacity { amount, free } => (amount, free),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_is_what_is_not_reserved_times_the_ratio() {
        let inventory = Inventory {
            total: 10,
            reserved: 1,
            allocation_ratio: AllocationRatio::from_milli(1500),
            ..Inventory::exact(10)
        };
        assert_eq!(inventory.capacity(), 13);
        assert_eq!((inventory.free(5), inventory.free(20)), (8, 0));
    }

    /// Goal: the rules of OpenStack Placement, each at its edge. Method: a table.
    #[test]
    fn amounts_are_admitted_by_unit_step_and_capacity() {
        let inventory = Inventory {
            total: 100,
            reserved: 0,
            min_unit: 4,
            max_unit: 20,
            step_size: 4,
            allocation_ratio: AllocationRatio::ONE,
        };
        for (used, amount, expected) in [
            (0, 4, Ok(())),
            (80, 20, Ok(())),
            (
                0,
                0,
                Err(Excess::BelowMinUnit {
                    amount: 0,
                    min_unit: 4,
                }),
            ),
            (
                0,
                24,
                Err(Excess::AboveMaxUnit {
                    amount: 24,
                    max_unit: 20,
                }),
            ),
            (
                0,
                6,
                Err(Excess::OffStep {
                    amount: 6,
                    step_size: 4,
                }),
            ),
            (
                81,
                20,
                Err(Excess::Capacity {
                    amount: 20,
                    free: 19,
                }),
            ),
            (200, 4, Err(Excess::Capacity { amount: 4, free: 0 })),
        ] {
            assert_eq!(inventory.admit(used, amount), expected, "{used} {amount}");
        }
    }

    #[test]
    fn all_faults_of_an_inventory_are_reported() {
        assert_eq!(Inventory::exact(5).validate(), Ok(()));
        let bad = Inventory {
            total: 0,
            reserved: 3,
            step_size: 0,
            ..Inventory::exact(5)
        };
        let fields: Vec<_> = bad
            .validate()
            .unwrap_err()
            .into_iter()
            .map(|f| f.field)
            .collect();
        assert_eq!(fields, ["total", "step_size", "reserved"]);
    }
}
