//! Resource providers, inventories, consumers.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::allocation::{Consumer, ConsumerGeneration, ConsumerUpdate, Resources};
use berth_domain::id::{AggregateId, Generation, ProviderId};
use berth_domain::import::{Origin, SOURCE_MAX};
use berth_domain::inventory::Inventory;
use berth_domain::overcommit::AllocationRatio;
use berth_domain::provider::{ENTRIES_MAX, ResourceProvider};
use berth_domain::resource::{ConsumerType, ResourceClass, Trait};

use super::field::{self, Invalid, LIST_MAX};
use super::name::ResourceName;
use crate::placement::v1;

/// The longest display name of a provider, in characters.
pub const DISPLAY_NAME_MAX: usize = berth_domain::provider::NAME_MAX;
/// The longest project or user of a consumer, in characters.
pub const OWNER_MAX: usize = berth_domain::allocation::OWNER_MAX;

// What the state lets in can be read back.
const _: () = assert!(ENTRIES_MAX <= LIST_MAX);

impl From<&ResourceProvider> for v1::ResourceProvider {
    fn from(provider: &ResourceProvider) -> Self {
        Self {
            name: provider.id.resource_name(),
            display_name: provider.name.clone(),
            generation: provider.generation.0,
            parent: field::name_or_empty(provider.parent.as_ref()),
            root: provider.root.resource_name(),
            host: field::name_or_empty(provider.host.as_ref()),
            inventories: write_inventories(&provider.inventories),
            traits: write_traits(&provider.traits),
            aggregates: write_aggregates(&provider.aggregates),
            origin: provider.origin.as_ref().map(Into::into),
            create_time: Some(field::timestamp(provider.created_at)),
            update_time: Some(field::timestamp(provider.updated_at)),
        }
    }
}

impl TryFrom<v1::ResourceProvider> for ResourceProvider {
    type Error = Invalid;

    fn try_from(wire: v1::ResourceProvider) -> Result<Self, Invalid> {
        Ok(Self {
            id: field::name(&wire.name, "name")?,
            name: read_display_name(wire.display_name)?,
            generation: Generation(wire.generation),
            parent: field::optional_name(&wire.parent, "parent")?,
            root: field::name(&wire.root, "root")?,
            host: field::optional_name(&wire.host, "host")?,
            inventories: read_inventories(wire.inventories, "inventories")?,
            traits: read_traits(wire.traits, "traits")?,
            aggregates: read_aggregates(wire.aggregates, "aggregates")?,
            origin: field::optional(wire.origin, "origin")?,
            created_at: field::time(wire.create_time, "create_time")?,
            updated_at: field::time(wire.update_time, "update_time")?,
        })
    }
}

/// Reads the display name of a provider.
///
/// # Errors
///
/// When it is empty or too long.
pub fn read_display_name(name: String) -> Result<String, Invalid> {
    if name.is_empty() {
        return Err(Invalid::new("display_name", "is required"));
    }
    characters(name, "display_name", DISPLAY_NAME_MAX)
}

/// Reads a text whose characters are counted, not its bytes, as OpenStack Placement does.
pub(super) fn characters(text: String, field: &str, max: usize) -> Result<String, Invalid> {
    let count = text.chars().count();
    if count > max {
        let rule = format!("has {count} characters; at most {max} are allowed");
        return Err(Invalid::new(field, rule));
    }
    Ok(text)
}

/// Reads the name of a resource class.
///
/// # Errors
///
/// When it is not valid.
pub fn read_class(name: &str, field: &str) -> Result<ResourceClass, Invalid> {
    ResourceClass::new(name).map_err(|e| Invalid::here(e).within(field))
}

/// Reads the name of a trait.
///
/// # Errors
///
/// When it is not valid.
pub fn read_trait(name: &str, field: &str) -> Result<Trait, Invalid> {
    Trait::new(name).map_err(|e| Invalid::here(e).within(field))
}

/// Writes inventories by resource class.
#[must_use]
pub fn write_inventories(
    inventories: &BTreeMap<ResourceClass, Inventory>,
) -> BTreeMap<String, v1::Inventory> {
    inventories
        .iter()
        .map(|(class, inventory)| (class.to_string(), inventory.into()))
        .collect()
}

