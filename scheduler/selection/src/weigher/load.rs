//! How much of a host is taken, of that counted resource among those requested which is nearest
//! to its end.

use berth_domain::host_view::Headroom;
use berth_domain::numa::Strategy;

use crate::minimum_demand::MinimumDemand;

/// How much of each counted resource of a host is taken, in parts of 65,535.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loads([u16; 4]);

/// All bits of those resources that a guest demands, none of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceMask([u16; 4]);

impl Loads {
    /// Returns how much is taken of a host.
    #[must_use]
    pub fn from_headroom(headroom: &Headroom) -> Self {
        Self([
            headroom.vcpu_load,
            headroom.pcpu_load,
            headroom.memory_load,
            headroom.disk_load,
        ])
    }

    /// Returns which of them matter to a guest.
    #[must_use]
    pub fn mask(demand: &MinimumDemand) -> ResourceMask {
        let amounts = [demand.vcpu, demand.pcpu, demand.memory_mib, demand.disk_gib];
        ResourceMask(amounts.map(|amount| if amount > 0 { u16::MAX } else { 0 }))
    }

    /// Returns more for the emptier host (spread) or for the fuller one (pack).
    #[must_use]
    pub fn weigh(&self, mask: ResourceMask, strategy: Strategy) -> u16 {
        let [a, b, c, d] = self.0;
        let [p, q, r, s] = mask.0;
        let load = (a & p).max(b & q).max((c & r).max(d & s));
        match strategy {
            Strategy::Spread => u16::MAX - load,
            Strategy::Pack => load,
        }
    }
}
