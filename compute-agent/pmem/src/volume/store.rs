//! The volumes of this host: the record of each, and its device.
//!
//! Work on one volume does not block another: there is a mark for each volume
//! while work on it is under way, a second call for that one is refused with
//! [`Error::Underway`], and no lock is held while a device is made or wiped.
//!
//! Invariant: a record is on the disk before its device is made, and until its device has gone. A
//! device that has a user is not removed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_domain::name::{RegionName, VolumeId};
use berth_domain::volume::{DeviceMode, Region};
use tracing::{info, warn};

use super::absence::{check_absent, is_absent, is_refused, remove, remove_unused, wipe};
use super::folder::Folder;
use super::manager::{Device, Error, VolumeManager, Watch, Wipe, check_id, check_same};
use super::record::{Phase, Record, WORDS_BYTES_MAX, Words, words_bytes};

/// A volume that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Its id.
    pub id: VolumeId,
    /// Where.
    pub region: RegionName,
    /// How.
    pub mode: DeviceMode,
    /// How much of the region it takes.
    pub gross_bytes: u64,
    /// Whether its contents are overwritten when it is deleted.
    pub erase_after: bool,
    /// Parameters that are stored with it.
    pub parameters: Words,
}

/// A volume of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// What is written down of it.
    pub record: Record,
    /// Its device as of the last discovery; none while it is made, and when it is missing.
    pub device: Option<Device>,
}

impl Volume {
    /// Returns its device if it can be used.
    ///
    /// # Errors
    ///
    /// [`Error::Vanished`], [`Error::Unusable`].
    pub fn usable(&self) -> Result<&Device, Error> {
        let id = self.record.id.clone();
        let (region, mode) = (&self.record.region, self.record.mode);
        match &self.device {
            None => Err(Error::Vanished {
                id,
                why: format!("no device of that name in {region} in mode {mode}"),
            }),
            Some(device) if !device.trouble.is_empty() => Err(Error::Unusable {
                id,
                why: device.trouble.clone(),
            }),
            Some(device) => Ok(device),
        }
    }
}

/// The volumes of this host.
pub struct VolumeStore {
    folder: Folder,
    /// The first one is for new volumes of regions; the others are for those that are there.
    managers: Vec<Arc<dyn VolumeManager>>,
    volumes: Mutex<BTreeMap<VolumeId, Volume>>,
    underway: Mutex<BTreeSet<VolumeId>>,
}

