//! Waste of PCI functions: a guest that requests none goes where few are free.

/// So many free functions are as bad as any number of them.
const MANY: u16 = 64;

/// Returns more the fewer functions are free.
#[must_use]
pub fn weigh(free: u16) -> u16 {
    u16::MAX - free.min(MANY) * (u16::MAX / MANY)
}
