//! CPUs of the host and of its emptiest cell.

use berth_domain::host_view::Headroom;

use crate::minimum_demand::MinimumDemand;

/// Returns what is free of dedicated CPUs, and of both kinds in the emptiest cell.
#[must_use]
pub fn offered(headroom: &Headroom) -> [u32; 3] {
    [
        headroom.dedicated_max,
        headroom.dedicated,
        headroom.shared_max,
    ]
}

/// Returns what the guest takes, and its greatest cell.
#[must_use]
pub fn requested(demand: &MinimumDemand) -> [u32; 3] {
    [demand.dedicated_max, demand.dedicated, demand.shared_max]
}
