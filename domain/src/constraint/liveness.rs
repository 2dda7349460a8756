//! The host's agent reports.

use super::{Demand, Violation};
use crate::host::Liveness;
use crate::host_view::HostView;

/// Refuses a host whose agent does not report.
///
/// # Errors
///
/// [`Violation::Down`].
pub fn check(view: &HostView, _demand: &Demand) -> Result<(), Violation> {
    match view.host.liveness {
        Liveness::Up => Ok(()),
        Liveness::Down => Err(Violation::Down),
    }
}
