//! The number of cells.

use berth_domain::host_view::Headroom;

use crate::minimum_demand::MinimumDemand;

/// Returns how many cells the host has.
#[must_use]
pub fn offered(headroom: &Headroom) -> [u32; 1] {
    [u32::from(headroom.cells)]
}

/// Returns how many cells the guest has.
#[must_use]
pub fn requested(demand: &MinimumDemand) -> [u32; 1] {
    [u32::from(demand.cells)]
}