/// Reads inventories by resource class, exactly as they are written.
///
/// # Errors
///
/// When there are too many, or when a class has no valid name.
pub fn read_inventories(
    wire: BTreeMap<String, v1::Inventory>,
    field: &str,
) -> Result<BTreeMap<ResourceClass, Inventory>, Invalid> {
    field::keyed(wire, field, Inventory::try_from)
}

/// Fills in what a client may leave open in an inventory; see the comments of the message.
///
/// Apart from [`read_inventories`], because what is stored is read as it stands.
pub fn fill_defaults(inventory: &mut v1::Inventory) {
    let default = |value: &mut u64, default| {
        if *value == 0 {
            *value = default;
        }
    };
    default(&mut inventory.min_unit, 1);
    default(&mut inventory.max_unit, inventory.total);
    default(&mut inventory.step_size, 1);
    inventory.allocation_ratio.get_or_insert(1.0);
}

/// Writes traits in alphabetical order.
#[must_use]
pub fn write_traits(traits: &BTreeSet<Trait>) -> Vec<String> {
    traits.iter().map(ToString::to_string).collect()
}

/// Reads traits in any order; one that is named twice counts once.
///
/// # Errors
///
/// When there are too many, or when one has no valid name.
pub fn read_traits(wire: Vec<String>, field: &str) -> Result<BTreeSet<Trait>, Invalid> {
    let read = |name: String| Trait::new(&name).map_err(Invalid::here);
    let traits = field::each_by(wire, field, LIST_MAX, read)?;
    Ok(traits.into_iter().collect())
}

/// Writes aggregates in order.
#[must_use]
pub fn write_aggregates(aggregates: &BTreeSet<AggregateId>) -> Vec<String> {
    aggregates.iter().map(ToString::to_string).collect()
}

/// Reads aggregates in any order; one that is named twice counts once.
///
/// # Errors
///
/// When there are too many, or when one is no UUID.
pub fn read_aggregates(wire: Vec<String>, field: &str) -> Result<BTreeSet<AggregateId>, Invalid> {
    let read = |text: String| field::uuid(&text, "");
    let aggregates: Vec<AggregateId> = field::each_by(wire, field, LIST_MAX, read)?;
    Ok(aggregates.into_iter().collect())
}

pub(super) fn read_consumer_type(text: &str) -> Result<Option<ConsumerType>, Invalid> {
    let read = |text| ConsumerType::new(text).map_err(|e| Invalid::here(e).within("consumer_type"));
    (!text.is_empty()).then(|| read(text)).transpose()
}

pub(super) fn write_consumer_type(consumer_type: Option<&ConsumerType>) -> String {
    consumer_type.map(ToString::to_string).unwrap_or_default()
}

impl From<&Origin> for v1::Origin {
    fn from(origin: &Origin) -> Self {
        Self {
            source: origin.source.clone(),
            generation: origin.generation.0,
        }
    }
}

impl TryFrom<v1::Origin> for Origin {
    type Error = Invalid;

    fn try_from(wire: v1::Origin) -> Result<Self, Invalid> {
        Ok(Self {
            source: characters(wire.source, "source", SOURCE_MAX)?,
            generation: Generation(wire.generation),
        })
    }
}

impl From<&Inventory> for v1::Inventory {
    fn from(inventory: &Inventory) -> Self {
        Self {
            total: inventory.total,
            reserved: inventory.reserved,
            min_unit: inventory.min_unit,
            max_unit: inventory.max_unit,
            step_size: inventory.step_size,
            allocation_ratio: Some(inventory.allocation_ratio.get()),
        }
    }
}

impl TryFrom<v1::Inventory> for Inventory {
    type Error = Invalid;

    fn try_from(wire: v1::Inventory) -> Result<Self, Invalid> {
        Ok(Self {
            total: wire.total,
            reserved: wire.reserved,
            min_unit: wire.min_unit,
            max_unit: wire.max_unit,
            step_size: wire.step_size,
            allocation_ratio: {
                let ratio = wire.allocation_ratio;
                let ratio = ratio.ok_or_else(|| Invalid::new("allocation_ratio", "is required"))?;
                AllocationRatio::new(ratio)
                    .map_err(|e| Invalid::here(e).within("allocation_ratio"))?
            },
        })
    }
}

impl From<&Consumer> for v1::Consumer {
    fn from(consumer: &Consumer) -> Self {
        Self {
            name: consumer.id.resource_name(),
            generation: consumer.generation.0,
            project: consumer.project.clone(),
            user: consumer.user.clone(),
            allocations: write_allocations(&consumer.allocations),
            consumer_type: write_consumer_type(consumer.consumer_type.as_ref()),
            origin: consumer.origin.as_ref().map(Into::into),
            create_time: Some(field::timestamp(consumer.created_at)),
            update_time: Some(field::timestamp(consumer.updated_at)),
        }
    }
}

