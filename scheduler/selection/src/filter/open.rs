//! The host is heard of and not cordoned.

use berth_domain::host_view::Room;

use crate::ask::Ask;

/// Returns whether the host takes new guests at all.
#[must_use]
pub fn passes(room: &Room, _ask: &Ask) -> bool {
    room.open
}
