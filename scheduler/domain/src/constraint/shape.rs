//! What lives on the host fits the shape that its agent reports.

use super::{Demand, Violation};
use crate::host_view::HostView;

/// Refuses a host whose agent reports a shape that was not taken over.
///
/// # Errors
///
/// [`Violation::ShapeRefused`].
pub fn check(view: &HostView, _demand: &Demand) -> Result<(), Violation> {
    if view.host.shape_refused.is_some() {
        return Err(Violation::ShapeRefused);
    }
    Ok(())
}
