//! Aggregates of hosts.

use std::collections::BTreeSet;

use berth_domain::aggregate::{Aggregate, AggregateChange, HOSTS_MAX, METADATA_MAX};
use berth_domain::id::{AggregateId, Generation};
use berth_domain::name::{AggregateName, HostName};
use uuid::Uuid;

use super::field::{self, ADDRESS_MAX, Invalid};
use super::name::ResourceName;
use crate::policy::v1;

impl From<&Aggregate> for v1::Aggregate {
    fn from(aggregate: &Aggregate) -> Self {
        Self {
            name: aggregate.name.resource_name(),
            uid: aggregate.id.to_string(),
            hosts: write_hosts(&aggregate.hosts),
            metadata: aggregate.metadata.clone(),
            generation: aggregate.generation.0,
            create_time: Some(field::timestamp(aggregate.created_at)),
        }
    }
}

impl TryFrom<v1::Aggregate> for Aggregate {
    type Error = Invalid;

    /// One that is to be made leaves identifier and time open; they read as nil and the epoch then,
    /// and the one that makes it writes its own. Whether the metadata makes sense is checked by
    /// [`Aggregate::faults`].
    fn try_from(wire: v1::Aggregate) -> Result<Self, Invalid> {
        let id: Option<AggregateId> = field::optional_uuid(&wire.uid, "uid")?;
        let created_at = field::optional_time(wire.create_time, "create_time")?;
        Ok(Self {
            name: field::name(&wire.name, "name")?,
            id: id.unwrap_or(AggregateId(Uuid::nil())),
            hosts: read_hosts(wire.hosts, "hosts")?,
            metadata: field::text_map(wire.metadata, "metadata", METADATA_MAX, ADDRESS_MAX)?,
            generation: Generation(wire.generation),
            created_at: created_at.unwrap_or_default(),
        })
    }
}

/// Reads a change of an aggregate, and which one.
///
/// # Errors
///
/// Which field is wrong.
pub fn read_change(
    wire: v1::UpdateAggregateRequest,
) -> Result<(AggregateName, AggregateChange), Invalid> {
    let text = |key: String| match key.len() <= ADDRESS_MAX {
        true => Ok(key),
        false => Err(Invalid::here(format!(
            "must be at most {ADDRESS_MAX} bytes"
        ))),
    };
    let unset = field::each_by(wire.unset_metadata, "unset_metadata", METADATA_MAX, text)?;
    let change = AggregateChange {
        add_hosts: read_hosts(wire.add_hosts, "add_hosts")?,
        remove_hosts: read_hosts(wire.remove_hosts, "remove_hosts")?,
        set: field::text_map(wire.set_metadata, "set_metadata", METADATA_MAX, ADDRESS_MAX)?,
        unset: unset.into_iter().collect(),
        generation: wire.generation.map(Generation),
    };
    Ok((field::name(&wire.name, "name")?, change))
}

/// Writes a change of an aggregate; what [`read_change`] reads.
#[must_use]
pub fn write_change(name: &AggregateName, change: &AggregateChange) -> v1::UpdateAggregateRequest {
    v1::UpdateAggregateRequest {
        name: name.resource_name(),
        add_hosts: write_hosts(&change.add_hosts),
        remove_hosts: write_hosts(&change.remove_hosts),
        set_metadata: change.set.clone(),
        unset_metadata: change.unset.iter().cloned().collect(),
        generation: change.generation.map(|generation| generation.0),
        request_id: String::new(),
    }
}

fn write_hosts(hosts: &BTreeSet<HostName>) -> Vec<String> {
    hosts.iter().map(ResourceName::resource_name).collect()
}

fn read_hosts(wire: Vec<String>, field: &str) -> Result<BTreeSet<HostName>, Invalid> {
    let read = |name: String| HostName::from_resource_name(&name);
    let hosts = field::each_by(wire, field, HOSTS_MAX, read)?;
    Ok(hosts.into_iter().collect())
}
