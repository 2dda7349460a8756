//! A running guest with a NUMA topology or PCI functions moves only between agents that are new enough.

use super::{Demand, Violation};
use crate::host_view::HostView;
use crate::version::live_migration_gate;

/// Refuses a migration for which an agent is too old.
///
/// # Errors
///
/// [`Violation::Version`].
pub fn check(view: &HostView, demand: &Demand) -> Result<(), Violation> {
    let Some(leaving) = &demand.leaving else {
        return Ok(());
    };
    let here = view.host.report.service_version;
    let is_exact = demand.topology.is_some() || !demand.pci.is_empty();
    live_migration_gate(is_exact, leaving.version, here).map_err(|_| Violation::Version {
        source_host: leaving.host.clone(),
        source: leaving.version,
        destination: here,
    })
}
