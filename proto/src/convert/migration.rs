//! Migrations.

use berth_domain::id::Generation;
use berth_domain::migration::{Migration, State};

use super::field::{self, Invalid, choices};
use super::name::ResourceName;
use crate::scheduler::v1;

choices!(State => v1::migration::State { Preparing, Running, Unsettled, Completed, Failed });

impl From<&Migration> for v1::Migration {
    fn from(migration: &Migration) -> Self {
        Self {
            name: migration.id.resource_name(),
            vm: migration.vm.resource_name(),
            source: migration.source.resource_name(),
            source_claim: migration.source_claim.resource_name(),
            requested_host: field::name_or_empty(migration.requested.as_ref()),
            destination: field::name_or_empty(migration.destination.as_ref()),
            destination_claim: field::name_or_empty(migration.destination_claim.as_ref()),
            state: v1::migration::State::from(migration.state).into(),
            error: migration.error.as_ref().map(Into::into),
            assignment_before: Some((&migration.assignment_before).into()),
            assignment_after: migration.assignment_after.as_ref().map(Into::into),
            operation: migration.operation.resource_name(),
            generation: migration.generation.0,
            create_time: Some(field::timestamp(migration.created_at)),
            end_time: migration.ended_at.map(field::timestamp),
        }
    }
}

impl TryFrom<v1::Migration> for Migration {
    type Error = Invalid;

    fn try_from(wire: v1::Migration) -> Result<Self, Invalid> {
        let before = field::optional(wire.assignment_before, "assignment_before")?;
        Ok(Self {
            id: field::name(&wire.name, "name")?,
            vm: field::name(&wire.vm, "vm")?,
            source: field::name(&wire.source, "source")?,
            source_claim: field::name(&wire.source_claim, "source_claim")?,
            requested: field::optional_name(&wire.requested_host, "requested_host")?,
            destination: field::optional_name(&wire.destination, "destination")?,
            destination_claim: field::optional_name(&wire.destination_claim, "destination_claim")?,
            state: field::choice::<v1::migration::State, _>(wire.state, "state")?,
            error: field::optional(wire.error, "error")?,
            assignment_before: before.unwrap_or_default(),
            assignment_after: field::optional(wire.assignment_after, "assignment_after")?,
            operation: field::name(&wire.operation, "operation")?,
            generation: Generation(wire.generation),
            created_at: field::time(wire.create_time, "create_time")?,
            ended_at: field::optional_time(wire.end_time, "end_time")?,
        })
    }
}
