//! The host is heard of, not cordoned, and of the shape that its agent reports.

use berth_domain::host_view::Headroom;

use crate::minimum_demand::MinimumDemand;

/// Returns one for a host that is up and not cordoned.
#[must_use]
pub fn offered(headroom: &Headroom) -> [u32; 1] {
    [u32::from(headroom.open)]
}

/// Returns one: every guest wants a host that takes guests.
#[must_use]
pub fn requested(_demand: &MinimumDemand) -> [u32; 1] {
    [1]
}
