//! Huge pages of the emptiest cell.

use berth_domain::host_view::Room;

use crate::ask::Ask;

/// Returns what is free of pages of 2 MiB and of 1 GiB.
#[must_use]
pub fn offered(room: &Room) -> [u32; 2] {
    [room.pages_2m_max, room.pages_1g_max]
}

/// Returns what the greatest cell of the guest takes.
#[must_use]
pub fn asked(ask: &Ask) -> [u32; 2] {
    [ask.pages_2m_max, ask.pages_1g_max]
}
