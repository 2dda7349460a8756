//! The number of cells.

use berth_domain::host_view::Room;

use crate::ask::Ask;

/// Returns how many cells the host has.
#[must_use]
pub fn offered(room: &Room) -> [u32; 1] {
    [u32::from(room.cells)]
}

/// Returns how many cells the guest has.
#[must_use]
pub fn asked(ask: &Ask) -> [u32; 1] {
    [u32::from(ask.cells)]
}
