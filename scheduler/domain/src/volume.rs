//! Volumes of persistent memory: how a region is divided into them.
//!
//! A host's regions are given to volumes in one of two device modes. In mode *lvm* a region is a
//! volume group, and a volume takes pieces of it wherever they are free. In mode *direct* a volume is
//! a namespace of its own, in one piece, and loses a part of it to the kernel's page structures.
//!
//! Not here: namespaces that are given whole to guests ([`crate::pmem`]).
//!
//! Invariant: what [`Region::largest`] says can be created, and nothing larger can.

mod extent;
mod region;
mod size;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use extent::{Extent, first_fit, holes};
pub use region::{Region, Taken};
pub use size::{DIRECT_ALIGN_BYTES, LVM_ALIGN_BYTES, gross_bytes, net_bytes};

/// The most regions of a host.
pub const REGIONS_MAX: usize = 64;

/// The most pieces of a region that somebody else has.
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
