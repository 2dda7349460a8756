//! Persistent memory: namespaces of a host that are given whole to guests.
//!
//! A host's administrator makes namespaces in mode devdax beforehand and states in the agent's
//! configuration which label each has. One guest device is one whole namespace of exactly the label
//! that was requested: labels are opaque, and a larger namespace never stands in.
//!
//! Not here: which namespaces a guest gets ([`crate::numa::fit()`]), and what becomes of them when
//! it leaves them ([`crate::claim`]).

mod label;

use serde::{Deserialize, Serialize};

use crate::allocation::Resources;
use crate::cell_id::CellId;
use crate::name::PmemName;
use crate::resource::ResourceClass;

pub use label::{CLASS_PREFIX, InvalidLabel, Label};

/// The most namespaces of a host.
pub const NAMESPACES_MAX: usize = 1024;

/// The most devices of a guest: as many slots as QEMU has for memory devices.
pub const DEVICES_MAX: usize = 256;

/// The longest path of a device, in bytes.
pub const PATH_LENGTH_MAX: usize = 256;

/// The longest name of a region, in bytes.
pub const REGION_LENGTH_MAX: usize = 64;

/// The longest text of the reason why a namespace is unusable, in bytes.
pub const TROUBLE_LENGTH_MAX: usize = 512;

/// A namespace that a host has for guests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PmemNamespace {
    /// Its name, as the host's administrator gave it (`ndctl create-namespace -n`).
    pub name: PmemName,
    /// The class of its label; see [`CLASS_PREFIX`].
    pub class: ResourceClass,
    /// How much of it a guest can use, in bytes.
    pub size_bytes: u64,
    /// Its alignment in bytes: of addresses and sizes.
    pub align_bytes: u64,
    /// Its character device at present, as `/dev/dax0.0`. It may be another after the host
    /// restarts.
    pub path: String,
    /// The cell that it is attached to; absent where the host does not report it.
    pub cell: Option<CellId>,
    /// The region that it is part of, as `region0`; empty where the host does not report it.
    pub region: String,
    /// Why it cannot be given to anybody now, though it is configured; empty: it can.
    pub trouble: String,
}

/// A namespace that a guest was given, as it was then.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PmemDevice {
    /// Its name.
    pub name: PmemName,
    /// The class of its label.
    pub class: ResourceClass,
    /// How much of it the guest can use, in bytes.
    pub size_bytes: u64,
    /// Its alignment in bytes.
    pub align_bytes: u64,
    /// Its character device when it was given.
    pub path: String,
}

impl PmemDevice {
    /// Returns whether it is this namespace, whatever its path is now.
    #[must_use]
    pub fn is(&self, namespace: &PmemNamespace) -> bool {
        self.name == namespace.name
            && self.class == namespace.class
            && self.size_bytes == namespace.size_bytes
            && self.align_bytes == namespace.align_bytes
    }
}

impl From<&PmemNamespace> for PmemDevice {
    fn from(namespace: &PmemNamespace) -> Self {
        Self {
            name: namespace.name.clone(),
            class: namespace.class.clone(),
            size_bytes: namespace.size_bytes,
            align_bytes: namespace.align_bytes,
            path: namespace.path.clone(),
        }
    }
}

/// What a guest sees of a namespace, which cannot change while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PmemShape {
    /// In bytes.
    pub size_bytes: u64,
    /// In bytes.
    pub align_bytes: u64,
}

/// One device that a guest requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PmemRequest {
    /// The class of its label.
    pub class: ResourceClass,
    /// What it must look like, since the guest runs with such a one; absent: any of the class will
    /// do.
    pub shape: Option<PmemShape>,
}

impl PmemRequest {
    /// Returns whether a namespace answers it.
    #[must_use]
    pub fn accepts(&self, namespace: &PmemNamespace) -> bool {
        let shape = PmemShape {
            size_bytes: namespace.size_bytes,
            align_bytes: namespace.align_bytes,
        };
        self.class == namespace.class && self.shape.is_none_or(|requested| requested == shape)
    }
}

/// How near to guest cell 0, which has all of a guest's devices, its namespaces must be.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum PmemNumaPolicy {
    /// As near as capacity allows.
    #[default]
    Preferred,
    /// On the same host cell.
    Required,
}

/// The persistent memory that a guest requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PmemDemand {
    /// One per device, in the guest's order.
    pub requests: Vec<PmemRequest>,
    /// How near they must be.
    pub policy: PmemNumaPolicy,
}

impl PmemDemand {
    /// The demand of a guest that requests none.
    pub const NONE: Self = Self {
        requests: Vec::new(),
        policy: PmemNumaPolicy::Preferred,
    };

    /// Returns how many namespaces of each class are requested.
    #[must_use]
    pub fn counted(&self) -> Resources {
        let mut counted = Resources::new();
        for request in &self.requests {
            *counted.entry(request.class.clone()).or_default() += 1;
        }
        counted
    }

    /// Returns the demand of a guest that runs with these devices: for equal ones.
    #[must_use]
    pub fn settled(mut self, devices: &[PmemDevice]) -> Self {
        for (request, device) in self.requests.iter_mut().zip(devices) {
            request.shape = Some(PmemShape {
                size_bytes: device.size_bytes,
                align_bytes: device.align_bytes,
            });
        }
        self
    }
}