impl TryFrom<v1::Consumer> for Consumer {
    type Error = Invalid;

    fn try_from(wire: v1::Consumer) -> Result<Self, Invalid> {
        Ok(Self {
            id: field::name(&wire.name, "name")?,
            generation: Generation(wire.generation),
            project: characters(wire.project, "project", OWNER_MAX)?,
            user: characters(wire.user, "user", OWNER_MAX)?,
            consumer_type: read_consumer_type(&wire.consumer_type)?,
            origin: field::optional(wire.origin, "origin")?,
            created_at: field::time(wire.create_time, "create_time")?,
            updated_at: field::time(wire.update_time, "update_time")?,
            allocations: read_allocations(wire.allocations, "allocations")?,
        })
    }
}

impl From<&ConsumerUpdate> for v1::ConsumerUpdate {
    fn from(update: &ConsumerUpdate) -> Self {
        let generation = match update.generation {
            ConsumerGeneration::Any | ConsumerGeneration::New => None,
            ConsumerGeneration::Exactly(generation) => Some(generation.0),
        };
        Self {
            consumer: update.consumer.resource_name(),
            generation,
            any_generation: update.generation == ConsumerGeneration::Any,
            consumer_type: write_consumer_type(update.consumer_type.as_ref()),
            project: update.project.clone(),
            user: update.user.clone(),
            allocations: write_allocations(&update.allocations),
        }
    }
}

impl TryFrom<v1::ConsumerUpdate> for ConsumerUpdate {
    type Error = Invalid;

    fn try_from(wire: v1::ConsumerUpdate) -> Result<Self, Invalid> {
        Ok(Self {
            consumer: field::name(&wire.consumer, "consumer")?,
            generation: match (wire.generation, wire.any_generation) {
                (None, true) => ConsumerGeneration::Any,
                (None, false) => ConsumerGeneration::New,
                (Some(generation), false) => ConsumerGeneration::Exactly(Generation(generation)),
                (Some(_), true) => {
                    let rule = "must not be set together with any_generation";
                    return Err(Invalid::new("generation", rule));
                }
            },
            consumer_type: read_consumer_type(&wire.consumer_type)?,
            project: characters(wire.project, "project", OWNER_MAX)?,
            user: characters(wire.user, "user", OWNER_MAX)?,
            allocations: read_allocations(wire.allocations, "allocations")?,
        })
    }
}

pub(super) fn write_allocations(
    allocations: &BTreeMap<ProviderId, Resources>,
) -> Vec<v1::Allocation> {
    allocations
        .iter()
        .map(|(provider, resources)| v1::Allocation {
            resource_provider: provider.resource_name(),
            resources: field::amounts(resources),
        })
        .collect()
}

pub(super) fn read_allocations(
    wire: Vec<v1::Allocation>,
    field: &str,
) -> Result<BTreeMap<ProviderId, Resources>, Invalid> {
    let count = wire.len();
    let pairs: Vec<(ProviderId, Resources)> = field::each_by(wire, field, LIST_MAX, |a| {
        Ok((
            field::name(&a.resource_provider, "resource_provider")?,
            field::resources(a.resources, "resources")?,
        ))
    })?;
    let allocations: BTreeMap<_, _> = pairs.into_iter().collect();
    if allocations.len() < count {
        return Err(Invalid::new(field, "must name each provider once"));
    }
    Ok(allocations)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_fields_of_an_inventory_get_their_defaults() {
        let mut wire = v1::Inventory {
            total: 8,
            ..v1::Inventory::default()
        };
        fill_defaults(&mut wire);
        assert_eq!(Inventory::try_from(wire), Ok(Inventory::exact(8)));
    }

    #[test]
    fn a_provider_named_twice_is_refused() {
        let allocation = v1::Allocation {
            resource_provider: "resourceProviders/01234567-89ab-cdef-0123-456789abcdef".into(),
            resources: [("VCPU".to_owned(), 1)].into(),
        };
        let error = read_allocations(vec![allocation.clone(), allocation], "allocations");
        assert_eq!(
            error.unwrap_err().to_string(),
            "allocations: must name each provider once"
        );
    }
}
