//! CPUs of the host and of its emptiest cell.

use berth_domain::host_view::Room;

use crate::ask::Ask;

/// Returns what is free of dedicated CPUs, and of both kinds in the emptiest cell.
#[must_use]
pub fn offered(room: &Room) -> [u32; 3] {
    [room.dedicated_max, room.dedicated, room.shared_max]
}

/// Returns what the guest takes, and its greatest cell.
#[must_use]
pub fn asked(ask: &Ask) -> [u32; 3] {
    [ask.dedicated_max, ask.dedicated, ask.shared_max]
}
