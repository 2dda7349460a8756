//! The writes of counted placement: from their requests to commands.

use std::collections::BTreeMap;

use berth_domain::id::{Generation, ProviderId};
use berth_proto::convert::placement::{
    fill_defaults, read_aggregates, read_class, read_display_name, read_inventories, read_trait,
    read_traits,
};
use berth_proto::convert::{Invalid, field};
use berth_proto::placement::v1;
use berth_proto::placement::v1::write::Write;
use berth_state::command::{Command, ProviderInventories};
use uuid::Uuid;

use super::keyed::Keyed;

/// The most consumers whose allocations, or providers whose inventories, are replaced at once.
const CONSUMERS_MAX: usize = 1000;

/// The most writes of a batch.
const WRITES_MAX: usize = 1000;

pub(super) fn create_provider(wire: v1::CreateResourceProviderRequest) -> Result<Command, Invalid> {
    let id: Option<ProviderId> = field::optional_name(&wire.name, "name")?;
    Ok(Command::CreateProvider {
        id: id.unwrap_or_else(|| ProviderId(Uuid::new_v4())),
        name: read_display_name(wire.display_name)?,
        parent: field::optional_name(&wire.parent, "parent")?,
    })
}

pub(super) fn update_provider(wire: v1::UpdateResourceProviderRequest) -> Result<Command, Invalid> {
    let parent = wire.parent.as_deref();
    Ok(Command::UpdateProvider {
        id: field::name(&wire.name, "name")?,
        name: wire.display_name.map(read_display_name).transpose()?,
        parent: parent
            .map(|parent| field::optional_name(parent, "parent"))
            .transpose()?,
        reparent: true,
    })
}

pub(super) fn put_inventory(mut wire: v1::PutInventoryRequest) -> Result<Command, Invalid> {
    wire.inventory.iter_mut().for_each(fill_defaults);
    Ok(Command::PutInventory {
        provider: field::name(&wire.resource_provider, "resource_provider")?,
        generation: wire.generation.map(Generation),
        class: read_class(&wire.resource_class, "resource_class")?,
        inventory: field::required(wire.inventory, "inventory")?,
        create: wire.create,
    })
}

pub(super) fn reshape(wire: v1::ReshapeRequest) -> Result<Command, Invalid> {
    let count = wire.providers.len();
    if count == 0 {
        return Err(Invalid::new("providers", "must name at least one"));
    }
    let read = |mut one: v1::ProviderInventories| {
        one.inventories.values_mut().for_each(fill_defaults);
        let after = ProviderInventories {
            generation: Generation(one.generation),
            inventories: read_inventories(one.inventories, "inventories")?,
        };
        let provider: ProviderId = field::name(&one.resource_provider, "resource_provider")?;
        Ok((provider, after))
    };
    let providers = field::each_by(wire.providers, "providers", CONSUMERS_MAX, read)?;
    let inventories: BTreeMap<_, _> = providers.into_iter().collect();
    if inventories.len() < count {
        return Err(Invalid::new("providers", "must name each provider once"));
    }
    Ok(Command::Reshape {
        inventories,
        consumers: field::each(wire.consumers, "consumers", CONSUMERS_MAX)?,
    })
}

pub(super) fn replace_inventories(
    mut wire: v1::ReplaceInventoriesRequest,
) -> Result<Command, Invalid> {
    wire.inventories.values_mut().for_each(fill_defaults);
    Ok(Command::SetInventories {
        provider: field::name(&wire.resource_provider, "resource_provider")?,
        generation: Generation(wire.generation),
        inventories: read_inventories(wire.inventories, "inventories")?,
    })
}

pub(super) fn delete_provider(wire: v1::DeleteResourceProviderRequest) -> Result<Command, Invalid> {
    Ok(Command::DeleteProvider {
        id: field::name(&wire.name, "name")?,
    })
}

pub(super) fn delete_inventory(wire: v1::DeleteInventoryRequest) -> Result<Command, Invalid> {
    Ok(Command::DeleteInventory {
        provider: field::name(&wire.resource_provider, "resource_provider")?,
        class: read_class(&wire.resource_class, "resource_class")?,
    })
}

pub(super) fn replace_traits(wire: v1::ReplaceTraitsRequest) -> Result<Command, Invalid> {
    Ok(Command::SetTraits {
        provider: field::name(&wire.resource_provider, "resource_provider")?,
        generation: Generation(wire.generation),
        traits: read_traits(wire.traits, "traits")?,
    })
}

pub(super) fn replace_aggregates(wire: v1::ReplaceAggregatesRequest) -> Result<Command, Invalid> {
    Ok(Command::SetAggregates {
        provider: field::name(&wire.resource_provider, "resource_provider")?,
        generation: wire.generation.map(Generation),
        aggregates: read_aggregates(wire.aggregates, "aggregates")?,
    })
}

