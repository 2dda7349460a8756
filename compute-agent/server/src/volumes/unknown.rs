//! Volumes that are on this host and that the leader does not know: their space in the regions is
//! not reported as free. It removes nothing.
//!
//! They are not known before the leader has replied. Until then no volume can be made in a
//! region that has any: its free space is not known.

use std::collections::BTreeSet;

use berth_domain::name::VolumeId;
use berth_domain::volume::{DeviceMode, Region};
use berth_pmem::volume::{Volume, VolumeStore};

/// The trouble reported of a region while it is not known which of its volumes the leader knows.
const NOT_COMPARED: &str =
    "its agent has just started, and has not listed yet which of the volumes in it are known";

/// Closes the regions in which there are volumes, until the leader has replied about them.
pub(super) fn close(volumes: &[Volume], regions: &mut [Region]) {
    for region in regions.iter_mut().filter(|r| r.trouble.is_empty()) {
        if volumes.iter().any(|v| v.record.region == region.name) {
            region.trouble = NOT_COMPARED.to_owned();
        }
    }
}

/// Returns whether the leader has replied about these regions.
pub(super) fn are_compared(regions: &[Region]) -> bool {
    regions.iter().all(|region| region.trouble != NOT_COMPARED)
}

/// Subtracts the space of these volumes from the regions. Those that are gone have none.
pub(super) fn take_out(store: &VolumeStore, unknown: &BTreeSet<VolumeId>, regions: &mut [Region]) {
    for id in unknown {
        // Where its device cannot be looked at now, it is as it was.
        let looked = store.look(id).ok();
        if let Some(volume) = looked.or_else(|| store.get(id)) {
            take_one_out(&volume, regions);
        }
    }
}

fn take_one_out(volume: &Volume, regions: &mut [Region]) {
    let record = &volume.record;
    let mut regions = regions.iter_mut();
    let region = regions.find(|region| region.name == record.region && region.mode == record.mode);
    let Some(region) = region else {
        return;
    };
    match region.mode {
        DeviceMode::Lvm => {
            region.capacity_bytes = region.capacity_bytes.saturating_sub(record.gross_bytes);
        }
        DeviceMode::Direct => {
            let extent = volume.device.as_ref().and_then(|device| device.extent);
            region.foreign.extend(extent);
            region.foreign.sort_by_key(|extent| extent.offset_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use berth_domain::name::RegionName;
    use berth_domain::volume::Extent;
    use berth_pmem::volume::{Device, Phase, Record};

    use super::*;

    const MIB: u64 = 1 << 20;

    fn volume(mode: DeviceMode, extent: Option<Extent>) -> Volume {
        let device = Device {
            id: VolumeId::new("data-00000000000000000000000000000001").unwrap(),
            region: RegionName::new("region0").unwrap(),
            mode,
            gross_bytes: 64 * MIB,
            size_bytes: 64 * MIB,
            extent,
            path: PathBuf::from("/dev/x"),
            uuid: String::new(),
            trouble: String::new(),
        };
        let record = Record {
            phase: Phase::Ready,
            parameters: BTreeMap::new(),
            ..Record::recovered(&device)
        };
        Volume {
            record,
            device: Some(device),
        }
    }

    fn region(mode: DeviceMode) -> Region {
        Region {
            name: RegionName::new("region0").unwrap(),
            cell: None,
            mode,
            capacity_bytes: 1024 * MIB,
            align_bytes: 4 * MIB,
            foreign: Vec::new(),
            trouble: String::new(),
        }
    }

    /// Goal: before the leader has answered, no range is reported free that a volume may have; the
    /// other regions are open at once.
    #[test]
    fn regions_with_volumes_are_closed_until_they_are_compared() {
        let other = Region {
            name: RegionName::new("region1").unwrap(),
            ..region(DeviceMode::Lvm)
        };
        let broken = Region {
            trouble: "broken".to_owned(),
            ..region(DeviceMode::Direct)
        };
        let mut regions = [region(DeviceMode::Direct), other, broken];
        close(&[], &mut regions);
        assert!(are_compared(&regions));
        // Also one of another mode: it will be foreign, or was.
        close(&[volume(DeviceMode::Lvm, None)], &mut regions);
        let troubles = regions.each_ref().map(|region| region.trouble.as_str());
        assert_eq!(troubles, [NOT_COMPARED, "", "broken"]);
        assert!(!are_compared(&regions));
    }

    #[test]
    fn what_is_taken_is_not_free() {
        let extent = Extent {
            offset_bytes: 128 * MIB,
            length_bytes: 64 * MIB,
        };
        let mut lvm = [region(DeviceMode::Lvm)];
        take_one_out(&volume(DeviceMode::Lvm, None), &mut lvm);
        assert_eq!(lvm[0].capacity_bytes, 960 * MIB);
        let mut direct = [region(DeviceMode::Direct)];
        take_one_out(&volume(DeviceMode::Direct, Some(extent)), &mut direct);
        assert_eq!(direct[0].foreign, [extent]);
        assert_eq!(direct[0].capacity_bytes, 1024 * MIB);
        // Of another mode: its manager tells of it as of what is foreign.
        take_one_out(&volume(DeviceMode::Lvm, None), &mut direct);
        assert_eq!(direct[0].capacity_bytes, 1024 * MIB);
    }
}
