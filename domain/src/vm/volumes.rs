//! Volumes of persistent memory that a VM has.
//!
//! Not here: where volumes are, and who has one; that follows from the VMs and the volumes of the
//! state.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::VmSpec;
use crate::fault::Fault;
use crate::flavor::{Flavor, Requirements};
use crate::image::ImageProperties;
use crate::name::VolumeId;
use crate::pci::PciAliases;

/// The most volumes of a VM.
pub const VOLUMES_MAX: usize = 16;

/// What a guest sees of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttachedAs {
    /// A module of persistent memory, backed by a file in the volume's file system.
    Nvdimm,
    /// A disk: the volume's device itself.
    Disk,
}

impl AttachedAs {
    /// All of them, for tables.
    pub const ALL: [Self; 2] = [Self::Nvdimm, Self::Disk];
}

impl fmt::Display for AttachedAs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Nvdimm => "nvdimm",
            Self::Disk => "disk",
        })
    }
}

/// A volume of a VM.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VolumeAttachment {
    /// Which.
    pub volume: VolumeId,
    /// What the guest sees of it.
    pub attached_as: AttachedAs,
    /// Whether the guest can only read it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

/// Returns what a guest with these volumes requires. As with namespaces of persistent memory, one
/// that gets an nvdimm has a cell that it belongs to, requested or not.
///
/// # Errors
///
/// All faults of flavor and image at once.
pub fn requirements_of(
    flavor: &Flavor,
    image: &ImageProperties,
    aliases: &PciAliases,
    volumes: &[VolumeAttachment],
) -> Result<Requirements, Vec<Fault>> {
    let requirements = flavor.requirements(image, aliases)?;
    let is_nvdimm = |v: &VolumeAttachment| v.attached_as == AttachedAs::Nvdimm;
    if requirements.topology.is_some() || !volumes.iter().any(is_nvdimm) {
        return Ok(requirements);
    }
    let mut flavor = flavor.clone();
    let one_cell = ("hw:numa_nodes".to_owned(), "1".to_owned());
    flavor.extra_specs.extend([one_cell]);
    flavor.requirements(image, aliases)
}

impl VmSpec {
    /// Returns the volumes that the guest sees as this.
    pub fn volumes_as(&self, what: AttachedAs) -> impl Iterator<Item = &VolumeId> {
        let all = self.volumes.iter();
        all.filter(move |one| one.attached_as == what)
            .map(|one| &one.volume)
    }

    pub(super) fn check_volumes(&self, faults: &mut Vec<Fault>) {
        if self.volumes.len() > VOLUMES_MAX {
            let rule = format!("at most {VOLUMES_MAX} are allowed");
            faults.push(Fault::new("volumes", self.volumes.len(), rule));
        }
        let mut seen = BTreeSet::new();
        for (index, VolumeAttachment { volume, .. }) in self.volumes.iter().enumerate() {
            if !seen.insert(volume) {
                let field = format!("volumes[{index}].volume");
                faults.push(Fault::new(field, volume, "is attached already"));
            }
        }
        let disks = self.volumes_as(AttachedAs::Disk).count() + self.disks.len();
        if !self.volumes.is_empty() && disks > super::DISKS_MAX {
            let rule = format!(
                "disks and volumes that are disks may be {}",
                super::DISKS_MAX
            );
            faults.push(Fault::new("volumes", format!("{disks} disks"), rule));
        }
    }
}
