//! The CPU that a guest is started with.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::name::{CpuFeature, CpuModelName, CpuVendor};

/// How a guest's CPU is described to the hypervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CpuMode {
    /// By its model and features.
    Custom,
    /// As the host's own, with all that the processor can do. The model and the features are what the
    /// host reported, and tell hosts apart.
    HostPassthrough,
}

/// The CPU that a guest is started with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GuestCpu {
    /// How it is described to the hypervisor.
    pub mode: CpuMode,
    /// The named model.
    pub model: CpuModelName,
    /// The vendor that the guest sees, where it is to be this one.
    #[serde(default)]
    pub vendor: Option<CpuVendor>,
    /// Features beyond the model's.
    #[serde(default)]
    pub required: BTreeSet<CpuFeature>,
    /// Features of the model that the guest does not have.
    #[serde(default)]
    pub disabled: BTreeSet<CpuFeature>,
}

impl GuestCpu {
    /// Returns a named model as it is.
    #[must_use]
    pub fn named(model: CpuModelName) -> Self {
        Self {
            mode: CpuMode::Custom,
            model,
            vendor: None,
            required: BTreeSet::new(),
            disabled: BTreeSet::new(),
        }
    }

    /// Returns whether no feature is both required and disabled.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        self.required.is_disjoint(&self.disabled)
    }
}

/// As `Westmere (Intel) +vme +x2apic -hle`; a passed-through one begins with `host-passthrough:`.
impl fmt::Display for GuestCpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mode {
            CpuMode::Custom => {}
            CpuMode::HostPassthrough => f.write_str("host-passthrough: ")?,
        }
        write!(f, "{}", self.model)?;
        if let Some(vendor) = &self.vendor {
            write!(f, " ({vendor})")?;
        }
        for feature in &self.required {
            write!(f, " +{feature}")?;
        }
        for feature in &self.disabled {
            write!(f, " -{feature}")?;
        }
        Ok(())
    }
}
