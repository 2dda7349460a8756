//! A host's memory: its regions, what they are divided into, and what is written there.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_domain::name::{RegionName, VolumeId};
use berth_domain::volume::{
    DeviceMode, Extent, LVM_ALIGN_BYTES, Region, Taken, first_fit, holes, net_bytes,
};

use super::{Fault, Operation, SimulatedRegion};
use crate::simulated::Contents;
use crate::volume::manager::{BEGINNING_BYTES, Device, Error, check_same};

/// What the label of a physical volume and what belongs to it take of a volume group.
const LABEL_BYTES: u64 = 1 << 20;

/// A host's memory. Clones are the same memory.
#[derive(Clone, Debug, Default)]
pub struct SimulatedMemory(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    regions: Vec<Place>,
    fsdax_percent: u64,
    faults: BTreeMap<Operation, VecDeque<Fault>>,
    users: BTreeMap<VolumeId, Vec<String>>,
    made: u64,
}

impl Default for State {
    fn default() -> Self {
        Self {
            regions: Vec::new(),
            fsdax_percent: 100,
            faults: BTreeMap::new(),
            users: BTreeMap::new(),
            made: 0,
        }
    }
}

/// A region.
#[derive(Debug)]
struct Place {
    configured: SimulatedRegion,
    /// The namespace that its volume group is made of.
    group: Option<Extent>,
    foreign: Vec<Extent>,
    /// What others have in the volume group.
    foreign_in_group: Vec<Extent>,
    trouble: String,
    devices: Vec<Made>,
    contents: Contents,
}

#[derive(Debug)]
struct Made {
    device: Device,
    /// Where what can be used of it lies in the region, in order.
    pieces: Vec<Extent>,
}

impl Place {
    /// Where logical volumes may lie: whole pieces of the namespace behind its label.
    fn pool(&self) -> Option<Extent> {
        let group = self.group?;
        let net = net_bytes(DeviceMode::Direct, group.length_bytes).checked_sub(LABEL_BYTES)?;
        let length_bytes = net - net % LVM_ALIGN_BYTES;
        Some(Extent {
            offset_bytes: group.end_bytes() - net,
            length_bytes,
        })
    }

    fn region(&self, mode: DeviceMode) -> Region {
        let foreign_in_group: u64 = self.foreign_in_group.iter().map(|e| e.length_bytes).sum();
        let (capacity_bytes, align_bytes, foreign, trouble) = match mode {
            DeviceMode::Lvm => (
                self.pool()
                    .map_or(0, |pool| pool.length_bytes - foreign_in_group),
                LVM_ALIGN_BYTES,
                Vec::new(),
                match self.group {
                    Some(_) => "",
                    None => "it has no volume group",
                },
            ),
            DeviceMode::Direct => {
                let mut foreign = self.foreign.clone();
                foreign.extend(self.group);
                foreign.sort_unstable();
                let configured = &self.configured;
                (configured.size_bytes, configured.align_bytes, foreign, "")
            }
        };
        let trouble = match self.trouble.as_str() {
            "" => trouble.to_owned(),
            trouble => trouble.to_owned(),
        };
        Region {
            name: self.configured.name.clone(),
            cell: self.configured.cell,
            mode,
            capacity_bytes,
            align_bytes,
            foreign,
            trouble,
        }
    }

    fn taken(&self, mode: DeviceMode) -> Vec<Taken> {
        let devices = self.devices.iter().map(|made| &made.device);
        let of_mode = devices.filter(|device| device.mode == mode);
        of_mode
            .map(|device| Taken {
                gross_bytes: device.gross_bytes,
                extent: device.extent,
            })
            .collect()
    }

    /// Returns the free pieces of the volume group.
    fn free_in_group(&self) -> Vec<Extent> {
        let Some(pool) = self.pool() else {
            return Vec::new();
        };
        let logical = self.devices.iter();
        let logical = logical.filter(|made| made.device.mode == DeviceMode::Lvm);
        let before = Extent {
            offset_bytes: 0,
            length_bytes: pool.offset_bytes,
        };
        let taken = logical.flat_map(|made| made.pieces.iter().copied());
        let taken = taken.chain(self.foreign_in_group.iter().copied());
        holes(pool.end_bytes(), taken.chain([before]))
    }

    /// Returns where a new device lies: the extent of a namespace, and the pieces that can be used.
    fn fit(&self, mode: DeviceMode, gross_bytes: u64) -> Option<(Option<Extent>, Vec<Extent>)> {
        match mode {
            DeviceMode::Direct => {
                let free = self.region(mode).free(&self.taken(mode));
                let extent = first_fit(&free, gross_bytes)?;
                let length_bytes = net_bytes(mode, gross_bytes);
                let usable = Extent {
                    offset_bytes: extent.end_bytes() - length_bytes,
                    length_bytes,
                };
                Some((Some(extent), vec![usable]))
            }
            DeviceMode::Lvm => {
                let mut left = gross_bytes;
                let mut pieces = Vec::new();
                for hole in self.free_in_group() {
                    let length_bytes = hole.length_bytes.min(left);
                    left -= length_bytes;
                    if length_bytes > 0 {
                        let offset_bytes = hole.offset_bytes;
                        pieces.push(Extent {
                            offset_bytes,
                            length_bytes,
                        });
                    }
                }
                (left == 0).then_some((None, pieces))
            }
        }
    }

