//! A guest with disks moves to a host that shares the storage of its disks, or to one to which they
//! can be copied: by the hypervisors while it runs, by the agents while it does not. From a host
//! that is dead nothing is copied.

use super::demand::{Leaving, MoveKind};
use super::{Demand, Violation};
use crate::host_view::HostView;
use crate::version::{Feature, ServiceVersion};

/// Refuses a host that neither sees the guest's disks nor can be sent them.
///
/// # Errors
///
/// [`Violation::DisksNotShared`].
pub fn check(view: &HostView, demand: &Demand) -> Result<(), Violation> {
    let report = &view.host.report;
    match &demand.leaving {
        Some(leaving)
            if leaving.has_disks
                && leaving.storage_id != report.storage_id
                && !can_copy(leaving, report.service_version) =>
        {
            Err(Violation::DisksNotShared {
                source: leaving.storage_id.clone(),
                destination: report.storage_id.clone(),
            })
        }
        Some(_) | None => Ok(()),
    }
}

/// The agent that has the disks has to be reachable to be read from.
fn can_copy(leaving: &Leaving, there: ServiceVersion) -> bool {
    let feature = match leaving.kind {
        MoveKind::Live => Feature::DiskCopy,
        MoveKind::Cold { .. } => Feature::DiskFetch,
    };
    leaving.can_be_read && leaving.version.can(feature) && there.can(feature)
}
