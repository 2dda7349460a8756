//! Huge pages of the usual sizes.

use berth_domain::host_view::Room;

use crate::ask::Ask;

/// Returns whether some cell has the pages for the guest cell that asks most.
#[must_use]
pub fn passes(room: &Room, ask: &Ask) -> bool {
    room.pages_2m_max >= ask.pages_2m_max && room.pages_1g_max >= ask.pages_1g_max
}
