//! What is taken over from another Placement.

use berth_domain::id::Generation;
use berth_domain::import::{ConsumerImport, ProviderImport, SOURCE_MAX};

use super::field::{self, Invalid};
use super::name::ResourceName as _;
use super::placement::{
    OWNER_MAX, characters, read_aggregates, read_allocations, read_consumer_type,
    read_display_name, read_inventories, read_traits, write_aggregates, write_allocations,
    write_consumer_type, write_inventories, write_traits,
};
use crate::placement::v1;

/// Reads the name of another Placement.
///
/// # Errors
///
/// When it is empty or too long.
pub fn read_source(source: String) -> Result<String, Invalid> {
    if source.is_empty() {
        return Err(Invalid::new("source", "is required"));
    }
    characters(source, "source", SOURCE_MAX)
}

impl From<&ProviderImport> for v1::ProviderImport {
    fn from(provider: &ProviderImport) -> Self {
        Self {
            resource_provider: Some(v1::ResourceProvider {
                name: provider.id.resource_name(),
                display_name: provider.name.clone(),
                parent: field::name_or_empty(provider.parent.as_ref()),
                generation: provider.generation.0,
                inventories: write_inventories(&provider.inventories),
                traits: write_traits(&provider.traits),
                aggregates: write_aggregates(&provider.aggregates),
                ..v1::ResourceProvider::default()
            }),
            expected_generation: provider.seen.map(|g| g.0),
        }
    }
}

impl TryFrom<v1::ProviderImport> for ProviderImport {
    type Error = Invalid;

    fn try_from(wire: v1::ProviderImport) -> Result<Self, Invalid> {
        const FIELD: &str = "resource_provider";
        let seen = wire.expected_generation.map(Generation);
        let read = |wire: v1::ResourceProvider| {
            Ok(Self {
                id: field::name(&wire.name, "name")?,
                name: read_display_name(wire.display_name)?,
                parent: field::optional_name(&wire.parent, "parent")?,
                generation: Generation(wire.generation),
                inventories: read_inventories(wire.inventories, "inventories")?,
                traits: read_traits(wire.traits, "traits")?,
                aggregates: read_aggregates(wire.aggregates, "aggregates")?,
                seen,
            })
        };
        let wire = wire.resource_provider;
        let wire = wire.ok_or_else(|| Invalid::new(FIELD, "is required"))?;
        read(wire).map_err(|e: Invalid| e.within(FIELD))
    }
}

impl From<&ConsumerImport> for v1::ConsumerImport {
    fn from(consumer: &ConsumerImport) -> Self {
        Self {
            consumer: Some(v1::Consumer {
                name: consumer.id.resource_name(),
                generation: consumer.generation.0,
                project: consumer.project.clone(),
                user: consumer.user.clone(),
                allocations: write_allocations(&consumer.allocations),
                consumer_type: write_consumer_type(consumer.consumer_type.as_ref()),
                ..v1::Consumer::default()
            }),
            expected_generation: consumer.seen.map(|g| g.0),
        }
    }
}

impl TryFrom<v1::ConsumerImport> for ConsumerImport {
    type Error = Invalid;

    fn try_from(wire: v1::ConsumerImport) -> Result<Self, Invalid> {
        const FIELD: &str = "consumer";
        let seen = wire.expected_generation.map(Generation);
        let read = |wire: v1::Consumer| {
            Ok(Self {
                id: field::name(&wire.name, "name")?,
                generation: Generation(wire.generation),
                project: characters(wire.project, "project", OWNER_MAX)?,
                user: characters(wire.user, "user", OWNER_MAX)?,
                consumer_type: read_consumer_type(&wire.consumer_type)?,
                allocations: read_allocations(wire.allocations, "allocations")?,
                seen,
            })
        };
        let wire = wire.consumer;
        let wire = wire.ok_or_else(|| Invalid::new(FIELD, "is required"))?;
        read(wire).map_err(|e: Invalid| e.within(FIELD))
    }
}
