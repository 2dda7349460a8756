//! The volumes of this host as its guests use them: marks in their records, and devices for guests.
//!
//! A disk is the volume's device. An nvdimm is a file that takes up the volume's file system, which is
//! mounted for it: a device of a file system mounted with DAX is memory to a process that maps its files, and
//! a device itself is not. The file is made once and stays in the volume.
//!
//! Invariant: a mark stands in the record before anything is prepared, and until that is removed
//! again; next to a guest's mark there is no other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use berth_csi::{Local, Mount};
use berth_domain::id::VmUid;
use berth_domain::name::VolumeId;
use berth_domain::vm::{AttachedAs, VolumeAttachment};
use berth_driver::{Error, VolumeDevice};
use berth_pmem::volume::{Device, Error as StoreError, VolumeStore};
use berth_proto::convert::csi::FileSystem;
use uuid::Uuid;

use super::mounts::Mounts;
use crate::guest_volumes::{Guest, HostVolumes};

/// How what is written down of a guest begins.
const MARK: &str = "vm:";

/// The file that a guest sees as an nvdimm.
const IMAGE: &str = "berth-vm.img";

/// What the size of that file is a multiple of: a large page.
const IMAGE_ALIGN_BYTES: u64 = 2 << 20;

/// How much of a file system the file leaves alone: its own books grow with the file's.
const LEFT_BYTES: u64 = 2 << 20;

/// The volumes that are kept here, for guests.
pub(super) struct ForGuests {
    store: Arc<VolumeStore>,
    mounts: Arc<dyn Mounts>,
    /// Where their file systems are mounted.
    folder: PathBuf,
}

impl ForGuests {
    pub(super) fn new(store: Arc<VolumeStore>, mounts: Arc<dyn Mounts>, folder: PathBuf) -> Self {
        Self {
            store,
            mounts,
            folder,
        }
    }

    /// Records the mark unless the volume has another user; returns whether it is new.
    fn mark(&self, guest: Guest<'_>, attachment: &VolumeAttachment) -> Result<bool, Error> {
        let (mark, mut others, mut is_new) = (mark_of(guest.uid), Vec::new(), false);
        let set = self.store.set_use(&attachment.volume, |targets, owner| {
            let not_ours = targets.keys().filter(|target| **target != mark);
            others = not_ours.map(|target| user_of(target)).collect();
            if others.is_empty() {
                let before = targets.insert(mark.clone(), attachment.attached_as.to_string());
                is_new = before.is_none();
                guest.name.as_str().clone_into(owner);
            }
        });
        set.map_err(|error| unusable(&attachment.volume, &error))?;
        match others.is_empty() {
            true => Ok(is_new),
            false => Err(Error::VolumeInUse {
                volume: attachment.volume.clone(),
                users: others,
            }),
        }
    }

    /// Checks that no process without a mark has the device open.
    fn examine_free(&self, vm: VmUid, volume: &VolumeId) -> Result<(), Error> {
        let users = self.store.users(volume);
        let mut users = users.map_err(|error| unusable(volume, &error))?;
        let own = format!("target {}", mark_of(vm));
        users.retain(|user| *user != own);
        match users.is_empty() {
            true => Ok(()),
            false => Err(Error::VolumeInUse {
                volume: volume.clone(),
                users,
            }),
        }
    }

    fn ready(&self, attachment: &VolumeAttachment) -> Result<VolumeDevice, Error> {
        let id = &attachment.volume;
        let looked = self.store.look(id);
        let volume = looked.map_err(|error| unusable(id, &error))?;
        let device = volume.usable().map_err(|error| unusable(id, &error))?;
        let (path, size_bytes) = match attachment.attached_as {
            AttachedAs::Disk => {
                if !attachment.read_only {
                    let marked = self.store.set_raw(id);
                    marked.map_err(|error| unusable(id, &error))?;
                }
                let device = local(id, &device.path, device.size_bytes);
                let path = self.mounts.device(&device);
                (
                    path.map_err(|error| unusable(id, &error))?,
                    device.size_bytes,
                )
            }
            AttachedAs::Nvdimm => {
                let image = self.image(device, volume.record.is_raw, attachment.read_only);
                image.map_err(|error| unusable(id, &error))?
            }
        };
        Ok(VolumeDevice {
            volume: id.clone(),
            attached_as: attachment.attached_as,
            path,
            size_bytes,
            read_only: attachment.read_only,
        })
    }

