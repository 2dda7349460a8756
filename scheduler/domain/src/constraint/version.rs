//! A running guest with a NUMA topology or PCI functions moves only between agents that are new
//! enough; one that does not run is started only by an agent that can start what exists.

use super::{Demand, How, Violation};
use crate::host_view::HostView;
use crate::version::{ServiceVersion, live_migration_gate};

/// Refuses a migration for which an agent is too old.
///
/// # Errors
///
/// [`Violation::Version`], [`Violation::VersionHere`].
pub fn check(view: &HostView, demand: &Demand) -> Result<(), Violation> {
    let Some(leaving) = &demand.leaving else {
        return Ok(());
    };
    let here = view.host.report.service_version;
    if let How::Cold { .. } = leaving.how {
        let needed = ServiceVersion::VM_POWER;
        return match here < needed {
            true => Err(Violation::VersionHere { here, needed }),
            false => Ok(()),
        };
    }
    let is_exact = demand.topology.is_some() || !demand.pci.is_empty();
    live_migration_gate(is_exact, leaving.version, here).map_err(|_| Violation::Version {
        source_host: leaving.host.clone(),
        source: leaving.version,
        destination: here,
    })
}
