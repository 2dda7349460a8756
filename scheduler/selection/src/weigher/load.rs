//! How much of a host is taken, of that counted resource among those asked for which is nearest
//! to its end.

use berth_domain::host_view::Room;
use berth_domain::numa::Strategy;

use crate::ask::Ask;

/// How much of each counted resource of a host is taken, in parts of 65,535.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loads([u16; 4]);

/// All bits of those resources that a guest asks for, none of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked([u16; 4]);

impl Loads {
    /// Returns how much is taken of a host.
    #[must_use]
    pub fn of_room(room: &Room) -> Self {
        Self([
            room.vcpu_load,
            room.pcpu_load,
            room.memory_load,
            room.disk_load,
        ])
    }

    /// Returns which of them matter to a guest.
    #[must_use]
    pub fn asked(ask: &Ask) -> Asked {
        let amounts = [ask.vcpu, ask.pcpu, ask.memory_mib, ask.disk_gib];
        Asked(amounts.map(|amount| if amount > 0 { u16::MAX } else { 0 }))
    }

    /// Returns more for the emptier host (spread) or for the fuller one (pack).
    #[must_use]
    pub fn weigh(&self, asked: Asked, strategy: Strategy) -> u16 {
        let [a, b, c, d] = self.0;
        let [p, q, r, s] = asked.0;
        let load = (a & p).max(b & q).max((c & r).max(d & s));
        match strategy {
            Strategy::Spread => u16::MAX - load,
            Strategy::Pack => load,
        }
    }
}
