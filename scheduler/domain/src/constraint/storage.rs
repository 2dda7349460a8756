//! A running guest with disks moves only between hosts that share the storage of its disks.

use super::{Demand, Violation};
use crate::host_view::HostView;

/// Refuses a host that does not see the guest's disks.
///
/// # Errors
///
/// [`Violation::DisksNotShared`].
pub fn check(view: &HostView, demand: &Demand) -> Result<(), Violation> {
    let here = &view.host.report.storage_id;
    match &demand.leaving {
        Some(leaving) if leaving.has_disks && leaving.storage_id != *here => {
            Err(Violation::DisksNotShared {
                source: leaving.storage_id.clone(),
                destination: here.clone(),
            })
        }
        Some(_) | None => Ok(()),
    }
}
