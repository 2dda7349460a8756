//! Any regions of hosts, and the volumes that they are made of.

use berth_domain::name::RegionName;
use berth_domain::topology::CellId;
use berth_domain::volume::{DeviceMode, Extent, Region};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

fn extent() -> impl Strategy<Value = Extent> {
    (any::<u64>(), any::<u64>()).prop_map(|(offset_bytes, length_bytes)| Extent {
        offset_bytes,
        length_bytes,
    })
}

pub(super) fn region() -> impl Strategy<Value = Region> {
    (
        "[a-z][a-z0-9]{0,7}",
        option::of(any::<u32>().prop_map(CellId)),
        select(vec![DeviceMode::Lvm, DeviceMode::Direct]),
        any::<u64>(),
        1..=u64::MAX,
        vec(extent(), 0..3),
        "[a-z ]{0,12}",
    )
        .prop_map(
            |(name, cell, mode, capacity_bytes, align_bytes, foreign, trouble)| Region {
                name: RegionName::new(&name).unwrap(),
                cell,
                mode,
                capacity_bytes,
                align_bytes,
                foreign,
                trouble,
            },
        )
}
