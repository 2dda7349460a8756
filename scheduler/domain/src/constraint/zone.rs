//! The host is in the availability zone that the guest asks for.

use super::{Demand, Violation};
use crate::host_view::HostView;

/// Refuses a host in another zone, or in none.
///
/// # Errors
///
/// [`Violation::Zone`].
pub fn check(view: &HostView, demand: &Demand) -> Result<(), Violation> {
    match &demand.zone {
        Some(wanted) if view.aggregates.zone.as_ref() != Some(wanted) => Err(Violation::Zone {
            wanted: wanted.clone(),
            actual: view.aggregates.zone.clone(),
        }),
        Some(_) | None => Ok(()),
    }
}
