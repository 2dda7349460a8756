//! The guest's cells fit on the host's cells, and it gets the PCI functions that it asks for.

use super::{Demand, Violation};
use crate::host_view::HostView;
use crate::numa::{Assignment, Guest, Strategy, Wish, fit, try_fit, verify};

/// Returns an exact assignment; an empty one for a guest without exact wishes.
///
/// # Errors
///
/// [`Violation::Fit`].
pub fn place(
    view: &HostView,
    demand: &Demand,
    strategy: Strategy,
) -> Result<Assignment, Violation> {
    fit(view.ground(), &Guest::new(wish(demand)), strategy).map_err(Violation::Fit)
}

/// Returns what [`place`] returns, without the reason where there is none.
#[must_use]
pub fn try_place(view: &HostView, demand: &Demand, strategy: Strategy) -> Option<Assignment> {
    let guest = Guest::new(wish(demand));
    try_fit(view.ground(), &guest, strategy)
}

/// Checks an exact assignment that somebody chose.
///
/// # Errors
///
/// [`Violation::Fit`].
pub fn admit(view: &HostView, demand: &Demand, assignment: &Assignment) -> Result<(), Violation> {
    verify(view.ground(), wish(demand), assignment).map_err(Violation::Fit)
}

fn wish(demand: &Demand) -> Wish<'_> {
    Wish {
        topology: demand.topology.as_ref(),
        pci: &demand.pci,
    }
}