pub(super) fn replace_allocations(wire: v1::ReplaceAllocationsRequest) -> Result<Command, Invalid> {
    Ok(Command::SetAllocations {
        consumers: field::each(wire.consumers, "consumers", CONSUMERS_MAX)?,
    })
}

pub(super) fn delete_allocations(wire: v1::DeleteAllocationsRequest) -> Result<Command, Invalid> {
    Ok(Command::DeleteAllocations {
        consumer: field::name(&wire.consumer, "consumer")?,
    })
}

pub(super) fn create_class(wire: v1::CreateResourceClassRequest) -> Result<Command, Invalid> {
    Ok(Command::CreateClass {
        class: read_class(&wire.name, "name")?,
    })
}

pub(super) fn delete_class(wire: v1::DeleteResourceClassRequest) -> Result<Command, Invalid> {
    Ok(Command::DeleteClass {
        class: read_class(&wire.name, "name")?,
    })
}

pub(super) fn create_trait(wire: v1::CreateTraitRequest) -> Result<Command, Invalid> {
    Ok(Command::CreateTrait {
        name: read_trait(&wire.name, "name")?,
    })
}

pub(super) fn delete_trait(wire: v1::DeleteTraitRequest) -> Result<Command, Invalid> {
    Ok(Command::DeleteTrait {
        name: read_trait(&wire.name, "name")?,
    })
}

/// Reads a batch. Its length in bytes is bounded by what is read of any request.
pub(super) fn batch(wire: v1::BatchWriteRequest) -> Result<Command, Invalid> {
    if wire.writes.is_empty() {
        return Err(Invalid::new("writes", "must hold at least one"));
    }
    let writes = field::each_by(wire.writes, "writes", WRITES_MAX, write)?;
    let consumers = writes.iter().map(consumers).sum();
    field::bounded(consumers, "writes: the consumers", CONSUMERS_MAX)?;
    let reshaped = writes.iter().map(reshaped).sum();
    field::bounded(reshaped, "writes: the providers to reshape", CONSUMERS_MAX)?;
    Ok(Command::Batch { writes })
}

fn consumers(write: &Command) -> usize {
    if let Command::SetAllocations { consumers } | Command::Reshape { consumers, .. } = write {
        return consumers.len();
    }
    0
}

fn reshaped(write: &Command) -> usize {
    if let Command::Reshape { inventories, .. } = write {
        return inventories.len();
    }
    0
}

fn write(wire: v1::Write) -> Result<Command, Invalid> {
    let write = wire
        .write
        .ok_or_else(|| Invalid::here("must be one of the known writes"))?;
    match write {
        Write::CreateResourceProvider(wire) => {
            one("create_resource_provider", wire, create_provider)
        }
        Write::UpdateResourceProvider(wire) => {
            one("update_resource_provider", wire, update_provider)
        }
        Write::DeleteResourceProvider(wire) => {
            one("delete_resource_provider", wire, delete_provider)
        }
        Write::ReplaceInventories(wire) => one("replace_inventories", wire, replace_inventories),
        Write::PutInventory(wire) => one("put_inventory", wire, put_inventory),
        Write::DeleteInventory(wire) => one("delete_inventory", wire, delete_inventory),
        Write::ReplaceTraits(wire) => one("replace_traits", wire, replace_traits),
        Write::ReplaceAggregates(wire) => one("replace_aggregates", wire, replace_aggregates),
        Write::ReplaceAllocations(wire) => one("replace_allocations", wire, replace_allocations),
        Write::DeleteAllocations(wire) => one("delete_allocations", wire, delete_allocations),
        Write::Reshape(wire) => one("reshape", wire, reshape),
        Write::CreateResourceClass(wire) => one("create_resource_class", wire, create_class),
        Write::DeleteResourceClass(wire) => one("delete_resource_class", wire, delete_class),
        Write::CreateTrait(wire) => one("create_trait", wire, create_trait),
        Write::DeleteTrait(wire) => one("delete_trait", wire, delete_trait),
    }
}

/// Reads one write; it is the batch that is repeated, not a part of it.
fn one<W: Keyed>(
    field: &str,
    mut wire: W,
    read: impl FnOnce(W) -> Result<Command, Invalid>,
) -> Result<Command, Invalid> {
    let command = match wire.take_request_id().is_empty() {
        true => read(wire),
        false => Err(Invalid::new(
            "request_id",
            "must be empty: the batch has one",
        )),
    };
    command.map_err(|invalid| invalid.within(field))
}
