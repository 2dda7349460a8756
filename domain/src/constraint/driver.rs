//! A guest needs a hypervisor driver, and a running one moves only between hosts with the same.

use super::{Demand, Violation};
use crate::host_view::HostView;

/// Refuses a host without a driver, or with another one.
///
/// # Errors
///
/// [`Violation::NoGuests`], [`Violation::Driver`].
pub fn check(view: &HostView, demand: &Demand) -> Result<(), Violation> {
    if !view.host.report.runs_guests() {
        return Err(Violation::NoGuests);
    }
    match &demand.leaving {
        Some(leaving) if leaving.driver != view.host.report.driver => Err(Violation::Driver {
            source: leaving.driver.clone(),
            destination: view.host.report.driver.clone(),
        }),
        Some(_) | None => Ok(()),
    }
}
