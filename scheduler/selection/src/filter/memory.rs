//! Memory of the emptiest cell.

use berth_domain::host_view::Room;

use crate::ask::Ask;

/// Returns what is free under the ratio, and of small pages.
#[must_use]
pub fn offered(room: &Room) -> [u32; 2] {
    [room.memory_max, room.small_max]
}

/// Returns what the greatest cell of the guest takes.
#[must_use]
pub fn asked(ask: &Ask) -> [u32; 2] {
    [ask.memory_max, ask.small_max]
}
