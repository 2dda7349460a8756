//! Counted resources.

use berth_domain::host_view::Room;

use crate::ask::Ask;

/// Returns whether each counted resource suffices.
#[must_use]
pub fn passes(room: &Room, ask: &Ask) -> bool {
    room.vcpu >= ask.vcpu
        && room.pcpu >= ask.pcpu
        && room.memory_mib >= ask.memory_mib
        && room.disk_gib >= ask.disk_gib
}
