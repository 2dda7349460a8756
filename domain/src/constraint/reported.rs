//! The host's guests are known.

use super::{Demand, Violation};
use crate::host_view::HostView;

/// Refuses a host whose agent has not reported its guests since the cluster recovered: they may have
/// what seems to be free.
///
/// # Errors
///
/// [`Violation::Unreported`].
pub fn check(view: &HostView, _demand: &Demand) -> Result<(), Violation> {
    if view.host.unreported {
        return Err(Violation::Unreported);
    }
    Ok(())
}
