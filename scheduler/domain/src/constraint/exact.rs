//! The guest's cells fit on the host's cells.

use super::{Demand, Violation};
use crate::host_view::HostView;
use crate::numa::{Assignment, Strategy, fit, try_fit, verify};

/// Returns an exact assignment; an empty one for a guest without a topology.
///
/// # Errors
///
/// [`Violation::Fit`].
pub fn place(
    view: &HostView,
    demand: &Demand,
    strategy: Strategy,
) -> Result<Assignment, Violation> {
    let Some(wish) = &demand.topology else {
        return Ok(Assignment::default());
    };
    fit(
        &view.host.report.topology,
        &view.usage,
        wish,
        &view.limits(),
        strategy,
    )
    .map_err(Violation::Fit)
}

/// Returns what [`place`] returns, without the reason where there is none.
#[must_use]
pub fn try_place(view: &HostView, demand: &Demand, strategy: Strategy) -> Option<Assignment> {
    let Some(wish) = &demand.topology else {
        return Some(Assignment::default());
    };
    try_fit(
        &view.host.report.topology,
        &view.usage,
        wish,
        &view.limits(),
        strategy,
    )
}

/// Checks an exact assignment that somebody chose.
///
/// # Errors
///
/// [`Violation::Fit`].
pub fn admit(view: &HostView, demand: &Demand, assignment: &Assignment) -> Result<(), Violation> {
    verify(
        &view.host.report.topology,
        &view.usage,
        demand.topology.as_ref(),
        assignment,
        &view.limits(),
    )
    .map_err(Violation::Fit)
}
