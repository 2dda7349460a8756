//! A running guest with a NUMA topology moves only between agents that are new enough.

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
    live_migration_gate(demand.topology.is_some(), leaving.version, here).map_err(|_| {
        Violation::Version {
            source_host: leaving.host.clone(),
            source: leaving.version,
            destination: here,
        }
    })
}
