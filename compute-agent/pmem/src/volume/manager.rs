//! The trait behind which the devices of volumes are made and removed.
//!
//! All calls block: they run programs, and [`VolumeManager::delete`] may overwrite terabytes. All may
//! be made at the same time; calls for one volume are made one after the other by the
//! [`store`](super::store).
//!
//! Invariant: a manager touches only what has the name of a volume ([`volume_id`]), besides the
//! namespaces that make up its own volume groups. [`conformance`](super::conformance) checks every
//! manager against this.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use berth_domain::name::{RegionName, VolumeId};
use berth_domain::volume::{DeviceMode, Extent, Region};

use crate::command;

/// How much of the beginning of a device is zeroed before a volume gets it.
pub const BEGINNING_BYTES: u64 = 1 << 20;

/// A device that was made for a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The volume that it was made for; the device bears its name.
    pub id: VolumeId,
    /// The region that it lies in.
    pub region: RegionName,
    /// How it is made.
    pub mode: DeviceMode,
    /// How much of the region it takes.
    pub gross_bytes: u64,
    /// How much of it can be used.
    pub size_bytes: u64,
    /// Where it lies in the region; only in mode direct.
    pub extent: Option<Extent>,
    /// Its block device. The kernel numbers devices anew at each start.
    pub path: PathBuf,
    /// What distinguishes it from all others, also from a later one of the same name.
    pub uuid: String,
    /// Why it cannot be used: it was made in part, or is switched off. Empty: it can.
    pub trouble: String,
}

/// What becomes of the contents of a device before it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wipe {
    /// Nothing: it was never assigned.
    Nothing,
    /// Its first [`BEGINNING_BYTES`] are zeroed, so that what was on it is not found by its beginning.
    Beginning,
    /// All of it is overwritten, but for what is recorded as overwritten already.
    Everything {
        /// From where on.
        from_bytes: u64,
    },
}

/// How a removal is looked at, and stopped.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Set from outside: it ends with [`Error::Stopped`] as soon as can be.
    pub stop: &'a AtomicBool,
    /// Called with how much is overwritten from the beginning, after that is on the medium.
    pub progress: &'a dyn Fn(u64),
}

impl Watch<'_> {
    /// Returns an error when it is to stop.
    pub(crate) fn check(&self, id: &VolumeId) -> Result<(), Error> {
        match self.stop.load(Ordering::Acquire) {
            true => Err(Error::Stopped { id: id.clone() }),
            false => Ok(()),
        }
    }
}

/// Why a call was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A program did not do its work.
    #[error(transparent)]
    Program(#[from] command::Error),
    /// A program printed what cannot be read.
    #[error("{program} printed what cannot be understood ({why}): {begin:?}")]
    Listing {
        /// The program.
        program: &'static str,
        /// What is wrong with it.
        why: String,
        /// How it begins.
        begin: String,
    },
    /// The volume cannot bear that name.
    #[error(
        "volume id {id} is not valid: up to 6 characters out of a-z and 0-9, '-', and 32 hexadecimal \
         digits"
    )]
    OddId {
        /// The id.
        id: VolumeId,
    },
    /// A volume of that size cannot be made.
    #[error(
        "a volume of {gross_bytes} bytes cannot be made in {region}: sizes there are multiples of \
         {align_bytes} bytes, and not 0"
    )]
    OddSize {
        /// The region.
        region: RegionName,
        /// The requested size.
        gross_bytes: u64,
        /// What sizes are multiples of.
        align_bytes: u64,
    },
    /// There is no such region.
    #[error("this host has no region {region} for volumes in mode {mode}")]
    NoRegion {
        /// The region.
        region: RegionName,
        /// The mode.
        mode: DeviceMode,
    },
    /// The region cannot be used.
    #[error("no volume can be made in {region}: {why}")]
    Trouble {
        /// The region.
        region: RegionName,
        /// Why not.
        why: String,
    },
    /// The region is too full.
    #[error("{region} has no space for {gross_bytes} bytes: {why}")]
    NoSpace {
        /// The region.
        region: RegionName,
        /// The requested volume.
        gross_bytes: u64,
        /// What there is.
        why: String,
    },
    /// There is another device of that name.
    #[error("volume {id} exists already: {what}")]
    Exists {
        /// The volume.
        id: VolumeId,
        /// How it differs.
        what: String,
    },
    /// Another call for that volume goes on.
    #[error("other work on volume {id} is under way; try again later")]
    Underway {
        /// The volume.
        id: VolumeId,
    },
    /// The volume is being removed.
    #[error("volume {id} is being deleted")]
    Deleting {
        /// The volume.
        id: VolumeId,
    },
    /// There is no such volume.
    #[error("this host has no volume {id}")]
    NoVolume {
        /// The volume.
        id: VolumeId,
    },
    /// The volume has a user.
    #[error("volume {id} is in use: {}", by.join(", "))]
    Busy {
        /// The volume.
        id: VolumeId,
        /// By whom.
        by: Vec<String>,
    },
    /// Its device is not there.
    #[error("the device of volume {id} is missing: {why}")]
    Vanished {
        /// The volume.
        id: VolumeId,
        /// The reason.
        why: String,
    },
    /// Its device is there, but cannot be used.
    #[error("the device of volume {id} cannot be used: {why}")]
    Unusable {
        /// The volume.
        id: VolumeId,
        /// Why not.
        why: String,
    },
    /// It was stopped on request.
    #[error("removing volume {id} was stopped on request")]
    Stopped {
        /// The volume.
        id: VolumeId,
    },
    /// Something of the operating system failed.
    #[error("cannot {what} {}: {why}", path.display())]
    Io {
        /// What was attempted.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// Why it failed.
        why: String,
    },
    /// No manager of that mode is configured.
    #[error("volume {id} is in mode {mode}, which this host does not manage")]
    NoManager {
        /// The volume.
        id: VolumeId,
        /// The mode.
        mode: DeviceMode,
    },
}

