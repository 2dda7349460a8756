//! Tightness: how little is left of the cell that the guest goes to, where cells are packed. A
//! remainder that no guest fits into is lost.

use berth_domain::numa::Strategy;

/// Returns more the less is left of a cell with so many dedicated CPUs.
#[must_use]
pub fn weigh(left: u16, cell: u16, cells: Strategy) -> u16 {
    match cells {
        // The emptiest cell is taken on purpose.
        Strategy::Spread => 0,
        Strategy::Pack => {
            let part = u32::from(left.min(cell)) * u32::from(u16::MAX) / u32::from(cell.max(1));
            u16::MAX - u16::try_from(part).unwrap_or(u16::MAX)
        }
    }
}