    /// Returns the file of a volume, which is made if it is missing, and its size. For a read-only
    /// guest nothing is made.
    fn image(
        &self,
        device: &Device,
        is_raw: bool,
        read_only: bool,
    ) -> Result<(PathBuf, u64), String> {
        let at = self.folder.join(device.id.as_str());
        let volume = Local {
            is_raw,
            ..local(&device.id, &device.path, device.size_bytes)
        };
        let nothing = || {
            format!(
                "there is no {IMAGE} in it to be read: a VM has to have it as an nvdimm without :ro first"
            )
        };
        if read_only {
            let is_empty = self.mounts.is_empty(&volume);
            if is_empty.map_err(|error| error.to_string())? {
                return Err(nothing());
            }
        }
        let how = Mount {
            file_system: FileSystem::Ext4,
            flags: Vec::new(),
            readonly: false,
        };
        let made = fs::create_dir_all(&self.folder);
        made.map_err(|error| format!("cannot make {}: {error}", self.folder.display()))?;
        let mounted = self.mounts.mount(&volume, &at, &how);
        mounted.map_err(|error| error.to_string())?;
        let image = at.join(IMAGE);
        if let Some(size) = size_of(&image)? {
            return Ok((image, size));
        }
        if read_only {
            return Err(nothing());
        }
        let (space, _) = self.mounts.space(&at).map_err(|error| error.to_string())?;
        let size = space.available.saturating_sub(LEFT_BYTES);
        let size = size / IMAGE_ALIGN_BYTES * IMAGE_ALIGN_BYTES;
        if size < 2 * IMAGE_ALIGN_BYTES {
            let free = space.available >> 20;
            return Err(format!(
                "its file system has {free} MiB free, too few for an nvdimm"
            ));
        }
        let made = self.mounts.allocate(&image, size);
        made.map_err(|error| error.to_string())?;
        Ok((image, size))
    }

    /// Takes away what was made ready.
    fn unready(&self, volume: &VolumeId) -> Result<(), Error> {
        let at = self.folder.join(volume.as_str());
        let is_mounted = self.mounts.is_mounted(&at);
        if !is_mounted.map_err(|error| unusable(volume, &error))? {
            return Ok(());
        }
        // Its device may not be seen now; its path is enough.
        let unmounted = self.mounts.unmount(&local(volume, Path::new(""), 0), &at);
        unmounted.map_err(|error| unusable(volume, &error))?;
        match fs::remove_dir(&at) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %at.display(), %error, "empty folder stays");
            }
            Ok(()) | Err(_) => {}
        }
        Ok(())
    }

    fn unmark(&self, vm: VmUid, volume: &VolumeId) -> Result<(), Error> {
        let removed = self.store.set_targets(volume, |targets| {
            targets.remove(&mark_of(vm));
        });
        match removed {
            Ok(_) | Err(StoreError::NoVolume { .. }) => Ok(()),
            Err(error) => Err(unusable(volume, &error)),
        }
    }
}

impl HostVolumes for ForGuests {
    fn attach(
        &self,
        guest: Guest<'_>,
        attachment: &VolumeAttachment,
    ) -> Result<VolumeDevice, Error> {
        let (id, vm) = (&attachment.volume, guest.uid);
        let is_new = self.mark(guest, attachment)?;
        let free = match is_new {
            true => self.examine_free(vm, id),
            false => Ok(()),
        };
        let ready = free.and_then(|()| self.ready(attachment));
        if ready.is_err()
            && is_new
            && let Err(error) = self.detach(vm, id)
        {
            tracing::warn!(%vm, volume = %id, %error, "volume stays recorded as used");
        }
        ready
    }

    fn detach(&self, vm: VmUid, volume: &VolumeId) -> Result<(), Error> {
        let known = self.store.get(volume);
        if !known.is_some_and(|known| known.record.targets.contains_key(&mark_of(vm))) {
            return Ok(());
        }
        self.unready(volume)?;
        self.unmark(vm, volume)
    }

    fn marks(&self) -> BTreeMap<VmUid, BTreeSet<VolumeId>> {
        let mut marks: BTreeMap<VmUid, BTreeSet<VolumeId>> = BTreeMap::new();
        for volume in self.store.list() {
            let record = volume.record;
            for vm in record.targets.keys().filter_map(|target| vm_of(target)) {
                marks.entry(vm).or_default().insert(record.id.clone());
            }
        }
        marks
    }
}

