//! The guest's cells fit on the host's cells, and it gets the PCI functions that it requests.

use super::{Demand, Violation};
use crate::host_view::HostView;
use crate::numa::{Assignment, ExactDemand, Guest, Strategy, fit, try_fit, verify};
use crate::topology::CellId;

/// Returns an exact assignment; an empty one for a guest without an exact demand.
///
/// # Errors
///
/// [`Violation::Fit`].
pub fn place(
    view: &HostView,
    guest: &Guest<'_>,
    strategy: Strategy,
) -> Result<Assignment, Violation> {
    fit(view.ground(), guest, strategy).map_err(Violation::Fit)
}

/// Returns what [`place`] returns, without the reason where there is none.
#[must_use]
pub fn try_place(view: &HostView, guest: &Guest<'_>, strategy: Strategy) -> Option<Assignment> {
    try_fit(view.ground(), guest, strategy)
}

/// Checks a proposed exact assignment.
///
/// # Errors
///
/// [`Violation::Fit`].
pub fn admit(view: &HostView, demand: &Demand, assignment: &Assignment) -> Result<(), Violation> {
    verify(view.ground(), exact_demand(demand), assignment).map_err(Violation::Fit)
}

/// Returns what a guest requires to have exactly.
#[must_use]
pub fn exact_demand(demand: &Demand) -> ExactDemand<'_> {
    ExactDemand {
        topology: demand.topology.as_ref(),
        pci: &demand.pci,
        pmem: &demand.pmem,
        near: &[],
    }
}

/// Returns the cells of a host that the guest's first cell is to be near to: those of the volumes
/// that become its nvdimms.
#[must_use]
pub fn near(view: &HostView, demand: &Demand) -> Vec<CellId> {
    let nvdimms = demand.volumes.iter().filter(|volume| volume.is_nvdimm);
    let cells = nvdimms.filter_map(|volume| *volume.hosts.get(&view.host.name)?);
    cells.collect()
}
