//! Volumes of persistent memory, and the regions that they are made of.

use berth_domain::pmem::TROUBLE_LENGTH_MAX;
use berth_domain::topology::CellId;
use berth_domain::volume::{DeviceMode, Extent, FOREIGN_MAX, Region};

use super::field::{self, Invalid, choices};
use crate::volume::v1;

choices!(DeviceMode => v1::DeviceMode { Lvm, Direct });

impl From<Extent> for v1::Extent {
    fn from(extent: Extent) -> Self {
        Self {
            offset_bytes: extent.offset_bytes,
            length_bytes: extent.length_bytes,
        }
    }
}

impl From<v1::Extent> for Extent {
    fn from(wire: v1::Extent) -> Self {
        Self {
            offset_bytes: wire.offset_bytes,
            length_bytes: wire.length_bytes,
        }
    }
}

impl From<&Region> for v1::Region {
    fn from(region: &Region) -> Self {
        Self {
            name: region.name.to_string(),
            cell: region.cell.map(|cell| cell.0),
            mode: v1::DeviceMode::from(region.mode).into(),
            capacity_bytes: region.capacity_bytes,
            align_bytes: region.align_bytes,
            foreign: region.foreign.iter().copied().map(Into::into).collect(),
            trouble: region.trouble.clone(),
        }
    }
}

impl TryFrom<v1::Region> for Region {
    type Error = Invalid;

    fn try_from(wire: v1::Region) -> Result<Self, Invalid> {
        if wire.align_bytes == 0 {
            return Err(Invalid::new("align_bytes", "must not be 0"));
        }
        if wire.foreign.len() > FOREIGN_MAX {
            return Err(Invalid::new(
                "foreign",
                format!("at most {FOREIGN_MAX} entries"),
            ));
        }
        Ok(Self {
            name: (wire.name.parse()).map_err(|rule| Invalid::new("name", format!("{rule}")))?,
            cell: wire.cell.map(CellId),
            mode: field::choice::<v1::DeviceMode, _>(wire.mode, "mode")?,
            capacity_bytes: wire.capacity_bytes,
            align_bytes: wire.align_bytes,
            foreign: wire.foreign.into_iter().map(Into::into).collect(),
            trouble: field::text(wire.trouble, "trouble", TROUBLE_LENGTH_MAX)?,
        })
    }
}
