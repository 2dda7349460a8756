//! A guest that moves goes to another host than the one where it runs.

use super::{Demand, Violation};
use crate::host_view::HostView;

/// Refuses the host that the guest is to leave.
///
/// # Errors
///
/// [`Violation::SameHost`].
pub fn check(view: &HostView, demand: &Demand) -> Result<(), Violation> {
    match &demand.leaving {
        Some(leaving) if leaving.host == view.host.name => Err(Violation::SameHost),
        Some(_) | None => Ok(()),
    }
}
