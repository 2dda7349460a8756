//! Mode lvm: a volume group for each region, and a logical volume for each volume, which has its
//! name.
//!
//! A volume group is made of namespaces in mode fsdax that are called [`GROUP_NAMESPACE`]; they are
//! made when there are none, up to a share of the region. While one is made there is a mark: what a
//! killed program left half made is distinguished by it from a namespace that was merely switched off.
//!
//! Invariant: a volume group is ours only if all that it is made of are such namespaces of one region.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use berth_domain::name::{RegionName, VolumeId};
use berth_domain::volume::{DeviceMode, LVM_ALIGN_BYTES, Region};
use tracing::{info, warn};

use super::super::folder::io_error;
use super::super::manager::{
    Device, Error, VolumeManager, Watch, Wipe, check_id, check_same, check_size, volume_id,
};
use super::listing::{Listing, Namespace, NdRegion};
use super::report::{self, Group, Logical, Physical};
use super::{GROUP_NAMESPACE, Settings, block, no_space};

/// The devices of volumes in mode lvm.
#[derive(Debug)]
pub struct LvmManager {
    settings: Settings,
    /// What went wrong with each region when it was prepared.
    troubles: Mutex<BTreeMap<RegionName, String>>,
}

/// What there is.
#[derive(Debug)]
struct View {
    regions: Listing,
    physical: Vec<Physical>,
    logical: Vec<Logical>,
}

/// A region with what its volume group is.
struct Place<'a> {
    region: &'a NdRegion,
    group: Result<&'a Group, String>,
}

impl View {
    fn places(&self) -> impl Iterator<Item = Place<'_>> {
        self.regions.iter().map(|region| Place {
            region,
            group: self.group(region),
        })
    }

    /// Returns the volume group of a region.
    fn group(&self, region: &NdRegion) -> Result<&Group, String> {
        let of_region = |physical: &Physical| {
            let mut namespaces = region.namespaces.iter();
            namespaces.any(|namespace| is_for_groups(namespace) && is_on(physical, namespace))
        };
        let mut groups = self.physical.iter().filter(|physical| of_region(physical));
        let group = groups.find_map(|physical| physical.group.as_ref());
        let group =
            group.ok_or_else(|| format!("it has no volume group {}", group_name(region)))?;
        let others = self.physical.iter().filter(|p| !of_region(p));
        let is_in = |physical: &Physical| {
            let uuid = physical.group.as_ref().map(|group| &group.uuid);
            uuid == Some(&group.uuid)
        };
        let name = &group.name;
        if let Some(other) = others.into_iter().find(|physical| is_in(physical)) {
            let other = &other.name;
            return Err(format!(
                "its volume group {name} is made of {other}, too, which is not ours"
            ));
        }
        Ok(group)
    }

    /// Returns the logical volumes of a group: ours, and how much ours take.
    fn ours<'a>(&'a self, group: &'a Group) -> impl Iterator<Item = (VolumeId, &'a Logical)> {
        let logical = self.logical.iter();
        let of_group = logical.filter(|logical| logical.group_uuid == group.uuid);
        of_group.filter_map(|logical| Some((volume_id(&logical.name)?, logical)))
    }

    fn devices(&self) -> Vec<(Device, &Group)> {
        let mut devices = Vec::new();
        for place in self.places() {
            let Ok(group) = place.group else { continue };
            let region = &place.region.name;
            devices.extend(
                self.ours(group)
                    .map(|(id, l)| (device(region, id, l), group)),
            );
        }
        devices.sort_by(|(a, _), (b, _)| a.id.cmp(&b.id));
        devices
    }

    fn find(&self, id: &VolumeId) -> Option<(Device, &Group)> {
        let mut devices = self.devices().into_iter();
        devices.find(|(device, _)| device.id == *id)
    }
}

fn device(region: &RegionName, id: VolumeId, logical: &Logical) -> Device {
    let path = PathBuf::from(&logical.path);
    let trouble = match path.exists() {
        true => String::new(),
        false => "it is not active".to_owned(),
    };
    Device {
        id,
        region: region.clone(),
        mode: DeviceMode::Lvm,
        gross_bytes: logical.size_bytes,
        size_bytes: logical.size_bytes,
        extent: None,
        path,
        uuid: logical.uuid.clone(),
        trouble,
    }
}

