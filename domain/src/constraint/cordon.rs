//! No operator cordoned the host.

use super::{Demand, Violation};
use crate::host_view::HostView;

/// Refuses a cordoned host.
///
/// # Errors
///
/// [`Violation::Cordoned`].
pub fn check(view: &HostView, _demand: &Demand) -> Result<(), Violation> {
    if view.host.cordoned {
        return Err(Violation::Cordoned);
    }
    Ok(())
}
