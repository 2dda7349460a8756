//! Disks that need not be copied: before everything else that is preferred, as copying them takes the
//! network and the time of the whole disk.

use berth_domain::constraint::Demand;

/// Stands for a storage.
#[must_use]
pub fn key(storage_id: &str) -> u64 {
    super::turn::hash(storage_id.as_bytes())
}

/// Returns the storage on which the disks of a running guest lie, if it has any.
#[must_use]
pub fn of_guest(demand: &Demand) -> Option<u64> {
    let leaving = demand.leaving.as_ref()?;
    leaving.has_disks.then(|| key(&leaving.storage_id))
}
