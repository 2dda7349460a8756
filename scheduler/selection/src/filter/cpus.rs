//! Dedicated CPUs and room on shared ones.

use berth_domain::host_view::Room;

use crate::ask::Ask;

/// Returns whether some cell has the CPUs for the guest cell that asks most, and all cells together have those for all.
#[must_use]
pub fn passes(room: &Room, ask: &Ask) -> bool {
    room.dedicated_max >= ask.dedicated_max
        && room.dedicated >= ask.dedicated
        && room.shared_max >= ask.shared_max
}
