//! Memory of the cells.

use berth_domain::host_view::Room;

use crate::ask::Ask;

/// Returns whether some cell has the memory for the guest cell that asks most.
#[must_use]
pub fn passes(room: &Room, ask: &Ask) -> bool {
    room.memory_max >= ask.memory_max && room.small_max >= ask.small_max
}
