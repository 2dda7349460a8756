//! The host is heard of, not cordoned, and of the shape that its agent reports.

use berth_domain::host_view::Room;

use crate::ask::Ask;

/// Returns one for a host that is up and not cordoned.
#[must_use]
pub fn offered(room: &Room) -> [u32; 1] {
    [u32::from(room.open)]
}

/// Returns one: every guest wants a host that takes guests.
#[must_use]
pub fn asked(_ask: &Ask) -> [u32; 1] {
    [1]
}
