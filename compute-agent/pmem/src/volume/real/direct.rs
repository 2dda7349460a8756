//! Mode direct: a namespace in mode fsdax for each volume, which has its name.
//!
//! Invariant: a region's capacity is the whole of it; what others have of it is reported as foreign.

use berth_domain::name::{RegionName, VolumeId};
use berth_domain::volume::{DeviceMode, Region, Taken, first_fit, net_bytes};

use super::super::manager::{
    Device, Error, VolumeManager, Watch, Wipe, check_id, check_same, check_size, volume_id,
};
use super::listing::{Listing, Namespace, NdRegion};
use super::{Settings, block, no_space};

/// The devices of volumes in mode direct.
#[derive(Debug)]
pub struct DirectManager {
    settings: Settings,
}

impl DirectManager {
    /// Returns this host's manager. Nothing is looked at yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }

    fn list(&self) -> Result<Listing, Error> {
        let _turn = self.settings.turn(false)?;
        self.settings.list()
    }

    fn align_bytes(&self, region: &NdRegion) -> u64 {
        self.settings.align_bytes.max(1).saturating_mul(region.ways)
    }

    fn region(&self, region: &NdRegion) -> Region {
        let others = region.namespaces.iter();
        let others = others.filter(|namespace| volume_id(&namespace.name).is_none());
        Region {
            name: region.name.clone(),
            cell: region.cell,
            mode: DeviceMode::Direct,
            capacity_bytes: region.size_bytes,
            align_bytes: self.align_bytes(region),
            foreign: others.map(|namespace| namespace.extent).collect(),
            trouble: region.trouble.clone(),
        }
    }

    /// Makes a namespace, and checks that it matches the request.
    fn make(&self, id: &VolumeId, found: &NdRegion, gross_bytes: u64) -> Result<Device, Error> {
        let region = self.region(found);
        if !region.trouble.is_empty() {
            let (region, why) = (region.name, region.trouble);
            return Err(Error::Trouble { region, why });
        }
        let ours = devices_of(found);
        let taken: Vec<Taken> = ours.iter().map(taken).collect();
        let free = region.free(&taken);
        if first_fit(&free, gross_bytes).is_none() {
            let most = free.iter().map(|hole| hole.length_bytes).max();
            let most = most.unwrap_or(0);
            let why = format!("the longest free piece has {most} bytes");
            return Err(no_space(&region.name, gross_bytes, why));
        }
        self.settings
            .make_namespace(found, gross_bytes, id.as_str())?;
        let made = find(&self.settings.list()?, id).ok_or_else(|| Error::Vanished {
            id: id.clone(),
            why: "ndctl has made it, and does not list it".to_owned(),
        })?;
        check_same(&made, &region.name, gross_bytes)?;
        block::zero_beginning(&self.settings, id, (&made.path, made.size_bytes))?;
        Ok(made)
    }
}

fn taken(device: &Device) -> Taken {
    Taken {
        gross_bytes: device.gross_bytes,
        extent: device.extent,
    }
}

fn device(region: &RegionName, namespace: &Namespace) -> Option<Device> {
    let id = volume_id(&namespace.name)?;
    let gross_bytes = namespace.extent.length_bytes;
    let dev = &namespace.dev;
    let (path, size_bytes) = namespace.block.clone().unwrap_or_default();
    let trouble = match &namespace.block {
        Some(_) => String::new(),
        None => format!("its namespace {dev} is switched off, or was made in part"),
    };
    Some(Device {
        id,
        region: region.clone(),
        mode: DeviceMode::Direct,
        gross_bytes,
        size_bytes: match trouble.is_empty() {
            true => size_bytes,
            false => net_bytes(DeviceMode::Direct, gross_bytes),
        },
        extent: Some(namespace.extent),
        path,
        uuid: namespace.uuid.clone(),
        trouble,
    })
}

