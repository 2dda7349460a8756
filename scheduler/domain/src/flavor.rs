//! A flavor: the size and the wishes of a guest, named.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::name::FlavorName;

/// A flavor, as in OpenStack Nova.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Flavor {
    /// Who it is.
    pub name: FlavorName,
    /// The number of virtual CPUs, at least 1.
    pub vcpus: u32,
    /// Memory in MiB, at least 1.
    pub memory_mib: u64,
    /// Disk space in GiB that is counted for the VM; its disks may not be larger in sum.
    pub disk_gib: u64,
    /// Wishes, as `hw:cpu_policy` = `dedicated`; unknown `hw:` keys are refused.
    pub extra_specs: BTreeMap<String, String>,
}
