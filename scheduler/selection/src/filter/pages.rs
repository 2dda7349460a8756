//! Huge pages of the emptiest cell.

use berth_domain::host_view::Headroom;

use crate::minimum_demand::MinimumDemand;

/// Returns what is free of pages of 2 MiB and of 1 GiB.
#[must_use]
pub fn offered(headroom: &Headroom) -> [u32; 2] {
    [headroom.pages_2m_max, headroom.pages_1g_max]
}

/// Returns what the greatest cell of the guest takes.
#[must_use]
pub fn requested(demand: &MinimumDemand) -> [u32; 2] {
    [demand.pages_2m_max, demand.pages_1g_max]
}
