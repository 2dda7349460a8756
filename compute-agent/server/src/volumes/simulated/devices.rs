//! Simulated devices that outlive the agent.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use berth_domain::name::{RegionName, VolumeId};
use berth_domain::volume::{DeviceMode, Region};
use berth_pmem::volume::simulated::{SimulatedManager, SimulatedMemory};
use berth_pmem::volume::{Device, Error as ManagerError, VolumeManager, Watch, Wipe};

use super::links::Links;
use crate::error::Error;

/// The files of devices.
#[derive(Clone)]
pub(super) struct Devices(PathBuf);

/// A device as it is written down: `MODE REGION OFFSET GROSS`.
struct Written {
    id: VolumeId,
    mode: DeviceMode,
    region: RegionName,
    offset: u64,
    gross: u64,
}

impl Written {
    fn read(id: &str, text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let mode = match words.next()? {
            "lvm" => DeviceMode::Lvm,
            "direct" => DeviceMode::Direct,
            _ => return None,
        };
        Some(Self {
            id: VolumeId::new(id).ok()?,
            mode,
            region: RegionName::new(words.next()?).ok()?,
            offset: words.next()?.parse().ok()?,
            gross: words.next()?.parse().ok()?,
        })
    }
}

impl Devices {
    pub(super) fn open(folder: &Path) -> Result<Self, Error> {
        let path = folder.join("devices");
        fs::create_dir_all(&path).map_err(|source| Error::VolumeState {
            path: path.clone(),
            source,
        })?;
        Ok(Self(path))
    }

    fn write(&self, device: &Device) -> io::Result<()> {
        let offset = device.extent.map_or(0, |extent| extent.offset_bytes);
        let (mode, region, gross) = (device.mode, &device.region, device.gross_bytes);
        let new = self.0.join(format!("{}.new", device.id));
        fs::write(&new, format!("{mode} {region} {offset} {gross}\n"))?;
        fs::rename(new, self.0.join(device.id.as_str()))
    }

    fn remove(&self, id: &VolumeId) -> io::Result<()> {
        absent_is_fine(fs::remove_file(self.0.join(id.as_str())))
    }

    fn read(&self) -> io::Result<Vec<Written>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let entry = entry?;
            let name = entry.file_name();
            let text = fs::read_to_string(entry.path())?;
            found.extend(Written::read(&name.to_string_lossy(), &text));
        }
        found.sort_by(|a, b| (&a.region, a.offset).cmp(&(&b.region, b.offset)));
        Ok(found)
    }

    /// Puts the devices of an earlier run where they were. A device lies at the beginning of the first
    /// hole that it fits into; so holes are filled up before it, and emptied in the end. The volume
    /// groups are made between the modes, as the one or the other was first.
    pub(super) fn restore(&self, memory: &SimulatedMemory, first: DeviceMode) -> Result<(), Error> {
        let written = self.read().map_err(|source| Error::VolumeState {
            path: self.0.clone(),
            source,
        })?;
        let managers = [DeviceMode::Lvm, DeviceMode::Direct];
        let [lvm, direct] = managers.map(|mode| SimulatedManager::new(memory, mode));
        let has_groups = written.iter().any(|device| device.mode == DeviceMode::Lvm);
        if has_groups && first == DeviceMode::Lvm {
            lvm.prepare()?;
        }
        let mut fillers = Vec::new();
        let mut cursor = (None, 0);
        for device in written
            .iter()
            .filter(|device| device.mode == DeviceMode::Direct)
        {
            if cursor.0.as_ref() != Some(&device.region) {
                cursor = (Some(device.region.clone()), 0);
            }
            let hole = device.offset.saturating_sub(cursor.1);
            if hole > 0 {
                let name = format!("filler-{:032x}", fillers.len());
                let filler = VolumeId::new(&name).expect("a name");
                // What others have is in the way of it, and is one of the holes then.
                if direct.create(&filler, &device.region, hole).is_ok() {
                    fillers.push(filler);
                }
            }
            direct.create(&device.id, &device.region, device.gross)?;
            cursor.1 = device.offset + device.gross;
        }
        for filler in fillers {
            direct.delete(&filler, Wipe::Nothing, &no_watch(&AtomicBool::new(false)))?;
        }
        if has_groups && first == DeviceMode::Direct {
            lvm.prepare()?;
        }
        for device in written
            .iter()
            .filter(|device| device.mode == DeviceMode::Lvm)
        {
            lvm.create(&device.id, &device.region, device.gross)?;
        }
        Ok(())
    }
}

