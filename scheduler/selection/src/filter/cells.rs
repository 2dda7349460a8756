//! The number of cells.

use berth_domain::host_view::Room;

use crate::ask::Ask;

/// Returns whether the host has as many cells as the guest.
#[must_use]
pub fn passes(room: &Room, ask: &Ask) -> bool {
    room.cells >= ask.cells
}