    /// Returns the pieces of the region that a part of a device is.
    fn pieces(made: &Made, offset: u64, length: u64) -> Vec<Extent> {
        let mut skip = offset;
        let mut left = length;
        let mut found = Vec::new();
        for piece in &made.pieces {
            let from = skip.min(piece.length_bytes);
            let length_bytes = (piece.length_bytes - from).min(left);
            skip -= from;
            left -= length_bytes;
            let offset_bytes = piece.offset_bytes + from;
            found.push(Extent {
                offset_bytes,
                length_bytes,
            });
        }
        found
    }

    fn fill(&mut self, at: usize, offset: u64, length: u64, byte: u8) {
        for piece in Self::pieces(&self.devices[at], offset, length) {
            self.contents
                .fill(piece.offset_bytes, piece.length_bytes, byte);
        }
    }
}

impl SimulatedMemory {
    /// Returns a host with these regions; they are empty.
    #[must_use]
    pub fn new(regions: impl IntoIterator<Item = SimulatedRegion>) -> Self {
        let memory = Self::default();
        let place = |configured| Place {
            configured,
            group: None,
            foreign: Vec::new(),
            foreign_in_group: Vec::new(),
            trouble: String::new(),
            devices: Vec::new(),
            contents: Contents::default(),
        };
        memory.state().regions = regions.into_iter().map(place).collect();
        memory
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets how much of each region volume groups are made of, in percent.
    pub fn set_fsdax_percent(&self, percent: u64) {
        self.state().fsdax_percent = percent.min(100);
    }

    /// Orders that something goes wrong the next time; several are taken one after the other.
    pub fn order(&self, operation: Operation, fault: Fault) {
        let mut state = self.state();
        state.faults.entry(operation).or_default().push_back(fault);
    }

    /// Makes a foreign device in a region.
    ///
    /// # Panics
    ///
    /// When there is no such region.
    pub fn add_foreign(&self, region: &RegionName, extent: Extent) {
        self.with(region, |place| place.foreign.push(extent));
    }

    /// Makes a foreign device in the first free part of a region's volume group.
    ///
    /// # Panics
    ///
    /// When there is no such region or no space.
    pub fn add_foreign_in_group(&self, region: &RegionName, length_bytes: u64) {
        self.with(region, |place| {
            let (_, pieces) = place.fit(DeviceMode::Lvm, length_bytes).expect("room");
            place.foreign_in_group.extend(pieces);
        });
    }

    /// Sets what is wrong with a region; empty: nothing.
    ///
    /// # Panics
    ///
    /// When there is no such region.
    pub fn set_trouble(&self, region: &RegionName, trouble: &str) {
        self.with(region, |place| trouble.clone_into(&mut place.trouble));
    }

    fn with<T>(&self, region: &RegionName, change: impl FnOnce(&mut Place) -> T) -> T {
        let mut state = self.state();
        let mut places = state.regions.iter_mut();
        let place = places.find(|place| place.configured.name == *region);
        change(place.expect("a region of this memory"))
    }

    /// Has a process open a device, or close it.
    pub fn set_users(&self, id: &VolumeId, users: &[&str]) {
        let users = users.iter().map(|user| (*user).to_owned()).collect();
        self.state().users.insert(id.clone(), users);
    }

    /// Makes a device vanish, as when it is removed past Berth.
    pub fn vanish(&self, id: &VolumeId) {
        for place in &mut self.state().regions {
            place.devices.retain(|made| made.device.id != *id);
        }
    }

    /// Writes a run of a byte into a device, as a user of it would.
    ///
    /// # Panics
    ///
    /// When there is no such device.
    pub fn fill(&self, id: &VolumeId, offset: u64, length: u64, byte: u8) {
        self.change(id, |place, at| place.fill(at, offset, length, byte))
            .expect("a device of this memory");
    }

    /// Reads from a device.
    ///
    /// # Panics
    ///
    /// When there is no such device.
    #[must_use]
    pub fn read(&self, id: &VolumeId, offset: u64, length: usize) -> Vec<u8> {
        let read = |place: &mut Place, at: usize| {
            let pieces = Place::pieces(&place.devices[at], offset, length as u64);
            let mut bytes = Vec::new();
            for piece in pieces {
                let length = usize::try_from(piece.length_bytes).expect("within what is read");
                bytes.extend(place.contents.read(piece.offset_bytes, length));
            }
            bytes
        };
        self.change(id, read).expect("a device of this memory")
    }

    fn change<T>(
        &self,
        id: &VolumeId,
        change: impl FnOnce(&mut Place, usize) -> T,
    ) -> Result<T, Error> {
        for place in &mut self.state().regions {
            let mut devices = place.devices.iter();
            if let Some(at) = devices.position(|made| made.device.id == *id) {
                return Ok(change(place, at));
            }
        }
        Err(Error::Vanished {
            id: id.clone(),
            why: "it is not in this memory".to_owned(),
        })
    }

    pub(super) fn fault(&self, operation: Operation) -> Option<Fault> {
        self.state().faults.get_mut(&operation)?.pop_front()
    }

    pub(super) fn make_groups(&self) {
        let mut state = self.state();
        let percent = state.fsdax_percent;
        for place in &mut state.regions {
            let align = place.configured.align_bytes;
            let share = u128::from(place.configured.size_bytes) * u128::from(percent) / 100;
            let share = u64::try_from(share).expect("at most the whole of it");
            let direct = DeviceMode::Direct;
            let free = place.region(direct).free(&place.taken(direct));
            let most = free.iter().map(|hole| hole.length_bytes).max();
            let length = share.min(most.unwrap_or(0)) / align * align;
            if place.group.is_none() && length > 0 {
                place.group = first_fit(&free, length);
            }
        }
    }

    pub(super) fn regions(&self, mode: DeviceMode) -> Vec<Region> {
        let state = self.state();
        let mut regions: Vec<Region> = state.regions.iter().map(|p| p.region(mode)).collect();
        regions.sort_by(|a, b| a.name.cmp(&b.name));
        regions
    }

    pub(super) fn devices(&self, mode: DeviceMode) -> Vec<Device> {
        let state = self.state();
        let made = state.regions.iter().flat_map(|place| &place.devices);
        let devices = made.map(|made| made.device.clone());
        let mut devices: Vec<Device> = devices.filter(|device| device.mode == mode).collect();
        devices.sort_by(|a, b| a.id.cmp(&b.id));
        devices
    }

    pub(super) fn make(
        &self,
        mode: DeviceMode,
        id: &VolumeId,
        region: &Region,
        gross_bytes: u64,
        is_whole: bool,
    ) -> Result<Device, Error> {
        if let Some(there) = self.devices(mode).into_iter().find(|d| d.id == *id) {
            check_same(&there, &region.name, gross_bytes)?;
            return Ok(there);
        }
        if !region.trouble.is_empty() {
            let region_name = region.name.clone();
            let why = region.trouble.clone();
            return Err(Error::Trouble {
                region: region_name,
                why,
            });
        }
        let mut state = self.state();
        state.made += 1;
        let uuid = format!("{:08x}", state.made);
        let mut places = state.regions.iter_mut();
        let place = places.find(|place| place.configured.name == region.name);
        let place = place.expect("it was among the regions");
        let Some((extent, pieces)) = place.fit(mode, gross_bytes) else {
            let free = place.region(mode).free(&place.taken(mode));
            let most = free.iter().map(|hole| hole.length_bytes).max();
            return Err(Error::NoSpace {
                region: region.name.clone(),
                gross_bytes,
                why: format!("the largest free piece has {} bytes", most.unwrap_or(0)),
            });
        };
        let device = Device {
            id: id.clone(),
            region: region.name.clone(),
            mode,
            gross_bytes,
            size_bytes: net_bytes(mode, gross_bytes),
            extent,
            path: PathBuf::from(format!("/dev/simulated/{id}")),
            uuid,
            trouble: match is_whole {
                true => String::new(),
                false => "it was made in part".to_owned(),
            },
        };
        let made = Made {
            device: device.clone(),
            pieces,
        };
        place.devices.push(made);
        if is_whole {
            let at = place.devices.len() - 1;
            place.fill(at, 0, BEGINNING_BYTES.min(device.size_bytes), 0);
        }
        Ok(device)
    }

    pub(super) fn users(&self, id: &VolumeId) -> Vec<String> {
        self.state().users.get(id).cloned().unwrap_or_default()
    }

    pub(super) fn check_unused(&self, id: &VolumeId) -> Result<(), Error> {
        let by = self.users(id);
        match by.is_empty() {
            true => Ok(()),
            false => Err(Error::Busy { id: id.clone(), by }),
        }
    }

    pub(super) fn zero(&self, id: &VolumeId, offset: u64, length: u64) -> Result<(), Error> {
        self.change(id, |place, at| {
            let length = length.min(place.devices[at].device.size_bytes - offset);
            place.fill(at, offset, length, 0);
        })
    }

    pub(super) fn remove(&self, id: &VolumeId) -> Result<(), Error> {
        self.check_unused(id)?;
        self.vanish(id);
        Ok(())
    }
}
