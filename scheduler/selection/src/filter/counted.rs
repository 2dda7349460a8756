//! Counted resources.

use berth_domain::host_view::Headroom;

use crate::minimum_demand::MinimumDemand;

/// Returns what is free of each counted resource.
#[must_use]
pub fn offered(headroom: &Headroom) -> [u32; 4] {
    [
        headroom.vcpu,
        headroom.pcpu,
        headroom.memory_mib,
        headroom.disk_gib,
    ]
}

/// Returns what the guest counts as.
#[must_use]
pub fn requested(demand: &MinimumDemand) -> [u32; 4] {
    [demand.vcpu, demand.pcpu, demand.memory_mib, demand.disk_gib]
}
