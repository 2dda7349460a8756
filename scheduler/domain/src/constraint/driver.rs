//! A running guest moves only between hosts with the same hypervisor driver.

use super::{Demand, Violation};
use crate::host_view::HostView;

/// Refuses a host with another driver.
///
/// # Errors
///
/// [`Violation::Driver`].
pub fn check(view: &HostView, demand: &Demand) -> Result<(), Violation> {
    match &demand.leaving {
        Some(leaving) if leaving.driver != view.host.report.driver => Err(Violation::Driver {
            source: leaving.driver.clone(),
            destination: view.host.report.driver.clone(),
        }),
        Some(_) | None => Ok(()),
    }
}
