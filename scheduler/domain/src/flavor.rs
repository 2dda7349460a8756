//! A flavor: the size and the wishes of a guest, named.
//!
//! What its extra specs mean, together with the properties of an image, is told by one file for
//! each noun; `docs/flavors.md` is the table for people. Keys are read first, each by itself, and
//! judged together after that:
//!
//! ```text
//! extra specs ──┐
//!               ├─▶ settings ──▶ cpu policy ▸ threads ▸ emulator ▸ realtime ▸ pages ▸ cells ▸ …
//! properties ───┘   (typed)                                                   └──▶ Wishes
//! ```

mod auto_balance;
mod cells;
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
mod setting;
mod settings;
mod shape;
mod text;
mod thread_policy;
mod wishes;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use self::faults::Faults;
use self::setting::Side;
pub use self::wishes::Wishes;
use crate::fault::Fault;
use crate::image::ImageProperties;
use crate::name::{FlavorName, PciAliasName};
use crate::pci::PciAliases;
use crate::pmem::PmemWish;

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
    /// Wishes, as `hw:cpu_policy` = `dedicated`; unknown `hw:` keys are refused.
    pub extra_specs: BTreeMap<String, String>,
}

impl Flavor {
    /// Returns the persistent memory that its guests ask for, as far as it is understood.
    #[must_use]
    pub fn pmem_wish(&self) -> PmemWish {
        pmem::read(self)
    }

    /// Returns what a guest of this flavor from an image wishes for. `aliases` are what the names
    /// in `pci_passthrough:alias` stand for.
    ///
    /// # Errors
    ///
    /// All faults at once: `extra_specs.KEY` of the flavor, `image_properties.KEY` of the image.
    pub fn wishes(
        &self,
        image: &ImageProperties,
        aliases: &PciAliases,
    ) -> Result<Wishes, Vec<Fault>> {
        let mut faults = Faults::default();
        let wishes = self.judge(image, Some(aliases), &mut faults);
        if faults.is_empty() {
            Ok(wishes)
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
        self.judge(&ImageProperties::default(), None, &mut faults);
        let faults = faults.certain();
        if faults.is_empty() {
            Ok(())
        } else {
            Err(faults)
        }
    }

    fn judge(
        &self,
        image: &ImageProperties,
        aliases: Option<&PciAliases>,
        faults: &mut Faults,
    ) -> Wishes {
        for (field, value, min, max) in [
            ("vcpus", self.vcpus.into(), 1, VCPUS_MAX.into()),
            ("memory_mib", self.memory_mib, 1, MEMORY_MIB_MAX),
            ("disk_gib", self.disk_gib, 0, DISK_GIB_MAX),
        ] {
            if !(min..=max).contains(&value) {
                faults.add(field, value, format!("must be {min} to {max}"));
            }
        }
        // With sizes out of bounds, what the extra specs say cannot be judged.
        if faults.is_empty() {
            wishes::judge(self, image, aliases, faults)
        } else {
            Wishes::default()
        }
    }
}
