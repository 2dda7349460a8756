//! Counted resources.

use berth_domain::host_view::Room;

use crate::ask::Ask;

/// Returns what is free of each counted resource.
#[must_use]
pub fn offered(room: &Room) -> [u32; 4] {
    [room.vcpu, room.pcpu, room.memory_mib, room.disk_gib]
}

/// Returns what the guest counts as.
#[must_use]
pub fn asked(ask: &Ask) -> [u32; 4] {
    [ask.vcpu, ask.pcpu, ask.memory_mib, ask.disk_gib]
}
