//! The host's agent is heard of.

use super::{Demand, Violation};
use crate::host::Liveness;
use crate::host_view::HostView;

/// Refuses a host whose agent is not heard of.
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
