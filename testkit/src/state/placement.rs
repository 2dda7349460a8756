//! Providers, inventories and consumers in few words.

use std::collections::BTreeMap;

use berth_domain::allocation::{ConsumerGeneration, Resources};
use berth_domain::id::{AggregateId, ConsumerId, Generation, ProviderId};
use berth_domain::inventory::Inventory;
use berth_domain::resource::{ResourceClass, Trait};
use berth_state::command::{Command, ConsumerUpdate, ProviderInventories};

use super::{World, reason, uuid};

/// Returns the id of a resource provider.
pub fn provider(number: u64) -> ProviderId {
    ProviderId(uuid(20, number))
}

/// Returns the id of a consumer.
pub fn consumer(number: u64) -> ConsumerId {
    ConsumerId(uuid(21, number))
}

/// Returns the id of an aggregate.
pub fn aggregate(number: u64) -> AggregateId {
    AggregateId(uuid(22, number))
}

/// Returns a resource class.
pub fn class(text: &str) -> ResourceClass {
    ResourceClass::new(text).unwrap()
}

/// Returns a trait.
pub fn quality(text: &str) -> Trait {
    Trait::new(text).unwrap()
}

/// Returns the command that creates a provider.
pub fn create(number: u64, parent: Option<u64>) -> Command {
    Command::CreateProvider {
        id: provider(number),
        name: format!("p{number}"),
        parent: parent.map(provider),
    }
}

/// Moves a provider; the last argument says whether it may leave a parent.
pub fn place(number: u64, parent: Option<u64>, reparent: bool) -> Command {
    Command::UpdateProvider {
        id: provider(number),
        name: None,
        parent: Some(parent.map(provider)),
        reparent,
    }
}

/// Returns the command that deletes a provider.
pub fn delete(number: u64) -> Command {
    Command::DeleteProvider {
        id: provider(number),
    }
}

/// Returns inventories without reserved amounts and ratios.
pub fn exact(totals: &[(&str, u64)]) -> BTreeMap<ResourceClass, Inventory> {
    totals
        .iter()
        .map(|(name, total)| (class(name), Inventory::exact(*total)))
        .collect()
}

/// Returns the command that replaces a provider's inventories.
pub fn inventories(number: u64, generation: u64, totals: &[(&str, u64)]) -> Command {
    Command::SetInventories {
        provider: provider(number),
        generation: Generation(generation),
        inventories: exact(totals),
    }
}

/// Returns the command that replaces a provider's traits.
pub fn traits(number: u64, generation: u64, names: &[&str]) -> Command {
    Command::SetTraits {
        provider: provider(number),
        generation: Generation(generation),
        traits: names.iter().map(|n| quality(n)).collect(),
    }
}

/// Returns the command that creates a custom resource class.
pub fn new_class(name: &str) -> Command {
    Command::CreateClass { class: class(name) }
}

/// Returns the command that creates a custom trait.
pub fn new_trait(name: &str) -> Command {
    Command::CreateTrait {
        name: quality(name),
    }
}

/// What a consumer takes from now on; without a generation it must be new.
pub fn update(
    number: u64,
    generation: Option<u64>,
    allocations: &[(u64, &str, u64)],
) -> ConsumerUpdate {
    let mut by_provider: BTreeMap<ProviderId, Resources> = BTreeMap::new();
    for (from, name, amount) in allocations {
        let resources = by_provider.entry(provider(*from)).or_default();
        resources.insert(class(name), *amount);
    }
    ConsumerUpdate {
        consumer: consumer(number),
        generation: generation.map_or(ConsumerGeneration::New, |generation| {
            ConsumerGeneration::Exactly(Generation(generation))
        }),
        project: "project".to_owned(),
        user: "user".to_owned(),
        consumer_type: None,
        allocations: by_provider,
    }
}

/// What a provider has after a reshape that saw this generation.
pub fn after(
    number: u64,
    generation: u64,
    totals: &[(&str, u64)],
) -> (ProviderId, ProviderInventories) {
    let after = ProviderInventories {
        generation: Generation(generation),
        inventories: exact(totals),
    };
    (provider(number), after)
}

/// Replaces the allocations of consumers; returns the reason of the refusal, or `ok`.
pub fn set(world: &mut World, updates: &[ConsumerUpdate]) -> String {
    let outcome = world.run(Command::SetAllocations {
        consumers: updates.to_vec(),
    });
    reason(&outcome).to_owned()
}

/// Returns the generation of a provider.
pub fn generation(world: &World, number: u64) -> u64 {
    world.state.provider(provider(number)).unwrap().generation.0
}

/// Returns how much of a class a provider's consumers use.
pub fn used(world: &World, number: u64, name: &str) -> u64 {
    let used = world.state.used_of(provider(number));
    used.get(&class(name)).copied().unwrap_or(0)
}
