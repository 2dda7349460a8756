//! Memory of the emptiest cell.

use berth_domain::host_view::Headroom;

use crate::minimum_demand::MinimumDemand;

/// Returns what is free under the ratio, and of small pages.
#[must_use]
pub fn offered(headroom: &Headroom) -> [u32; 2] {
    [headroom.memory_max, headroom.small_max]
}

/// Returns what the greatest cell of the guest takes.
#[must_use]
pub fn requested(demand: &MinimumDemand) -> [u32; 2] {
    [demand.memory_max, demand.small_max]
}