/// What makes and removes devices in one mode.
pub trait VolumeManager: Send + Sync {
    /// Returns how it makes devices.
    fn mode(&self) -> DeviceMode;

    /// Makes what has to exist before volumes, as far as it is missing: in mode lvm, the volume
    /// groups. Repeated: no effect.
    ///
    /// # Errors
    ///
    /// When nothing can be discovered. A fault of one region is reported as its trouble.
    fn prepare(&self) -> Result<(), Error>;

    /// Returns the regions, by name: their capacity is what volumes can really take.
    ///
    /// # Errors
    ///
    /// When it cannot be seen which there are.
    fn regions(&self) -> Result<Vec<Region>, Error>;

    /// Returns the devices that bear names of volumes, by name.
    ///
    /// # Errors
    ///
    /// When it cannot be seen which there are.
    fn devices(&self) -> Result<Vec<Device>, Error>;

    /// Makes a device; its first [`BEGINNING_BYTES`] are zeroed. Repeated with the same region and size: the device
    /// that is there, untouched.
    ///
    /// # Errors
    ///
    /// Why none could be made. Parts may have been left behind, which `delete` removes.
    fn create(&self, id: &VolumeId, region: &RegionName, gross_bytes: u64)
    -> Result<Device, Error>;

    /// Returns the processes that have the device open or mounted. None also without such a device.
    ///
    /// # Errors
    ///
    /// When they cannot be determined.
    fn users(&self, id: &VolumeId) -> Result<Vec<String>, Error>;

    /// Wipes and removes a device, one that was made in part too. Missing: no effect.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] before anything is done to a device that a process has open;
    /// [`Error::Stopped`]; other failures. Repeated, it continues from where the caller states.
    fn delete(&self, id: &VolumeId, wipe: Wipe, watch: &Watch<'_>) -> Result<(), Error>;

    /// Looks up a device.
    ///
    /// # Errors
    ///
    /// When it cannot be seen which there are.
    fn device(&self, id: &VolumeId) -> Result<Option<Device>, Error> {
        let devices = self.devices()?;
        Ok(devices.into_iter().find(|device| device.id == *id))
    }
}

/// Returns the id of the volume that a device of that name was made for; none for foreign
/// names.
#[must_use]
pub fn volume_id(name: &str) -> Option<VolumeId> {
    let (word, digits) = name.rsplit_once('-')?;
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_ours = (1..=6).contains(&word.len())
        && word.bytes().all(plain)
        && digits.len() == 32
        && digits.bytes().all(|b| plain(b) && b.is_ascii_hexdigit());
    is_ours.then(|| VolumeId::new(name).ok()).flatten()
}

/// Holds that a volume can bear that name.
pub(crate) fn check_id(id: &VolumeId) -> Result<(), Error> {
    match volume_id(id.as_str()) {
        Some(_) => Ok(()),
        None => Err(Error::OddId { id: id.clone() }),
    }
}

/// Holds a size against what a region's sizes are multiples of.
pub(crate) fn check_size(
    region: &RegionName,
    gross_bytes: u64,
    align_bytes: u64,
) -> Result<(), Error> {
    if gross_bytes > 0 && gross_bytes.is_multiple_of(align_bytes) {
        return Ok(());
    }
    Err(Error::OddSize {
        region: region.clone(),
        gross_bytes,
        align_bytes,
    })
}

/// Returns how the existing one differs from the request, if it does.
pub(crate) fn check_same(
    device: &Device,
    region: &RegionName,
    gross_bytes: u64,
) -> Result<(), Error> {
    let id = device.id.clone();
    if device.region != *region || device.gross_bytes != gross_bytes {
        let (there, bytes) = (&device.region, device.gross_bytes);
        return Err(Error::Exists {
            id,
            what: format!("in {there} with {bytes} bytes, not in {region} with {gross_bytes}"),
        });
    }
    if !device.trouble.is_empty() {
        let why = device.trouble.clone();
        return Err(Error::Unusable { id, why });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_volumes_are_ours() {
        let digits = "0123456789abcdef0123456789abcdef";
        for (name, expected) in [
            (format!("data-{digits}"), true),
            (format!("pvc123-{digits}"), true),
            (format!("-{digits}"), false),
            (format!("toolong-{digits}"), false),
            (format!("Data-{digits}"), false),
            (format!("da ta-{digits}"), false),
            (format!("a-b-{digits}"), false),
            (format!("data-{}", digits.to_uppercase()), false),
            (format!("data-{digits}0"), false),
            (format!("data-{}", &digits[1..]), false),
            (format!("data{digits}"), false),
            ("pmem-csi".to_owned(), false),
            (String::new(), false),
        ] {
            let found = volume_id(&name);
            assert_eq!(found.is_some(), expected, "{name:?}");
            assert!(found.is_none_or(|id| id.as_str() == name));
        }
    }
}
