//! Volumes of persistent memory: what they are, and how a region is divided into them.
//!
//! A host's regions are given to volumes in one of two device modes. In mode *lvm* a region is a
//! volume group, and a volume takes pieces of it wherever they are free. In mode *direct* a volume
//! is a namespace of its own, in one piece, and loses a part of it to the kernel's page structures.
//!
//! | module | what |
//! |---|---|
//! | `extent`, `region`, `size` | what a region has free, and what a volume takes of it |
//! | `record`, `report` | a volume, its life, and what agents report of it |
//! | `failed` | volumes that could not be made, and why |
//! | `region_usage` | a region with its volumes |
//! | `choice` | where a new volume goes |
//! | `fit` | whether several fit together |
//! | `plan` | what has to go so that one fits |
//!
//! Not here: namespaces that are given whole to guests ([`crate::pmem`]).
//!
//! Invariant: what [`Region::largest`] returns can be created, and nothing larger can.

mod choice;
mod extent;
mod failed;
mod fit;
mod plan;
mod record;
mod region;
mod region_usage;
mod report;
mod size;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::id::ProviderId;
use crate::inventory::UNITS_MAX;
use crate::name::{HostName, RegionName};
use crate::resource::ResourceClass;

pub use choice::{Candidate, Chosen, VolumeRequest, choose};
pub use extent::{Extent, first_fit, holes};
pub use failed::{FAILED_MAX, Failed, cut};
pub use fit::{FIT_MAX, Fit, fit};
pub use plan::{Move, Plan, find_destinations, plan_space, repack};
pub use record::{
    After, DISPLAY_NAME_LENGTH_MAX, DisplayName, FAILURE_LENGTH_MAX, HOST_VOLUMES_MAX,
    InvalidDisplayName, Kind, Parameters, Phase, REPLICAS_MAX, Replica, VOLUMES_MAX, Volume,
    consumer_of,
};
pub use region::{Region, Taken};
pub use region_usage::{Held, RegionUsage, region_usages};
pub use report::{Outcome, REPORTS_MAX, Report};
pub use size::{DIRECT_ALIGN_BYTES, LVM_ALIGN_BYTES, Shown, gross_bytes, net_bytes};

/// The most regions of a host.
pub const REGIONS_MAX: usize = 64;

/// The most pieces of a region that are used outside of Berth.
pub const FOREIGN_MAX: usize = 1024;

/// How a volume is made of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceMode {
    /// A logical volume in the region's volume group.
    Lvm,
    /// A namespace of its own.
    Direct,
}

impl fmt::Display for DeviceMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Lvm => "lvm",
            Self::Direct => "direct",
        })
    }
}

/// The resource class of which a region's provider has as much as volumes may take, in MiB.
#[must_use]
pub fn resource_class() -> ResourceClass {
    ResourceClass::new("CUSTOM_PMEM_VOLUME_MIB").expect("it is a custom class")
}

/// Returns the resource provider of a region of the host with this root provider: always the same.
#[must_use]
pub fn provider_of(root: ProviderId, region: &RegionName) -> ProviderId {
    // FNV-1a over both, and the marks of a UUID of version 8, which are free for such use.
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let bytes = root.0.as_bytes().iter().chain(region.as_str().as_bytes());
    let hash = bytes.fold(BASIS, |hash, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(PRIME)
    });
    let marked = hash & !(0xf << 76) & !(0x3 << 62) | 0x8 << 76 | 0x2 << 62;
    ProviderId(Uuid::from_u128(marked))
}

/// Returns the name of a region's resource provider.
#[must_use]
pub fn provider_name(host: &HostName, region: &RegionName) -> String {
    format!("{host}_{region}")
}

/// Returns bytes as the MiB that are counted; a part of one counts as one.
#[must_use]
pub fn counted_mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20).min(UNITS_MAX)
}
