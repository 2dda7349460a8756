//! Migrations.

use berth_domain::id::Generation;
use berth_domain::migration::{Kind, Migration, Resize, State};

use super::field::{self, Invalid, LIST_MAX, choices};
use super::name::ResourceName;
use super::transfer::{read_hosts_tried, read_policy, write_hosts_tried, write_policy};
use crate::scheduler::v1;

choices!(State => v1::migration::State {
    Preparing,
    Running,
    Unsettled,
    Completed,
    Failed,
    Verifying,
    Reverted,
});
choices!(Kind => v1::migration::Kind { Live, Cold, Evacuation });

impl From<&Resize> for v1::migration::Resize {
    fn from(resize: &Resize) -> Self {
        Self {
            before: Some((&resize.before).into()),
            after: Some((&resize.after).into()),
        }
    }
}

impl TryFrom<v1::migration::Resize> for Resize {
    type Error = Invalid;

    fn try_from(wire: v1::migration::Resize) -> Result<Self, Invalid> {
        Ok(Self {
            before: field::required(wire.before, "before")?,
            after: field::required(wire.after, "after")?,
        })
    }
}

/// Reads how a VM is moved. Records from before there was another way have none.
fn read_kind(wire: i32) -> Result<Kind, Invalid> {
    if wire == i32::from(v1::migration::Kind::Unspecified) {
        return Ok(Kind::Live);
    }
    field::choice::<v1::migration::Kind, _>(wire, "kind")
}

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
            // A live one is written as it was before there was another way: a member that is older
            // than the others writes the same bytes.
            kind: match migration.kind {
                Kind::Live => v1::migration::Kind::Unspecified.into(),
                kind @ (Kind::Cold | Kind::Evacuation) => v1::migration::Kind::from(kind).into(),
            },
            was_stopped: migration.was_stopped,
            verify: migration.verify,
            resize: migration.resize.as_deref().map(Into::into),
            transfer: write_policy(&migration.transfer),
            hosts_tried_max: write_hosts_tried(migration.hosts_tried_max),
            tried: migration.tried.iter().map(Into::into).collect(),
            fetches_disks: migration.fetches_disks,
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
            kind: read_kind(wire.kind)?,
            was_stopped: wire.was_stopped,
            verify: wire.verify,
            resize: field::optional(wire.resize, "resize")?.map(Box::new),
            transfer: read_policy(wire.transfer, "transfer")?,
            hosts_tried_max: read_hosts_tried(wire.hosts_tried_max),
            tried: field::each(wire.tried, "tried", LIST_MAX)?,
            fetches_disks: wire.fetches_disks,
        })
    }
}
