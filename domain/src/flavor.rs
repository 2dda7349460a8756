//! A flavor: the named size and requirements of a guest.
//!
//! What its extra specs mean, together with the properties of an image, is defined by one file for
//! each noun; `docs/flavors.md` is the table as text for people. Keys are read first, each by
//! itself, and evaluated together after that:
//!
//! ```text
//! extra specs ──┐
//!               ├─▶ settings ──▶ cpu policy ▸ threads ▸ emulator ▸ realtime ▸ pages ▸ cells ▸ …
//! properties ───┘   (typed)                                                   └──▶ Requirements
//! ```

mod auto_balance;
mod cells;
mod cpu_model;
mod cpu_policy;
mod emulator_threads;
mod faults;
mod groups;
mod locked_memory;
mod mask;
mod page_size;
mod passthrough;
mod pmem;
mod realtime;
mod requirements;
mod setting;
mod settings;
mod shape;
mod text;
mod thread_policy;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use self::faults::Faults;
pub use self::requirements::Requirements;
use self::setting::Side;
use crate::fault::Fault;
use crate::image::ImageProperties;
use crate::name::{FlavorName, PciAliasName};
use crate::ownership::Ownership;
use crate::pci::PciAliases;
use crate::pmem::PmemDemand;

/// The most virtual CPUs of a guest.
pub const VCPUS_MAX: u32 = 512;
/// The most memory of a guest in MiB: 64 TiB.
pub const MEMORY_MIB_MAX: u64 = 64 * 1024 * 1024;
/// The most disk space of a guest in GiB: 1 PiB.
pub const DISK_GIB_MAX: u64 = 1024 * 1024;
/// The most NUMA cells of a guest.
pub const CELLS_MAX: u32 = 64;
/// The most extra specs of a flavor.
pub const EXTRA_SPECS_MAX: usize = 256;
/// The longest key or value of an extra spec.
pub const EXTRA_SPEC_LENGTH_MAX: usize = 255;

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
    /// Extra specs, as `hw:cpu_policy` = `dedicated`; unknown `hw:` keys are refused.
    pub extra_specs: BTreeMap<String, String>,
    /// Its project and its creator; unset in the copies that VMs have.
    #[serde(flatten)]
    pub ownership: Ownership,
}

impl Flavor {
    /// Returns the persistent memory that its guests request, as far as it is understood.
    #[must_use]
    pub fn pmem_demand(&self) -> PmemDemand {
        pmem::read(self)
    }

    /// Returns what a guest of this flavor from an image requires. `aliases` are what the names
    /// in `pci_passthrough:alias` stand for.
    ///
    /// # Errors
    ///
    /// All faults at once: `extra_specs.KEY` of the flavor, `image_properties.KEY` of the image.
    pub fn requirements(
        &self,
        image: &ImageProperties,
        aliases: &PciAliases,
    ) -> Result<Requirements, Vec<Fault>> {
        let mut faults = Faults::default();
        let requirements = self.evaluate(image, Some(aliases), &mut faults);
        if faults.is_empty() {
            Ok(requirements)
        } else {
            Err(faults.all())
        }
    }

    /// Returns the PCI aliases that it names.
    #[must_use]
    pub fn pci_aliases(&self) -> BTreeSet<PciAliasName> {
        passthrough::named(self)
    }

    /// Checks that there can be guests of this flavor: with some image, and with the PCI aliases
    /// that it names.
    ///
    /// # Errors
    ///
    /// All faults at once that no image heals.
    pub fn validate(&self) -> Result<(), Vec<Fault>> {
        let mut faults = Faults::default();
        self.evaluate(&ImageProperties::default(), None, &mut faults);
        let faults = faults.certain();
        if faults.is_empty() {
            Ok(())
        } else {
            Err(faults)
        }
    }

    fn evaluate(
        &self,
        image: &ImageProperties,
        aliases: Option<&PciAliases>,
        faults: &mut Faults,
    ) -> Requirements {
        for (field, value, min, max) in [
            ("vcpus", self.vcpus.into(), 1, VCPUS_MAX.into()),
            ("memory_mib", self.memory_mib, 1, MEMORY_MIB_MAX),
            ("disk_gib", self.disk_gib, 0, DISK_GIB_MAX),
        ] {
            if !(min..=max).contains(&value) {
                faults.add(field, value, format!("must be {min} to {max}"));
            }
        }
        // With sizes out of bounds, the extra specs cannot be evaluated.
        if faults.is_empty() {
            requirements::evaluate(self, image, aliases, faults)
        } else {
            Requirements::default()
        }
    }
}