fn no_watch(stop: &AtomicBool) -> Watch<'_> {
    Watch {
        stop,
        progress: &|_| {},
    }
}

/// A simulated manager that writes down what it made.
pub(super) struct Remembered {
    pub(super) simulated: SimulatedManager,
    pub(super) devices: Devices,
    pub(super) links: Links,
}

impl Remembered {
    fn failed(&self, id: &VolumeId) -> impl Fn(io::Error) -> ManagerError {
        let path = self.devices.0.join(id.as_str());
        move |error| ManagerError::Io {
            what: "write down the simulated device",
            path: path.clone(),
            why: error.to_string(),
        }
    }
}

impl VolumeManager for Remembered {
    fn mode(&self) -> DeviceMode {
        self.simulated.mode()
    }

    fn prepare(&self) -> Result<(), ManagerError> {
        self.simulated.prepare()
    }

    fn regions(&self) -> Result<Vec<Region>, ManagerError> {
        self.simulated.regions()
    }

    fn devices(&self) -> Result<Vec<Device>, ManagerError> {
        self.simulated.devices()
    }

    fn create(
        &self,
        id: &VolumeId,
        region: &RegionName,
        gross_bytes: u64,
    ) -> Result<Device, ManagerError> {
        let device = self.simulated.create(id, region, gross_bytes)?;
        self.devices.write(&device).map_err(self.failed(id))?;
        Ok(device)
    }

    fn users(&self, id: &VolumeId) -> Result<Vec<String>, ManagerError> {
        self.simulated.users(id)
    }

    fn delete(&self, id: &VolumeId, wipe: Wipe, watch: &Watch<'_>) -> Result<(), ManagerError> {
        self.simulated.delete(id, wipe, watch)?;
        self.links.erase(id).map_err(self.failed(id))?;
        self.devices.remove(id).map_err(self.failed(id))
    }
}

pub(super) fn absent_is_fine(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use berth_pmem::volume::simulated::SimulatedRegion;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn memory() -> SimulatedMemory {
        let region = SimulatedRegion {
            align_bytes: 16 * MIB,
            ..SimulatedRegion::new("region0", 1024 * MIB)
        };
        SimulatedMemory::new([region])
    }

    /// Goal: after a restart every device lies where it lay, holes included.
    #[test]
    fn devices_come_back_where_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let region = RegionName::new("region0").unwrap();
        let id = |n: u32| VolumeId::new(&format!("a-{n:032x}")).unwrap();
        let open = |memory: &SimulatedMemory| Remembered {
            simulated: SimulatedManager::new(memory, DeviceMode::Direct),
            devices: Devices::open(folder.path()).unwrap(),
            links: Links::open(folder.path()).unwrap(),
        };
        let manager = open(&memory());
        for (n, mib) in [(0, 32), (1, 48), (2, 16), (3, 64)] {
            manager.create(&id(n), &region, mib * MIB).unwrap();
        }
        let stop = AtomicBool::new(false);
        for n in [0, 2] {
            manager
                .delete(&id(n), Wipe::Beginning, &no_watch(&stop))
                .unwrap();
        }
        let extents = |manager: &Remembered| {
            let devices = manager.devices().unwrap().into_iter();
            devices.map(|d| (d.id, d.extent)).collect::<Vec<_>>()
        };
        let before = extents(&manager);
        assert_eq!(before.len(), 2);
        let memory = memory();
        manager
            .devices
            .restore(&memory, DeviceMode::Direct)
            .unwrap();
        let again = open(&memory);
        assert_eq!(extents(&again), before);
        // The hole in front is free again.
        let made = again.create(&id(4), &region, 32 * MIB).unwrap();
        assert_eq!(made.extent.unwrap().offset_bytes, 0);
    }
}
