//! Volumes that are on this host and that the leader does not know: what they take of the regions is
//! not told as free. It removes nothing.

use std::collections::BTreeSet;

use berth_domain::name::VolumeId;
use berth_domain::volume::{DeviceMode, Region};
use berth_pmem::volume::{Volume, Volumes};

/// Takes out of the regions what these volumes have. Those that are not here any more have nothing.
pub(super) fn take_out(keeper: &Volumes, unknown: &BTreeSet<VolumeId>, regions: &mut [Region]) {
    for id in unknown {
        // Where its device cannot be looked at now, it is as it was.
        let looked = keeper.look(id).ok();
        if let Some(volume) = looked.or_else(|| keeper.get(id)) {
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
