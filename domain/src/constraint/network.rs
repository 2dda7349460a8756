//! The host reaches the networks that the guest is on.

use super::{Demand, Violation};
use crate::host_view::HostView;
use crate::network;

/// Refuses a host without a bridge to the physical network of an interface, or with one that cannot carry
/// it. Interfaces that name a bridge are not looked at: only the host's agent knows its bridges.
///
/// # Errors
///
/// [`Violation::Network`] of the first network that is in the way.
pub fn check(view: &HostView, demand: &Demand) -> Result<(), Violation> {
    demand
        .networks
        .iter()
        .try_for_each(|attachment| network::check(&view.host.report.networks, attachment))
        .map_err(Violation::Network)
}
