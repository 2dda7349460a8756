//! Claims.

use std::sync::Arc;

use berth_domain::claim::{Claim, Owner, State};
use berth_domain::id::MigrationId;

use super::field::{self, Invalid, choices};
use super::name::ResourceName;
use super::pmem::{read_erasures, write_erasures};
use crate::types::v1;

choices!(State => v1::claim::State { Held, Active, Releasing });

impl From<&Claim> for v1::Claim {
    fn from(claim: &Claim) -> Self {
        Self {
            name: claim.id.resource_name(),
            vm: claim.vm.resource_name(),
            migration: match &claim.owner {
                Owner::Vm => String::new(),
                Owner::Migration(id) => id.resource_name(),
            },
            host: claim.host.resource_name(),
            state: v1::claim::State::from(claim.state).into(),
            resources: field::amounts(&claim.resources),
            assignment: Some((&claim.assignment).into()),
            erasures: write_erasures(&claim.erasures),
            guest_cpu: claim.cpu.as_deref().map(Into::into),
        }
    }
}

impl TryFrom<v1::Claim> for Claim {
    type Error = Invalid;

    fn try_from(wire: v1::Claim) -> Result<Self, Invalid> {
        let migration = field::optional_name::<MigrationId>(&wire.migration, "migration")?;
        Ok(Self {
            id: field::name(&wire.name, "name")?,
            vm: field::name(&wire.vm, "vm")?,
            owner: migration.map_or(Owner::Vm, Owner::Migration),
            host: field::name(&wire.host, "host")?,
            state: field::choice::<v1::claim::State, _>(wire.state, "state")?,
            resources: field::resources(wire.resources, "resources")?,
            assignment: field::optional(wire.assignment, "assignment")?.unwrap_or_default(),
            erasures: read_erasures(wire.erasures)?,
            cpu: field::optional(wire.guest_cpu, "guest_cpu")?.map(Arc::new),
        })
    }
}
