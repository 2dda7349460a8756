//! Flavors.

use berth_domain::flavor::{EXTRA_SPECS_MAX, Flavor};

use super::field::{self, ADDRESS_MAX, Invalid};
use super::name::ResourceName;
use super::ownership::{self, write_project};
use crate::types::v1;

impl From<&Flavor> for v1::Flavor {
    fn from(flavor: &Flavor) -> Self {
        Self {
            name: flavor.name.resource_name(),
            vcpus: flavor.vcpus,
            memory_mib: flavor.memory_mib,
            disk_gib: flavor.disk_gib,
            extra_specs: flavor.extra_specs.clone(),
            project: write_project(flavor.ownership.project.as_ref()),
            creator: flavor.ownership.creator.clone(),
        }
    }
}

impl TryFrom<v1::Flavor> for Flavor {
    type Error = Invalid;

    /// Whether its numbers and extra specs make sense is checked by [`Flavor::validate`], all
    /// faults at once.
    fn try_from(wire: v1::Flavor) -> Result<Self, Invalid> {
        let field = "extra_specs";
        Ok(Self {
            name: field::name(&wire.name, "name")?,
            vcpus: wire.vcpus,
            memory_mib: wire.memory_mib,
            disk_gib: wire.disk_gib,
            extra_specs: field::text_map(wire.extra_specs, field, EXTRA_SPECS_MAX, ADDRESS_MAX)?,
            ownership: ownership::read(&wire.project, wire.creator)?,
        })
    }
}