fn is_for_groups(namespace: &Namespace) -> bool {
    namespace.name == GROUP_NAMESPACE
}

fn is_on(physical: &Physical, namespace: &Namespace) -> bool {
    let path = namespace.block.as_ref().map(|(path, _)| path.as_path());
    path == Some(Path::new(&physical.name))
}

fn group_name(region: &NdRegion) -> String {
    format!("{}{}fsdax", region.bus, region.name)
}

impl LvmManager {
    /// Returns this host's manager. Nothing is looked at yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            troubles: Mutex::default(),
        }
    }

    fn lvm(&self, arguments: &[&str]) -> Result<(), Error> {
        self.settings.change(&self.settings.lvm, arguments)
    }

    fn view(&self) -> Result<View, Error> {
        let settings = &self.settings;
        let output = settings.tell(&settings.lvm, &report::ARGUMENTS)?;
        let report = report::read(&output)?;
        Ok(View {
            regions: settings.list()?,
            physical: report.physical,
            logical: report.logical,
        })
    }

    fn look(&self) -> Result<View, Error> {
        let _turn = self.settings.turn(false)?;
        self.view()
    }

    fn region(&self, view: &View, place: &Place<'_>) -> Region {
        let trouble = match (place.region.trouble.as_str(), &place.group) {
            ("", Ok(_)) => String::new(),
            ("", Err(why)) => {
                let troubles = self.troubles.lock();
                let troubles = troubles.unwrap_or_else(PoisonError::into_inner);
                match troubles.get(&place.region.name) {
                    Some(cause) => format!("{why}: {cause}"),
                    None => why.clone(),
                }
            }
            (trouble, _) => trouble.to_owned(),
        };
        let group = place.group.as_ref().ok();
        let capacity = |group: &&Group| {
            let ours = view.ours(group).map(|(_, logical)| logical.size_bytes);
            ours.fold(group.free_bytes, u64::saturating_add)
        };
        Region {
            name: place.region.name.clone(),
            cell: place.region.cell,
            mode: DeviceMode::Lvm,
            capacity_bytes: group.map_or(0, capacity),
            align_bytes: group.map_or(LVM_ALIGN_BYTES, |group| group.extent_bytes),
            foreign: Vec::new(),
            trouble,
        }
    }

    /// Returns how large a namespace is made of a region for its volume group; 0: none.
    fn target_bytes(&self, region: &NdRegion) -> u64 {
        let settings = &self.settings;
        let namespaces = region.namespaces.iter();
        let ours: u64 = namespaces
            .filter(|namespace| is_for_groups(namespace) && namespace.block.is_some())
            .map(|namespace| namespace.extent.length_bytes)
            .sum();
        let percent = u128::from(settings.fsdax_percent.min(100));
        let share = u128::from(region.size_bytes) * percent / 100;
        let share = u64::try_from(share).expect("at most all of it");
        let can_use = share
            .saturating_sub(ours)
            .min(region.available_bytes)
            .min(region.longest_bytes);
        let align = settings.align_bytes.max(1).saturating_mul(region.ways);
        match can_use - can_use % align {
            bytes if bytes < settings.fsdax_least_bytes => 0,
            bytes => bytes,
        }
    }

    fn mark(&self, region: &NdRegion) -> PathBuf {
        self.settings.state.join(format!("making-{}", region.name))
    }

    /// Makes a region's namespace, and returns whether anything was done. What was begun before and
    /// never came to be used is removed.
    fn make_namespace(&self, view: &View, region: &NdRegion) -> Result<bool, Error> {
        let mark = self.mark(region);
        let known: Vec<&str> = region.namespaces.iter().map(|n| n.uuid.as_str()).collect();
        if let Some(before) = read_mark(&mark)? {
            let is_new = |namespace: &&Namespace| {
                is_for_groups(namespace) && !before.contains(&namespace.uuid)
            };
            for namespace in region.namespaces.iter().filter(is_new) {
                let is_used = view.physical.iter().any(|p| is_on(p, namespace));
                if namespace.block.is_none() && !is_used {
                    info!(dev = namespace.dev, "removing a partly made namespace");
                    self.settings.destroy_namespace(&namespace.dev)?;
                }
            }
            remove_mark(&mark).map_err(io_error("remove", &mark))?;
            return Ok(true);
        }
        let bytes = self.target_bytes(region);
        if bytes == 0 {
            return Ok(false);
        }
        write_mark(&mark, &known).map_err(io_error("write", &mark))?;
        self.settings
            .make_namespace(region, bytes, GROUP_NAMESPACE)?;
        remove_mark(&mark).map_err(io_error("remove", &mark))?;
        Ok(true)
    }

    /// Makes a region's namespaces a volume group, or a larger one, and returns whether anything was
    /// done.
    fn make_group(&self, view: &View, region: &NdRegion) -> Result<bool, Error> {
        let mut is_changed = false;
        let trouble = |why: String| Error::Trouble {
            region: region.name.clone(),
            why,
        };
        let name = group_name(region);
        let group = view.group(region);
        for namespace in region.namespaces.iter().filter(|n| is_for_groups(n)) {
            let Some((path, _)) = &namespace.block else {
                let dev = &namespace.dev;
                warn!(dev, "namespace of a volume group is switched off");
                continue;
            };
            let mut physical = view.physical.iter();
            let is_taken = physical.any(|p| is_on(p, namespace) && p.group.is_some());
            if is_taken {
                continue;
            }
            let path = path.to_str().unwrap_or_default();
            if let Ok(group) = &group {
                self.lvm(&["vgextend", "--yes", "--force", &group.name, path])?;
                is_changed = true;
                continue;
            }
            let mut groups = view.physical.iter().filter_map(|p| p.group.as_ref());
            if groups.any(|group| group.name == name) {
                let why = format!("there is a volume group {name} already, which is not ours");
                return Err(trouble(why));
            }
            // Logical volumes begin where pages of 2 MiB can be mapped.
            let align = ["--dataalignment", "2m", "--physicalextentsize", "4m"];
            let arguments = [&["vgcreate", "--yes"][..], &align, &[&name, path]].concat();
            self.lvm(&arguments)?;
            // A second namespace is taken in the next time.
            return Ok(true);
        }
        Ok(is_changed)
    }

    fn activate(&self, view: &View) -> Result<(), Error> {
        for (device, group) in view.devices() {
            if !device.trouble.is_empty() {
                self.lvm(&["vgchange", "--activate", "y", &group.name])?;
            }
        }
        Ok(())
    }

    /// Does what is to be done for a region, and rediscovers it after each step. A clean-up,
    /// up, a namespace, a group and a second namespace for it are the most there is.
    fn prepare_region(&self, name: &RegionName, view: &mut View) -> Result<(), Error> {
        for _ in 0..4 {
            let mut regions = view.regions.iter();
            let Some(region) = regions.find(|region| region.name == *name) else {
                return Ok(());
            };
            if !(self.make_namespace(view, region)? || self.make_group(view, region)?) {
                return Ok(());
            }
            *view = self.view()?;
        }
        Ok(())
    }

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
        let view = self.view()?;
        match view.find(id) {
            Some((found, group)) if found.uuid == device.uuid => {
                let name = format!("{}/{id}", group.name);
                self.lvm(&["lvremove", "--yes", &name])
            }
            Some(_) | None => Ok(()),
        }
    }

    fn make(&self, id: &VolumeId, group: &Group, gross_bytes: u64) -> Result<Device, Error> {
        let size = format!("{gross_bytes}b");
        let form = ["lvcreate", "--yes", "--zero", "n", "--wipesignatures", "n"];
        let rest = ["--size", &size, "--name", id.as_str(), &group.name];
        self.lvm(&[&form[..], &rest].concat())?;
        let view = self.view()?;
        let made = view.find(id).map(|(device, _)| device);
        made.ok_or_else(|| Error::Vanished {
            id: id.clone(),
            why: "lvm has made it, and does not list it".to_owned(),
        })
    }
}

