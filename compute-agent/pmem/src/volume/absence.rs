//! Whether a device is absent, and removing one until it is. No record is written here.
//!
//! Invariant: a device whose region cannot be read does not count as absent.

use berth_domain::name::{RegionName, VolumeId};

use super::manager::{Device, Error, VolumeManager, Watch, Wipe};
use super::record::Record;

/// Removes the device of a volume that was never assigned.
pub(super) fn remove_unused(manager: &dyn VolumeManager, record: &Record) -> Result<(), Error> {
    remove(manager, record, Wipe::Nothing)
}

pub(super) fn remove(
    manager: &dyn VolumeManager,
    record: &Record,
    wipe: Wipe,
) -> Result<(), Error> {
    let watch = Watch {
        stop: &std::sync::atomic::AtomicBool::new(false),
        progress: &|_| {},
    };
    manager.delete(&record.id, wipe, &watch)?;
    check_absent(manager, record)
}

/// Returns whether a manager has refused to make a device before it began.
pub(super) fn is_refused(error: &Error) -> bool {
    matches!(
        error,
        Error::OddId { .. }
            | Error::OddSize { .. }
            | Error::NoRegion { .. }
            | Error::Trouble { .. }
    )
}

/// Returns whether a device is absent; an error when it may merely be hidden.
pub(super) fn is_absent(
    manager: &dyn VolumeManager,
    id: &VolumeId,
    region: &RegionName,
) -> Result<bool, Error> {
    if manager.device(id)?.is_some() {
        return Ok(false);
    }
    let regions = manager.regions()?;
    let found = regions.iter().find(|found| found.name == *region);
    let why = match found {
        // It may have come into sight just now.
        Some(found) if found.trouble.is_empty() => return Ok(manager.device(id)?.is_none()),
        Some(found) => found.trouble.clone(),
        None => "it is missing".to_owned(),
    };
    let why = format!("its region {region} cannot be read: {why}");
    let id = id.clone();
    Err(Error::Vanished { id, why })
}

pub(super) fn check_absent(manager: &dyn VolumeManager, record: &Record) -> Result<(), Error> {
    match is_absent(manager, &record.id, &record.region)? {
        true => Ok(()),
        false => Err(Error::Unusable {
            id: record.id.clone(),
            why: "it still exists after its removal; try again".to_owned(),
        }),
    }
}

/// Returns what has to be wiped still.
pub(super) fn wipe(record: &Record, device: Option<&Device>) -> Wipe {
    let is_same = device.is_some_and(|device| device.uuid == record.uuid);
    match (record.erase_after, is_same) {
        (false, true | false) => Wipe::Beginning,
        (true, true) => Wipe::Everything {
            from_bytes: record.erased_bytes,
        },
        (true, false) => Wipe::Everything { from_bytes: 0 },
    }
}
