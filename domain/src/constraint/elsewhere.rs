//! A guest that moves goes to another host than the one where it is, unless it may stay: one that
//! is resized may find its new place where it is.

use super::{Demand, MoveKind, Violation};
use crate::host_view::HostView;

/// Refuses the host that the guest is to leave.
///
/// # Errors
///
/// [`Violation::SameHost`].
pub fn check(view: &HostView, demand: &Demand) -> Result<(), Violation> {
    match &demand.leaving {
        Some(leaving)
            if leaving.host == view.host.name
                && leaving.kind != MoveKind::Cold { may_stay: true } =>
        {
            Err(Violation::SameHost)
        }
        Some(_) | None => Ok(()),
    }
}