/// Something is being done with a volume, until this is dropped.
struct Turn<'a> {
    volumes: &'a VolumeStore,
    id: VolumeId,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        locked(&self.volumes.underway).remove(&self.id);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl VolumeStore {
    /// Reads the records, compares them with the devices, and cleans up: records without
    /// device are dropped, unless they are of volumes that were ready; what was made in part is removed;
    /// devices without record get one. Volumes that were being deleted are left so, see
    /// [`VolumeStore::unfinished`]. The first manager is the one whose regions are reported.
    ///
    /// # Errors
    ///
    /// When the folder cannot be read or written. A mode whose devices cannot be listed leaves its volumes
    /// as they are.
    pub fn open(folder: &Path, managers: Vec<Arc<dyn VolumeManager>>) -> Result<Self, Error> {
        let folder = Folder::open(folder)?;
        let found = folder.read()?;
        for (path, why) in &found.torn {
            warn!(path = %path.display(), why, "unreadable volume record moved aside");
        }
        let whole = |record: Record| {
            let id = record.id.clone();
            let volume = Volume {
                record,
                device: None,
            };
            (id, volume)
        };
        let volumes = Self {
            folder,
            managers,
            volumes: Mutex::new(found.records.into_iter().map(whole).collect()),
            underway: Mutex::default(),
        };
        for manager in &volumes.managers {
            match manager.devices() {
                Ok(devices) => volumes.settle(manager.as_ref(), devices)?,
                Err(error) => {
                    let mode = manager.mode().to_string();
                    warn!(mode, %error, "volumes of this mode cannot be listed and are left as they are");
                }
            }
        }
        Ok(volumes)
    }

    /// Holds what is written down of one mode against its devices.
    fn settle(&self, manager: &dyn VolumeManager, devices: Vec<Device>) -> Result<(), Error> {
        let mut devices: BTreeMap<VolumeId, Device> = devices
            .into_iter()
            .map(|device| (device.id.clone(), device))
            .collect();
        for volume in self.list() {
            let record = volume.record;
            if record.mode != manager.mode() {
                continue;
            }
            let device = devices.remove(&record.id);
            self.settle_one(manager, record, device)?;
        }
        for device in devices.into_values() {
            let id = device.id.clone();
            if let Some(other) = self.get(&id) {
                let mode = other.record.mode.to_string();
                warn!(%id, mode, "second device with the name of a volume, left alone");
                continue;
            }
            warn!(%id, region = %device.region, "device without a record, recording it");
            let record = Record::recovered(&device);
            self.folder.write(&record)?;
            self.put(record, Some(device));
        }
        Ok(())
    }

    fn settle_one(
        &self,
        manager: &dyn VolumeManager,
        mut record: Record,
        device: Option<Device>,
    ) -> Result<(), Error> {
        let id = record.id.clone();
        match (record.phase, device) {
            (Phase::Creating | Phase::Deleting, None) => match check_absent(manager, &record) {
                Ok(()) => {
                    info!(%id, "record without a device, dropped");
                    self.forget(&id)
                }
                Err(error) => {
                    warn!(%id, %error, "record without a device, retained");
                    Ok(())
                }
            },
            (Phase::Creating, Some(_)) => match remove_unused(manager, &record) {
                Ok(()) => {
                    info!(%id, "removing a partly made device");
                    self.forget(&id)
                }
                // It is tried again when the volume is created again.
                Err(error) => {
                    warn!(%id, %error, "partly made device cannot be removed");
                    Ok(())
                }
            },
            (Phase::Ready, None) => {
                warn!(%id, region = %record.region, "device of a volume is missing");
                Ok(())
            }
            (Phase::Ready | Phase::Deleting, Some(device)) => {
                if record.region != device.region || record.gross_bytes != device.gross_bytes {
                    warn!(%id, region = %device.region, gross_bytes = device.gross_bytes,
                        "device differs from its record, updating the record");
                    record.region = device.region.clone();
                    record.gross_bytes = device.gross_bytes;
                    self.folder.write(&record)?;
                }
                self.put(record, Some(device));
                Ok(())
            }
        }
    }

    /// Has the managers make what has to exist before volumes; only the first one, which makes
    /// new ones, can fail.
    ///
    /// # Errors
    ///
    /// See [`VolumeManager::prepare`].
    pub fn prepare(&self) -> Result<(), Error> {
        let first = self.managers.first();
        first.map_or(Ok(()), |manager| manager.prepare())
    }

    /// Returns the regions as volumes are made in them now, by name.
    ///
    /// # Errors
    ///
    /// See [`VolumeManager::regions`].
    pub fn regions(&self) -> Result<Vec<Region>, Error> {
        let first = self.managers.first();
        first.map_or(Ok(Vec::new()), |manager| manager.regions())
    }

    /// Returns the volumes, by id.
    #[must_use]
    pub fn list(&self) -> Vec<Volume> {
        locked(&self.volumes).values().cloned().collect()
    }

    /// Returns a volume.
    #[must_use]
    pub fn get(&self, id: &VolumeId) -> Option<Volume> {
        locked(&self.volumes).get(id).cloned()
    }

    /// Returns those that were being deleted when the program ended, or whose removal failed.
    #[must_use]
    pub fn unfinished(&self) -> Vec<VolumeId> {
        let underway = locked(&self.underway).clone();
        let volumes = self.list().into_iter().map(|volume| volume.record);
        volumes
            .filter(|record| record.phase == Phase::Deleting && !underway.contains(&record.id))
            .map(|record| record.id)
            .collect()
    }

    /// Rediscovers a volume's device, and returns it.
    ///
    /// # Errors
    ///
    /// [`Error::NoVolume`], and why it cannot be discovered.
    pub fn look(&self, id: &VolumeId) -> Result<Volume, Error> {
        let volume = self.known(id)?;
        let device = self.manager(&volume.record)?.device(id)?;
        if let Some(kept) = locked(&self.volumes).get_mut(id) {
            kept.device.clone_from(&device);
        }
        Ok(Volume { device, ..volume })
    }

    /// Makes a volume. Repeated: the existing one.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`] when it exists with another region, size or mode; [`Error::Deleting`];
    /// [`Error::Vanished`] when it was ready and its device is missing: it is not remade
    /// as an empty one; else why it cannot be made, with nothing left behind that would prevent
    /// another attempt.
    pub fn create(&self, order: &Order) -> Result<Volume, Error> {
        let id = &order.id;
        check_id(id)?;
        check_words(id, &order.parameters)?;
        let _turn = self.turn(id)?;
        if let Some(volume) = self.get(id) {
            match volume.record.phase {
                Phase::Ready => {
                    let volume = self.same(order, volume)?;
                    if !volume.record.is_recovered {
                        return Ok(volume);
                    }
                    self.remove_recovered(volume)?;
                }
                Phase::Deleting => return Err(Error::Deleting { id: id.clone() }),
                Phase::Creating => {
                    remove_unused(self.manager(&volume.record)?.as_ref(), &volume.record)?;
                }
            }
        }
        let record = Record {
            id: id.clone(),
            region: order.region.clone(),
            mode: order.mode,
            gross_bytes: order.gross_bytes,
            phase: Phase::Creating,
            erase_after: order.erase_after,
            parameters: order.parameters.clone(),
            targets: Words::new(),
            owner: String::new(),
            uuid: String::new(),
            erased_bytes: 0,
            is_recovered: false,
            is_raw: false,
        };
        let manager = self.manager(&record)?.clone();
        self.folder.write(&record)?;
        self.put(record.clone(), None);
        self.make(manager.as_ref(), record)
    }

    /// Removes the device of a volume whose record was lost: whether it holds another volume's data
    /// is not known, so that it is not reported as one that was made just now.
    fn remove_recovered(&self, volume: Volume) -> Result<(), Error> {
        let id = volume.record.id.clone();
        let by = self.users(&id)?;
        if !by.is_empty() {
            return Err(Error::Busy { id, by });
        }
        warn!(%id, "device without a record removed, recreating it");
        let record = Record {
            phase: Phase::Creating,
            ..volume.record
        };
        let manager = self.manager(&record)?.clone();
        self.folder.write(&record)?;
        self.put(record.clone(), volume.device);
        remove(manager.as_ref(), &record, Wipe::Beginning)
    }

    fn make(&self, manager: &dyn VolumeManager, mut record: Record) -> Result<Volume, Error> {
        let id = record.id.clone();
        let made = manager.create(&id, &record.region, record.gross_bytes);
        let made = made.and_then(|device| {
            record.phase = Phase::Ready;
            record.uuid.clone_from(&device.uuid);
            self.folder.write(&record)?;
            Ok(device)
        });
        match made {
            Ok(device) => Ok(self.put(record, Some(device))),
            Err(error) => {
                let removed = match is_refused(&error) {
                    true => Ok(()),
                    false => remove_unused(manager, &record),
                };
                match removed.and_then(|()| self.forget(&id)) {
                    Ok(()) => {}
                    // The record stays, so that it is removed at the next try or start.
                    Err(left) => warn!(%id, %left, "partly made volume cannot be removed"),
                }
                Err(error)
            }
        }
    }

    /// Compares the existing volume with the request.
    fn same(&self, order: &Order, volume: Volume) -> Result<Volume, Error> {
        let record = &volume.record;
        if record.mode != order.mode {
            return Err(Error::Exists {
                id: order.id.clone(),
                what: format!("in mode {}, not in mode {}", record.mode, order.mode),
            });
        }
        let volume = self.look(&order.id)?;
        check_same(volume.usable()?, &order.region, order.gross_bytes)?;
        Ok(volume)
    }

    /// Returns the users of a volume: where it is staged and published, and which processes have it open.
    ///
    /// # Errors
    ///
    /// When they cannot be determined.
    pub fn users(&self, id: &VolumeId) -> Result<Vec<String>, Error> {
        let Some(volume) = self.get(id) else {
            return Ok(Vec::new());
        };
        let targets = volume.record.targets.keys();
        let mut users: Vec<String> = targets.map(|target| format!("target {target}")).collect();
        if volume.device.is_some() {
            users.extend(self.manager(&volume.record)?.users(id)?);
        }
        Ok(users)
    }

    /// Changes what is written down of where a volume is staged and published.
    ///
    /// # Errors
    ///
    /// [`Error::NoVolume`], [`Error::Deleting`], [`Error::Underway`], and when it cannot be written.
    pub fn set_targets(
        &self,
        id: &VolumeId,
        change: impl FnOnce(&mut Words),
    ) -> Result<Volume, Error> {
        self.set_use(id, |targets, _| change(targets))
    }

    /// As [`Self::set_targets`], together with which VM the volume belongs to.
    ///
    /// # Errors
    ///
    /// Those of [`Self::set_targets`].
    pub fn set_use(
        &self,
        id: &VolumeId,
        change: impl FnOnce(&mut Words, &mut String),
    ) -> Result<Volume, Error> {
        self.change(id, |record| {
            change(&mut record.targets, &mut record.owner);
            check_words(id, &record.targets)
        })
    }

    /// Changes what is written down of a volume that can be used.
    fn change(
        &self,
        id: &VolumeId,
        change: impl FnOnce(&mut Record) -> Result<(), Error>,
    ) -> Result<Volume, Error> {
        let _turn = self.turn(id)?;
        let volume = self.known(id)?;
        let mut record = volume.record;
        match record.phase {
            Phase::Ready => {}
            Phase::Creating => return Err(Error::NoVolume { id: id.clone() }),
            Phase::Deleting => return Err(Error::Deleting { id: id.clone() }),
        }
        change(&mut record)?;
        self.folder.write(&record)?;
        Ok(self.put(record, volume.device))
    }

    /// Records that a volume's device is about to be handed out as it is. From then on, for as
    /// long as it lives, what looks empty on it may be data. Repeated: no effect.
    ///
    /// # Errors
    ///
    /// As [`VolumeStore::set_targets`].
    pub fn set_raw(&self, id: &VolumeId) -> Result<(), Error> {
        self.change(id, |record| {
            record.is_raw = true;
            Ok(())
        })
        .map(drop)
    }

    /// Begins to delete a volume: from now on it is not assigned to any user. Repeated, and without such a
    /// volume: no effect.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] while it has a user, and nothing is changed then.
    pub fn begin_delete(&self, id: &VolumeId) -> Result<(), Error> {
        let _turn = self.turn(id)?;
        self.condemn(id).map(|_| ())
    }

    /// Deletes a volume: wipes it as it was created to be, removes it, and forgets it. Takes as long
    /// as that takes, and does not block other volumes. Repeated, it continues from where it was;
    /// without such a volume: no effect.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`], [`Error::Stopped`], and what failed; it can be repeated.
    pub fn delete(&self, id: &VolumeId, watch: &Watch<'_>) -> Result<(), Error> {
        let _turn = self.turn(id)?;
        let Some(volume) = self.condemn(id)? else {
            return Ok(());
        };
        let manager = self.manager(&volume.record)?.clone();
        let device = manager.device(id)?;
        let wipe = wipe(&volume.record, device.as_ref());
        let mut record = volume.record;
        match &device {
            Some(device) => record.uuid.clone_from(&device.uuid),
            // What is merely out of sight is not forgotten.
            None => check_absent(manager.as_ref(), &record)?,
        }
        let progress = |erased_bytes: u64| {
            let erased = Record {
                erased_bytes,
                ..record.clone()
            };
            // Lost, it is only done again.
            if let Err(error) = self.folder.write(&erased) {
                warn!(%id, %error, "progress of an erase cannot be recorded");
            }
            self.put(erased, device.clone());
            (watch.progress)(erased_bytes);
        };
        let watch = Watch {
            stop: watch.stop,
            progress: &progress,
        };
        manager.delete(id, wipe, &watch)?;
        check_absent(manager.as_ref(), &record)?;
        self.forget(id)
    }

    /// Returns whether there is no device of that volume, also of one that nothing is written down of.
    ///
    /// # Errors
    ///
    /// [`Error::NoManager`]; [`Error::Vanished`] when the region cannot be looked into, so that the
    /// device may merely be out of sight; and what keeps it from being seen.
    pub fn is_absent(
        &self,
        id: &VolumeId,
        region: &RegionName,
        mode: DeviceMode,
    ) -> Result<bool, Error> {
        is_absent(self.manager_of(id, mode)?.as_ref(), id, region)
    }

    /// Records that a volume is to be removed, once it has no user.
    fn condemn(&self, id: &VolumeId) -> Result<Option<Volume>, Error> {
        let Some(volume) = self.get(id) else {
            return Ok(None);
        };
        let by = self.users(id)?;
        if !by.is_empty() {
            let id = id.clone();
            return Err(Error::Busy { id, by });
        }
        match volume.record.phase {
            Phase::Deleting => Ok(Some(volume)),
            Phase::Creating => {
                remove_unused(self.manager(&volume.record)?.as_ref(), &volume.record)?;
                self.forget(id).map(|()| None)
            }
            Phase::Ready => {
                let mut record = volume.record;
                record.phase = Phase::Deleting;
                record.erased_bytes = 0;
                self.folder.write(&record)?;
                Ok(Some(self.put(record, volume.device)))
            }
        }
    }

    fn known(&self, id: &VolumeId) -> Result<Volume, Error> {
        let volume = self.get(id);
        volume.ok_or_else(|| Error::NoVolume { id: id.clone() })
    }

    fn manager(&self, record: &Record) -> Result<&Arc<dyn VolumeManager>, Error> {
        self.manager_of(&record.id, record.mode)
    }

    fn manager_of(
        &self,
        id: &VolumeId,
        mode: DeviceMode,
    ) -> Result<&Arc<dyn VolumeManager>, Error> {
        let mut managers = self.managers.iter();
        let manager = managers.find(|manager| manager.mode() == mode);
        manager.ok_or_else(|| Error::NoManager {
            id: id.clone(),
            mode,
        })
    }

    fn turn(&self, id: &VolumeId) -> Result<Turn<'_>, Error> {
        match locked(&self.underway).insert(id.clone()) {
            true => Ok(Turn {
                volumes: self,
                id: id.clone(),
            }),
            false => Err(Error::Underway { id: id.clone() }),
        }
    }

    fn put(&self, record: Record, device: Option<Device>) -> Volume {
        let volume = Volume { record, device };
        let id = volume.record.id.clone();
        locked(&self.volumes).insert(id, volume.clone());
        volume
    }

    fn forget(&self, id: &VolumeId) -> Result<(), Error> {
        self.folder.remove(id)?;
        locked(&self.volumes).remove(id);
        Ok(())
    }
}

fn check_words(id: &VolumeId, words: &Words) -> Result<(), Error> {
    if words_bytes(words) <= WORDS_BYTES_MAX {
        return Ok(());
    }
    Err(Error::Unusable {
        id: id.clone(),
        why: format!("more than {WORDS_BYTES_MAX} bytes are to be kept with it"),
    })
}
