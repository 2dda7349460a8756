//! A running guest with disks moves to a host that shares the storage of its disks, or to one whose
//! agent can have them copied, if that of its own host can too.

use super::demand::{How, Leaving};
use super::{Demand, Violation};
use crate::host_view::HostView;
use crate::version::ServiceVersion;

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

/// Only a hypervisor that runs the guest copies its disks.
fn can_copy(leaving: &Leaving, there: ServiceVersion) -> bool {
    let runs = match leaving.how {
        How::Live => true,
        How::Cold { .. } => false,
    };
    runs && leaving.version.min(there) >= ServiceVersion::DISK_COPY
}