fn mark_of(vm: VmUid) -> String {
    format!("{MARK}{vm}")
}

fn vm_of(target: &str) -> Option<VmUid> {
    let uid = Uuid::try_parse(target.strip_prefix(MARK)?);
    uid.ok().map(VmUid)
}

/// Returns the guest that has a volume, if what is written down is of one.
pub(super) fn guest_of<'t>(mut targets: impl Iterator<Item = &'t String>) -> Option<&'t str> {
    targets.find_map(|target| target.strip_prefix(MARK))
}

/// Returns the users of a volume, by its record.
fn user_of(target: &str) -> String {
    match target.strip_prefix(MARK) {
        Some(guest) => format!("guest {guest}"),
        None => format!("it is staged or published at {target}"),
    }
}

fn local(id: &VolumeId, device: &Path, size_bytes: u64) -> Local {
    Local {
        id: id.clone(),
        device: device.to_owned(),
        size_bytes,
        is_kata: false,
        is_ephemeral: false,
        is_raw: false,
        targets: BTreeMap::new(),
    }
}

fn size_of(file: &Path) -> Result<Option<u64>, String> {
    match fs::metadata(file) {
        Ok(there) => Ok(Some(there.len())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("cannot read {}: {error}", file.display())),
    }
}

fn unusable(volume: &VolumeId, why: &impl ToString) -> Error {
    Error::VolumeUnusable {
        volume: volume.clone(),
        why: why.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use berth_domain::name::{RegionName, VmName};
    use berth_domain::volume::DeviceMode;
    use berth_pmem::volume::Order;

    use super::*;
    use crate::config::PmemPrograms;
    use crate::config::volumes::{Manager, Settings};

    const GUEST: VmUid = VmUid(Uuid::from_u128(1));
    const OTHER: VmUid = VmUid(Uuid::from_u128(2));

    struct World {
        folder: tempfile::TempDir,
        guests: ForGuests,
    }

    impl World {
        /// A host with one volume of 64 MiB.
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let settings = Settings {
                manager: Manager::Sim,
                state_dir: folder.path().to_owned(),
                sim_regions: vec!["region0:1024@1".parse().unwrap()],
                ..Settings::default()
            };
            let (managers, mounts) = settings
                .managers(&PmemPrograms::default())
                .unwrap()
                .unwrap();
            let store = VolumeStore::open(&folder.path().join("volumes"), managers).unwrap();
            store.prepare().unwrap();
            let order = Order {
                id: volume(),
                region: RegionName::new("region0").unwrap(),
                mode: DeviceMode::Lvm,
                gross_bytes: 64 << 20,
                erase_after: true,
                parameters: BTreeMap::new(),
            };
            store.create(&order).unwrap();
            let at = folder.path().join("guests");
            let guests = ForGuests::new(Arc::new(store), mounts, at);
            Self { folder, guests }
        }

        fn attach(&self, vm: VmUid, attached_as: AttachedAs) -> Result<VolumeDevice, Error> {
            self.attach_to(vm, attached_as, false)
        }

        fn attach_to(
            &self,
            uid: VmUid,
            attached_as: AttachedAs,
            read_only: bool,
        ) -> Result<VolumeDevice, Error> {
            let name = VmName::new("db1").unwrap();
            let attachment = VolumeAttachment {
                volume: volume(),
                attached_as,
                read_only,
            };
            self.guests.attach(Guest { uid, name: &name }, &attachment)
        }

        fn marked(&self) -> Vec<VmUid> {
            self.guests.marks().into_keys().collect()
        }

        fn target(&self, path: &str, how: Option<&str>) {
            let set = self.guests.store.set_targets(&volume(), |targets| {
                match how {
                    Some(how) => targets.insert(path.to_owned(), how.to_owned()),
                    None => targets.remove(path),
                };
            });
            set.unwrap();
        }
    }

    fn volume() -> VolumeId {
        VolumeId::new("data-00000000000000000000000000000001").unwrap()
    }

    #[test]
    fn one_user_has_it_at_a_time() {
        let world = World::new();
        let device = world.attach(GUEST, AttachedAs::Disk).unwrap();
        assert_eq!(device.size_bytes, 64 << 20);
        assert_eq!(world.attach(GUEST, AttachedAs::Disk), Ok(device));
        let second = world.attach(OTHER, AttachedAs::Disk).unwrap_err();
        assert!(second.to_string().contains("guest 00000000"), "{second}");
        assert!(matches!(second, Error::VolumeInUse { .. }), "{second:?}");
        // It is not another's to give back.
        world.guests.detach(OTHER, &volume()).unwrap();
        assert_eq!(world.marked(), [GUEST]);
        let delete = world.guests.store.begin_delete(&volume());
        assert!(matches!(delete, Err(StoreError::Busy { .. })), "{delete:?}");
        world.guests.detach(GUEST, &volume()).unwrap();
        world.guests.detach(GUEST, &volume()).unwrap();
        // A pod has it.
        world.target("/pod", Some("staged"));
        let third = world.attach(OTHER, AttachedAs::Nvdimm).unwrap_err();
        assert!(third.to_string().contains("/pod"), "{third}");
        assert!(world.marked().is_empty());
        world.target("/pod", None);
        // What the guest that had it as a disk wrote is not formatted over.
        let fourth = world.attach(OTHER, AttachedAs::Nvdimm).unwrap_err();
        assert!(fourth.to_string().contains("not formatted"), "{fourth}");
        assert!(world.marked().is_empty());
        world.attach(OTHER, AttachedAs::Disk).unwrap();
    }

    #[test]
    fn an_nvdimm_is_a_file_that_stays() {
        let world = World::new();
        let device = world.attach(GUEST, AttachedAs::Nvdimm).unwrap();
        assert!(device.size_bytes.is_multiple_of(IMAGE_ALIGN_BYTES));
        assert!(device.size_bytes > 32 << 20, "{device:?}");
        let at = world.folder.path().join("guests").join(volume().as_str());
        assert_eq!(device.path, at.join(IMAGE));
        assert_eq!(fs::metadata(&device.path).unwrap().len(), device.size_bytes);
        fs::write(at.join("other"), "words").unwrap();
        world.guests.detach(GUEST, &volume()).unwrap();
        assert!(!at.exists(), "it is not mounted any more");
        assert_eq!(world.attach(OTHER, AttachedAs::Nvdimm), Ok(device));
        assert!(at.join("other").exists());
    }

    /// Goal: who only reads has nothing made for it, and sees what others have written.
    #[test]
    fn nothing_is_made_for_who_only_reads() {
        let world = World::new();
        let read = |vm| world.attach_to(vm, AttachedAs::Nvdimm, true);
        let refused = read(GUEST).unwrap_err();
        assert!(refused.to_string().contains("no berth-vm.img"), "{refused}");
        assert!(world.marked().is_empty());
        // A pod has made a file system since, without the file.
        let id = volume();
        let device = local(&id, Path::new("/dev/simulated"), 64 << 20);
        let at = world.folder.path().join("pod");
        let how = Mount {
            file_system: FileSystem::Ext4,
            flags: Vec::new(),
            readonly: false,
        };
        world.guests.mounts.mount(&device, &at, &how).unwrap();
        world.guests.mounts.unmount(&device, &at).unwrap();
        assert!(read(GUEST).is_err());
        assert!(!world.guests.folder.join(id.as_str()).exists(), "unmounted");
        let written = world.attach(GUEST, AttachedAs::Nvdimm).unwrap();
        world.guests.detach(GUEST, &id).unwrap();
        let read = read(OTHER).unwrap();
        assert!(read.read_only && !written.read_only);
        assert_eq!(
            (read.path, read.size_bytes),
            (written.path, written.size_bytes)
        );
    }

    #[test]
    fn what_is_not_there_is_refused() {
        let world = World::new();
        let attachment = VolumeAttachment {
            volume: VolumeId::new("data-00000000000000000000000000000009").unwrap(),
            attached_as: AttachedAs::Disk,
            read_only: false,
        };
        let name = VmName::new("db1").unwrap();
        let (uid, name) = (GUEST, &name);
        let refused = world
            .guests
            .attach(Guest { uid, name }, &attachment)
            .unwrap_err();
        assert!(
            matches!(refused, Error::VolumeUnusable { .. }),
            "{refused:?}"
        );
        assert_eq!(world.guests.detach(GUEST, &attachment.volume), Ok(()));
    }
}
