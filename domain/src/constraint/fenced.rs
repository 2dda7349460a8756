//! The host is not fenced.

use super::{Demand, Violation};
use crate::host_view::HostView;

/// Refuses a host that was fenced and has not come back clean.
///
/// # Errors
///
/// [`Violation::Fenced`].
pub fn check(view: &HostView, _demand: &Demand) -> Result<(), Violation> {
    if view.host.fenced.is_some() {
        return Err(Violation::Fenced);
    }
    Ok(())
}