/// The last line of a mark that is whole.
const MARK_END: &str = "end";

/// Writes a mark with the namespaces that are there already: whole or not at all.
fn write_mark(mark: &Path, known: &[&str]) -> io::Result<()> {
    let lines = known.iter().copied().chain([MARK_END]);
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    berth_files::replace(mark, text.as_bytes())
}

/// Removes a mark so that it does not come back after a loss of power: what was made since would count
/// as new.
fn remove_mark(mark: &Path) -> io::Result<()> {
    fs::remove_file(mark)?;
    berth_files::sync_directory_of(mark)
}

/// Reads a mark. One that is torn is removed: it does not prove that anything is new.
fn read_mark(mark: &Path) -> Result<Option<Vec<String>>, Error> {
    let bytes = match fs::read(mark) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_error("read", mark)(error)),
    };
    let text = String::from_utf8_lossy(&bytes);
    let known = text.strip_suffix('\n').map(|text| text.lines());
    let mut known: Vec<String> = known.into_iter().flatten().map(str::to_owned).collect();
    if known.pop().as_deref() == Some(MARK_END) {
        return Ok(Some(known));
    }
    let path = mark.display().to_string();
    warn!(
        path,
        "torn mark removed; partly made devices, if any, are left"
    );
    remove_mark(mark).map_err(io_error("remove", mark))?;
    Ok(None)
}