fn devices_of(region: &NdRegion) -> Vec<Device> {
    let namespaces = region.namespaces.iter();
    namespaces
        .filter_map(|namespace| device(&region.name, namespace))
        .collect()
}

fn devices(listing: &Listing) -> Vec<Device> {
    let mut devices: Vec<Device> = listing.iter().flat_map(devices_of).collect();
    // Of two with the same name the one that can be used comes first.
    devices.sort_by(|a, b| (&a.id, &a.trouble).cmp(&(&b.id, &b.trouble)));
    devices
}

fn find(listing: &Listing, id: &VolumeId) -> Option<Device> {
    devices(listing).into_iter().find(|device| device.id == *id)
}

impl VolumeManager for DirectManager {
    fn mode(&self) -> DeviceMode {
        DeviceMode::Direct
    }

    fn prepare(&self) -> Result<(), Error> {
        Ok(())
    }

    fn regions(&self) -> Result<Vec<Region>, Error> {
        let listing = self.list()?;
        Ok(listing.iter().map(|region| self.region(region)).collect())
    }

    fn devices(&self) -> Result<Vec<Device>, Error> {
        let mut devices = devices(&self.list()?);
        devices.dedup_by(|a, b| a.id == b.id);
        Ok(devices)
    }

    fn create(
        &self,
        id: &VolumeId,
        region: &RegionName,
        gross_bytes: u64,
    ) -> Result<Device, Error> {
        check_id(id)?;
        let _turn = self.settings.turn(true)?;
        let listing = self.settings.list()?;
        if let Some(device) = find(&listing, id) {
            check_same(&device, region, gross_bytes)?;
            return Ok(device);
        }
        let found = listing.iter().find(|found| found.name == *region);
        let found = found.ok_or_else(|| Error::NoRegion {
            region: region.clone(),
            mode: DeviceMode::Direct,
        })?;
        check_size(region, gross_bytes, self.align_bytes(found))?;
        self.make(id, found, gross_bytes)
    }

    fn users(&self, id: &VolumeId) -> Result<Vec<String>, Error> {
        match find(&self.list()?, id) {
            Some(device) if device.trouble.is_empty() => {
                block::users(&self.settings, id, &device.path)
            }
            Some(_) | None => Ok(Vec::new()),
        }
    }

    fn delete(&self, id: &VolumeId, wipe: Wipe, watch: &Watch<'_>) -> Result<(), Error> {
        // One that was made in part, and another one after it: both.
        for device in devices(&self.list()?) {
            if device.id == *id {
                self.remove(&device, wipe, watch)?;
            }
        }
        Ok(())
    }
}

impl DirectManager {
    fn remove(&self, device: &Device, wipe: Wipe, watch: &Watch<'_>) -> Result<(), Error> {
        let id = &device.id;
        match (device.trouble.is_empty(), wipe) {
            (true, wipe) => {
                let place = (device.path.as_path(), device.size_bytes);
                block::wipe(&self.settings, id, place, wipe, watch)?;
            }
            (false, Wipe::Nothing) => {}
            (false, Wipe::Beginning | Wipe::Everything { .. }) => {
                return Err(Error::Unusable {
                    id: id.clone(),
                    why: format!("{}; it cannot be wiped", device.trouble),
                });
            }
        }
        watch.check(id)?;
        let _turn = self.settings.turn(true)?;
        // The kernel reuses its names as soon as one is free: it is looked up once more.
        let listing = self.settings.list()?;
        let mut namespaces = listing.iter().flat_map(|region| {
            let namespaces = region.namespaces.iter();
            namespaces.map(|namespace| (&region.name, namespace))
        });
        let same = |(region, namespace): &(&RegionName, &Namespace)| {
            **region == device.region
                && Some(namespace.extent) == device.extent
                && namespace.uuid == device.uuid
                && namespace.name == id.as_str()
        };
        match namespaces.find(same) {
            Some((_, namespace)) => self.settings.destroy_namespace(&namespace.dev),
            None => Ok(()),
        }
    }
}
