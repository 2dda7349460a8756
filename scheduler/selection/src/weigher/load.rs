//! How much of a host is taken, of that counted resource among those asked for which is nearest
//! to its end.

use berth_domain::host_view::Room;
use berth_domain::numa::Strategy;

use crate::ask::Ask;

/// Returns more for the emptier host (spread) or for the fuller one (pack).
#[must_use]
pub fn weigh(room: &Room, ask: &Ask, strategy: Strategy) -> u16 {
    let of = |asked: u32, load: u16| if asked > 0 { load } else { 0 };
    let load = of(ask.vcpu, room.vcpu_load)
        .max(of(ask.pcpu, room.pcpu_load))
        .max(of(ask.memory_mib, room.memory_load))
        .max(of(ask.disk_gib, room.disk_load));
    match strategy {
        Strategy::Spread => u16::MAX - load,
        Strategy::Pack => load,
    }
}