impl VolumeManager for LvmManager {
    fn mode(&self) -> DeviceMode {
        DeviceMode::Lvm
    }

    fn prepare(&self) -> Result<(), Error> {
        let _turn = self.settings.turn(true)?;
        let mut view = self.view()?;
        let names: Vec<RegionName> = view.regions.iter().map(|r| r.name.clone()).collect();
        let mut troubles = BTreeMap::new();
        for name in names {
            if let Err(error) = self.prepare_region(&name, &mut view) {
                warn!(region = %name, %error, "region cannot be prepared for volumes");
                troubles.insert(name, error.to_string());
                view = self.view()?;
            }
        }
        *self.troubles.lock().unwrap_or_else(PoisonError::into_inner) = troubles;
        self.activate(&view)
    }

    fn regions(&self) -> Result<Vec<Region>, Error> {
        let view = self.look()?;
        Ok(view
            .places()
            .map(|place| self.region(&view, &place))
            .collect())
    }

    fn devices(&self) -> Result<Vec<Device>, Error> {
        let view = self.look()?;
        Ok(view
            .devices()
            .into_iter()
            .map(|(device, _)| device)
            .collect())
    }

    fn create(
        &self,
        id: &VolumeId,
        region: &RegionName,
        gross_bytes: u64,
    ) -> Result<Device, Error> {
        check_id(id)?;
        let _turn = self.settings.turn(true)?;
        let view = self.view()?;
        if let Some((device, _)) = view.find(id) {
            check_same(&device, region, gross_bytes)?;
            return Ok(device);
        }
        let place = view.places().find(|place| place.region.name == *region);
        let place = place.ok_or_else(|| Error::NoRegion {
            region: region.clone(),
            mode: DeviceMode::Lvm,
        })?;
        let region_state = self.region(&view, &place);
        check_size(region, gross_bytes, region_state.align_bytes)?;
        let group = match place.group {
            Ok(group) if region_state.trouble.is_empty() => group,
            Ok(_) | Err(_) => {
                return Err(Error::Trouble {
                    region: region.clone(),
                    why: region_state.trouble,
                });
            }
        };
        if gross_bytes > group.free_bytes {
            let why = format!("{} bytes of {} are free", group.free_bytes, group.name);
            return Err(no_space(region, gross_bytes, why));
        }
        let made = self.make(id, group, gross_bytes)?;
        check_same(&made, region, gross_bytes)?;
        block::zero_beginning(&self.settings, id, (&made.path, made.size_bytes))?;
        Ok(made)
    }

    fn users(&self, id: &VolumeId) -> Result<Vec<String>, Error> {
        match self.look()?.find(id) {
            Some((device, _)) if device.trouble.is_empty() => {
                block::users(&self.settings, id, &device.path)
            }
            Some(_) | None => Ok(Vec::new()),
        }
    }

    fn delete(&self, id: &VolumeId, wipe: Wipe, watch: &Watch<'_>) -> Result<(), Error> {
        let found = self.look()?.find(id).map(|(device, _)| device);
        match found {
            Some(device) => self.remove(&device, wipe, watch),
            None => Ok(()),
        }
    }
}
