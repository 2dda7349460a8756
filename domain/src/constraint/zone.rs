//! The host is in the availability zone that the guest requests.

use super::{Demand, Violation};
use crate::host_view::HostView;

/// Refuses a host in another zone, or in none.
///
/// # Errors
///
/// [`Violation::Zone`].
pub fn check(view: &HostView, demand: &Demand) -> Result<(), Violation> {
    match &demand.zone {
        Some(requested) if view.aggregates.zone.as_ref() != Some(requested) => {
            Err(Violation::Zone {
                requested: requested.clone(),
                actual: view.aggregates.zone.clone(),
            })
        }
        Some(_) | None => Ok(()),
    }
}
